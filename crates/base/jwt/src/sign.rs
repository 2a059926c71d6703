//! Signers: one key with one algorithm.

use crate::der;
use jsonwebtoken::crypto::JwtSigner;
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error as SignatureError, Signer};
use jsonwebtoken::{Algorithm, AlgorithmFamily, EncodingKey};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
    RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};

/// Sizes of RSA keys in bits with which ring signs.
const RSA_SIGNING_BITS: [usize; 3] = [2048, 3072, 4096];

enum PrivateKey {
    Hmac(hmac::Key),
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

struct KeySigner {
    algorithm: Algorithm,
    key: PrivateKey,
}

/// Returns the signer of a key.
///
/// # Errors
/// The key is of another kind than the algorithm's, damaged, or of a size that ring does not
/// support.
pub fn new_signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    let algorithm = *algorithm;
    // A key of another family must not be read as a shared secret.
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    let key = read_private_key(algorithm, key.inner())?;
    Ok(Box::new(KeySigner { algorithm, key }))
}

fn read_private_key(algorithm: Algorithm, key: &[u8]) -> Result<PrivateKey> {
    let rsa = |encoding| Ok(PrivateKey::Rsa(read_rsa_pair(key)?, encoding));
    match algorithm {
        Algorithm::HS256 => Ok(PrivateKey::Hmac(hmac::Key::new(hmac::HMAC_SHA256, key))),
        Algorithm::HS384 => Ok(PrivateKey::Hmac(hmac::Key::new(hmac::HMAC_SHA384, key))),
        Algorithm::HS512 => Ok(PrivateKey::Hmac(hmac::Key::new(hmac::HMAC_SHA512, key))),
        Algorithm::RS256 => rsa(&RSA_PKCS1_SHA256),
        Algorithm::RS384 => rsa(&RSA_PKCS1_SHA384),
        Algorithm::RS512 => rsa(&RSA_PKCS1_SHA512),
        Algorithm::PS256 => rsa(&RSA_PSS_SHA256),
        Algorithm::PS384 => rsa(&RSA_PSS_SHA384),
        Algorithm::PS512 => rsa(&RSA_PSS_SHA512),
        Algorithm::ES256 | Algorithm::ES384 => {
            read_ecdsa_pair(key, algorithm).map(PrivateKey::Ecdsa)
        }
        Algorithm::EdDSA => Ed25519KeyPair::from_pkcs8_maybe_unchecked(key)
            .map(PrivateKey::Ed25519)
            .map_err(|_| ErrorKind::InvalidEddsaKey.into()),
    }
}

fn read_rsa_pair(private: &[u8]) -> Result<RsaKeyPair> {
    RsaKeyPair::from_der(private).map_err(|rejected| {
        let bits = der::read_rsa_public_part(private).map(|(modulus, _)| der::count_bits(modulus));
        let why = match bits {
            Some(bits) if !RSA_SIGNING_BITS.contains(&bits) => format!(
                "it has {bits} bits, but only keys of 2048, 3072 or 4096 bits can sign; make \
                 another one with: openssl genrsa -out FILE 3072"
            ),
            _ => rejected.to_string(),
        };
        ErrorKind::InvalidRsaKey(why).into()
    })
}

/// Reads a PKCS#8 key of the curve of ES256 or ES384.
///
/// # Errors
/// The key is damaged, of another curve, or has no uncompressed public key beside it. ring cannot
/// compute the public key.
pub fn read_ecdsa_pair(private: &[u8], algorithm: Algorithm) -> Result<EcdsaKeyPair> {
    let (curve, signing) = match algorithm.family() {
        AlgorithmFamily::Ec if algorithm == Algorithm::ES256 => {
            ("P-256", &ECDSA_P256_SHA256_FIXED_SIGNING)
        }
        AlgorithmFamily::Ec => ("P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
        _ => return Err(ErrorKind::InvalidEcdsaKey.into()),
    };
    EcdsaKeyPair::from_pkcs8(signing, private, &SystemRandom::new()).map_err(|rejected| {
        ErrorKind::Provider(format!(
            "it is not an EC key of {curve} with an uncompressed public key ({rejected}); a key of \
             this curve is rewritten by: openssl ec -conv_form uncompressed -in FILE | openssl \
             pkcs8 -topk8 -nocrypt -out NEWFILE"
        ))
        .into()
    })
}

impl Signer<Vec<u8>> for KeySigner {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, SignatureError> {
        match &self.key {
            PrivateKey::Hmac(key) => Ok(hmac::sign(key, message).as_ref().to_vec()),
            PrivateKey::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(*encoding, &SystemRandom::new(), message, &mut signature)
                    .map_err(|_| SignatureError::new())?;
                Ok(signature)
            }
            PrivateKey::Ecdsa(pair) => pair
                .sign(&SystemRandom::new(), message)
                .map(|signature| signature.as_ref().to_vec())
                .map_err(|_| SignatureError::new()),
            PrivateKey::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }
}

impl JwtSigner for KeySigner {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
