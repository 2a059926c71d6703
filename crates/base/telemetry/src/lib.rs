//! Logs on standard error and metrics in Prometheus' text format.

mod logs;
mod metrics;
mod page;
mod process;

pub use logs::{LogFormat, LogOptions, filter, init};
pub use metrics::Metrics;
pub use page::{MetricsPage, format_labels};
pub use process::FileDescriptors;
pub use prometheus_client;
