//! Errors of volume operations.

use std::path::{Path, PathBuf};

/// A volume that can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A failed file operation.
    #[error("{action} {path}: {source}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The volume does not match the pod's spec, or this use is not allowed.
    #[error("{0}")]
    Refused(String),
}

/// Result of a volume operation.
pub type Result<T> = std::result::Result<T, VolumeError>;

/// Adds operation and path to an IO error.
pub(crate) trait Context<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Context<T> for std::result::Result<T, E> {
    fn at(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|e| VolumeError::Io {
            action,
            path: path.to_owned(),
            source: e.into(),
        })
    }
}
