//! Logs on standard error and metrics in Prometheus' text format.

mod histogram;
mod logs;
mod metrics;
mod page;
mod process;

pub use histogram::Histogram;
pub use logs::{LogFormat, LogOptions, init_logging, level_filter};
pub use metrics::Metrics;
pub use page::{MetricsPage, format_labels};
pub use process::{FileDescriptors, read_start_time};
pub use prometheus_client;
