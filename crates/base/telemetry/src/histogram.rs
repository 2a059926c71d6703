//! A histogram that any number of threads observe values in, for both forms of metrics pages.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Default bounds in seconds: from 1 ms, doubling up to 8.192 s.
const DEFAULT_BOUNDS: [f64; 14] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192,
];

/// Values counted in buckets. Cheap to clone; clones share the counts.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    bounds: &'static [f64],
    /// Values in each bucket, not cumulative; the last one has the values above every bound.
    counts: Box<[AtomicU64]>,
    /// Bits of the sum as a floating-point number.
    sum: AtomicU64,
}

impl Default for Histogram {
    /// Returns an empty histogram with bounds in seconds from 1 ms, doubling up to 8.192 s.
    fn default() -> Self {
        Self::new(&DEFAULT_BOUNDS)
    }
}

impl Histogram {
    /// Returns an empty histogram with these upper bounds, in rising order.
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Buckets {
            bounds,
            counts,
            sum: AtomicU64::new(0.0_f64.to_bits()),
        }))
    }

    /// Adds a value.
    pub fn observe(&self, value: f64) {
        let at = self.0.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.0.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let add = |sum: u64| Some((f64::from_bits(sum) + value).to_bits());
        let _ = self
            .0
            .sum
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Adds a duration, in seconds.
    pub fn observe_duration(&self, took: Duration) {
        self.observe(took.as_secs_f64());
    }

    /// Returns each upper bound with the number of values that do not exceed it; the last bound is
    /// infinite.
    pub fn cumulative_counts(&self) -> Vec<(f64, u64)> {
        let mut total = 0;
        self.bounded_counts()
            .map(|(bound, count)| {
                total += count;
                (bound, total)
            })
            .collect()
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        // Not a counter of its own: a scrape between two additions would show fewer values than
        // the last bucket, which Prometheus takes for a broken histogram.
        self.bounded_counts().map(|(_, count)| count).sum()
    }

    /// Returns the sum of the values.
    pub fn sum(&self) -> f64 {
        f64::from_bits(self.0.sum.load(Ordering::Relaxed))
    }

    fn bounded_counts(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.0.bounds.iter().copied().chain([f64::INFINITY]);
        bounds
            .zip(&self.0.counts)
            .map(|(bound, count)| (bound, count.load(Ordering::Relaxed)))
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts: Vec<(f64, u64)> = self.bounded_counts().collect();
        let total = counts.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum(), total, &counts, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Metrics, MetricsPage};

    fn observed(values: &[f64]) -> Histogram {
        let histogram = Histogram::new(&[1.0, 2.0]);
        values.iter().for_each(|value| histogram.observe(*value));
        histogram
    }

    #[test]
    fn value_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = observed(&[-1.0, 0.5, 1.0, 1.5, 9.0]);
        assert_eq!(
            histogram.cumulative_counts(),
            [(1.0, 3), (2.0, 4), (f64::INFINITY, 5)]
        );
        assert_eq!((histogram.count(), histogram.sum()), (5, 11.0));
    }

    #[test]
    fn durations_are_counted_in_seconds() {
        let histogram = Histogram::default();
        histogram.observe_duration(Duration::from_millis(3));
        let counts = histogram.cumulative_counts();
        assert_eq!(counts[..3], [(0.001, 0), (0.002, 0), (0.004, 1)]);
        assert!((histogram.sum() - 0.003).abs() < 1e-9);
    }

    #[test]
    fn clones_share_the_counts_across_threads() {
        let histogram = observed(&[]);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let own = histogram.clone();
                std::thread::spawn(move || (0..1000).for_each(|_| own.observe(0.5)))
            })
            .collect();
        assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
        assert_eq!((histogram.count(), histogram.sum()), (4000, 2000.0));
    }

    #[test]
    fn both_forms_of_pages_show_the_same_buckets() {
        let histogram = observed(&[0.5, 9.0]);
        let mut page = MetricsPage::default();
        page.histogram("h", "", &histogram);
        let text = page.finish();
        let registry = Metrics::new();
        registry.register("h", "Help", histogram);
        let registered = registry.encode();
        for line in ["h_bucket{le=\"+Inf\"} 2", "h_count 2", "h_sum 9.5"] {
            assert!(text.contains(line), "{text}");
            assert!(registered.contains(line), "{registered}");
        }
        assert!(text.contains("h_bucket{le=\"1\"} 1"), "{text}");
        assert!(
            registered.contains("h_bucket{le=\"1.0\"} 1"),
            "{registered}"
        );
    }
}
