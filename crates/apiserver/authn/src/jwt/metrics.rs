//! Metrics of issuers and of the configuration file, with upstream's names.

use apiserver_config::{ConfigMetrics, hash_content};
use base_telemetry::{Histogram, MetricsPage, format_labels};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const BOUNDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

#[derive(Default)]
struct Recorded {
    /// By result and hash of the issuer.
    latencies: BTreeMap<(&'static str, String), Histogram>,
    /// Times of the last fetches, by hash of the issuer and result.
    fetches: BTreeMap<(String, &'static str), f64>,
    /// Hashes of the last key sets, by hash of the issuer.
    key_sets: BTreeMap<String, String>,
}

/// Metrics of JWT authentication.
pub struct JwtMetrics {
    config: Arc<ConfigMetrics>,
    recorded: Mutex<Recorded>,
}

impl JwtMetrics {
    /// Creates the metrics of the server with this identity.
    pub fn new(server_id: &str) -> Self {
        JwtMetrics {
            config: Arc::new(ConfigMetrics::new("authentication", server_id)),
            recorded: Mutex::default(),
        }
    }

    pub(super) fn record_latency(&self, issuer: &str, succeeded: bool, took: Duration) {
        let key = (status(succeeded), hash_content(issuer.as_bytes()));
        let mut recorded = self.recorded.lock();
        let histogram = recorded.latencies.entry(key);
        histogram
            .or_insert_with(|| Histogram::new(&BOUNDS))
            .observe_duration(took);
    }

    /// Records a fetched key set, or a failure.
    pub(super) fn record_key_set(&self, issuer: &str, body: Option<&[u8]>) {
        let issuer = hash_content(issuer.as_bytes());
        let mut recorded = self.recorded.lock();
        let key = (issuer.clone(), status(body.is_some()));
        recorded.fetches.insert(key, now());
        if let Some(body) = body {
            recorded.key_sets.insert(issuer, hash_content(body));
        }
    }

    /// Removes the key sets of issuers that are no longer configured.
    pub(super) fn forget_other_issuers<'i>(&self, issuers: impl Iterator<Item = &'i str>) {
        let kept: Vec<String> = issuers
            .map(|issuer| hash_content(issuer.as_bytes()))
            .collect();
        let mut recorded = self.recorded.lock();
        recorded
            .fetches
            .retain(|(issuer, _), _| kept.contains(issuer));
        recorded.key_sets.retain(|issuer, _| kept.contains(issuer));
    }

    /// Returns the metrics of the configuration file.
    pub(super) fn config(&self) -> &Arc<ConfigMetrics> {
        &self.config
    }

    /// Writes the metrics.
    pub fn write_metrics(&self, page: &mut MetricsPage) {
        const LATENCY: &str = "apiserver_authentication_jwt_authenticator_latency_seconds";
        const FETCH: &str =
            "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds";
        const KEY_SET: &str =
            "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info";
        let recorded = self.recorded.lock();
        page.head(
            LATENCY,
            "histogram",
            "Time taken for tokens of issuers, in seconds.",
        );
        for ((result, issuer), histogram) in &recorded.latencies {
            let labels = format_labels(&[("result", *result), ("jwt_issuer_hash", issuer)]);
            page.histogram(LATENCY, &labels, histogram);
        }
        page.head(
            FETCH,
            "gauge",
            "Time of the last fetch of an issuer's keys.",
        );
        for ((issuer, result), at) in &recorded.fetches {
            let labels = [
                ("result", *result),
                ("jwt_issuer_hash", issuer.as_str()),
                ("apiserver_id_hash", self.config.server_hash()),
            ];
            page.sample(FETCH, &format_labels(&labels), *at);
        }
        page.head(
            KEY_SET,
            "gauge",
            "The last key set of an issuer, by its hash.",
        );
        for (issuer, hash) in &recorded.key_sets {
            let labels = [
                ("jwt_issuer_hash", issuer.as_str()),
                ("apiserver_id_hash", self.config.server_hash()),
                ("hash", hash.as_str()),
            ];
            page.sample(KEY_SET, &format_labels(&labels), 1.0);
        }
        self.config.write_metrics(page);
    }
}

fn status(succeeded: bool) -> &'static str {
    if succeeded { "success" } else { "failure" }
}

fn now() -> f64 {
    jiff::Timestamp::now().as_second() as f64
}
