//! Self-signed serving certificates that are kept for the next start.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Reasons why there is no certificate.
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

/// Returns certificate and key file of a pair in `folder`. The pair is made for `host_names`, DNS
/// names and IP addresses, unless both files exist. As upstream, a present pair is kept whatever
/// its names are.
///
/// # Errors
/// The pair can't be made or written.
pub fn self_signed_pair(
    folder: &Path,
    name: &str,
    host_names: impl IntoIterator<Item = String>,
) -> Result<(PathBuf, PathBuf), SelfSignedError> {
    let certificate = folder.join(format!("{name}.crt"));
    let key = folder.join(format!("{name}.key"));
    if certificate.exists() && key.exists() {
        return Ok((certificate, key));
    }
    let failed = |path: &Path, source| SelfSignedError::Write {
        path: path.to_owned(),
        source,
    };
    let host_names: Vec<String> = host_names.into_iter().collect();
    let made = rcgen::generate_simple_self_signed(host_names).map_err(SelfSignedError::Make)?;
    std::fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
    write_private(&key, made.signing_key.serialize_pem().as_bytes())
        .map_err(|source| failed(&key, source))?;
    std::fs::write(&certificate, made.cert.pem()).map_err(|source| failed(&certificate, source))?;
    Ok((certificate, key))
}

fn write_private(path: &Path, data: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(data)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn pair_is_made_once_with_a_private_key() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("pki");
        let names = || ["127.0.0.1", "localhost"].map(str::to_owned);
        let (certificate, key) = self_signed_pair(&folder, "a", names()).unwrap();
        let mode = std::fs::metadata(&key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let pem = std::fs::read(&certificate).unwrap();
        assert_eq!(
            base_tls::parse_certificates(&pem, &certificate)
                .unwrap()
                .len(),
            1
        );
        let again = self_signed_pair(&folder, "a", names()).unwrap();
        assert_eq!(again, (certificate.clone(), key));
        assert_eq!(std::fs::read(&certificate).unwrap(), pem);
    }
}
