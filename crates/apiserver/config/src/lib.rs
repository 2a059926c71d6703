//! Configuration files of `apiserver.config.k8s.io`, which are followed while the server runs:
//! strict parsing, reload, and the metrics of reloads.
//!
//! Invariant: a file that can't be used never replaces the configuration that is in use.

mod file;
mod metrics;
mod parse;

pub use file::ConfigFile;
pub use metrics::{ConfigMetrics, hash_content};
pub use parse::parse_config;
