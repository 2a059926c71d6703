//! Metrics of announcements.

use base_telemetry::Metrics;
use base_telemetry::prometheus_client::metrics::counter::Counter;
use base_telemetry::prometheus_client::metrics::gauge::Gauge;

/// The metrics.
#[derive(Debug)]
pub struct AnnounceMetrics {
    pub(crate) addresses: Gauge,
    pub(crate) members: Gauge,
    pub(crate) conflicts: Counter,
}

impl AnnounceMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            addresses: metrics.register(
                "load_balancer_announced_addresses",
                "Addresses of load balancers that this node announces",
                Gauge::default(),
            ),
            members: metrics.register(
                "load_balancer_other_announcers",
                "Other nodes of the link that announce addresses of load balancers",
                Gauge::default(),
            ),
            conflicts: metrics.register(
                "load_balancer_address_conflicts",
                "Announcements of other hosts for addresses that this node announces",
                Counter::default(),
            ),
        }
    }
}
