//! Certificates and keys from PEM, with errors that name the file and the remedy.

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Errors of TLS files and configurations.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Reading the file failed.
    #[error("can't read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The file contains no such PEM block.
    #[error("{path} holds no {what} in PEM form")]
    Empty {
        /// The file, or `inline data`.
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
    },
    /// rustls rejects the configuration, for instance a key that does not match the certificate.
    #[error("TLS configuration is refused: {0}")]
    Refused(String),
}

/// Reads a file.
///
/// # Errors
/// Reading fails. The error names the file.
pub fn read_file(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read {
        path: path.into(),
        source,
    })
}

/// Returns all certificates in `pem`. `path` is used in the error.
pub fn parse_certificates(
    pem: &[u8],
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        // Bundles contain other blocks, such as parameters of curves. What matters is that a
        // certificate is among them.
        .filter_map(Result::ok)
        .collect();
    if found.is_empty() {
        return Err(TlsError::Empty {
            path: path.into(),
            what: "certificate",
        });
    }
    Ok(found)
}

/// Returns the first private key in `pem`. `path` is used in the error.
pub fn parse_private_key(pem: &[u8], path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let key = PrivateKeyDer::from_pem_slice(pem);
    key.map_err(|_| TlsError::Empty {
        path: path.into(),
        what: "private key",
    })
}

/// Returns the end of the validity, in seconds since 1970, of the certificate in `pem` that expires
/// first. A chain is valid until then; of a bundle of CAs, that one must be replaced first.
#[must_use]
pub fn find_first_expiration(pem: &[u8]) -> Option<i64> {
    let end = |der: &CertificateDer<'_>| {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(certificate.validity().not_after.timestamp())
    };
    let certificates = parse_certificates(pem, Path::new("PEM")).ok()?;
    certificates.iter().filter_map(end).min()
}

/// Returns a store of the trusted roots in `pem`. Certificates that can't be roots are ignored.
pub fn parse_roots(pem: &[u8], path: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    // A bundle of a system may have a root that rustls cannot parse; the others must work.
    store.add_parsable_certificates(parse_certificates(pem, path)?);
    Ok(store)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn error_names_the_file_and_the_missing_block() {
        let path = Path::new("/etc/x.pem");
        let problem = parse_certificates(b"no PEM", path).unwrap_err().to_string();
        assert_eq!(problem, "/etc/x.pem holds no certificate in PEM form");
        let problem = parse_private_key(b"", path).unwrap_err().to_string();
        assert_eq!(problem, "/etc/x.pem holds no private key in PEM form");
        let problem = read_file(Path::new("/no/such/file"))
            .unwrap_err()
            .to_string();
        assert_eq!(problem, "can't read /no/such/file");
    }

    #[test]
    fn all_certificates_of_a_bundle_are_read() {
        let pem = |name: &str| {
            rcgen::generate_simple_self_signed([name.to_owned()])
                .unwrap()
                .cert
                .pem()
        };
        let bundle = format!("# a comment\n{}\n{}", pem("a"), pem("b"));
        assert_eq!(
            parse_certificates(bundle.as_bytes(), Path::new("x"))
                .unwrap()
                .len(),
            2
        );
    }
}
