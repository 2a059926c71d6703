//! Errors about certificates.

use std::path::PathBuf;

/// A failure to read, create or write a certificate, with the file's name.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {cause}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        cause: std::io::Error,
    },
    /// A key or certificate could not be created or parsed.
    #[error("{path}: {cause}; move the file away to have a new one made")]
    Certificate {
        /// The file concerned.
        path: PathBuf,
        /// The reason.
        cause: rcgen::Error,
    },
    /// A CA's certificate exists without its key, or the reverse.
    #[error(
        "{0} is missing while its counterpart is there; restore it from a backup, or move the whole folder away"
    )]
    Half(PathBuf),
    /// A CA's key is not that of its certificate.
    #[error(
        "{0} is not the key of the first certificate in the file beside it; replace both by those of one CA"
    )]
    OtherKey(PathBuf),
}
