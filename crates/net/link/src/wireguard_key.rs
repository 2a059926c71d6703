//! Keys of WireGuard: those of X25519 (RFC 7748), in the form of the tool `wg`.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Length of a key in bytes.
pub(crate) const KEY_SIZE: usize = 32;

/// The public key of a device. As text it is base64 of 44 characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_SIZE]);

/// A text that is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a WireGuard key: 32 bytes in base64")]
pub struct InvalidKey;

/// The private key of a device. No output contains it, except [`PrivateKey::format_secret`].
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey([u8; KEY_SIZE]);

impl PublicKey {
    /// Returns the key of 32 bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0 == [0; KEY_SIZE]
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        decode(text).map(Self).ok_or(InvalidKey)
    }
}

impl PrivateKey {
    /// Returns the key of 32 random bytes. The bits that X25519 does not use are set as the kernel
    /// sets them, so that the key of a device can be compared with it.
    #[must_use]
    pub fn from_random(mut bytes: [u8; KEY_SIZE]) -> Self {
        bytes[0] &= 0xf8;
        bytes[KEY_SIZE - 1] &= 0x7f;
        bytes[KEY_SIZE - 1] |= 0x40;
        Self(bytes)
    }

    /// Returns the key of a text in base64.
    #[must_use]
    pub fn parse_secret(text: &str) -> Option<Self> {
        decode(text).map(Self::from_random)
    }

    /// Returns the secret as base64, for the file of the key.
    #[must_use]
    pub fn format_secret(&self) -> String {
        STANDARD.encode(self.0)
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0 == [0; KEY_SIZE]
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

/// Decodes the one spelling of a key.
fn decode(text: &str) -> Option<[u8; KEY_SIZE]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn public_key_has_one_spelling() {
        let key = TEXT.parse::<PublicKey>();
        assert_eq!(key.map(|key| key.to_string()).as_deref(), Ok(TEXT));
        for wrong in [
            "",
            "AAEC",
            " AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gIQ==",
        ] {
            assert_eq!(wrong.parse::<PublicKey>(), Err(InvalidKey), "{wrong}");
        }
    }

    #[test]
    fn private_key_is_in_no_debug_output() {
        let key = PrivateKey::from_random([0xff; KEY_SIZE]);
        assert_eq!(format!("{key:?}"), "PrivateKey(..)");
        assert_eq!((key.0[0], key.0[31]), (0xf8, 0x7f));
        assert_eq!(PrivateKey::parse_secret(&key.format_secret()), Some(key));
        assert_eq!(PrivateKey::parse_secret("x"), None);
    }
}
