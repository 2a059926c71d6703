//! Verifiers: one key with one algorithm.

use crate::der::strip_zeros;
use jsonwebtoken::crypto::JwtVerifier;
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error as SignatureError, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519,
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_2048_8192_SHA384, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
    VerificationAlgorithm,
};

enum Scheme {
    Hmac(hmac::Algorithm),
    Rsa(&'static RsaParameters),
    /// The key is a point.
    Point(&'static dyn VerificationAlgorithm),
}

struct KeyVerifier {
    algorithm: Algorithm,
    scheme: Scheme,
    key: DecodingKey,
}

/// Returns the verifier of a key.
///
/// # Errors
/// The key is of another kind than the algorithm's. A damaged key verifies no signature.
pub fn new_verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let algorithm = *algorithm;
    // A public key must not be read as a shared secret, which a client could sign with.
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(KeyVerifier {
        algorithm,
        scheme: select_scheme(algorithm),
        key: key.clone(),
    }))
}

fn select_scheme(algorithm: Algorithm) -> Scheme {
    match algorithm {
        Algorithm::HS256 => Scheme::Hmac(hmac::HMAC_SHA256),
        Algorithm::HS384 => Scheme::Hmac(hmac::HMAC_SHA384),
        Algorithm::HS512 => Scheme::Hmac(hmac::HMAC_SHA512),
        // Kubernetes and etcd accept public keys of 1024 bits, because crypto/rsa of Go does. ring
        // has no such parameters for RS384 and PSS.
        Algorithm::RS256 => Scheme::Rsa(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
        Algorithm::RS384 => Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Scheme::Rsa(&RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
        Algorithm::PS256 => Scheme::Rsa(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Scheme::Rsa(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Scheme::Rsa(&RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Scheme::Point(&ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Scheme::Point(&ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Scheme::Point(&ED25519),
    }
}

impl Verifier<Vec<u8>> for KeyVerifier {
    fn verify(
        &self,
        message: &[u8],
        signature: &Vec<u8>,
    ) -> std::result::Result<(), SignatureError> {
        use DecodingKeyKind::{RsaModulusExponent, SecretOrDer};
        let verified = match (&self.scheme, self.key.kind()) {
            // ring compares in constant time.
            (Scheme::Hmac(hash), SecretOrDer(secret)) => {
                hmac::verify(&hmac::Key::new(*hash, secret), message, signature)
            }
            (Scheme::Rsa(parameters), SecretOrDer(key)) => {
                UnparsedPublicKey::new(*parameters, key).verify(message, signature)
            }
            (Scheme::Rsa(parameters), RsaModulusExponent { n, e }) => {
                // Components of a JWK may begin with zeros, which ring rejects.
                let (n, e) = (strip_zeros(n), strip_zeros(e));
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (Scheme::Point(algorithm), SecretOrDer(point)) => {
                UnparsedPublicKey::new(*algorithm, point).verify(message, signature)
            }
            (Scheme::Hmac(_) | Scheme::Point(_), RsaModulusExponent { .. }) => {
                Err(ring::error::Unspecified)
            }
        };
        verified.map_err(|_| SignatureError::new())
    }
}

impl JwtVerifier for KeyVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
