//! Errors of options and their files.

use std::path::PathBuf;

/// Reasons why options are rejected, with the file's name.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// A file that cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file with invalid content.
    #[error("{path} is not usable: {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem; never contains the content.
        why: String,
    },
    /// Watched files that are invalid at the start.
    #[error(transparent)]
    Files(#[from] base_tls::TlsError),
    /// Options that contradict each other.
    #[error("{0}")]
    Conflict(String),
}

/// Reads the file of an option.
pub fn read_file(path: &PathBuf) -> Result<Vec<u8>, OptionsError> {
    std::fs::read(path).map_err(|source| OptionsError::Read {
        path: path.clone(),
        source,
    })
}
