//! Compact tokens of other issuers (RFC 7515 and 7519): parsed first, verified later.

use crate::key_set::PublicKey;
use crate::provider::install_provider;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

/// Maximum length of a token. Bounds the work that a client without credentials can cause.
pub const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// A token that does not verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The header names no algorithm, or one that is not allowed.
    #[error("the algorithm of the token's signature is not allowed")]
    Algorithm,
    /// The header has an extension that must be understood (RFC 7515, section 4.1.11).
    #[error("the token's header has a critical extension")]
    CriticalExtension,
    /// No key has verified the signature.
    #[error("the token's signature is not by a known key")]
    Signature,
}

/// A token whose signature is not verified. Its issuer selects an authenticator, nothing else.
pub struct UnverifiedToken<'t> {
    message: &'t str,
    signature: &'t str,
    header: Map<String, Value>,
    claims: Map<String, Value>,
}

impl<'t> UnverifiedToken<'t> {
    /// Splits a token; `None` if it is not a compact JSON Web Token.
    pub fn parse(token: &'t str) -> Option<Self> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        // Base64 has no dots, so that a fourth part is refused here.
        Some(UnverifiedToken {
            message,
            signature,
            header: decode_part(header)?,
            claims: decode_part(claims)?,
        })
    }

    /// Returns the claim `iss`.
    pub fn issuer(&self) -> Option<&str> {
        self.claims.get("iss").and_then(Value::as_str)
    }

    /// Returns whether the header is accepted. Other keys don't help a token whose header is not.
    pub fn has_accepted_header(&self, allowed: &[Algorithm]) -> bool {
        self.check_header(allowed).is_ok()
    }

    fn check_header(&self, allowed: &[Algorithm]) -> Result<Algorithm, VerifyError> {
        if self.header.contains_key("crit") {
            return Err(VerifyError::CriticalExtension);
        }
        self.find_algorithm(allowed).ok_or(VerifyError::Algorithm)
    }

    fn find_algorithm(&self, allowed: &[Algorithm]) -> Option<Algorithm> {
        let name = self.header.get("alg").and_then(Value::as_str)?;
        let algorithm = name.parse().ok()?;
        allowed.contains(&algorithm).then_some(algorithm)
    }

    /// Returns the claims if one of `keys` has signed them with one of the `allowed` algorithms.
    ///
    /// # Errors
    /// The header is refused, or no key fits.
    pub fn verify(
        &self,
        keys: &[PublicKey],
        allowed: &[Algorithm],
    ) -> Result<&Map<String, Value>, VerifyError> {
        let algorithm = self.check_header(allowed)?;
        install_provider();
        let id = self.header.get("kid").and_then(Value::as_str);
        let id = id.unwrap_or_default();
        let mut fitting = keys.iter().filter(|key| key.fits(id, algorithm));
        let message = self.message.as_bytes();
        let is_signed = fitting.any(|key| {
            jsonwebtoken::crypto::verify(self.signature, message, &key.key, algorithm)
                .unwrap_or(false)
        });
        is_signed
            .then_some(&self.claims)
            .ok_or(VerifyError::Signature)
    }
}

fn decode_part(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::key_set::parse_key_set;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use serde_json::json;

    fn create_key() -> (EncodingKey, Value) {
        install_provider();
        let (scheme, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(scheme, document.as_ref(), &random).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let encode = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        let jwk = json!({"kty": "EC", "crv": "P-256", "kid": "a", "x": encode(x), "y": encode(y)});
        (EncodingKey::from_ec_der(document.as_ref()), jwk)
    }

    fn header(fields: &Value) -> String {
        URL_SAFE_NO_PAD.encode(fields.to_string())
    }

    #[test]
    fn only_tokens_of_a_known_key_and_an_allowed_algorithm_verify() {
        let (key, jwk) = create_key();
        let set = json!({"keys": [jwk]}).to_string();
        let keys = parse_key_set(set.as_bytes()).unwrap();
        let claims = json!({"iss": "https://i", "sub": "s"});
        let sign = |kid: Option<&str>, key: &EncodingKey| {
            let mut header = Header::new(Algorithm::ES256);
            header.kid = kid.map(str::to_owned);
            encode(&header, &claims, key).unwrap()
        };
        let good = sign(Some("a"), &key);
        let [_, payload, signature] = good.split('.').collect::<Vec<_>>()[..] else {
            unreachable!()
        };
        let with = |head: Value| format!("{}.{payload}.{signature}", header(&head));
        let shared = EncodingKey::from_secret(set.as_bytes());
        let hmac = encode(&Header::new(Algorithm::HS256), &claims, &shared).unwrap();
        let (other, _) = create_key();
        for (case, token, expect) in [
            ("good", good.clone(), Ok(())),
            ("no key ID", sign(None, &key), Ok(())),
            (
                "unknown key ID",
                sign(Some("b"), &key),
                Err(VerifyError::Signature),
            ),
            (
                "other key",
                sign(Some("a"), &other),
                Err(VerifyError::Signature),
            ),
            (
                "none",
                with(json!({"alg": "none"})),
                Err(VerifyError::Algorithm),
            ),
            ("no algorithm", with(json!({})), Err(VerifyError::Algorithm)),
            ("public key as secret", hmac, Err(VerifyError::Algorithm)),
            (
                "RSA",
                with(json!({"alg": "RS256"})),
                Err(VerifyError::Signature),
            ),
            (
                "critical",
                with(json!({"alg": "ES256", "crit": ["x"]})),
                Err(VerifyError::CriticalExtension),
            ),
        ] {
            let parsed = UnverifiedToken::parse(&token).unwrap();
            assert_eq!(parsed.issuer(), Some("https://i"), "{case}");
            let allowed = [Algorithm::ES256, Algorithm::RS256];
            assert_eq!(parsed.verify(&keys, &allowed).map(drop), expect, "{case}");
            // Newer keys help only a token whose header is accepted.
            let may_be_other_key = !matches!(
                expect,
                Err(VerifyError::Algorithm | VerifyError::CriticalExtension)
            );
            assert_eq!(
                parsed.has_accepted_header(&allowed),
                may_be_other_key,
                "{case}"
            );
            if expect.is_ok() {
                let verified = parsed.verify(&keys, &[Algorithm::RS256]).map(drop);
                assert_eq!(verified, Err(VerifyError::Algorithm), "{case}");
            }
        }
    }

    #[test]
    fn what_is_not_a_compact_token_is_not_parsed() {
        let part = header(&json!({}));
        let long = format!("{part}.{}.x", "a".repeat(MAX_TOKEN_BYTES));
        for token in [
            "",
            "a.b",
            "a.b.c",
            &format!("{part}.{part}"),
            &format!("{part}.{part}.x.y"),
            &format!("{part}=.{part}.x"),
            &format!("{}.{part}.x", URL_SAFE_NO_PAD.encode("[]")),
            &long,
        ] {
            assert!(UnverifiedToken::parse(token).is_none(), "{token:.40}");
        }
        assert!(UnverifiedToken::parse(&format!("{part}.{part}.x")).is_some());
    }
}
