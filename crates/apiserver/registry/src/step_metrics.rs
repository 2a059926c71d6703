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

/// The labels of a step's duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StepLabels {
    pub(crate) step: Step,
    pub(crate) operation: Operation,
    pub(crate) rejected: bool,
}

/// Durations of the steps of admission.
#[derive(Default)]
pub struct StepMetrics {
    durations: Mutex<BTreeMap<StepLabels, Histogram>>,
}

impl StepMetrics {
    /// Adds a step that took this long.
    pub(crate) fn record(&self, labels: StepLabels, took: Duration) {
        self.durations
            .lock()
            .entry(labels)
            .or_insert_with(|| Histogram::new(&ADMISSION))
            .observe_duration(took);
    }

    /// Writes the metrics.
    pub fn write_metrics(&self, page: &mut MetricsPage) {
        let help = "Time taken by the steps of admission, in seconds.";
        page.head(NAME, "histogram", help);
        for (labels, durations) in &*self.durations.lock() {
            let labels = [
                ("type", labels.step.as_str()),
                ("operation", labels.operation.as_str()),
                ("rejected", if labels.rejected { "true" } else { "false" }),
            ];
            page.histogram(NAME, &format_labels(&labels), durations);
        }
    }
}
