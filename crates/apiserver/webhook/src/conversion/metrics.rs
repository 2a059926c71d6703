//! Metrics of conversion webhooks, under upstream's names.

use base_telemetry::{Histogram, MetricsPage, format_labels};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Upstream's buckets of calls, in seconds.
const CALLS: [f64; 15] = [
    0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0,
];
/// Upstream's buckets of conversions, in seconds.
const CONVERSIONS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];
/// Series of conversions kept at most: definitions come and go.
const MAX_SERIES: usize = 10_000;

const REQUESTS: &str = "apiserver_conversion_webhook_request_total";
const DURATION: &str = "apiserver_conversion_webhook_duration_seconds";
const CONVERSION: &str = "apiserver_crd_conversion_webhook_duration_seconds";

/// The cause of a failed call, as in the label `failure_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    Call,
    MalformedResponse,
    PartialResponse,
    InvalidObject,
}

impl Failure {
    fn as_str(self) -> &'static str {
        match self {
            Failure::Call => "conversion_webhook_call_failure",
            Failure::MalformedResponse => "conversion_webhook_malformed_response_failure",
            Failure::PartialResponse => "conversion_webhook_partial_response_failure",
            Failure::InvalidObject => "conversion_webhook_invalid_converted_object_failure",
        }
    }
}

/// Counters and durations of all conversion webhooks.
#[derive(Default)]
pub struct ConversionMetrics {
    calls: Mutex<BTreeMap<Option<Failure>, Histogram>>,
    /// By definition, source and target version, and success.
    conversions: Mutex<BTreeMap<([String; 3], bool), Histogram>>,
}

impl ConversionMetrics {
    /// Records a call.
    pub(super) fn record_call(&self, took: Duration, failure: Option<Failure>) {
        let mut calls = self.calls.lock();
        let durations = calls
            .entry(failure)
            .or_insert_with(|| Histogram::new(&CALLS));
        durations.observe_duration(took);
    }

    /// Records a conversion: definition, source and target version.
    pub(super) fn record_conversion(&self, of: [&str; 3], succeeded: bool, took: Duration) {
        let mut conversions = self.conversions.lock();
        let key = (of.map(str::to_owned), succeeded);
        if conversions.len() >= MAX_SERIES && !conversions.contains_key(&key) {
            return;
        }
        let durations = conversions
            .entry(key)
            .or_insert_with(|| Histogram::new(&CONVERSIONS));
        durations.observe_duration(took);
    }

    /// Writes the metrics.
    pub fn write_metrics(&self, page: &mut MetricsPage) {
        let calls = self.calls.lock();
        let labels = |failure: &Option<Failure>| {
            let result = failure.map_or("success", |_| "failure");
            let cause = failure.map_or("", Failure::as_str);
            format_labels(&[("result", result), ("failure_type", cause)])
        };
        page.head(REQUESTS, "counter", "Calls of conversion webhooks.");
        for (failure, durations) in &*calls {
            page.sample(REQUESTS, &labels(failure), durations.count() as f64);
        }
        let help = "Time taken by calls of conversion webhooks, in seconds.";
        page.head(DURATION, "histogram", help);
        for (failure, durations) in &*calls {
            page.histogram(DURATION, &labels(failure), durations);
        }
        let help = "Time taken by conversions of custom resources, in seconds.";
        page.head(CONVERSION, "histogram", help);
        for (([name, from, to], succeeded), durations) in &*self.conversions.lock() {
            let succeeded = succeeded.to_string();
            let labels = [
                ("crd_name", name.as_str()),
                ("from_version", from),
                ("to_version", to),
                ("succeeded", &succeeded),
            ];
            page.histogram(CONVERSION, &format_labels(&labels), durations);
        }
    }
}
