//! Failures, each one sentence that names the thing and, where there is one, the remedy.

use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a cluster could not be started, stopped or looked at.
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
    /// The settings are not readable.
    #[error(
        "{path} is damaged ({cause}); restore it, or stop the cluster's processes, remove its folder and start over"
    )]
    Settings {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: serde_json::Error,
    },
    /// The data are of a newer release.
    #[error("{path} was written by a newer release (layout {found}, this one knows {known}); use that release")]
    NewerLayout {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: u64,
        /// What this release knows.
        known: u32,
    },
    /// Something that has to hold before starting does not.
    #[error("{0}")]
    Refused(String),
    /// A program that is called failed.
    #[error("`{command}` failed: {reason}")]
    Command {
        /// What was called.
        command: String,
        /// What it said.
        reason: String,
    },
    /// Certificates.
    #[error(transparent)]
    Certificates(#[from] operator_pki::Error),
    /// A step took too long.
    #[error("{what} did not happen within {seconds} s; see {log}")]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
        /// Where to look.
        log: PathBuf,
    },
    /// The API server refused something.
    #[error("{what}: {cause}")]
    Api {
        /// What was asked.
        what: String,
        /// The answer.
        cause: client::Error,
    },
}

impl Error {
    /// For `map_err` on file operations.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Io { path, cause }
    }
}
