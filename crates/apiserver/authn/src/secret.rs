//! Comparing secrets.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The digest that stands for a secret in maps.
pub fn digest(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// Whether two secrets are the same, in a time that does not depend on where they differ.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    digest(a).ct_eq(&digest(b)).into()
}
