//! Writes a page in Prometheus' text format.

use std::fmt::Write;

/// The page being written.
#[derive(Default)]
pub(super) struct Page(String);

impl Page {
    /// Writes HELP and TYPE of a metric.
    pub(super) fn head(&mut self, name: &str, ty: &str, help: &str) {
        // Writing to a String can't fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {ty}");
    }

    /// Writes one sample.
    pub(super) fn line(&mut self, name: &str, labels: &[(&str, String)], value: f64) {
        self.0.push_str(name);
        if !labels.is_empty() {
            let escape = |text: &str| {
                text.replace('\\', "\\\\")
                    .replace('"', "\\\"")
                    .replace('\n', "\\n")
            };
            let pairs: Vec<String> = labels
                .iter()
                .map(|(k, v)| format!("{k}=\"{}\"", escape(v)))
                .collect();
            let _ = write!(self.0, "{{{}}}", pairs.join(","));
        }
        let _ = writeln!(self.0, " {value}");
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample() {
        let mut page = Page::default();
        page.head("a_total", "counter", "Things.");
        page.line("a_total", &[("x", "1\"".into())], 2.0);
        assert_eq!(
            page.finish(),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\\\"\"} 2\n"
        );
    }
}
