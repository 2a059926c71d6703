//! Prometheus' text format.

use kv_raft::Histogram;
use std::fmt::Write;

/// A page under construction.
pub(super) struct Page(pub String);

impl Page {
    pub fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string can't fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes a line. Empty labels are omitted.
    pub fn labelled(&mut self, name: &str, labels: &str, value: f64) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        self.labelled(name, "", value);
    }

    pub fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "counter");
        self.labelled(name, "", value);
    }

    /// Writes a gauge of value 1 whose label carries the information.
    pub fn fact(&mut self, name: &str, help: &str, label: &str, value: &str) {
        self.head(name, help, "gauge");
        self.labelled(name, &format!("{label}=\"{value}\""), 1.0);
    }

    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, help, "histogram");
        self.buckets(name, "", histogram);
    }

    /// Writes the lines of a histogram.
    pub fn buckets(&mut self, name: &str, labels: &str, histogram: &Histogram) {
        let comma = if labels.is_empty() { "" } else { "," };
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.within() {
            self.labelled(
                &bucket,
                &format!("{labels}{comma}le=\"{bound}\""),
                count as f64,
            );
        }
        self.labelled(
            &bucket,
            &format!("{labels}{comma}le=\"+Inf\""),
            histogram.count() as f64,
        );
        self.labelled(&format!("{name}_sum"), labels, histogram.sum());
        self.labelled(&format!("{name}_count"), labels, histogram.count() as f64);
    }
}
