//! Errors of snapshot files.

use kv_bbolt::BoltError;
use kv_engine::EngineError;
use std::io;
use std::path::PathBuf;

/// Errors of snapshot files.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFileError {
    /// The file system returned an error.
    #[error("can't {doing} {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// `read` or `write`.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The file has no hash at its end, as snapshot files have.
    #[error(
        "{0} has no hash at its end: it is cut off, or a copy of a database file; for the latter use --skip-hash-check"
    )]
    NoHash(PathBuf),
    /// The hash at the end does not match the content.
    #[error("{0} is damaged: its hash does not match; use another copy")]
    Hash(PathBuf),
    /// The bbolt database in the file is invalid.
    #[error(transparent)]
    Database(#[from] BoltError),
    /// A record can't be decoded.
    #[error("{0}")]
    Record(String),
    /// Reading the state failed.
    #[error(transparent)]
    State(#[from] EngineError),
}

impl SnapshotFileError {
    /// Returns a function for `map_err` of file operations.
    pub(crate) fn io(path: &std::path::Path, doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| SnapshotFileError::Io {
            path: path.to_path_buf(),
            doing,
            source,
        }
    }
}
