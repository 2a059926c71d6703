//! JSON Web Key Sets (RFC 7517): the public keys of an issuer.

use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

/// Keys that are read of one set. Issuers publish a few, and a token without a key ID is tried with
/// each.
const MAX_KEYS: usize = 64;

/// A document that is no key set.
#[derive(Debug, thiserror::Error)]
#[error("the document is not a JSON Web Key Set")]
pub struct KeySetError;

/// The kinds of keys that verify tokens of other issuers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyKind {
    Rsa,
    P256,
    P384,
}

impl KeyKind {
    fn of_algorithm(algorithm: Algorithm) -> Option<KeyKind> {
        match algorithm {
            Algorithm::RS256
            | Algorithm::RS384
            | Algorithm::RS512
            | Algorithm::PS256
            | Algorithm::PS384
            | Algorithm::PS512 => Some(KeyKind::Rsa),
            Algorithm::ES256 => Some(KeyKind::P256),
            Algorithm::ES384 => Some(KeyKind::P384),
            // A public key must never be read as a shared secret.
            Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 | Algorithm::EdDSA => None,
        }
    }
}

/// A public key of an issuer.
#[derive(Clone, Debug)]
pub struct PublicKey {
    id: String,
    kind: KeyKind,
    pub(crate) key: DecodingKey,
}

impl PublicKey {
    /// Returns whether the key can verify a token with this key ID and algorithm. A token without
    /// a key ID is tried with every key of its algorithm.
    pub(crate) fn fits(&self, id: &str, algorithm: Algorithm) -> bool {
        (id.is_empty() || id == self.id) && KeyKind::of_algorithm(algorithm) == Some(self.kind)
    }
}

/// Reads the keys of a set. Keys of kinds that verify no token are left out.
///
/// # Errors
/// The document is not a key set.
pub fn parse_key_set(bytes: &[u8]) -> Result<Vec<PublicKey>, KeySetError> {
    let set: Value = serde_json::from_slice(bytes).map_err(|_| KeySetError)?;
    let keys = set
        .get("keys")
        .and_then(Value::as_array)
        .ok_or(KeySetError)?;
    Ok(keys.iter().take(MAX_KEYS).filter_map(read_key).collect())
}

fn read_key(key: &Value) -> Option<PublicKey> {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    let (kind, decoded) = match (text("kty")?, text("crv")) {
        ("RSA", _) => (
            KeyKind::Rsa,
            DecodingKey::from_rsa_components(text("n")?, text("e")?),
        ),
        ("EC", Some("P-256")) => (
            KeyKind::P256,
            DecodingKey::from_ec_components(text("x")?, text("y")?),
        ),
        ("EC", Some("P-384")) => (
            KeyKind::P384,
            DecodingKey::from_ec_components(text("x")?, text("y")?),
        ),
        _ => return None,
    };
    Some(PublicKey {
        id: text("kid").unwrap_or_default().to_owned(),
        kind,
        key: decoded.ok()?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn keys_of_other_kinds_are_left_out() {
        let set = br#"{"keys": [
            {"kty": "RSA", "kid": "r", "n": "AQAB", "e": "AQAB"},
            {"kty": "RSA", "kid": "broken", "n": "%", "e": "AQAB"},
            {"kty": "EC", "crv": "P-256", "kid": "e", "x": "AQAB", "y": "AQAB"},
            {"kty": "EC", "crv": "P-521", "x": "AQAB", "y": "AQAB"},
            {"kty": "oct", "kid": "s", "k": "AQAB"}, {"kty": "OKP", "crv": "Ed25519", "x": "AQAB"},
            {}, 1]}"#;
        let keys = parse_key_set(set).unwrap();
        let ids: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        assert_eq!(ids, ["r", "e"]);
        for (id, algorithm, expect) in [
            ("r", Algorithm::RS256, true),
            ("", Algorithm::PS512, true),
            ("e", Algorithm::RS256, false),
            ("r", Algorithm::HS256, false),
            ("r", Algorithm::ES256, false),
        ] {
            assert_eq!(keys[0].fits(id, algorithm), expect, "{id} {algorithm:?}");
        }
        for broken in [&b"{}"[..], b"", b"[]", br#"{"keys": {}}"#] {
            assert!(parse_key_set(broken).is_err(), "{broken:?}");
        }
    }
}
