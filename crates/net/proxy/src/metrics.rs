//! Metrics of syncs.

use base_telemetry::prometheus_client::metrics::counter::Counter;
use base_telemetry::{Histogram, Metrics};

/// Bounds of the duration of a sync, in seconds: from 1 ms, doubling 14 times.
pub(crate) const SYNC_DURATIONS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];

pub(crate) struct ProxyMetrics {
    pub(crate) syncs: Counter,
    pub(crate) failures: Counter,
    pub(crate) duration: Histogram,
}

impl ProxyMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        Self {
            syncs: metrics.register(
                "kubeproxy_sync_proxy_rules",
                "Transactions applied",
                Counter::default(),
            ),
            failures: metrics.register(
                "kubeproxy_sync_proxy_rules_nftables_sync_failures",
                "Transactions refused",
                Counter::default(),
            ),
            duration: metrics.register(
                "kubeproxy_sync_proxy_rules_duration_seconds",
                "Time to compute and apply a change",
                Histogram::new(&SYNC_DURATIONS),
            ),
        }
    }
}
