//! Metrics of webhooks, under upstream's names.

use crate::condition_metrics::{ConditionLabels, MatchConditionMetrics};
use apiserver_request::Operation;
use base_telemetry::{Histogram, MetricsPage, format_labels};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Upstream's buckets, in seconds.
const DURATIONS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// Codes above are counted as this one, so that a webhook can't create series without bound.
const MAX_CODE: u16 = 600;

const DURATION: &str = "apiserver_admission_webhook_admission_duration_seconds";
const REJECTIONS: &str = "apiserver_admission_webhook_rejection_count";
const FAIL_OPEN: &str = "apiserver_admission_webhook_fail_open_count";
const REQUESTS: &str = "apiserver_admission_webhook_request_total";

/// The phase of a webhook, as in the label `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Admit,
    Validating,
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Phase::Admit => "admit",
            Phase::Validating => "validating",
        }
    }

    /// Returns the labels of the match conditions of a webhook.
    pub(crate) fn condition_labels(self, name: &str, operation: Operation) -> ConditionLabels {
        ConditionLabels {
            name: name.to_owned(),
            kind: "webhook",
            step: self.as_str(),
            operation,
        }
    }

    /// Returns the labels of a webhook that is not called because of its match conditions.
    pub(crate) fn exclusion_labels(self, name: &str, operation: Operation) -> ConditionLabels {
        ConditionLabels {
            // As upstream, another word for the validating phase than in the other metrics.
            step: match self {
                Phase::Admit => "admit",
                Phase::Validating => "validate",
            },
            ..self.condition_labels(name, operation)
        }
    }
}

/// The cause of a rejection, as in the label `error_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectionCause {
    CallingWebhook,
    ServerInternal,
    Denied,
}

impl RejectionCause {
    fn as_str(self) -> &'static str {
        match self {
            RejectionCause::CallingWebhook => "calling_webhook_error",
            RejectionCause::ServerInternal => "apiserver_internal_error",
            // Upstream's label names errors of the call, and a denial is none.
            RejectionCause::Denied => "no_error",
        }
    }
}

/// One call: webhook, phase, operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallLabels {
    pub name: String,
    pub phase: Phase,
    pub operation: Operation,
}

type Labels = Vec<(&'static str, String)>;

impl CallLabels {
    fn labels(&self) -> Labels {
        vec![
            ("name", self.name.clone()),
            ("type", self.phase.as_str().to_owned()),
            ("operation", self.operation.as_str().to_owned()),
        ]
    }
}

/// Counters and durations of all webhooks.
#[derive(Default)]
pub struct WebhookMetrics {
    durations: Mutex<BTreeMap<(CallLabels, bool), Histogram>>,
    requests: Mutex<BTreeMap<(CallLabels, u16, bool), u64>>,
    rejections: Mutex<BTreeMap<(CallLabels, RejectionCause, u16), u64>>,
    fail_open: Mutex<BTreeMap<(String, Phase), u64>>,
    /// Metrics of match conditions, which the page shows together with those of policies.
    pub conditions: MatchConditionMetrics,
}

impl WebhookMetrics {
    /// Records a call.
    pub(crate) fn record_call(&self, call: &CallLabels, took: Duration, code: u16, rejected: bool) {
        self.durations
            .lock()
            .entry((call.clone(), rejected))
            .or_insert_with(|| Histogram::new(&DURATIONS))
            .observe_duration(took);
        // Upstream caps the codes in the same way.
        let key = (call.clone(), code.min(MAX_CODE), rejected);
        *self.requests.lock().entry(key).or_default() += 1;
    }

    /// Counts a rejected request.
    pub(crate) fn count_rejection(&self, call: &CallLabels, cause: RejectionCause, code: u16) {
        let key = (call.clone(), cause, code.min(MAX_CODE));
        *self.rejections.lock().entry(key).or_default() += 1;
    }

    /// Counts a failed call that let the request through.
    pub(crate) fn count_fail_open(&self, call: &CallLabels) {
        let key = (call.name.clone(), call.phase);
        *self.fail_open.lock().entry(key).or_default() += 1;
    }

    /// Writes the metrics.
    pub fn write_metrics(&self, page: &mut MetricsPage) {
        page.head(DURATION, "histogram", "Time taken by webhooks, in seconds.");
        for ((call, rejected), durations) in &*self.durations.lock() {
            let mut labels = call.labels();
            labels.push(("rejected", rejected.to_string()));
            page.histogram(DURATION, &format_labels(&labels), durations);
        }
        page.head(REQUESTS, "counter", "Calls of webhooks by status.");
        for ((call, code, rejected), count) in &*self.requests.lock() {
            let mut labels = call.labels();
            labels.push(("code", code.to_string()));
            labels.push(("rejected", rejected.to_string()));
            page.sample(REQUESTS, &format_labels(&labels), *count as f64);
        }
        page.head(REJECTIONS, "counter", "Requests that webhooks rejected.");
        for ((call, cause, code), count) in &*self.rejections.lock() {
            let mut labels = call.labels();
            labels.push(("error_type", cause.as_str().to_owned()));
            labels.push(("rejection_code", code.to_string()));
            page.sample(REJECTIONS, &format_labels(&labels), *count as f64);
        }
        let help = "Requests that were let through because a webhook failed.";
        page.head(FAIL_OPEN, "counter", help);
        for ((name, phase), count) in &*self.fail_open.lock() {
            let labels = [("name", name.as_str()), ("type", phase.as_str())];
            page.sample(FAIL_OPEN, &format_labels(&labels), *count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_upstreams_names_and_bounded_codes() {
        let metrics = WebhookMetrics::default();
        let call = CallLabels {
            name: "h".into(),
            phase: Phase::Admit,
            operation: Operation::Create,
        };
        metrics.record_call(&call, Duration::from_millis(10), 9999, true);
        metrics.count_rejection(&call, RejectionCause::CallingWebhook, 503);
        metrics.count_fail_open(&call);
        let mut page = MetricsPage::default();
        metrics.write_metrics(&mut page);
        let text = page.finish();
        for line in [
            "apiserver_admission_webhook_request_total{name=\"h\",type=\"admit\",operation=\"CREATE\",code=\"600\",rejected=\"true\"} 1",
            "apiserver_admission_webhook_rejection_count{name=\"h\",type=\"admit\",operation=\"CREATE\",error_type=\"calling_webhook_error\",rejection_code=\"503\"} 1",
            "apiserver_admission_webhook_fail_open_count{name=\"h\",type=\"admit\"} 1",
            "apiserver_admission_webhook_admission_duration_seconds_count{name=\"h\",type=\"admit\",operation=\"CREATE\",rejected=\"true\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
    }
}
