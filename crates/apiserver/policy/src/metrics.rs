//! Metrics of policies, under upstream's names.

use crate::evaluate::OUT_OF_BUDGET;
use crate::validating::{Decision, Verdict};
use apiserver_request::Operation;
use apiserver_webhook::{ConditionLabels, ConditionVerdict, MatchConditionMetrics};
use base_telemetry::{Histogram, MetricsPage, format_labels};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Upstream's buckets, in seconds.
const DURATIONS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];
const CHECKS: &str = "apiserver_validating_admission_policy_check_total";
const DURATION: &str = "apiserver_validating_admission_policy_check_duration_seconds";
const MUTATIONS: &str = "apiserver_mutating_admission_policy_check_total";
const MUTATION_DURATION: &str = "apiserver_mutating_admission_policy_check_duration_seconds";

/// The consequence of a check, as in the label `enforcement_action`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Allow,
    Audit,
    Deny,
    Warn,
}

impl Action {
    fn as_str(self) -> &'static str {
        match self {
            Action::Allow => "allow",
            Action::Audit => "audit",
            Action::Deny => "deny",
            Action::Warn => "warn",
        }
    }
}

/// Policy, binding, type of error, action.
type CheckKey = (String, String, &'static str, Action);

/// Policy, binding, type of error.
type MutationKey = (String, String, &'static str);

/// Counts and durations of the checks that were more than a plain admission, and of all mutations.
#[derive(Default)]
pub struct PolicyMetrics {
    checks: Mutex<BTreeMap<CheckKey, (u64, Histogram)>>,
    mutations: Mutex<BTreeMap<MutationKey, (u64, Histogram)>>,
    /// Metrics of match conditions, which the page shows together with those of webhooks.
    pub conditions: MatchConditionMetrics,
}

fn error_type(error: Option<&str>) -> &'static str {
    match error {
        None => "no_error",
        Some(message) if message.starts_with("compilation") => "compile_error",
        Some(message) if message.starts_with(OUT_OF_BUDGET) => "out_of_budget",
        Some(_) => "invalid_error",
    }
}

impl PolicyMetrics {
    /// Records a check.
    pub(crate) fn record(&self, policy: &str, binding: &str, decision: &Decision, action: Action) {
        // A denial counts as `invalid_error`, as upstream. Only an admission has no error.
        let is_error = decision.verdict != Verdict::Admit;
        let error = error_type(is_error.then_some(&*decision.message));
        self.record_elapsed(
            (policy.to_owned(), binding.to_owned(), error, action),
            decision.elapsed,
        );
    }

    fn record_elapsed(&self, key: CheckKey, elapsed: Duration) {
        let mut checks = self.checks.lock();
        let (count, durations) = checks
            .entry(key)
            .or_insert_with(|| (0, Histogram::new(&DURATIONS)));
        *count += 1;
        durations.observe_duration(elapsed);
    }

    /// Records a mutation, and its error.
    pub(crate) fn record_mutation(
        &self,
        policy: &str,
        binding: &str,
        error: Option<&str>,
        elapsed: Duration,
    ) {
        let key = (policy.to_owned(), binding.to_owned(), error_type(error));
        let mut mutations = self.mutations.lock();
        let (count, durations) = mutations
            .entry(key)
            .or_insert_with(|| (0, Histogram::new(&DURATIONS)));
        *count += 1;
        durations.observe_duration(elapsed);
    }

    /// Records the match conditions of a policy. As upstream, mutating policies have the label
    /// `validate`, too.
    pub(crate) fn record_conditions(
        &self,
        policy: &str,
        operation: Operation,
        verdict: &ConditionVerdict,
    ) {
        let labels = ConditionLabels {
            name: policy.to_owned(),
            kind: "policy",
            step: "validate",
            operation,
        };
        self.conditions.record_evaluation(&labels, verdict);
    }

    /// Writes the metrics.
    pub fn write_metrics(&self, page: &mut MetricsPage) {
        let labels = |(policy, binding, error, action): &CheckKey| {
            format_labels(&[
                ("policy", policy.as_str()),
                ("policy_binding", binding.as_str()),
                ("error_type", error),
                ("enforcement_action", action.as_str()),
            ])
        };
        let checks = self.checks.lock();
        page.head(
            CHECKS,
            "counter",
            "Checks of validating admission policies.",
        );
        for (key, (count, _)) in &*checks {
            page.sample(CHECKS, &labels(key), *count as f64);
        }
        page.head(DURATION, "histogram", "Time taken by checks, in seconds.");
        for (key, (_, durations)) in &*checks {
            page.histogram(DURATION, &labels(key), durations);
        }
        drop(checks);
        self.write_mutations(page);
    }

    fn write_mutations(&self, page: &mut MetricsPage) {
        let labels = |(policy, binding, error): &MutationKey| {
            format_labels(&[
                ("policy", policy.as_str()),
                ("policy_binding", binding.as_str()),
                ("error_type", error),
            ])
        };
        let mutations = self.mutations.lock();
        let help = "Evaluations of mutations of mutating admission policies.";
        page.head(MUTATIONS, "counter", help);
        for (key, (count, _)) in &*mutations {
            page.sample(MUTATIONS, &labels(key), *count as f64);
        }
        let help = "Time taken by mutations, in seconds.";
        page.head(MUTATION_DURATION, "histogram", help);
        for (key, (_, durations)) in &*mutations {
            page.histogram(MUTATION_DURATION, &labels(key), durations);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted_by_error_and_action() {
        let metrics = PolicyMetrics::default();
        for (verdict, message, action) in [
            (Verdict::Deny, "no", Action::Deny),
            (Verdict::Failed, "compilation error: x", Action::Deny),
            (Verdict::Ignored, OUT_OF_BUDGET, Action::Allow),
        ] {
            let decision = Decision {
                verdict,
                message: message.to_owned(),
                reason: String::new(),
                elapsed: Duration::from_micros(3),
            };
            metrics.record("p", "b", &decision, action);
        }
        let mut page = MetricsPage::default();
        metrics.write_metrics(&mut page);
        let text = page.finish();
        for (error, action) in [
            ("invalid_error", "deny"),
            ("compile_error", "deny"),
            ("out_of_budget", "allow"),
        ] {
            let labels = format!(
                "{{policy=\"p\",policy_binding=\"b\",error_type=\"{error}\",enforcement_action=\"{action}\"}} 1"
            );
            for name in [
                CHECKS,
                "apiserver_validating_admission_policy_check_duration_seconds_count",
            ] {
                assert!(text.contains(&format!("{name}{labels}")), "{name} {text}");
            }
        }
    }

    #[test]
    fn mutations_are_counted_by_error() {
        let metrics = PolicyMetrics::default();
        for error in [None, Some("compilation error: x"), Some(OUT_OF_BUDGET)] {
            metrics.record_mutation("p", "b", error, Duration::from_micros(3));
        }
        let mut page = MetricsPage::default();
        metrics.write_metrics(&mut page);
        let text = page.finish();
        for error in ["no_error", "compile_error", "out_of_budget"] {
            let labels = format!("{{policy=\"p\",policy_binding=\"b\",error_type=\"{error}\"}} 1");
            assert!(text.contains(&format!("{MUTATIONS}{labels}")), "{text}");
            assert!(
                text.contains(&format!("{MUTATION_DURATION}_count{labels}")),
                "{text}"
            );
        }
    }
}
