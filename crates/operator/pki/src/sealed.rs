//! The keys of a control plane for the machines that join it, encrypted as kubeadm does: AES-256-GCM under
//! a random key of 32 bytes, with the nonce of 12 bytes before the cipher text.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::Error;
use crate::certificate::belongs_to_key;
use crate::files::{write_private, write_public};

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

/// Returns the files that all machines of a control plane have in common. Each machine issues its other
/// certificates itself.
#[must_use]
pub fn list_shared_files() -> [KeyFile; 8] {
    [
        ("ca.crt", "ca.crt", false),
        ("ca.key", "ca.key", true),
        ("sa.key", "sa.key", true),
        ("sa.pub", "sa.pub", false),
        ("front-proxy-ca.crt", "front-proxy-ca.crt", false),
        ("front-proxy-ca.key", "front-proxy-ca.key", true),
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

/// Returns the name of the first CA whose key does not fit its certificate; None if all do. `contents` are the shared
/// files by the names of their entries.
#[must_use]
pub fn find_mismatched_ca(contents: &BTreeMap<String, Vec<u8>>) -> Option<&'static str> {
    let text = |entry: String| {
        let content = contents.get(&entry)?;
        std::str::from_utf8(content).ok()
    };
    ["ca", "front-proxy-ca", "etcd-ca"].into_iter().find(|ca| {
        let (certificate, key) = (text(format!("{ca}.crt")), text(format!("{ca}.key")));
        !certificate
            .zip(key)
            .is_some_and(|(certificate, key)| belongs_to_key(certificate, key))
    })
}

/// The key under which the control plane's keys are encrypted. It is printed once and stored nowhere.
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
        let nonce: [u8; NONCE_LEN] = fill_random()?;
        let mut text = content.to_vec();
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        self.cipher()?
            .seal_in_place_append_tag(nonce_used, Aad::empty(), &mut text)
            .map_err(|_| SealError::Open)?;
        Ok([nonce.as_slice(), &text].concat())
    }

    /// Decrypts.
    ///
    /// # Errors
    /// The text was encrypted under another key, or was changed.
    pub fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
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

    #[test]
    fn key_of_another_ca_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut contents = BTreeMap::new();
        for ca in ["ca", "front-proxy-ca", "etcd-ca"] {
            crate::Authority::ensure(dir.path(), ca, ca).unwrap();
            for extension in ["crt", "key"] {
                let entry = format!("{ca}.{extension}");
                let content = std::fs::read(dir.path().join(&entry)).unwrap();
                contents.insert(entry, content);
            }
        }
        assert_eq!(find_mismatched_ca(&contents), None);
        let mut mixed = contents.clone();
        mixed.insert("etcd-ca.key".to_owned(), contents["ca.key"].clone());
        assert_eq!(find_mismatched_ca(&mixed), Some("etcd-ca"));
        let mut damaged = contents.clone();
        damaged.insert("ca.crt".to_owned(), b"x".to_vec());
        assert_eq!(find_mismatched_ca(&damaged), Some("ca"));
        contents.remove("front-proxy-ca.key");
        assert_eq!(find_mismatched_ca(&contents), Some("front-proxy-ca"));
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
