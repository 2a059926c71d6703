//! Histograms on the metrics page.

use base_telemetry::MetricsPage;
use kv_raft::Histogram;

/// Writes a histogram without labels.
pub(super) fn write_histogram(
    page: &mut MetricsPage,
    name: &str,
    help: &str,
    histogram: &Histogram,
) {
    page.head(name, "histogram", help);
    write_buckets(page, name, "", histogram);
}

/// Writes the samples of a histogram.
pub(super) fn write_buckets(
    page: &mut MetricsPage,
    name: &str,
    labels: &str,
    histogram: &Histogram,
) {
    let (count, sum) = (histogram.count(), histogram.sum());
    page.histogram(name, labels, histogram.cumulative_counts(), count, sum);
}
