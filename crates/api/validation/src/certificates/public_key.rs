//! Public keys of pod certificates, and the proof that a kubelet has the private key.
//!
//! The keys are those that upstream accepts, without ECDSA P-521: `ring` can't verify its
//! signatures, and a key without a proof is not accepted.

use num_bigint::BigUint;
use ring::digest::{SHA256, digest};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ED25519, UnparsedPublicKey,
    VerificationAlgorithm,
};
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_NIST_EC_P521,
    OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519,
};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::{PublicKey, RSAPublicKey};
use x509_parser::x509::SubjectPublicKeyInfo;

/// A parsed key. Two keys are equal regardless of the encoding of their algorithm.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PodKey {
    /// Ed25519.
    Ed25519(Vec<u8>),
    /// A point of a curve.
    Ecdsa(Curve, Vec<u8>),
    /// Modulus and exponent.
    Rsa(BigUint, BigUint),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Curve {
    P256,
    P384,
}

/// Reasons for which a key is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyProblem {
    /// The DER is not one key.
    Malformed,
    /// The key is of another type.
    UnknownType,
    /// The curve of the key.
    Curve(&'static str),
    /// The number of bits of an RSA modulus.
    Modulus(u64),
}

impl PodKey {
    /// Parses a `SubjectPublicKeyInfo`.
    ///
    /// # Errors
    /// The key is malformed, or upstream does not accept its type or size.
    pub(super) fn parse(der: &[u8]) -> Result<Self, KeyProblem> {
        let (rest, info) =
            SubjectPublicKeyInfo::from_der(der).map_err(|_| KeyProblem::Malformed)?;
        if !rest.is_empty() {
            return Err(KeyProblem::Malformed);
        }
        let key = &info.subject_public_key.data;
        let algorithm = &info.algorithm.algorithm;
        if *algorithm == OID_SIG_ED25519 {
            return match key.len() {
                32 => Ok(PodKey::Ed25519(key.to_vec())),
                _ => Err(KeyProblem::Malformed),
            };
        }
        if *algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY {
            return Ok(PodKey::Ecdsa(parse_curve(&info)?, key.to_vec()));
        }
        if *algorithm != OID_PKCS1_RSAENCRYPTION {
            return Err(KeyProblem::UnknownType);
        }
        match info.parsed() {
            Ok(PublicKey::RSA(key)) => parse_rsa(&key),
            _ => Err(KeyProblem::Malformed),
        }
    }

    /// Verifies a signature over a text: with SHA-256 for ECDSA, and RSASSA-PSS with SHA-256 and a
    /// salt of any length for RSA (RFC 8017).
    pub(super) fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        let verify = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            let key = UnparsedPublicKey::new(algorithm, key);
            key.verify(text, signature).is_ok()
        };
        match self {
            PodKey::Ed25519(key) => verify(&ED25519, key),
            PodKey::Ecdsa(Curve::P256, point) => verify(&ECDSA_P256_SHA256_ASN1, point),
            PodKey::Ecdsa(Curve::P384, point) => verify(&ECDSA_P384_SHA256_ASN1, point),
            PodKey::Rsa(modulus, exponent) => verify_pss(modulus, exponent, text, signature),
        }
    }
}

fn parse_curve(info: &SubjectPublicKeyInfo<'_>) -> Result<Curve, KeyProblem> {
    let parameters = info.algorithm.parameters.as_ref();
    let curve = parameters.and_then(|parameters| parameters.as_oid().ok());
    match curve.ok_or(KeyProblem::Malformed)? {
        curve if curve == OID_EC_P256 => Ok(Curve::P256),
        curve if curve == OID_NIST_EC_P384 => Ok(Curve::P384),
        curve if curve == OID_NIST_EC_P521 => Err(KeyProblem::Curve("P-521")),
        _ => Err(KeyProblem::Curve("unknown")),
    }
}

fn parse_rsa(key: &RSAPublicKey<'_>) -> Result<PodKey, KeyProblem> {
    // A negative number in DER.
    let is_negative = |bytes: &[u8]| bytes.first().is_none_or(|first| first & 0x80 != 0);
    if is_negative(key.modulus) || is_negative(key.exponent) {
        return Err(KeyProblem::Malformed);
    }
    let modulus = BigUint::from_bytes_be(key.modulus);
    let exponent = BigUint::from_bytes_be(key.exponent);
    // As Go: a large exponent makes the verification slow, and an even one is no key.
    if exponent.bits() > 31 || exponent < BigUint::from(2_u8) || !exponent.bit(0) {
        return Err(KeyProblem::Malformed);
    }
    let bits = modulus.bits().div_ceil(8) * 8;
    match bits {
        3072 | 4096 if modulus.bit(0) => Ok(PodKey::Rsa(modulus, exponent)),
        3072 | 4096 => Err(KeyProblem::Malformed),
        _ => Err(KeyProblem::Modulus(bits)),
    }
}

/// Length of a SHA-256 digest in bytes.
const DIGEST: usize = 32;
/// The last byte of an encoded message.
const TRAILER: u8 = 0xbc;

/// Verifies a signature of RSASSA-PSS (RFC 8017, 8.1.2 and 9.1.2). `ring` verifies only salts as
/// long as the digest, and Go signs with the longest salt. All the inputs are public.
fn verify_pss(modulus: &BigUint, exponent: &BigUint, text: &[u8], signature: &[u8]) -> bool {
    let size = usize::try_from(modulus.bits().div_ceil(8)).unwrap_or(usize::MAX);
    let signed = BigUint::from_bytes_be(signature);
    if signature.len() != size || signed >= *modulus {
        return false;
    }
    let bits = modulus.bits() - 1;
    let length = usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX);
    let bytes = signed.modpow(exponent, modulus).to_bytes_be();
    let Some(padding) = length.checked_sub(bytes.len()) else {
        return false;
    };
    let mut encoded = vec![0; padding];
    encoded.extend(bytes);
    // The unused bits of the first byte.
    let unused = u32::try_from(8 * length as u64 - bits).unwrap_or_default();
    is_encoded_message(
        &encoded,
        0xff_u8.checked_shr(unused).unwrap_or_default(),
        text,
    )
}

/// Returns whether `encoded` is the EMSA-PSS encoding of a text. `first` masks the used bits of its
/// first byte.
fn is_encoded_message(encoded: &[u8], first: u8, text: &[u8]) -> bool {
    let Some((&TRAILER, rest)) = encoded.split_last() else {
        return false;
    };
    let Some(at) = rest.len().checked_sub(DIGEST) else {
        return false;
    };
    let (masked, hash) = rest.split_at(at);
    if masked.first().is_some_and(|byte| byte & !first != 0) {
        return false;
    }
    let mask = generate_mask(hash, masked.len());
    let mut block: Vec<u8> = masked.iter().zip(mask).map(|(a, b)| a ^ b).collect();
    if let Some(byte) = block.first_mut() {
        *byte &= first;
    }
    // Zeros, a one, and the salt.
    let Some(start) = block.iter().position(|byte| *byte != 0) else {
        return false;
    };
    let Some((&1, salt)) = block.get(start..).and_then(<[u8]>::split_first) else {
        return false;
    };
    let mut message = vec![0; 8];
    message.extend(digest(&SHA256, text).as_ref());
    message.extend(salt);
    digest(&SHA256, &message).as_ref() == hash
}

/// Returns the mask MGF1 (RFC 8017, B.2.1).
fn generate_mask(seed: &[u8], length: usize) -> impl Iterator<Item = u8> + '_ {
    let blocks = (0_u32..).take(length.div_ceil(DIGEST));
    let hash = move |counter: u32| {
        let input = [seed, &counter.to_be_bytes()].concat();
        digest(&SHA256, &input).as_ref().to_vec()
    };
    blocks.flat_map(hash).take(length)
}

#[cfg(test)]
pub(super) mod tests;
