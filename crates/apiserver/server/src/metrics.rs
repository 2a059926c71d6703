//! The metrics of requests. [`crate::metrics_page`] puts them on the page with those of other
//! parts.

use crate::context::Context;
use api_kinds::{Name, Resource, ResourceSet};
use base_telemetry::{Histogram, MetricsPage, format_labels};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Upstream's buckets of request durations, in seconds.
const DURATIONS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
/// Upstream's buckets of response sizes, in bytes.
const SIZES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
}

/// The server's metrics.
#[derive(Default)]
pub struct ServerMetrics {
    requests: Mutex<BTreeMap<(Key, u16), u64>>,
    durations: Mutex<BTreeMap<Key, Histogram>>,
    events: Mutex<BTreeMap<(Name, Name, Name), Arc<AtomicU64>>>,
    reading: Arc<AtomicI64>,
    mutating: Arc<AtomicI64>,
    watches: Arc<AtomicI64>,
    sizes: Mutex<BTreeMap<Key, Histogram>>,
    authenticated: AtomicU64,
    refused: AtomicU64,
}

/// A gauge that is incremented while this value lives.
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    fn new(counter: &Arc<AtomicI64>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Gauge(counter.clone())
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The number of events that were sent to watchers of a kind.
pub struct EventCounter(Arc<AtomicU64>);

impl EventCounter {
    /// Counts an event.
    pub fn count_event(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl ServerMetrics {
    /// Records the start of a request.
    pub fn begin_request(&self, context: &Context) -> Gauge {
        let reads = matches!(context.info.verb.as_str(), "get" | "list" | "watch");
        Gauge::new(if reads { &self.reading } else { &self.mutating })
    }

    /// Records the end of a request.
    pub fn end_request(
        &self,
        begun: Gauge,
        set: &ResourceSet,
        context: &Context,
        code: u16,
        size: Option<u64>,
        took: Duration,
    ) {
        drop(begun);
        let key = request_key(set, context);
        let durations = || Histogram::new(&DURATIONS);
        self.durations
            .lock()
            .entry(key.clone())
            .or_insert_with(durations)
            .observe_duration(took);
        // Streams have no known size, and are not counted.
        if let Some(size) = size {
            self.sizes
                .lock()
                .entry(key.clone())
                .or_insert_with(|| Histogram::new(&SIZES))
                .observe(size as f64);
        }
        *self.requests.lock().entry((key, code)).or_default() += 1;
    }

    /// Counts a running watch while the gauge lives.
    pub fn begin_watch(&self) -> Gauge {
        Gauge::new(&self.watches)
    }

    /// Returns the counter of the events that are sent to watchers of a kind.
    pub fn count_events(&self, row: &Resource) -> EventCounter {
        let kind = (row.group.clone(), row.version.clone(), row.kind.clone());
        EventCounter(self.events.lock().entry(kind).or_default().clone())
    }

    /// Counts an authentication attempt.
    pub fn count_authentication(&self, ok: bool) {
        let counter = if ok {
            &self.authenticated
        } else {
            &self.refused
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes the metrics of requests and watch events.
    pub fn write_requests(&self, page: &mut MetricsPage) {
        page.head(
            "apiserver_request_total",
            "counter",
            "Requests by verb, resource and code.",
        );
        for ((key, code), count) in &*self.requests.lock() {
            page.sample(
                "apiserver_request_total",
                &request_labels(key, Some(*code)),
                *count as f64,
            );
        }
        self.write_durations(page);
        self.write_sizes(page);
        self.write_events(page);
    }

    fn write_durations(&self, page: &mut MetricsPage) {
        page.head(
            "apiserver_request_duration_seconds",
            "histogram",
            "Time to answer, in seconds.",
        );
        for (key, durations) in &*self.durations.lock() {
            page.histogram(
                "apiserver_request_duration_seconds",
                &request_labels(key, None),
                durations,
            );
        }
        // Alerts of kubernetes-mixin are based on this name.
        let sli = "apiserver_request_sli_duration_seconds";
        page.head(
            sli,
            "histogram",
            "Time to answer, in seconds; watches are left out.",
        );
        for (key, durations) in self
            .durations
            .lock()
            .iter()
            // A watch lasts as long as its client wants, so that its duration is no service level.
            .filter(|(key, _)| key.verb != "WATCH")
        {
            page.histogram(sli, &request_labels(key, None), durations);
        }
    }

    fn write_sizes(&self, page: &mut MetricsPage) {
        page.head(
            "apiserver_response_sizes",
            "histogram",
            "Bytes of answers whose size is known.",
        );
        for (key, sizes) in &*self.sizes.lock() {
            page.histogram(
                "apiserver_response_sizes",
                &request_labels(key, None),
                sizes,
            );
        }
    }

    fn write_events(&self, page: &mut MetricsPage) {
        page.head(
            "apiserver_watch_events_total",
            "counter",
            "Events sent to watchers.",
        );
        for ((group, version, kind), count) in &*self.events.lock() {
            let labels = format_labels(&[("group", group), ("version", version), ("kind", kind)]);
            let count = count.load(Ordering::Relaxed);
            page.sample("apiserver_watch_events_total", &labels, count as f64);
        }
    }

    /// Writes the gauges of requests that are being served.
    pub fn write_activity(&self, page: &mut MetricsPage) {
        let load = |counter: &AtomicI64| counter.load(Ordering::Relaxed) as f64;
        page.head(
            "apiserver_current_inflight_requests",
            "gauge",
            "Requests that are being served.",
        );
        for (kind, counter) in [("readOnly", &self.reading), ("mutating", &self.mutating)] {
            page.sample(
                "apiserver_current_inflight_requests",
                &format_labels(&[("request_kind", kind)]),
                load(counter),
            );
        }
        page.head(
            "apiserver_longrunning_requests",
            "gauge",
            "Watches that are open.",
        );
        page.sample(
            "apiserver_longrunning_requests",
            &format_labels(&[("verb", "WATCH")]),
            load(&self.watches),
        );
    }

    /// Writes the counters of authentication attempts.
    pub fn write_authentication(&self, page: &mut MetricsPage) {
        page.head(
            "authentication_attempts",
            "counter",
            "Authentications by result.",
        );
        for (result, counter) in [("success", &self.authenticated), ("failure", &self.refused)] {
            page.sample(
                "authentication_attempts",
                &format_labels(&[("result", result)]),
                counter.load(Ordering::Relaxed) as f64,
            );
        }
    }
}

fn request_key(set: &ResourceSet, context: &Context) -> Key {
    let info = &context.info;
    // Unknown resources share one label, or a client could create series without bound.
    let known = !info.is_resource
        || set
            .find(&info.group, &info.version, &info.resource)
            .is_some();
    let text = |t: &String| if known { t.clone() } else { String::new() };
    let scope = match (
        info.is_resource,
        info.name.is_empty(),
        info.namespace.is_empty(),
    ) {
        (false, ..) => "",
        (true, false, _) => "resource",
        (true, true, false) => "namespace",
        (true, true, true) => "cluster",
    };
    Key {
        verb: if info.is_resource {
            info.verb.to_ascii_uppercase()
        } else {
            // Paths that are no resources have one label, whatever the method, which a client
            // chooses.
            "GET".into()
        },
        group: text(&info.group),
        version: text(&info.version),
        resource: text(&info.resource),
        subresource: if known {
            subresource_label(set, context)
        } else {
            String::new()
        },
        scope,
    }
}

/// Returns the subresource label. As upstream, paths that are no resources count as subresources;
/// their number is bounded.
fn subresource_label(set: &ResourceSet, context: &Context) -> String {
    let info = &context.info;
    let known =
        |name: &str| ["/livez", "/readyz", "/healthz", "/metrics", "/version"].contains(&name);
    match info.is_resource {
        true => set
            .find(&info.group, &info.version, &info.resource)
            .and_then(|row| row.subresource(&info.subresource))
            .map(|s| s.name.clone().into_owned())
            .unwrap_or_default(),
        false if known(&info.path) => info.path.clone(),
        false => String::new(),
    }
}

fn request_labels(key: &Key, code: Option<u16>) -> String {
    let mut all = Vec::new();
    if let Some(code) = code {
        all.push(("code", code.to_string()));
    }
    all.extend([
        ("group", key.group.clone()),
        ("resource", key.resource.clone()),
        ("scope", key.scope.to_owned()),
        ("subresource", key.subresource.clone()),
        ("verb", key.verb.clone()),
        ("version", key.version.clone()),
    ]);
    format_labels(&all)
}
