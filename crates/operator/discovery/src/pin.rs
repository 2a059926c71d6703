//! Pins of public keys: the SHA-256 of a certificate's SubjectPublicKeyInfo in DER (RFC 7469, 2.4).

use std::fmt;
use std::str::FromStr;

use api_meta::pem::{PemBlock, format_block, read_blocks};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

const FORMAT: &str = "sha256";
const LABEL: &str = "CERTIFICATE";

/// The pin of a public key: `sha256:HEX`, as in kubeadm's `--discovery-token-ca-cert-hash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPin([u8; 32]);

/// A text is no pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a hash of a CA's public key is sha256: and 64 hexadecimal digits; `ironclad token create --print-join-command` prints it"
)]
pub struct InvalidPin;

impl KeyPin {
    /// Returns the pin of a certificate's key; None for bytes that are no certificate.
    #[must_use]
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        let (rest, certificate) = X509Certificate::from_der(der).ok()?;
        let key = certificate.tbs_certificate.subject_pki.raw;
        rest.is_empty().then(|| Self(Sha256::digest(key).into()))
    }
}

impl fmt::Display for KeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORMAT}:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for KeyPin {
    type Err = InvalidPin;

    fn from_str(text: &str) -> Result<Self, InvalidPin> {
        let (format, digits) = text.split_once(':').ok_or(InvalidPin)?;
        if !format.eq_ignore_ascii_case(FORMAT) || digits.len() != 64 || !digits.is_ascii() {
            return Err(InvalidPin);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            // No sign, which the parser of integers would accept.
            let pair = std::str::from_utf8(pair).map_err(|_| InvalidPin)?;
            if !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(InvalidPin);
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidPin)?;
        }
        Ok(Self(bytes))
    }
}

fn read_certificates(pem: &[u8]) -> impl Iterator<Item = PemBlock> {
    read_blocks(pem).filter(|block| block.label == LABEL)
}

/// Returns the pins of the certificates in a PEM text.
#[must_use]
pub fn pin_certificates(pem: &[u8]) -> Vec<KeyPin> {
    read_certificates(pem)
        .filter_map(|block| KeyPin::of_certificate(&block.contents))
        .collect()
}

/// Returns the certificates of a PEM text whose keys are pinned. The others are dropped: a bundle
/// that has the pinned CA could have an attacker's beside it.
#[must_use]
pub fn retain_pinned(pem: &[u8], pins: &[KeyPin]) -> String {
    read_certificates(pem)
        .filter(|block| {
            KeyPin::of_certificate(&block.contents).is_some_and(|pin| pins.contains(&pin))
        })
        .map(|block| format_block(LABEL, &block.contents))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The pin was computed with `openssl x509 -pubkey | openssl pkey -pubin -outform der | openssl
    /// dgst -sha256`.
    const CA: &str = include_str!("pin_tests_ca.pem");
    const PIN: &str = include_str!("pin_tests_ca.pin");

    #[test]
    fn pin_is_the_digest_of_the_public_key() {
        let pins = pin_certificates(CA.as_bytes());
        assert_eq!(pins.len(), 1);
        assert_eq!(pins[0].to_string(), PIN.trim());
        assert_eq!(PIN.trim().parse(), Ok(pins[0]));
        assert_eq!(PIN.trim().to_uppercase().parse(), Ok(pins[0]));
    }

    #[test]
    fn text_of_another_form_is_no_pin() {
        let digits = "0".repeat(64);
        for (text, valid) in [
            (format!("sha256:{digits}"), true),
            (format!("SHA256:{digits}"), true),
            (format!("sha512:{digits}"), false),
            (format!("sha256:{}", "0".repeat(62)), false),
            (format!("sha256:{}", "0".repeat(66)), false),
            (format!("sha256:{}+1", "0".repeat(62)), false),
            (format!("sha256:{}", "é".repeat(32)), false),
            (format!("sha256:{} 0", "0".repeat(62)), false),
            (digits, false),
            (String::new(), false),
        ] {
            assert_eq!(text.parse::<KeyPin>().is_ok(), valid, "{text}");
        }
    }

    #[test]
    fn certificates_without_a_pin_are_dropped() {
        let own = pin_certificates(CA.as_bytes());
        let key = rcgen::KeyPair::generate().unwrap();
        let other = rcgen::CertificateParams::default()
            .self_signed(&key)
            .unwrap()
            .pem();
        let bundle = format!("{other}{CA}");
        assert_eq!(pin_certificates(bundle.as_bytes()).len(), 2);
        let left = retain_pinned(bundle.as_bytes(), &own);
        assert_eq!(pin_certificates(left.as_bytes()), own);
        assert_eq!(retain_pinned(other.as_bytes(), &own), "");
        assert_eq!(retain_pinned(b"no certificate", &own), "");
    }
}
