//! The provider of `jsonwebtoken` and the public parts of private keys.

use crate::{der, sign, verify};
use jsonwebtoken::crypto::{CryptoProvider, JwkUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::jwk::{EllipticCurve, ThumbprintHash};
use jsonwebtoken::{Algorithm, EncodingKey};
use ring::digest;
use ring::signature::KeyPair;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: sign::new_signer,
    verifier_factory: verify::new_verifier,
    jwk_utils: JwkUtils {
        extract_rsa_public_key_components: rsa_components,
        extract_ec_public_key_coordinates: ec_coordinates,
        compute_digest,
    },
};

/// Installs the provider for the process. Further calls have no effect.
pub fn install_provider() {
    // An error means that a provider is installed, and the workspace has no other one.
    let _ = PROVIDER.install_default();
}

/// Signs a message with `key`, because a key that cannot sign must be reported at start and not
/// at the first token. Installs the provider.
///
/// # Errors
/// The key is damaged, of another kind or of a size that cannot sign. The error names the remedy.
pub fn check_signing_key(key: &EncodingKey, algorithm: Algorithm) -> Result<()> {
    install_provider();
    jsonwebtoken::crypto::sign(b"", key, algorithm).map(drop)
}

/// Returns the modulus and the exponent of a PKCS#1 private key of any size.
fn rsa_components(private: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    let (modulus, exponent) = der::read_rsa_public_part(private)
        .ok_or_else(|| ErrorKind::InvalidRsaKey("it is not a PKCS#1 private key".into()))?;
    Ok((modulus.to_vec(), exponent.to_vec()))
}

/// Returns the curve and the coordinates x and y of a PKCS#8 private key.
fn ec_coordinates(
    private: &[u8],
    algorithm: Algorithm,
) -> Result<(EllipticCurve, Vec<u8>, Vec<u8>)> {
    let curve = match algorithm {
        Algorithm::ES256 => EllipticCurve::P256,
        Algorithm::ES384 => EllipticCurve::P384,
        _ => return Err(ErrorKind::InvalidEcdsaKey.into()),
    };
    let pair = sign::read_ecdsa_pair(private, algorithm)?;
    // ring writes uncompressed points: 4, x, y.
    let coordinates = pair.public_key().as_ref().get(1..).unwrap_or_default();
    let (x, y) = coordinates.split_at(coordinates.len() / 2);
    Ok((curve, x.to_vec(), y.to_vec()))
}

fn compute_digest(data: &[u8], hash: ThumbprintHash) -> Vec<u8> {
    let algorithm = match hash {
        ThumbprintHash::SHA256 => &digest::SHA256,
        ThumbprintHash::SHA384 => &digest::SHA384,
        ThumbprintHash::SHA512 => &digest::SHA512,
    };
    digest::digest(algorithm, data).as_ref().to_vec()
}
