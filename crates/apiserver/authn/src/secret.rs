//! Constant-time comparison of secrets.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Returns the digest that replaces a secret as a map key.
pub fn digest_secret(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// Compares two secrets in a time that does not depend on the position of a difference.
pub fn is_same_digest(a: &[u8], b: &[u8]) -> bool {
    // Digests have one length, so that the time reveals neither the content nor the length of a
    // secret.
    digest_secret(a).ct_eq(&digest_secret(b)).into()
}
