//! Metrics of syncs.

use base_telemetry::prometheus_client::metrics::counter::Counter;
use base_telemetry::prometheus_client::metrics::gauge::Gauge;
use base_telemetry::{Histogram, Metrics};

/// Bounds of the duration of a sync, in seconds: from 1 ms, doubling 14 times.
const SYNC_DURATIONS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];

pub(crate) struct PolicyMetrics {
    pub(crate) syncs: Counter,
    pub(crate) failures: Counter,
    pub(crate) duration: Histogram,
    pub(crate) policies: Gauge,
    /// Policies that allow nothing, because of a limit or a failed transaction.
    pub(crate) closed: Gauge,
    /// 1 if the rules of the last sync are in the kernel and bridges do not bypass them.
    pub(crate) enforced: Gauge,
}

impl PolicyMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        Self {
            syncs: metrics.register(
                "network_policy_syncs",
                "Changes of NetworkPolicy rules applied",
                Counter::default(),
            ),
            failures: metrics.register(
                "network_policy_sync_failures",
                "Changes of NetworkPolicy rules that failed",
                Counter::default(),
            ),
            duration: metrics.register(
                "network_policy_sync_duration_seconds",
                "Time to compute and apply a change of NetworkPolicy rules",
                Histogram::new(&SYNC_DURATIONS),
            ),
            policies: metrics.register(
                "network_policy_policies",
                "NetworkPolicies in the cluster",
                Gauge::default(),
            ),
            closed: metrics.register(
                "network_policy_closed",
                "NetworkPolicies that allow nothing on this node, because of a limit or a failed transaction",
                Gauge::default(),
            ),
            enforced: metrics.register(
                "network_policy_enforced",
                "1 if NetworkPolicies are enforced on this node as of the last sync, otherwise 0",
                Gauge::default(),
            ),
        }
    }
}
