//! Why a file is not made, or not taken.

use kv_bolt::BoltError;
use kv_engine::EngineError;
use std::io;
use std::path::PathBuf;

/// Why a file is not made, or not taken.
#[derive(Debug, thiserror::Error)]
pub enum InterchangeError {
    /// The file system refuses.
    #[error("can't {doing} {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// `read` or `write`.
        doing: &'static str,
        /// The refusal.
        source: io::Error,
    },
    /// A snapshot ends with its hash; this file does not.
    #[error(
        "{0} has no hash at its end: it is cut off, or a copy of a database file; for the latter use --skip-hash-check"
    )]
    NoHash(PathBuf),
    /// The file is not what was saved.
    #[error("{0} is damaged: its hash does not match; use another copy")]
    Hash(PathBuf),
    /// The database in the file can't be read.
    #[error(transparent)]
    Database(#[from] BoltError),
    /// A record can't be decoded.
    #[error("{0}")]
    Record(String),
    /// The state can't be read.
    #[error(transparent)]
    State(#[from] EngineError),
}

impl InterchangeError {
    /// For `map_err` of what is done with a file.
    pub(crate) fn io(path: &std::path::Path, doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| InterchangeError::Io { path: path.to_path_buf(), doing, source }
    }
}
