//! Reasons why there is no certificate.

use std::path::PathBuf;

/// A certificate could not be requested, read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A key or request could not be made.
    #[error("a key or certificate request can't be made: {0}")]
    Make(#[from] rcgen::Error),
    /// The API server rejected a request.
    #[error("{what}: {source}")]
    Api {
        what: &'static str,
        #[source]
        source: client::Error,
    },
    /// The request was denied, or its signer failed.
    #[error(
        "certificate request {name} was not granted ({reason}); delete it with `kubectl delete csr {name}` to request \
         the certificate again"
    )]
    NotGranted { name: String, reason: String },
    /// The request was deleted before it was decided.
    #[error("certificate request {0} was deleted before it was signed")]
    Deleted(String),
    /// The certificate or the request is not the one that was requested.
    #[error("the certificate of request {name} can't be used: {reason}")]
    Unusable { name: String, reason: &'static str },
}

impl CertificateError {
    /// Builds a converter of IO errors, for `map_err`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
