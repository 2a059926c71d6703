//! Self-signed serving certificates of components.

use base_tls::SelfSignedError;
use std::path::{Path, PathBuf};

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
    let host_names: Vec<String> = host_names.into_iter().collect();
    // Others may read the folder, so it does not get the mode of a folder for keys only.
    std::fs::create_dir_all(folder).map_err(|source| SelfSignedError::Write {
        path: folder.to_owned(),
        source,
    })?;
    base_tls::ensure_self_signed_pair(&certificate, &key, || {
        rcgen::CertificateParams::new(host_names)
    })?;
    Ok((certificate, key))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn pair_is_named_and_kept() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("pki");
        let names = || ["127.0.0.1", "localhost"].map(str::to_owned);
        let pair = self_signed_pair(&folder, "a", names()).unwrap();
        assert_eq!(pair, (folder.join("a.crt"), folder.join("a.key")));
        let pem = std::fs::read(&pair.0).unwrap();
        assert_eq!(self_signed_pair(&folder, "a", names()).unwrap(), pair);
        assert_eq!(std::fs::read(&pair.0).unwrap(), pem);
    }
}
