//! Pages in Prometheus' text format 0.0.4, for metrics that are computed when they are read.
//!
//! A component whose counters live in its own data structures writes such a page; one that counts
//! for the metrics alone registers its counters in [`crate::Metrics`].

use crate::histogram::Histogram;
use std::fmt::Write;

/// A page under construction.
#[derive(Debug, Default)]
pub struct MetricsPage(String);

impl MetricsPage {
    /// Writes HELP and TYPE of a metric.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String can't fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes TYPE of a metric without a help text.
    pub fn kind(&mut self, name: &str, kind: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
    }

    /// Writes a sample. `labels` are those of [`format_labels`], or empty.
    pub fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let value = format_value(value);
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    /// Writes a gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.sample(name, "", value);
    }

    /// Writes a counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "counter", help);
        self.sample(name, "", value);
    }

    /// Writes a gauge of value 1 whose label has the information.
    pub fn info(&mut self, name: &str, help: &str, label: &str, value: &str) {
        self.head(name, "gauge", help);
        self.sample(name, &format_labels(&[(label, value)]), 1.0);
    }

    /// Writes the samples of a histogram: its upper bounds with the number of values up to each,
    /// the sum of all values and their number.
    pub fn histogram(&mut self, name: &str, labels: &str, histogram: &Histogram) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut total = 0;
        for (bound, count) in histogram.cumulative_counts() {
            let bound = format_value(bound);
            let _ = writeln!(
                self.0,
                "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}"
            );
            total = count;
        }
        self.sample(&format!("{name}_sum"), labels, histogram.sum());
        // The total of the same reading as the buckets, which other threads may have left behind.
        self.sample(&format!("{name}_count"), labels, total as f64);
    }

    /// Writes the expiration of each certificate of the process: flag, file, and seconds since
    /// 1970.
    ///
    /// Upstream has a metric for the kubelet only, of the remaining time:
    /// `kubelet_certificate_manager_client_ttl_seconds`.
    pub fn add_certificate_expirations(&mut self, all: &[(&str, String, i64)]) {
        const NAME: &str = "ironclad_certificate_expiration_timestamp_seconds";
        let help = "End of the validity of the certificates in the files of this process, in seconds since 1970.";
        self.head(NAME, "gauge", help);
        for (flag, file, end) in all {
            let labels = format_labels(&[("flag", *flag), ("file", file)]);
            self.sample(NAME, &labels, *end as f64);
        }
    }

    /// Returns the text.
    pub fn finish(self) -> String {
        self.0
    }
}

fn format_value(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        finite => finite.to_string(),
    }
}

/// Formats labels, with their values escaped.
pub fn format_labels<V: AsRef<str>>(labels: &[(&str, V)]) -> String {
    let escape = |text: &str| {
        // The backslash first, or the escapes of the others would be escaped again.
        text.replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    };
    let pairs: Vec<String> = labels
        .iter()
        .map(|(label, value)| format!("{label}=\"{}\"", escape(value.as_ref())))
        .collect();
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_escaped_labels() {
        let mut page = MetricsPage::default();
        page.head("a_total", "counter", "Things.");
        let labels = format_labels(&[("x", "1\""), ("y", "a\\\n")]);
        page.sample("a_total", &labels, 2.0);
        page.gauge("b", "Share.", 0.5);
        page.sample("c", "", f64::INFINITY);
        assert_eq!(
            page.finish(),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\\\"\",y=\"a\\\\\\n\"} 2\n\
             # HELP b Share.\n# TYPE b gauge\nb 0.5\nc +Inf\n"
        );
    }

    #[test]
    fn histogram_ends_with_the_number_and_the_sum_of_all_values() {
        let histogram = Histogram::new(&[0.5, 2.0]);
        for value in [0.25, 1.0, 2.0, 6.25] {
            histogram.observe(value);
        }
        let write = |labels: &str| {
            let mut page = MetricsPage::default();
            page.histogram("h", labels, &histogram);
            page.finish()
        };
        assert_eq!(
            write(""),
            "h_bucket{le=\"0.5\"} 1\nh_bucket{le=\"2\"} 3\nh_bucket{le=\"+Inf\"} 4\nh_sum 9.5\nh_count 4\n"
        );
        assert_eq!(
            write("a=\"b\"").lines().next(),
            Some("h_bucket{a=\"b\",le=\"0.5\"} 1")
        );
    }
}
