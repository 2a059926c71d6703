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
