//! Errors of options and their files.

use apiserver_config::ConfigFileError;

/// Reasons why options are rejected, with the file's name.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// A file that can't be used.
    #[error(transparent)]
    File(#[from] ConfigFileError),
    /// Watched files that are invalid at the start.
    #[error(transparent)]
    Files(#[from] base_tls::TlsError),
    /// Options that contradict each other.
    #[error("{0}")]
    Conflict(String),
}
