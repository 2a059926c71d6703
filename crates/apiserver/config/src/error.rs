//! Files that can't be used.

use std::path::{Path, PathBuf};

/// A file that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    /// The file can't be read.
    #[error("can't read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The content can't be used.
    #[error("{path} can't be used: {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The reason; never contains the content of a file with secrets.
        why: String,
    },
}

impl ConfigFileError {
    /// Creates the error of a content.
    pub fn content(path: &Path, why: impl Into<String>) -> Self {
        ConfigFileError::Content {
            path: path.into(),
            why: why.into(),
        }
    }
}

/// Reads a file.
///
/// # Errors
/// The file can't be read.
pub fn read_file(path: &Path) -> Result<Vec<u8>, ConfigFileError> {
    std::fs::read(path).map_err(|source| ConfigFileError::Read {
        path: path.into(),
        source,
    })
}
