//! Durations of operations, by name, for the metrics page.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Upstream's buckets of store requests, in seconds.
const STORE: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// Values counted in buckets.
#[derive(Clone, Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Values in each bucket, not cumulative.
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Histogram {
    /// Returns an empty histogram with these upper bounds, in rising order.
    pub fn new(bounds: &'static [f64]) -> Self {
        Histogram {
            bounds,
            counts: vec![0; bounds.len()],
            count: 0,
            sum: 0.0,
        }
    }

    /// Adds a value.
    pub fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.count += 1;
        self.sum += value;
    }

    /// Returns each bound with the number of values up to it.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let up_to = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        self.bounds.iter().copied().zip(up_to)
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of the values.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

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
            .observe(begun.elapsed().as_secs_f64());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_up_to_each_bound() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 9.0] {
            histogram.observe(value);
        }
        assert_eq!(
            histogram.buckets().collect::<Vec<_>>(),
            [(1.0, 2), (2.0, 3)]
        );
        assert_eq!((histogram.count(), histogram.sum()), (4, 12.0));
    }
}
