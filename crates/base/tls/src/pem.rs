//! Certificates and keys out of PEM, with errors that name the file and the remedy.

use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};

/// What is wrong with a TLS file or configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file can't be read.
    #[error("can't read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file holds nothing of the kind.
    #[error("{path} holds no {what} in PEM form")]
    Empty {
        /// The file, or `inline data`.
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
    },
    /// rustls refuses it (a key that doesn't belong to the certificate, ...).
    #[error("TLS configuration is refused: {0}")]
    Refused(String),
}

/// Reads a file.
///
/// # Errors
/// Names the file that can't be read.
pub fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { path: path.into(), source })
}

/// All certificates in `pem`; `path` is for the error.
pub fn certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = rustls_pemfile::certs(&mut &*pem).filter_map(Result::ok).collect();
    if found.is_empty() {
        return Err(TlsError::Empty { path: path.into(), what: "certificate" });
    }
    Ok(found)
}

/// The first private key in `pem`; `path` is for the error.
pub fn private_key(pem: &[u8], path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let key = rustls_pemfile::private_key(&mut &*pem).ok().flatten();
    key.ok_or_else(|| TlsError::Empty { path: path.into(), what: "private key" })
}

/// A store of trusted roots from `pem`. Certificates that can't serve as roots are passed over.
pub fn roots(pem: &[u8], path: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(certificates(pem, path)?);
    Ok(store)
}
