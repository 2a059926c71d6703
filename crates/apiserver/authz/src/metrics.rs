//! Metrics of authorization, with upstream's names.

use apiserver_request::Decision;
use base_telemetry::{Histogram, MetricsPage, format_labels};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Prometheus' default buckets.
const CALL_BOUNDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
const CONDITION_BOUNDS: [f64; 7] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
/// The only type of authorizer with match conditions.
const WEBHOOK: &str = "Webhook";

/// Decisions of one authorizer that ended the chain.
#[derive(Default)]
pub struct DecisionCounts {
    allowed: AtomicU64,
    denied: AtomicU64,
}

impl DecisionCounts {
    /// Counts a decision if it ends the chain.
    pub fn record(&self, decision: &Decision) {
        let count = match decision {
            Decision::Allow(_) => &self.allowed,
            Decision::Deny(_) => &self.denied,
            Decision::Failed(failure) if failure.is_denied => &self.denied,
            Decision::NoOpinion(_) | Decision::Failed(_) => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The outcome of a call of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallResult {
    /// A usable response.
    Success,
    /// No response in time.
    Timeout,
    /// Another error.
    Error,
    /// The request ended before the response.
    Canceled,
}

impl CallResult {
    fn name(self) -> &'static str {
        match self {
            CallResult::Success => "success",
            CallResult::Timeout => "timeout",
            CallResult::Error => "error",
            CallResult::Canceled => "canceled",
        }
    }
}

#[derive(Default)]
struct Recorded {
    /// By type and name.
    decisions: BTreeMap<(&'static str, String), Arc<DecisionCounts>>,
    /// Durations of calls, by the webhook's name.
    calls: BTreeMap<(String, CallResult), Histogram>,
    fail_open: BTreeMap<(String, CallResult), u64>,
    /// Requests beyond a limit, by the webhook's name.
    limited: BTreeMap<String, u64>,
    /// Match conditions by the webhook's name.
    conditions: BTreeMap<String, ConditionCounts>,
}

struct ConditionCounts {
    errors: u64,
    exclusions: u64,
    durations: Histogram,
}

/// Metrics of all authorizers. They outlive a change of the configuration.
#[derive(Default)]
pub struct AuthzMetrics(Mutex<Recorded>);

impl AuthzMetrics {
    /// Returns the counts of an authorizer.
    pub fn decision_counts(&self, kind: &'static str, name: &str) -> Arc<DecisionCounts> {
        let mut recorded = self.0.lock();
        let counts = recorded.decisions.entry((kind, name.to_owned()));
        counts.or_default().clone()
    }

    /// Records a call of a webhook.
    pub fn record_call(&self, name: &str, result: CallResult, took: Duration) {
        let mut recorded = self.0.lock();
        let histogram = recorded.calls.entry((name.to_owned(), result));
        histogram
            .or_insert_with(|| Histogram::new(&CALL_BOUNDS))
            .observe_duration(took);
    }

    /// Records that the next authorizer decides because of a failed call.
    pub fn record_fail_open(&self, name: &str, result: CallResult) {
        *self
            .0
            .lock()
            .fail_open
            .entry((name.to_owned(), result))
            .or_default() += 1;
    }

    /// Records a request that was denied because it exceeds a limit.
    pub fn record_limited(&self, name: &str) {
        let mut recorded = self.0.lock();
        *recorded.limited.entry(name.to_owned()).or_default() += 1;
    }

    /// Records an evaluation of match conditions.
    pub fn record_conditions(&self, name: &str, holds: Option<bool>, took: Duration) {
        let mut recorded = self.0.lock();
        // Without an allocation from the second evaluation on: conditions are evaluated for every
        // request.
        if !recorded.conditions.contains_key(name) {
            let counts = ConditionCounts {
                errors: 0,
                exclusions: 0,
                durations: Histogram::new(&CONDITION_BOUNDS),
            };
            recorded.conditions.insert(name.to_owned(), counts);
        }
        if let Some(counts) = recorded.conditions.get_mut(name) {
            counts.errors += u64::from(holds.is_none());
            counts.exclusions += u64::from(holds == Some(false));
            counts.durations.observe_duration(took);
        }
    }

    /// Writes the metrics.
    pub fn write_metrics(&self, page: &mut MetricsPage) {
        let recorded = self.0.lock();
        recorded.write_decisions(page);
        recorded.write_calls(page);
        recorded.write_limited(page);
        recorded.write_conditions(page);
    }
}

impl Recorded {
    fn write_decisions(&self, page: &mut MetricsPage) {
        const NAME: &str = "apiserver_authorization_decisions_total";
        page.head(NAME, "counter", "Decisions that ended the chain.");
        for ((kind, name), counts) in &self.decisions {
            for (decision, count) in [("allowed", &counts.allowed), ("denied", &counts.denied)] {
                let count = count.load(Ordering::Relaxed);
                let labels = [("type", *kind), ("name", name), ("decision", decision)];
                if count > 0 {
                    page.sample(NAME, &format_labels(&labels), count as f64);
                }
            }
        }
    }

    fn write_calls(&self, page: &mut MetricsPage) {
        const TOTAL: &str = "apiserver_authorization_webhook_evaluations_total";
        const SECONDS: &str = "apiserver_authorization_webhook_duration_seconds";
        const FAIL_OPEN: &str = "apiserver_authorization_webhook_evaluations_fail_open_total";
        let labels = |name: &str, result: CallResult| {
            format_labels(&[("name", name), ("result", result.name())])
        };
        page.head(TOTAL, "counter", "Calls of authorization webhooks.");
        for ((name, result), durations) in &self.calls {
            page.sample(TOTAL, &labels(name, *result), durations.count() as f64);
        }
        page.head(SECONDS, "histogram", "Time taken by calls, in seconds.");
        for ((name, result), durations) in &self.calls {
            page.histogram(SECONDS, &labels(name, *result), durations);
        }
        page.head(
            FAIL_OPEN,
            "counter",
            "Failed calls after which the next authorizer decided.",
        );
        for ((name, result), count) in &self.fail_open {
            page.sample(FAIL_OPEN, &labels(name, *result), *count as f64);
        }
    }

    fn write_limited(&self, page: &mut MetricsPage) {
        const NAME: &str = "ironclad_authorization_webhook_limited_total";
        page.head(NAME, "counter", "Requests denied beyond a limit.");
        for (name, count) in &self.limited {
            let labels = format_labels(&[("name", name.as_str())]);
            page.sample(NAME, &labels, *count as f64);
        }
    }

    fn write_conditions(&self, page: &mut MetricsPage) {
        const ERRORS: &str = "apiserver_authorization_match_condition_evaluation_errors_total";
        const EXCLUSIONS: &str = "apiserver_authorization_match_condition_exclusions_total";
        const SECONDS: &str = "apiserver_authorization_match_condition_evaluation_seconds";
        let labels = |name: &str| format_labels(&[("type", WEBHOOK), ("name", name)]);
        page.head(ERRORS, "counter", "Match conditions that failed.");
        for (name, counts) in self
            .conditions
            .iter()
            .filter(|(_, counts)| counts.errors > 0)
        {
            page.sample(ERRORS, &labels(name), counts.errors as f64);
        }
        page.head(
            EXCLUSIONS,
            "counter",
            "Webhooks skipped by their match conditions.",
        );
        for (name, counts) in &self.conditions {
            page.sample(EXCLUSIONS, &labels(name), counts.exclusions as f64);
        }
        page.head(
            SECONDS,
            "histogram",
            "Time taken by match conditions, in seconds.",
        );
        for (name, counts) in &self.conditions {
            page.histogram(SECONDS, &labels(name), &counts.durations);
        }
    }
}
