//! Histograms on the metrics page.

use base_telemetry::{Histogram, MetricsPage};

/// Writes a histogram without labels.
pub(crate) fn write_histogram(
    page: &mut MetricsPage,
    name: &str,
    help: &str,
    histogram: &Histogram,
) {
    page.head(name, "histogram", help);
    page.histogram(name, "", histogram);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn buckets_are_cumulative_and_end_with_infinity() {
        let histogram = Histogram::new(&[0.1, 1.0]);
        for milliseconds in [50, 500, 5_000] {
            histogram.observe_duration(Duration::from_millis(milliseconds));
        }
        let mut page = MetricsPage::default();
        write_histogram(&mut page, "x_seconds", "Time.", &histogram);
        let page = page.finish();
        for line in [
            "x_seconds_bucket{le=\"0.1\"} 1",
            "x_seconds_bucket{le=\"1\"} 2",
            "x_seconds_bucket{le=\"+Inf\"} 3",
            "x_seconds_count 3",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
    }
}
