//! A registry of metrics that a component passes around and serves under `/metrics`.

use parking_lot::Mutex;
use prometheus_client::registry::{Metric, Registry};
use std::fmt;
use std::sync::Arc;

/// Cheap to clone; all clones are one registry.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a metric (a cheap clone of it) and gives it back. Counters get their `_total` suffix when written.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        self.0.lock().register(name, help, metric.clone());
        metric
    }

    /// All metrics in the text format of OpenMetrics, which Prometheus reads.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String fails only if a metric's own encoder does; what was written so far is still served.
        if prometheus_client::encoding::text::encode(&mut text, &self.0.lock()).is_err() {
            tracing::warn!("a metric could not be encoded");
        }
        text
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
