//! What can go wrong while making certificates.

use std::path::PathBuf;

/// A failure to read, make or write a certificate, naming the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {cause}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        cause: std::io::Error,
    },
    /// A key or certificate could not be made or understood.
    #[error("{path}: {cause}; move the file away to have a new one made")]
    Certificate {
        /// The file concerned.
        path: PathBuf,
        /// The reason.
        cause: rcgen::Error,
    },
    /// An authority's certificate is there without its key, or the reverse.
    #[error("{0} is missing while its counterpart is there; restore it from a backup, or move the whole folder away")]
    Half(PathBuf),
}
