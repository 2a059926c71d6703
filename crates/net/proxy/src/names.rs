//! Names of chains and sets. They hold a digest, so that they stay unique where the readable part is cut.

use sha2::{Digest, Sha256};

/// nft allows 128 bytes; a margin is left for prefixes.
const LONGEST: usize = 110;
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// `KIND-DIGEST-READABLE`.
pub fn chain(kind: &str, readable: &str) -> String {
    let digest = Sha256::digest(readable.as_bytes());
    let short: String = digest.iter().take(8).map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect();
    let mut name = format!("{kind}-{short}-{readable}");
    name.truncate(LONGEST);
    name
}
