//! A registry of metrics that a component passes around and serves under `/metrics`.

use parking_lot::Mutex;
use prometheus_client::registry::{Metric, Registry};
use std::fmt;
use std::sync::Arc;

/// A registry of metrics. Cheap to clone; all clones share one registry.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a metric and returns it. Counters get the suffix `_total` in the output.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        self.0.lock().register(name, help, metric.clone());
        metric
    }

    /// Encodes all metrics in the OpenMetrics text format, which Prometheus reads.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Fails only if a metric's own encoder does. The lines written before are still served.
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
