//! Order statistics of measured durations.

use serde_json::{Value, json};
use std::time::Duration;

/// Returns median, 90th percentile and maximum of `samples`, in milliseconds, and the total
/// duration.
pub fn summary(mut samples: Vec<Duration>, whole: Duration) -> Value {
    samples.sort();
    let at = |part: f64| {
        let found = find_percentile(&samples, part);
        (found.as_secs_f64() * 10_000.0).round() / 10.0
    };
    json!({"count": samples.len(), "median_ms": at(0.5), "p90_ms": at(0.9), "max_ms": at(1.0),
        "whole_s": (whole.as_secs_f64() * 100.0).round() / 100.0})
}

/// Returns the sample below which `part` (0 to 1) of the sorted samples lie; zero without samples.
pub fn find_percentile(sorted: &[Duration], part: f64) -> Duration {
    let index = (sorted.len().saturating_sub(1) as f64 * part).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_statistics() {
        let samples = (1..=11).map(Duration::from_millis).collect();
        let figures = summary(samples, Duration::from_secs(2));
        assert_eq!(figures["median_ms"], 6.0);
        assert_eq!(figures["p90_ms"], 10.0);
        assert_eq!(figures["max_ms"], 11.0);
    }
}
