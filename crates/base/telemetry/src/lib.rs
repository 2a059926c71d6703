//! Logs on standard error and metrics in Prometheus' text format.

mod logs;
mod metrics;

pub use logs::{LogFormat, LogOptions, filter, init};
pub use metrics::Metrics;
pub use prometheus_client;
