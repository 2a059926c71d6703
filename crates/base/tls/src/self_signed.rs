//! Self-signed serving certificates that are kept in files for the next start.

use crate::files::write_file_atomically;
use rcgen::{CertificateParams, KeyPair};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Reasons why there is no self-signed certificate.
#[derive(Debug, thiserror::Error)]
pub enum SelfSignedError {
    /// A file or the folder can't be written.
    #[error("can't write {path}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A name can't be in a certificate.
    #[error("can't make a certificate")]
    Make(#[source] rcgen::Error),
}

/// Creates a self-signed certificate and its key unless both files exist, and returns whether it
/// did. Missing directories are created for this user only.
///
/// # Errors
/// The pair can't be made or written.
pub fn ensure_self_signed_pair(
    certificate: &Path,
    key: &Path,
    params: impl FnOnce() -> Result<CertificateParams, rcgen::Error>,
) -> Result<bool, SelfSignedError> {
    if certificate.exists() && key.exists() {
        return Ok(false);
    }
    let (certificate_pem, key_pem) =
        create_self_signed_pair(params).map_err(SelfSignedError::Make)?;
    for folder in [certificate, key].into_iter().filter_map(Path::parent) {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(|source| write_error(folder, source))?;
    }
    // The key first: if the process ends in between, the certificate is missing, and the next start
    // creates both again. In the other order a certificate could remain beside the key of another.
    for (path, pem, mode) in [
        (key, &key_pem, 0o600),
        (certificate, &certificate_pem, 0o644),
    ] {
        write_file_atomically(path, pem.as_bytes(), mode)
            .map_err(|source| write_error(path, source))?;
    }
    Ok(true)
}

fn write_error(path: &Path, source: std::io::Error) -> SelfSignedError {
    SelfSignedError::Write {
        path: path.to_owned(),
        source,
    }
}

/// Returns a new self-signed certificate and its key in PEM.
///
/// # Errors
/// A name can't be in a certificate.
pub fn create_self_signed_pair(
    params: impl FnOnce() -> Result<CertificateParams, rcgen::Error>,
) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    Ok((params()?.self_signed(&key)?.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn params() -> Result<CertificateParams, rcgen::Error> {
        CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])
    }

    #[test]
    fn pair_is_made_once_with_a_private_key() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("pki");
        let (certificate, key) = (folder.join("a.crt"), folder.join("a.key"));
        assert!(ensure_self_signed_pair(&certificate, &key, params).unwrap());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&key), mode(&folder)), (0o600, 0o700));
        let pem = std::fs::read(&certificate).unwrap();
        assert_eq!(
            crate::parse_certificates(&pem, &certificate).unwrap().len(),
            1
        );
        assert!(!ensure_self_signed_pair(&certificate, &key, params).unwrap());
        assert_eq!(std::fs::read(&certificate).unwrap(), pem);
    }

    #[test]
    fn pair_without_its_certificate_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("a.crt"), folder.path().join("a.key"));
        std::fs::write(&key, "a key whose certificate was never written").unwrap();
        assert!(ensure_self_signed_pair(&certificate, &key, params).unwrap());
        assert!(crate::parse_private_key(&std::fs::read(&key).unwrap(), &key).is_ok());
    }
}
