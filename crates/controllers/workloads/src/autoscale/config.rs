//! Settings of the autoscaler.

use std::time::Duration;

/// Settings of the autoscaler.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of autoscalers that are reconciled at once.
    pub workers: usize,
    /// Interval between two reads of an autoscaler's metrics.
    pub period: Duration,
    /// Time for which the highest recommendation counts before a target shrinks.
    pub downscale_stabilization: Duration,
    /// Deviation of the ratio from 1 that does not change the size.
    pub tolerance: f64,
    /// Time after a pod's start in which CPU usage counts only if it was measured while ready.
    pub cpu_initialization_period: Duration,
    /// Time after a pod's start in which changes of its readiness count as its initial readiness.
    pub initial_readiness_delay: Duration,
}

impl Config {
    pub(super) fn stabilization_seconds(&self) -> i64 {
        i64::try_from(self.downscale_stabilization.as_secs()).unwrap_or(i64::MAX)
    }
}
