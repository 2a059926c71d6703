//! Metrics of a configuration file, with upstream's names.

use base_telemetry::{MetricsPage, format_labels};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Metrics of one configuration.
pub struct ConfigMetrics {
    /// `authentication` or `authorization`.
    subject: &'static str,
    server: String,
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    /// Number and time of reloads, by status.
    reloads: BTreeMap<&'static str, (u64, f64)>,
    /// Hash of the content in use.
    config: Option<String>,
}

impl ConfigMetrics {
    /// Creates the metrics of the `authentication` or `authorization` configuration, for the server
    /// with this identity.
    pub fn new(subject: &'static str, server_id: &str) -> Self {
        ConfigMetrics {
            subject,
            server: hash_content(server_id.as_bytes()),
            recorded: Mutex::default(),
        }
    }

    /// Returns the hash of the server's identity.
    pub fn server_hash(&self) -> &str {
        &self.server
    }

    /// Records the content in use.
    pub fn record_config(&self, content: &[u8]) {
        self.recorded.lock().config = Some(hash_content(content));
    }

    /// Records a reload.
    pub fn record_reload(&self, succeeded: bool) {
        let status = if succeeded { "success" } else { "failure" };
        let mut recorded = self.recorded.lock();
        let (count, at) = recorded.reloads.entry(status).or_default();
        *count += 1;
        *at = jiff::Timestamp::now().as_second() as f64;
    }

    /// Writes the metrics.
    pub fn write_metrics(&self, page: &mut MetricsPage) {
        let subject = self.subject;
        let name = |end: &str| format!("apiserver_{subject}_config_controller_{end}");
        let labels = |status: &str| {
            format_labels(&[("status", status), ("apiserver_id_hash", &self.server)])
        };
        let recorded = self.recorded.lock();
        let count = name("automatic_reloads_total");
        page.head(
            &count,
            "counter",
            &format!("Reloads of the {subject} configuration."),
        );
        for (status, (reloads, _)) in &recorded.reloads {
            page.sample(&count, &labels(status), *reloads as f64);
        }
        let last = name("automatic_reload_last_timestamp_seconds");
        page.head(
            &last,
            "gauge",
            "Time of the last reload of the configuration.",
        );
        for (status, (_, at)) in &recorded.reloads {
            page.sample(&last, &labels(status), *at);
        }
        let config = name("last_config_info");
        page.head(&config, "gauge", "The configuration in use, by its hash.");
        if let Some(hash) = &recorded.config {
            let labels = format_labels(&[("apiserver_id_hash", &self.server), ("hash", hash)]);
            page.sample(&config, &labels, 1.0);
        }
    }
}

/// Returns the hash of a content, as the labels of these metrics have it.
pub fn hash_content(content: &[u8]) -> String {
    if content.is_empty() {
        return String::new();
    }
    let digest = Sha256::digest(content);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
