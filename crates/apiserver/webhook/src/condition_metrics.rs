//! Metrics of match conditions, under upstream's names.

use crate::conditions::ConditionVerdict;
use apiserver_request::Operation;
use base_telemetry::{Histogram, MetricsPage, format_labels};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Upstream's buckets, in seconds.
const DURATIONS: [f64; 7] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];

const ERRORS: &str = "apiserver_admission_match_condition_evaluation_errors_total";
const EXCLUSIONS: &str = "apiserver_admission_match_condition_exclusions_total";
const SECONDS: &str = "apiserver_admission_match_condition_evaluation_seconds";

/// The owner of match conditions, and the request that they were evaluated for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConditionLabels {
    /// Name of the webhook or policy.
    pub name: String,
    /// `webhook` or `policy`.
    pub kind: &'static str,
    /// `admit`, `validate` or `validating`.
    pub step: &'static str,
    /// Operation of the request.
    pub operation: Operation,
}

impl ConditionLabels {
    fn format(&self) -> String {
        format_labels(&[
            ("name", self.name.as_str()),
            ("kind", self.kind),
            ("type", self.step),
            ("operation", self.operation.as_str()),
        ])
    }
}

type Counts = Mutex<BTreeMap<ConditionLabels, u64>>;

/// Counters and durations of the match conditions of all webhooks, or of all policies.
#[derive(Default)]
pub struct MatchConditionMetrics {
    errors: Counts,
    exclusions: Counts,
    durations: Mutex<BTreeMap<ConditionLabels, Histogram>>,
}

impl MatchConditionMetrics {
    /// Records an evaluation. As upstream, one whose conditions all hold has no duration.
    pub fn record_evaluation(&self, labels: &ConditionLabels, verdict: &ConditionVerdict) {
        if verdict.failed > 0 {
            *self.errors.lock().entry(labels.clone()).or_default() += verdict.failed;
        }
        if verdict.holds != Ok(true) {
            self.durations
                .lock()
                .entry(labels.clone())
                .or_insert_with(|| Histogram::new(&DURATIONS))
                .observe_duration(verdict.elapsed);
        }
    }

    /// Counts a request that the conditions keep from a webhook.
    pub(crate) fn count_exclusion(&self, labels: ConditionLabels) {
        *self.exclusions.lock().entry(labels).or_default() += 1;
    }

    /// Writes the metrics of several owners together: each name has one head in a page.
    pub fn write_all(all: &[&MatchConditionMetrics], page: &mut MetricsPage) {
        let write_counts = |page: &mut MetricsPage, name: &str, counts: &Counts| {
            for (labels, count) in &*counts.lock() {
                page.sample(name, &labels.format(), *count as f64);
            }
        };
        page.head(ERRORS, "counter", "Match conditions that failed.");
        all.iter()
            .for_each(|metrics| write_counts(page, ERRORS, &metrics.errors));
        let help = "Requests that match conditions kept from a webhook.";
        page.head(EXCLUSIONS, "counter", help);
        all.iter()
            .for_each(|metrics| write_counts(page, EXCLUSIONS, &metrics.exclusions));
        let help = "Time taken by match conditions that did not all hold, in seconds.";
        page.head(SECONDS, "histogram", help);
        for metrics in all {
            for (labels, durations) in &*metrics.durations.lock() {
                page.histogram(SECONDS, &labels.format(), durations);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn metrics_have_upstreams_names_and_labels() {
        let (webhooks, policies) = <(MatchConditionMetrics, MatchConditionMetrics)>::default();
        let labels = |name: &str, kind, step| ConditionLabels {
            name: name.to_owned(),
            kind,
            step,
            operation: Operation::Create,
        };
        let verdict = |holds, failed| ConditionVerdict {
            holds,
            failed,
            elapsed: Duration::from_millis(20),
        };
        let hook = labels("h", "webhook", "validating");
        webhooks.record_evaluation(&hook, &verdict(Ok(false), 1));
        webhooks.record_evaluation(&hook, &verdict(Ok(true), 0));
        webhooks.count_exclusion(labels("h", "webhook", "validate"));
        let policy = labels("p", "policy", "validate");
        policies.record_evaluation(&policy, &verdict(Err("broken".to_owned()), 2));
        let mut page = MetricsPage::default();
        MatchConditionMetrics::write_all(&[&webhooks, &policies], &mut page);
        let text = page.finish();
        for line in [
            "apiserver_admission_match_condition_evaluation_errors_total{name=\"h\",kind=\"webhook\",type=\"validating\",operation=\"CREATE\"} 1",
            "apiserver_admission_match_condition_evaluation_errors_total{name=\"p\",kind=\"policy\",type=\"validate\",operation=\"CREATE\"} 2",
            "apiserver_admission_match_condition_exclusions_total{name=\"h\",kind=\"webhook\",type=\"validate\",operation=\"CREATE\"} 1",
            "apiserver_admission_match_condition_evaluation_seconds_count{name=\"h\",kind=\"webhook\",type=\"validating\",operation=\"CREATE\"} 1",
            "apiserver_admission_match_condition_evaluation_seconds_bucket{name=\"p\",kind=\"policy\",type=\"validate\",operation=\"CREATE\",le=\"0.025\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
        assert_eq!(text.matches("# TYPE").count(), 3, "{text}");
    }
}
