//! Names of chains and sets. They contain a digest, so that they are unique even if the readable
//! part is truncated.

use sha2::{Digest, Sha256};

/// Maximum length of a name in bytes: nft allows 128, and a margin is left for prefixes.
const MAX_NAME_BYTES: usize = 110;
/// Length of the digest in characters of 5 bits. The whole text follows it, which is unique.
const SHORT_DIGEST: usize = 8;
/// The same for a text that is cut. Authors of Services choose it, so that 40 bits are not enough:
/// two Services with one chain would get the connections of each other.
const LONG_DIGEST: usize = 26;
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Builds `KIND-DIGEST-READABLE`. Different texts have different names.
#[must_use]
pub fn chain_name(kind: &str, readable: &str) -> String {
    let name = format!("{kind}-{}-{readable}", digest_text(readable, SHORT_DIGEST));
    if name.len() <= MAX_NAME_BYTES {
        return name;
    }
    let mut name = format!("{kind}-{}-{readable}", digest_text(readable, LONG_DIGEST));
    let end = name
        .char_indices()
        .map(|(start, c)| start + c.len_utf8())
        .take_while(|end| *end <= MAX_NAME_BYTES)
        .last();
    name.truncate(end.unwrap_or_default());
    name
}

/// Returns the first characters of a digest of the whole text.
fn digest_text(text: &str, length: usize) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .take(length)
        .map(|byte| char::from(ALPHABET[usize::from(byte & 31)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest of a name that is cut is the only part by which two names differ.
    #[test]
    fn digest_is_long_if_the_text_is_cut() {
        for (length, digest) in [(1, 8), (93, 8), (94, 26), (300, 26)] {
            let name = chain_name("service", &"a".repeat(length));
            let found = name.split('-').nth(1).map(str::len);
            assert_eq!(found, Some(digest), "{length}: {name}");
            assert_eq!(name.ends_with(&"a".repeat(length)), digest == 8, "{name}");
        }
        let long = "a".repeat(200);
        let names = ["1", "2"].map(|end| chain_name("service", &format!("{long}{end}")));
        assert_ne!(names[0], names[1]);
    }

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
