//! Durations of operations, by name, for the metrics page.

use base_telemetry::Histogram;
use parking_lot::Mutex;
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
    /// A few dozen, so that comparing addresses finds a name faster than comparing texts.
    all: Arc<Mutex<Vec<(&'static str, Histogram)>>>,
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
        let took = begun.elapsed();
        let mut all = self.all.lock();
        let at = all
            .iter()
            .position(|(known, _)| std::ptr::eq(*known, name))
            .or_else(|| all.iter().position(|(known, _)| *known == name));
        let at = at.unwrap_or_else(|| {
            all.push((name, Histogram::new(self.bounds)));
            all.len() - 1
        });
        if let Some((_, durations)) = all.get_mut(at) {
            durations.observe_duration(took);
        }
    }

    /// Returns name and durations of each, sorted by name.
    pub fn list_histograms(&self) -> Vec<(&'static str, Histogram)> {
        let mut all = self.all.lock().clone();
        all.sort_by_key(|(name, _)| *name);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_by_name_and_listed_in_order() {
        let latencies = LatencyMetrics::default();
        // A text at another address has the same name.
        let copy: &'static str = String::from("update").leak();
        for name in ["update", "create", copy, "create", "update", "get"] {
            latencies.record_duration(name, Instant::now());
        }
        let all = latencies.list_histograms();
        let counts: Vec<_> = all.iter().map(|(name, all)| (*name, all.count())).collect();
        assert_eq!(counts, [("create", 2), ("get", 1), ("update", 3)]);
    }
}
