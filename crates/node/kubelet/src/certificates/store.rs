//! Files of a certificate with its key: `NAME-TIME.pem` holds both, and the link `NAME-current.pem`
//! is moved to the newest in one step. A reader sees the old pair or the new one.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rcgen::KeyPair;
use x509_parser::pem::parse_x509_pem;

use super::error::CertificateError;

/// The files of one certificate.
#[derive(Debug, Clone)]
pub(crate) struct PairStore {
    folder: PathBuf,
    name: &'static str,
}

/// Validity of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Validity {
    /// First second.
    pub(crate) begin: Timestamp,
    /// Last second.
    pub(crate) end: Timestamp,
    /// Signed with its own key: used until the cluster has issued one.
    pub(crate) is_self_signed: bool,
}

impl PairStore {
    pub(super) fn new(folder: &Path, name: &'static str) -> Self {
        Self {
            folder: folder.to_owned(),
            name,
        }
    }

    /// Returns the path of the current pair.
    pub(crate) fn current_path(&self) -> PathBuf {
        self.folder.join(format!("{}-current.pem", self.name))
    }

    /// Returns the path of a file whose existence makes the certificate due.
    ///
    /// `ironclad certs renew` writes it on a machine that joined: after the replacement of a CA,
    /// the certificate is valid for long, and rejected soon. A file and no signal, so that a
    /// kubelet that is restarted meanwhile finds it.
    pub(super) fn due_path(&self) -> PathBuf {
        self.folder.join(format!("{}-due", self.name))
    }

    /// Returns the inode of the file of [`Self::due_path`], which differs from that of a later
    /// request; None if there is no request.
    pub(super) fn find_request(&self) -> Option<u64> {
        let found = fs::metadata(self.due_path()).ok()?;
        Some(found.ino())
    }

    /// Removes the file of [`Self::due_path`] if it is still that request.
    pub(super) fn clear_request(&self, request: Option<u64>) -> Result<(), CertificateError> {
        if request.is_none() || self.find_request() != request {
            return Ok(());
        }
        remove_file(&self.due_path())
    }

    /// Returns the path of the key of a request that is not signed yet.
    fn pending_key_path(&self) -> PathBuf {
        self.folder.join(format!("{}.key.tmp", self.name))
    }

    /// Returns the validity of the current certificate; None if there is no usable pair.
    pub(crate) fn current_validity(&self) -> Option<Validity> {
        let pem = fs::read(self.current_path()).ok()?;
        base_tls::parse_private_key(&pem, &self.current_path()).ok()?;
        read_validity(&pem)
    }

    /// Makes a pair the current one.
    pub(crate) fn save(
        &self,
        certificate: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<(), CertificateError> {
        let stamp = now.strftime("%Y-%m-%d-%H-%M-%S");
        let file = self.folder.join(format!("{}-{stamp}.pem", self.name));
        let pair = format!("{}\n{}\n", certificate.trim_end(), key.trim_end());
        write_private(&file, pair.as_bytes())?;
        let fresh = self.folder.join(format!("{}-updated.pem", self.name));
        remove_file(&fresh)?;
        // Relative, so that the folder can be moved.
        let target = file.file_name().map(PathBuf::from).unwrap_or_default();
        symlink(target, &fresh).map_err(CertificateError::io(&fresh))?;
        let current = self.current_path();
        fs::rename(&fresh, &current).map_err(CertificateError::io(&current))
    }

    /// Returns the key of a request that is not signed yet, or makes one. The kubelet may be
    /// restarted while its request waits for an approval, and must then find its request again.
    ///
    /// A file that can't be parsed is replaced. Upstream's kubelet writes the key as SEC1, which is
    /// not read here: its request is lost, and another one is created.
    pub(crate) fn pending_key(&self) -> Result<KeyPair, CertificateError> {
        let path = self.pending_key_path();
        match fs::read(&path) {
            Ok(pem) => match parse_key(&pem) {
                Some(key) => return Ok(key),
                None => tracing::warn!(
                    file = %path.display(),
                    "the key of a certificate request can't be read; using a new key"
                ),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(CertificateError::Io { path, source }),
        }
        let key = KeyPair::generate()?;
        write_private(&path, key.serialize_pem().as_bytes())?;
        Ok(key)
    }

    /// Removes the key of a request that was signed.
    pub(crate) fn remove_pending_key(&self) -> Result<(), CertificateError> {
        remove_file(&self.pending_key_path())
    }
}

fn parse_key(pem: &[u8]) -> Option<KeyPair> {
    KeyPair::from_pem(std::str::from_utf8(pem).ok()?).ok()
}

/// Writes a file that only this user can read, at no moment readable by others.
pub(super) fn write_private(path: &Path, data: &[u8]) -> Result<(), CertificateError> {
    if let Some(folder) = path.parent() {
        // As upstream: other users may read public files of the folder, not the keys.
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(folder);
        made.map_err(CertificateError::io(folder))?;
    }
    base_tls::write_file_atomically(path, data, 0o600).map_err(CertificateError::io(path))
}

fn remove_file(path: &Path) -> Result<(), CertificateError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CertificateError::io(path)(error))
        }
        _ => Ok(()),
    }
}

/// Returns the validity of the first certificate in a PEM text.
pub(super) fn read_validity(pem: &[u8]) -> Option<Validity> {
    let (_, block) = parse_x509_pem(pem).ok()?;
    let certificate = block.parse_x509().ok()?;
    let validity = certificate.validity();
    Some(Validity {
        begin: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
        end: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
        is_self_signed: certificate.subject() == certificate.issuer(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn self_signed() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key);
        (certificate.unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn current_pair_is_replaced_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let store = PairStore::new(&dir.path().join("pki"), "kubelet-client");
        assert_eq!(store.current_validity(), None);
        for time in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"] {
            let (certificate, key) = self_signed();
            store
                .save(&certificate, &key, time.parse().unwrap())
                .unwrap();
            let pem = fs::read_to_string(store.current_path()).unwrap();
            assert!(pem.contains(certificate.trim()) && pem.contains(key.trim()));
            assert!(store.current_validity().unwrap().is_self_signed);
            let mode = fs::metadata(store.current_path()).unwrap().permissions();
            assert_eq!(mode.mode() & 0o777, 0o600);
        }
        let link = fs::read_link(store.current_path()).unwrap();
        assert_eq!(link, Path::new("kubelet-client-2026-01-01-00-00-01.pem"));
    }

    #[test]
    fn request_of_a_later_renewal_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = PairStore::new(dir.path(), "kubelet-client");
        assert_eq!(store.find_request(), None);
        store.clear_request(None).unwrap();
        write_private(&store.due_path(), b"").unwrap();
        store.clear_request(None).unwrap();
        let first = store.find_request();
        assert!(first.is_some());
        // Written during the renewal.
        write_private(&store.due_path(), b"").unwrap();
        store.clear_request(first).unwrap();
        assert!(store.due_path().exists());
        store.clear_request(store.find_request()).unwrap();
        assert!(!store.due_path().exists());
    }

    #[test]
    fn pair_without_a_key_is_not_usable() {
        let dir = tempfile::tempdir().unwrap();
        let store = PairStore::new(dir.path(), "kubelet-client");
        let (certificate, _) = self_signed();
        store.save(&certificate, "", Timestamp::now()).unwrap();
        assert_eq!(store.current_validity(), None);
    }

    #[test]
    fn pending_key_is_kept_until_its_request_is_signed() {
        let dir = tempfile::tempdir().unwrap();
        let store = PairStore::new(dir.path(), "kubelet-client");
        let first = store.pending_key().unwrap().serialize_pem();
        assert_eq!(store.pending_key().unwrap().serialize_pem(), first);
        let path = dir.path().join("kubelet-client.key.tmp");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        store.remove_pending_key().unwrap();
        assert_ne!(store.pending_key().unwrap().serialize_pem(), first);
    }

    #[test]
    fn pending_key_that_can_not_be_read_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let store = PairStore::new(dir.path(), "kubelet-client");
        let path = dir.path().join("kubelet-client.key.tmp");
        // The second one is the form of upstream's kubelet, cut short.
        let sec1 = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIA==\n-----END EC PRIVATE KEY-----\n";
        for text in ["no key", sec1, "", "\u{0}"] {
            fs::write(&path, text).unwrap();
            let key = store.pending_key().unwrap().serialize_pem();
            assert_eq!(fs::read_to_string(&path).unwrap(), key, "{text}");
        }
        fs::write(&path, [0xff]).unwrap();
        assert!(store.pending_key().is_ok());
    }
}
