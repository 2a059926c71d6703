//! The keys of a control plane for the machines that join it, encrypted as kubeadm does:
//! AES-256-GCM under a random key of 32 bytes, with the nonce of 12 bytes before the cipher text.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::Error;
use crate::files::{write_private, write_public};
use crate::key_pair::{belongs_to_key, includes_key};

// kubeadm's `CertificateKeySize`, the key length of AES-256.
const KEY_LENGTH: usize = 32;

/// A file of the control plane's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyFile {
    /// Name of the entry in the Secret `kubeadm-certs`.
    pub entry: &'static str,
    /// Path below the directory of certificates.
    pub path: &'static str,
    /// Only its owner may read it.
    pub is_private: bool,
}

/// Returns the files that all machines of a control plane have in common. Each machine issues its
/// other certificates itself.
#[must_use]
pub fn list_shared_files() -> [KeyFile; 8] {
    [
        ("ca.crt", "ca.crt", false),
        ("ca.key", "ca.key", true),
        ("sa.key", "sa.key", true),
        ("sa.pub", "sa.pub", false),
        ("front-proxy-ca.crt", "front-proxy-ca.crt", false),
        ("front-proxy-ca.key", "front-proxy-ca.key", true),
        // The keys of a Secret can't contain a slash, and kubeadm replaces it by a dash.
        ("etcd-ca.crt", "etcd/ca.crt", false),
        ("etcd-ca.key", "etcd/ca.key", true),
    ]
    .map(|(entry, path, is_private)| KeyFile {
        entry,
        path,
        is_private,
    })
}

/// Writes one of the shared files below `folder`.
///
/// # Errors
/// The file can't be written.
pub fn write_shared_file(folder: &Path, file: KeyFile, content: &[u8]) -> Result<(), Error> {
    let path = folder.join(file.path);
    match file.is_private {
        true => write_private(&path, content),
        false => write_public(&path, content),
    }
}

/// A private key that is not that of its certificate or public key: the names of their entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyMismatch {
    /// The private key.
    pub private: &'static str,
    /// The certificate or public key.
    pub public: &'static str,
}

/// Returns the first private key that does not fit; None if all do. `contents` are the shared files
/// by the names of their entries.
///
/// Each is encrypted alone, so that one file could be in the place of another. Pairs that were
/// exchanged as a whole are not found.
#[must_use]
pub fn find_mismatched_key(contents: &BTreeMap<String, Vec<u8>>) -> Option<KeyMismatch> {
    let text = |entry: &str| {
        let content = contents.get(entry)?;
        std::str::from_utf8(content).ok()
    };
    type Check = fn(&str, &str) -> bool;
    let pairs: [(&str, &str, Check); 4] = [
        ("ca.crt", "ca.key", belongs_to_key),
        ("front-proxy-ca.crt", "front-proxy-ca.key", belongs_to_key),
        ("etcd-ca.crt", "etcd-ca.key", belongs_to_key),
        // During a rotation `sa.pub` also has the former public key, for tokens that are still
        // valid.
        ("sa.pub", "sa.key", includes_key),
    ];
    let fits = |public, private, check: Check| {
        let both = text(public).zip(text(private));
        both.is_some_and(|(public, private)| check(public, private))
    };
    let mut all = pairs.into_iter();
    let found = all.find(|(public, private, check)| !fits(public, private, *check));
    found.map(|(public, private, _)| KeyMismatch { private, public })
}

/// The key under which the control plane's keys are encrypted. It is printed once and stored
/// nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateKey([u8; KEY_LENGTH]);

/// A text is no certificate key. The error omits the text, which may be a mistyped key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a certificate key is 64 hexadecimal digits, as `ironclad token create --control-plane` prints it"
)]
pub struct InvalidCertificateKey;

/// A failure of encryption or decryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The system's source of random numbers failed.
    #[error("the system's source of random numbers failed")]
    Random,
    /// The text was encrypted under another key, or was changed.
    #[error("it was not encrypted with this certificate key, or was changed since")]
    Open,
}

impl CertificateKey {
    /// Returns a new random key.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate() -> Result<Self, SealError> {
        fill_random().map(Self)
    }

    /// Returns the key in hexadecimal. It must be shown to the operator only.
    #[must_use]
    pub fn expose(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Encrypts with a fresh nonce.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn seal(&self, content: &[u8]) -> Result<Vec<u8>, SealError> {
        // A random nonce suffices: a key seals eight files, and NIST SP 800-38D allows 2^32 of
        // them.
        let nonce: [u8; NONCE_LEN] = fill_random()?;
        let mut text = content.to_vec();
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        self.cipher()?
            .seal_in_place_append_tag(nonce_used, Aad::empty(), &mut text)
            .map_err(|_| SealError::Open)?;
        Ok([nonce.as_slice(), &text].concat())
    }

    /// Returns the content that `seal` encrypted.
    ///
    /// # Errors
    /// The text was encrypted under another key, or was changed.
    pub fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        // The entry comes from the cluster, and may be shorter than a nonce.
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN).ok_or(SealError::Open)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Open)?;
        let mut text = text.to_vec();
        let opened = self.cipher()?.open_in_place(nonce, Aad::empty(), &mut text);
        opened
            .map(|opened| opened.to_vec())
            .map_err(|_| SealError::Open)
    }

    fn cipher(&self) -> Result<LessSafeKey, SealError> {
        let key = UnboundKey::new(&AES_256_GCM, &self.0).map_err(|_| SealError::Open)?;
        Ok(LessSafeKey::new(key))
    }
}

fn fill_random<const N: usize>() -> Result<[u8; N], SealError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| SealError::Random)
}

/// Without the key: values are printed in logs.
impl fmt::Debug for CertificateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateKey(..)")
    }
}

impl FromStr for CertificateKey {
    type Err = InvalidCertificateKey;

    fn from_str(text: &str) -> Result<Self, InvalidCertificateKey> {
        let digits = text.as_bytes();
        // `from_str_radix` alone would accept a sign: `+f` is no byte of a key.
        if digits.len() != 2 * KEY_LENGTH || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(InvalidCertificateKey);
        }
        let mut key = [0; KEY_LENGTH];
        for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| InvalidCertificateKey)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidCertificateKey)?;
        }
        Ok(Self(key))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn sealed_text_is_opened_with_its_key_only() {
        let (key, other) = (
            CertificateKey::generate().unwrap(),
            CertificateKey::generate().unwrap(),
        );
        assert_ne!(key, other);
        let sealed = key.seal(b"secret").unwrap();
        assert_ne!(sealed, key.seal(b"secret").unwrap(), "a fresh nonce");
        assert_eq!(sealed.len(), 12 + 6 + 16, "nonce, text, tag");
        assert_eq!(key.open(&sealed).unwrap(), b"secret");
        assert_eq!(other.open(&sealed), Err(SealError::Open));
        for position in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[position] ^= 1;
            assert_eq!(key.open(&changed), Err(SealError::Open), "{position}");
        }
        for length in 0..28 {
            assert_eq!(
                key.open(&sealed[..length]),
                Err(SealError::Open),
                "{length}"
            );
        }
    }

    /// The first test vector of NIST's validation suite for a key of 256 bits and a text of 128.
    #[test]
    fn format_is_nonce_cipher_text_and_tag_of_aes_256_gcm() {
        let key = "31bdadd96698c204aa9ce1448ea94ae1fb4a9a0b3c9d773b51bb1822666b8f22";
        let sealed = "0d18e06c7c725ac9e362e1ce\
                      fa4362189661d163fcd6a56d8bf0405a\
                      d636ac1bbedd5cc3ee727dc2ab4a9489";
        let sealed: Vec<u8> = sealed
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        let key: CertificateKey = key.parse().unwrap();
        let text = key.open(&sealed).unwrap();
        let hex: String = text.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "2db5168e932556f8089a0622981d017d");
    }

    #[test]
    fn key_is_64_hexadecimal_digits_and_never_logged() {
        let key = CertificateKey::generate().unwrap();
        assert_eq!(key.expose().parse(), Ok(key.clone()));
        assert!(!format!("{key:?}").contains(&key.expose()));
        for text in ["", "00", &"0".repeat(63), &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(
                text.parse::<CertificateKey>(),
                Err(InvalidCertificateKey),
                "{text}"
            );
        }
    }

    fn read_contents() -> BTreeMap<String, Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        crate::set::ensure_service_account_key(dir.path()).unwrap();
        for ca in ["ca", "front-proxy-ca", "etcd-ca"] {
            crate::Authority::ensure(dir.path(), ca, ca).unwrap();
        }
        let entries = list_shared_files().map(|file| file.entry);
        let read = |entry: &str| {
            (
                entry.to_owned(),
                std::fs::read(dir.path().join(entry)).unwrap(),
            )
        };
        entries.into_iter().map(read).collect()
    }

    #[test]
    fn key_in_the_place_of_another_one_is_noticed() {
        let contents = read_contents();
        assert_eq!(find_mismatched_key(&contents), None);
        for (entry, other, expected) in [
            ("etcd-ca.key", "ca.key", "etcd-ca.key"),
            ("front-proxy-ca.crt", "ca.crt", "front-proxy-ca.key"),
            ("sa.key", "ca.key", "sa.key"),
            ("sa.key", "ca.crt", "sa.key"),
            ("sa.pub", "ca.crt", "sa.key"),
            ("sa.pub", "sa.key", "sa.key"),
        ] {
            let mut mixed = contents.clone();
            mixed.insert(entry.to_owned(), contents[other].clone());
            let found = find_mismatched_key(&mixed).map(|found| found.private);
            assert_eq!(found, Some(expected), "{other} as {entry}");
        }
        for entry in ["ca.crt", "sa.key", "sa.pub", "front-proxy-ca.key"] {
            let mut damaged = contents.clone();
            damaged.insert(entry.to_owned(), b"x".to_vec());
            assert!(find_mismatched_key(&damaged).is_some(), "{entry}");
            damaged.remove(entry);
            assert!(find_mismatched_key(&damaged).is_some(), "{entry}");
        }
    }

    /// A former key stays in `sa.pub` until its tokens have expired.
    #[test]
    fn public_keys_of_former_tokens_are_accepted() {
        let (mut contents, other) = (read_contents(), read_contents());
        let both = [other["sa.pub"].clone(), contents["sa.pub"].clone()].concat();
        contents.insert("sa.pub".to_owned(), both);
        assert_eq!(find_mismatched_key(&contents), None);
        contents.insert("sa.pub".to_owned(), other["sa.pub"].clone());
        let found = find_mismatched_key(&contents).unwrap();
        assert_eq!((found.private, found.public), ("sa.key", "sa.pub"));
        // A key of kubeadm, which is compared by no reader of keys here.
        let key = "-----BEGIN RSA PRIVATE KEY-----\nMAA=\n-----END RSA PRIVATE KEY-----\n";
        contents.insert("sa.key".to_owned(), key.into());
        assert_eq!(find_mismatched_key(&contents), None);
    }

    #[test]
    fn private_files_are_readable_by_their_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        for file in list_shared_files() {
            write_shared_file(dir.path(), file, b"x").unwrap();
            let path = dir.path().join(file.path);
            let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode == 0o600, file.path.ends_with(".key"), "{}", file.path);
        }
    }
}
