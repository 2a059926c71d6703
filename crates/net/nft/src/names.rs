//! Names of chains and sets. They contain a digest, so that they are unique even if the readable
//! part is truncated.

use sha2::{Digest, Sha256};

/// Maximum length of a name in bytes: nft allows 128, and a margin is left for prefixes.
const MAX_NAME_BYTES: usize = 110;
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Builds `KIND-DIGEST-READABLE`.
#[must_use]
pub fn chain_name(kind: &str, readable: &str) -> String {
    // Of the whole name: two long names may differ only in the part that is cut off.
    let digest = Sha256::digest(readable.as_bytes());
    let short: String = digest
        .iter()
        .take(8)
        .map(|byte| char::from(ALPHABET[usize::from(byte & 31)]))
        .collect();
    let mut name = format!("{kind}-{short}-{readable}");
    let end = name
        .char_indices()
        .map(|(start, c)| start + c.len_utf8())
        .take_while(|end| *end <= MAX_NAME_BYTES)
        .last();
    name.truncate(end.unwrap_or_default());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_cuts_a_long_name_between_characters() {
        for length in 0..8 {
            let name = chain_name(
                "service",
                &format!("{}{}", "a".repeat(length), "\u{00fc}".repeat(80)),
            );
            assert!(
                name.len() <= MAX_NAME_BYTES && name.len() > MAX_NAME_BYTES - 2,
                "{name}"
            );
        }
    }
}
