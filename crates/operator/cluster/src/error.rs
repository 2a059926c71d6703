//! Errors: each one sentence that names the object and, if possible, the remedy.

use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a cluster could not be started, stopped or inspected.
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
    /// The settings can't be parsed.
    #[error(
        "{path} is damaged ({cause}); restore it, or stop the cluster's processes, remove its folder and start over"
    )]
    Settings {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: serde_json::Error,
    },
    /// The data directory has the layout of a newer release.
    #[error(
        "{path} was written by a newer release (layout {found}, this one knows {known}); use that release"
    )]
    NewerLayout {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u64,
        /// The newest supported version.
        known: u32,
    },
    /// A precondition of the start does not hold.
    #[error("{0}")]
    Refused(String),
    /// A program failed.
    #[error("`{command}` failed: {reason}")]
    Command {
        /// The command.
        command: String,
        /// Error output of the command.
        reason: String,
    },
    /// An error about certificates.
    #[error(transparent)]
    Certificates(#[from] operator_pki::Error),
    /// A cluster could not be verified.
    #[error(transparent)]
    Discovery(#[from] operator_discovery::Error),
    /// A step took too long.
    #[error("{what} did not happen within {seconds} s; see {log}")]
    Late {
        /// The awaited condition.
        what: String,
        /// The timeout in seconds.
        seconds: u64,
        /// The log to read.
        log: PathBuf,
    },
    /// The API server rejected a request.
    #[error("{what}: {cause}")]
    Api {
        /// The request.
        what: String,
        /// The error.
        cause: client::Error,
    },
}

impl Error {
    /// Builds a converter of IO errors, for `map_err`.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Io { path, cause }
    }
}
