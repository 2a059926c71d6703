//! Metrics of the gateway.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use base_telemetry::{MetricsPage, format_labels};
use http::StatusCode;

use crate::table::Scheme;

/// Classes of statuses, `1xx` to `5xx`.
const CLASSES: usize = 5;

/// Counters of the gateway.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    http: [AtomicU64; CLASSES],
    https: [AtomicU64; CLASSES],
    /// Endpoints that could not be connected.
    pub(crate) failed_connections: AtomicU64,
    /// Open WebSockets.
    pub(crate) websockets: AtomicI64,
    /// Rules of the routing table.
    pub(crate) rules: AtomicUsize,
    /// Computations of the routing table.
    pub(crate) computations: AtomicU64,
    /// Statuses that could not be written.
    pub(crate) failed_statuses: AtomicU64,
}

impl Metrics {
    /// Counts a response.
    pub(crate) fn count_response(&self, scheme: Scheme, status: StatusCode) {
        let counters = match scheme {
            Scheme::Http => &self.http,
            Scheme::Https => &self.https,
        };
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = counters.get(class) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the page of all metrics.
    pub(crate) fn encode(&self) -> String {
        let mut page = MetricsPage::default();
        let name = "ironclad_gateway_requests_total";
        page.head(
            name,
            "counter",
            "Responses by protocol and class of status.",
        );
        for (scheme, counters) in [(Scheme::Http, &self.http), (Scheme::Https, &self.https)] {
            for (class, counter) in counters.iter().enumerate() {
                let class = format!("{}xx", class + 1);
                let labels =
                    format_labels(&[("scheme", scheme.as_str()), ("code", class.as_str())]);
                page.sample(name, &labels, counter.load(Ordering::Relaxed) as f64);
            }
        }
        page.counter(
            "ironclad_gateway_failed_connections_total",
            "Endpoints that could not be connected.",
            self.failed_connections.load(Ordering::Relaxed) as f64,
        );
        page.gauge(
            "ironclad_gateway_websockets",
            "Open WebSockets.",
            self.websockets.load(Ordering::Relaxed) as f64,
        );
        page.gauge(
            "ironclad_gateway_rules",
            "Rules of the routing table.",
            self.rules.load(Ordering::Relaxed) as f64,
        );
        page.counter(
            "ironclad_gateway_computations_total",
            "Computations of the routing table.",
            self.computations.load(Ordering::Relaxed) as f64,
        );
        page.counter(
            "ironclad_gateway_failed_statuses_total",
            "Statuses that could not be written.",
            self.failed_statuses.load(Ordering::Relaxed) as f64,
        );
        page.finish()
    }
}
