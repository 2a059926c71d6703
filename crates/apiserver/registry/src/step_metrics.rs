//! Durations of the two steps of admission, under upstream's name.

use apiserver_request::Operation;
use base_telemetry::{Histogram, MetricsPage, format_labels};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Upstream's buckets of admission durations, in seconds.
pub(crate) const ADMISSION: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

const NAME: &str = "apiserver_admission_step_admission_duration_seconds";

/// A step of admission, as in the label `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// All mutating plugins, in both passes.
    Admit,
    /// All validating plugins.
    Validate,
}

impl Step {
    fn as_str(self) -> &'static str {
        match self {
            Step::Admit => "admit",
            Step::Validate => "validate",
        }
    }
}

/// Durations by step, operation, and whether the request was rejected.
#[derive(Default)]
pub struct StepMetrics {
    durations: Mutex<BTreeMap<(Step, Operation, bool), Histogram>>,
}

impl StepMetrics {
    /// Adds a step that took this long.
    pub(crate) fn record(&self, step: Step, operation: Operation, rejected: bool, took: Duration) {
        self.durations
            .lock()
            .entry((step, operation, rejected))
            .or_insert_with(|| Histogram::new(&ADMISSION))
            .observe_duration(took);
    }

    /// Writes the metrics.
    pub fn write_metrics(&self, page: &mut MetricsPage) {
        let help = "Time taken by the steps of admission, in seconds.";
        page.head(NAME, "histogram", help);
        for ((step, operation, rejected), durations) in &*self.durations.lock() {
            let labels = [
                ("type", step.as_str()),
                ("operation", operation.as_str()),
                ("rejected", if *rejected { "true" } else { "false" }),
            ];
            page.histogram(NAME, &format_labels(&labels), durations);
        }
    }
}
