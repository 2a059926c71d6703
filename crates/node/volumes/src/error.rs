//! Why a volume can't be had.

use std::path::{Path, PathBuf};

/// A volume that can't be prepared.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The kernel refused a file operation.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The volume is not what the pod says it is, or must not be used so.
    #[error("{0}")]
    Refused(String),
}

/// Result of volume work.
pub type Result<T> = std::result::Result<T, VolumeError>;

/// Adds to an IO error what was done to which path.
pub(crate) trait Context<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Context<T> for std::result::Result<T, E> {
    fn at(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|e| VolumeError::Io { action, path: path.to_owned(), source: e.into() })
    }
}
