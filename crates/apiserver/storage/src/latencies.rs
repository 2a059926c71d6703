//! Durations of operations, by name, for the metrics page.

use base_telemetry::Histogram;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Upstream's buckets of store requests, in seconds.
const STORE: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// Durations of operations, in seconds; clones share them.
#[derive(Clone, Debug)]
pub struct LatencyMetrics {
    bounds: &'static [f64],
    all: Arc<Mutex<BTreeMap<&'static str, Histogram>>>,
}

impl Default for LatencyMetrics {
    fn default() -> Self {
        LatencyMetrics::new(STORE)
    }
}

impl LatencyMetrics {
    /// Returns an empty set of histograms with these bounds, in seconds.
    pub fn new(bounds: &'static [f64]) -> Self {
        LatencyMetrics {
            bounds,
            all: Arc::default(),
        }
    }

    /// Adds one operation that began at `begun`.
    pub fn record_duration(&self, name: &'static str, begun: Instant) {
        let mut all = self.all.lock();
        all.entry(name)
            .or_insert_with(|| Histogram::new(self.bounds))
            .observe_duration(begun.elapsed());
    }

    /// Returns name and durations of each.
    pub fn list_histograms(&self) -> Vec<(&'static str, Histogram)> {
        self.all
            .lock()
            .iter()
            .map(|(name, durations)| (*name, durations.clone()))
            .collect()
    }
}
