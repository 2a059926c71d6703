//! Configuration files: those of `apiserver.config.k8s.io`, which are followed while the server
//! runs, with strict parsing, reload, and the metrics of reloads; and the errors of all files.
//!
//! Invariant: a file that can't be used never replaces the configuration that is in use.

mod error;
mod file;
mod metrics;
mod parse;

pub use error::{ConfigFileError, read_file};
pub use file::ConfigFile;
pub use metrics::{ConfigMetrics, hash_content};
pub use parse::{parse_config, read_config};
