//! Signing and verifying keys from PEM files: RSA and ECDSA on P-256, private (PKCS#8, PKCS#1, SEC
//! 1) or public.

use crate::pem_block::encode_block;
use apiserver_config::{ConfigFileError, read_file};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use rustls::pki_types::pem::{PemObject, SectionKind};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// A key that verifies tokens.
#[derive(Clone)]
pub struct VerifyingKey {
    /// Key id: the digest of the public part.
    pub kid: String,
    /// RS256 or ES256.
    pub algorithm: Algorithm,
    /// The key.
    pub key: DecodingKey,
    /// The public part as JWK, for the key set document.
    pub jwk: Value,
}

/// A key that signs tokens.
pub struct SigningKey {
    /// The private part.
    pub key: EncodingKey,
    /// The public part.
    pub public: VerifyingKey,
}

/// The numeric components of a public key.
enum Numbers {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256 { x: Vec<u8>, y: Vec<u8> },
}

/// Loads all keys of a PEM file.
pub fn verifying_keys(path: &Path) -> Result<Vec<VerifyingKey>, ConfigFileError> {
    base_jwt::install_provider();
    let bad = |why: &str| ConfigFileError::content(path, why);
    let pem = read_file(path)?;
    let mut keys = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(&pem) {
        let (kind, der) = section.map_err(|_| bad("it is not PEM"))?;
        let numbers = match kind {
            SectionKind::PublicKey => from_spki(&der),
            SectionKind::Certificate => {
                let parsed = x509_parser::certificate::X509Certificate::from_der(&der);
                parsed.ok().and_then(|(_, c)| from_spki(c.public_key().raw))
            }
            // Private keys may be listed too: their public part verifies.
            _ => {
                signing_parts(kind, &der).and_then(|(key, algorithm)| from_private(&key, algorithm))
            }
        };
        keys.push(
            numbers
                .and_then(verifying_key)
                .ok_or_else(|| bad("it holds a key that is neither RSA nor P-256"))?,
        );
    }
    // An empty file would otherwise start a server that rejects every token.
    if keys.is_empty() {
        return Err(bad("it holds no key"));
    }
    Ok(keys)
}

/// Loads the private key of a PEM file.
pub fn signing_key(path: &Path) -> Result<SigningKey, ConfigFileError> {
    let bad = |why: &str| ConfigFileError::content(path, why);
    let pem = read_file(path)?;
    // `openssl ecparam` writes a section with parameters before the key, which is skipped.
    for (kind, der) in <(SectionKind, Vec<u8>)>::pem_slice_iter(&pem).flatten() {
        if let Some((key, algorithm)) = signing_parts(kind, &der) {
            // An RSA key may have a size that verifies and can't sign.
            base_jwt::check_signing_key(&key, algorithm)
                .map_err(|error| bad(&format!("its key can't sign: {error}")))?;
            let public = from_private(&key, algorithm).and_then(verifying_key);
            let public = public.ok_or_else(|| bad("its key is neither RSA nor P-256"))?;
            return Ok(SigningKey { key, public });
        }
    }
    Err(bad("it holds no private key"))
}

fn signing_parts(kind: SectionKind, der: &[u8]) -> Option<(EncodingKey, Algorithm)> {
    match kind {
        SectionKind::RsaPrivateKey => Some((EncodingKey::from_rsa_der(der), Algorithm::RS256)),
        SectionKind::EcPrivateKey => Some((
            EncodingKey::from_ec_der(&sec1_as_pkcs8(der)),
            Algorithm::ES256,
        )),
        SectionKind::PrivateKey => {
            let pem = encode_block("PRIVATE KEY", der);
            // PKCS#8 holds either kind of key, and jsonwebtoken cannot name the kind: both are
            // tried.
            EncodingKey::from_ec_pem(pem.as_bytes())
                .map(|k| (k, Algorithm::ES256))
                .or_else(|_| {
                    EncodingKey::from_rsa_pem(pem.as_bytes()).map(|k| (k, Algorithm::RS256))
                })
                .ok()
        }
        _ => None,
    }
}

/// Wraps a SEC 1 key in PKCS#8 for P-256.
fn sec1_as_pkcs8(sec1: &[u8]) -> Vec<u8> {
    const VERSION: [u8; 3] = [2, 1, 0];
    let body = [VERSION.to_vec(), P256_ALGORITHM.to_vec(), der_tlv(4, sec1)].concat();
    der_tlv(0x30, &body)
}

/// `SEQUENCE { id-ecPublicKey, prime256v1 }`
const P256_ALGORITHM: [u8; 21] = [
    0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1,
    7,
];
/// `SEQUENCE { rsaEncryption, NULL }`
const RSA_ALGORITHM: [u8; 15] = [
    0x30, 0x0d, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0,
];

fn der_tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len();
    if length < 128 {
        out.extend(u8::try_from(length));
    } else {
        let bytes: Vec<u8> = length
            .to_be_bytes()
            .into_iter()
            .skip_while(|b| *b == 0)
            .collect();
        out.extend(u8::try_from(bytes.len()).map(|n| 0x80 | n));
        out.extend(bytes);
    }
    out.extend_from_slice(content);
    out
}

fn der_integer(bytes: &[u8]) -> Vec<u8> {
    let start = bytes
        .iter()
        .position(|b| *b != 0)
        .unwrap_or(bytes.len().saturating_sub(1));
    let digits = bytes.get(start..).unwrap_or_default();
    // DER integers are signed: a leading zero keeps the number positive.
    let sign = digits.first().is_some_and(|b| b & 0x80 != 0);
    der_tlv(
        2,
        &[if sign { vec![0] } else { Vec::new() }, digits.to_vec()].concat(),
    )
}

fn from_spki(der: &[u8]) -> Option<Numbers> {
    let (_, info) = SubjectPublicKeyInfo::from_der(der).ok()?;
    match info.parsed().ok()? {
        PublicKey::RSA(rsa) => Some(Numbers::Rsa {
            n: without_zeros(rsa.modulus),
            e: without_zeros(rsa.exponent),
        }),
        PublicKey::EC(point) => {
            // Only uncompressed points, which begin with 4.
            let coordinates = point.data().strip_prefix(&[4])?;
            let (x, y) = coordinates.split_at_checked(32)?;
            (y.len() == 32).then(|| Numbers::P256 {
                x: x.to_vec(),
                y: y.to_vec(),
            })
        }
        _ => None,
    }
}

fn without_zeros(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().skip_while(|b| *b == 0).collect()
}

fn from_private(key: &EncodingKey, algorithm: Algorithm) -> Option<Numbers> {
    let jwk = Jwk::from_encoding_key(key, algorithm).ok()?;
    let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    match jwk.algorithm {
        AlgorithmParameters::RSA(rsa) => Some(Numbers::Rsa {
            n: bytes(&rsa.n)?,
            e: bytes(&rsa.e)?,
        }),
        AlgorithmParameters::EllipticCurve(ec) => Some(Numbers::P256 {
            x: bytes(&ec.x)?,
            y: bytes(&ec.y)?,
        }),
        _ => None,
    }
}

fn verifying_key(numbers: Numbers) -> Option<VerifyingKey> {
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    // Upstream's key id, so that tokens of either implementation find the same key.
    let kid = |spki: &[u8]| text(&Sha256::digest(spki));
    match numbers {
        Numbers::Rsa { n, e } => {
            let public = der_tlv(0x30, &[der_integer(&n), der_integer(&e)].concat());
            let kid = kid(&der_tlv(
                0x30,
                &[RSA_ALGORITHM.to_vec(), bit_string(&public)].concat(),
            ));
            let jwk = json!({"use": "sig", "kty": "RSA", "kid": kid, "alg": "RS256", "n": text(&n), "e": text(&e)});
            let key = DecodingKey::from_rsa_components(&text(&n), &text(&e)).ok()?;
            Some(VerifyingKey {
                kid,
                algorithm: Algorithm::RS256,
                key,
                jwk,
            })
        }
        Numbers::P256 { x, y } => {
            let point = [vec![4], x.clone(), y.clone()].concat();
            let kid = kid(&der_tlv(
                0x30,
                &[P256_ALGORITHM.to_vec(), bit_string(&point)].concat(),
            ));
            let jwk = json!({"use": "sig", "kty": "EC", "kid": kid, "crv": "P-256", "alg": "ES256", "x": text(&x), "y": text(&y)});
            let key = DecodingKey::from_ec_components(&text(&x), &text(&y)).ok()?;
            Some(VerifyingKey {
                kid,
                algorithm: Algorithm::ES256,
                key,
                jwk,
            })
        }
    }
}

fn bit_string(content: &[u8]) -> Vec<u8> {
    der_tlv(3, &[vec![0], content.to_vec()].concat())
}
