//! The metrics of requests. [`crate::metrics_page`] puts them on the page with those of other
//! parts.

use crate::context::Context;
use api_kinds::{Name, Resource, ResourceSet};
use base_telemetry::{Histogram, MetricsPage, format_labels};
use indexmap::{Equivalent, IndexMap};
use parking_lot::{Mutex, RwLock};
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

/// The labels of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Labels<'a> {
    verb: &'static str,
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    subresource: &'a str,
    scope: &'static str,
}

/// Owned labels. Only the first request with them copies the texts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
}

impl Key {
    fn labels(&self) -> Labels<'_> {
        Labels {
            verb: self.verb,
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            subresource: &self.subresource,
            scope: self.scope,
        }
    }
}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.labels().hash(state);
    }
}

impl Equivalent<Key> for Labels<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self == key.labels()
    }
}

impl From<Labels<'_>> for Key {
    fn from(labels: Labels<'_>) -> Self {
        Key {
            verb: labels.verb,
            group: labels.group.to_owned(),
            version: labels.version.to_owned(),
            resource: labels.resource.to_owned(),
            subresource: labels.subresource.to_owned(),
            scope: labels.scope,
        }
    }
}

/// The figures of requests with the same labels.
struct Series {
    requests: Mutex<BTreeMap<u16, u64>>,
    durations: Histogram,
    sizes: Histogram,
}

impl Default for Series {
    fn default() -> Self {
        Series {
            requests: Mutex::default(),
            durations: Histogram::new(&DURATIONS),
            sizes: Histogram::new(&SIZES),
        }
    }
}

/// The server's metrics.
#[derive(Default)]
pub struct ServerMetrics {
    series: RwLock<IndexMap<Key, Arc<Series>>>,
    events: Mutex<BTreeMap<(Name, Name, Name), Arc<AtomicU64>>>,
    reading: Arc<AtomicI64>,
    mutating: Arc<AtomicI64>,
    watches: Arc<AtomicI64>,
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
        let series = self.find_series(request_labels(set, context));
        series.durations.observe_duration(took);
        // Streams have no known size, and are not counted.
        if let Some(size) = size {
            series.sizes.observe(size as f64);
        }
        *series.requests.lock().entry(code).or_default() += 1;
    }

    fn find_series(&self, labels: Labels<'_>) -> Arc<Series> {
        if let Some(series) = self.series.read().get(&labels) {
            return series.clone();
        }
        let mut all = self.series.write();
        all.entry(labels.into()).or_default().clone()
    }

    /// Returns all series in the order of their labels.
    fn list_series(&self) -> Vec<(Key, Arc<Series>)> {
        let all = self.series.read();
        let pairs = all.iter();
        let mut sorted: Vec<_> = pairs.map(|(key, s)| (key.clone(), s.clone())).collect();
        sorted.sort_by(|(a, _), (b, _)| a.labels().cmp(&b.labels()));
        sorted
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
        let all = self.list_series();
        for (key, series) in &all {
            for (code, count) in &*series.requests.lock() {
                let labels = format_request_labels(key, Some(*code));
                page.sample("apiserver_request_total", &labels, *count as f64);
            }
        }
        write_durations(page, &all);
        write_sizes(page, &all);
        self.write_events(page);
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

fn write_durations(page: &mut MetricsPage, all: &[(Key, Arc<Series>)]) {
    let name = "apiserver_request_duration_seconds";
    page.head(name, "histogram", "Time to answer, in seconds.");
    for (key, series) in all {
        page.histogram(name, &format_request_labels(key, None), &series.durations);
    }
    // Alerts of kubernetes-mixin are based on this name.
    let sli = "apiserver_request_sli_duration_seconds";
    page.head(
        sli,
        "histogram",
        "Time to answer, in seconds; watches are left out.",
    );
    // A watch lasts as long as its client wants, so that its duration is no service level.
    for (key, series) in all.iter().filter(|(key, _)| key.verb != "WATCH") {
        page.histogram(sli, &format_request_labels(key, None), &series.durations);
    }
}

fn write_sizes(page: &mut MetricsPage, all: &[(Key, Arc<Series>)]) {
    let name = "apiserver_response_sizes";
    page.head(name, "histogram", "Bytes of answers whose size is known.");
    for (key, series) in all.iter().filter(|(_, series)| series.sizes.count() > 0) {
        page.histogram(name, &format_request_labels(key, None), &series.sizes);
    }
}

fn request_labels<'a>(set: &'a ResourceSet, context: &'a Context) -> Labels<'a> {
    let info = &context.info;
    let found = match info.is_resource {
        true => set.find(&info.group, &info.version, &info.resource),
        false => None,
    };
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
    let (group, version, resource, subresource) = match found {
        Some(row) => {
            let subresource = row.subresource(&info.subresource);
            let subresource = subresource.map_or("", |found| found.name.as_ref());
            (&*row.group, &*row.version, &*row.plural, subresource)
        }
        // Unknown resources share one label, or a client could create series without bound.
        None if info.is_resource => ("", "", "", ""),
        None => ("", "", "", path_label(&info.path)),
    };
    Labels {
        // Paths that are no resources have one label, whatever the method, which a client chooses.
        verb: if info.is_resource {
            verb_label(&info.verb)
        } else {
            "GET"
        },
        group,
        version,
        resource,
        subresource,
        scope,
    }
}

fn verb_label(verb: &str) -> &'static str {
    match verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" => "CREATE",
        "update" => "UPDATE",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        "proxy" => "PROXY",
        // Other methods have no verb.
        _ => "",
    }
}

/// Returns the subresource label of a path that is no resource, as upstream; their number is
/// bounded.
fn path_label(path: &str) -> &str {
    let known = ["/livez", "/readyz", "/healthz", "/metrics", "/version"].contains(&path);
    if known { path } else { "" }
}

fn format_request_labels(key: &Key, code: Option<u16>) -> String {
    let mut all = Vec::new();
    if let Some(code) = code {
        all.push(("code", code.to_string()));
    }
    all.extend([
        ("group", key.group.clone()),
        ("resource", key.resource.clone()),
        ("scope", key.scope.to_owned()),
        ("subresource", key.subresource.clone()),
        ("verb", key.verb.to_owned()),
        ("version", key.version.clone()),
    ]);
    format_labels(&all)
}
