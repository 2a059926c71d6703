//! Metrics of issuers and of the configuration file, with upstream's names.

use base_telemetry::{Histogram, MetricsPage, format_labels};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
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
    /// Number and time of reloads, by status.
    reloads: BTreeMap<&'static str, (u64, f64)>,
    /// Hash of the configuration file.
    config: Option<String>,
}

/// Metrics of JWT authentication.
pub struct JwtMetrics {
    server: String,
    recorded: Mutex<Recorded>,
}

impl JwtMetrics {
    /// Creates the metrics of the server with this identity.
    pub fn new(server_id: &str) -> Self {
        JwtMetrics {
            server: hash_text(server_id.as_bytes()),
            recorded: Mutex::default(),
        }
    }

    pub(super) fn record_latency(&self, issuer: &str, succeeded: bool, took: Duration) {
        let key = (status(succeeded), hash_text(issuer.as_bytes()));
        let mut recorded = self.recorded.lock();
        let histogram = recorded.latencies.entry(key);
        histogram
            .or_insert_with(|| Histogram::new(&BOUNDS))
            .observe_duration(took);
    }

    /// Records a fetched key set, or a failure.
    pub(super) fn record_key_set(&self, issuer: &str, body: Option<&[u8]>) {
        let issuer = hash_text(issuer.as_bytes());
        let mut recorded = self.recorded.lock();
        let key = (issuer.clone(), status(body.is_some()));
        recorded.fetches.insert(key, now());
        if let Some(body) = body {
            recorded.key_sets.insert(issuer, hash_text(body));
        }
    }

    /// Removes the key sets of issuers that are no longer configured.
    pub(super) fn forget_other_issuers<'i>(&self, issuers: impl Iterator<Item = &'i str>) {
        let kept: Vec<String> = issuers.map(|issuer| hash_text(issuer.as_bytes())).collect();
        let mut recorded = self.recorded.lock();
        recorded
            .fetches
            .retain(|(issuer, _), _| kept.contains(issuer));
        recorded.key_sets.retain(|issuer, _| kept.contains(issuer));
    }

    pub(super) fn record_config(&self, content: &[u8]) {
        self.recorded.lock().config = Some(hash_text(content));
    }

    pub(super) fn record_reload(&self, succeeded: bool) {
        let mut recorded = self.recorded.lock();
        let (count, at) = recorded.reloads.entry(status(succeeded)).or_default();
        *count += 1;
        *at = now();
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
                ("apiserver_id_hash", self.server.as_str()),
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
                ("jwt_issuer_hash", issuer),
                ("apiserver_id_hash", &self.server),
                ("hash", hash),
            ];
            page.sample(KEY_SET, &format_labels(&labels), 1.0);
        }
        self.write_config(&recorded, page);
    }

    fn write_config(&self, recorded: &Recorded, page: &mut MetricsPage) {
        const COUNT: &str = "apiserver_authentication_config_controller_automatic_reloads_total";
        const LAST: &str =
            "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds";
        const CONFIG: &str = "apiserver_authentication_config_controller_last_config_info";
        let labels = |status: &str| {
            format_labels(&[("status", status), ("apiserver_id_hash", &self.server)])
        };
        page.head(
            COUNT,
            "counter",
            "Reloads of the authentication configuration.",
        );
        for (status, (count, _)) in &recorded.reloads {
            page.sample(COUNT, &labels(status), *count as f64);
        }
        page.head(
            LAST,
            "gauge",
            "Time of the last reload of the configuration.",
        );
        for (status, (_, at)) in &recorded.reloads {
            page.sample(LAST, &labels(status), *at);
        }
        page.head(CONFIG, "gauge", "The configuration in use, by its hash.");
        if let Some(hash) = &recorded.config {
            let labels = format_labels(&[("apiserver_id_hash", &self.server), ("hash", hash)]);
            page.sample(CONFIG, &labels, 1.0);
        }
    }
}

fn status(succeeded: bool) -> &'static str {
    if succeeded { "success" } else { "failure" }
}

fn now() -> f64 {
    jiff::Timestamp::now().as_second() as f64
}

fn hash_text(content: &[u8]) -> String {
    if content.is_empty() {
        return String::new();
    }
    let digest = Sha256::digest(content);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
