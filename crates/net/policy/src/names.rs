//! Names of chains and sets.
//!
//! Invariant: different identities have different names, also if an attacker chooses them. A set
//! that two policies shared by mistake would let the author of one add peers to the other.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Length of the digest in bytes. 128 bits exclude collisions that an attacker searches for.
const DIGEST_BYTES: usize = 16;
/// Maximum length of the readable part in bytes: nft allows 128 for the whole name.
const MAX_READABLE_BYTES: usize = 70;

/// Builds `KIND-DIGEST-READABLE` from ASCII text.
pub(crate) fn object_name(kind: &str, identity: &str, readable: &str) -> String {
    let mut name = format!("{kind}-");
    for byte in Sha256::digest(identity.as_bytes())
        .iter()
        .take(DIGEST_BYTES)
    {
        // Writing to a String can't fail.
        let _ = write!(name, "{byte:02x}");
    }
    name.push('-');
    // The names of objects have no other characters; anything else would end the name in nft's
    // grammar.
    name.extend(
        readable
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || "-./".contains(*c))
            .take(MAX_READABLE_BYTES),
    );
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_valid_for_nft_and_differs_by_identity() {
        let long = format!("ns/{}", "a".repeat(253));
        let (a, b) = (
            object_name("policy-ingress", &format!("{long}1"), &long),
            object_name("policy-ingress", &format!("{long}2"), &long),
        );
        assert_ne!(a, b);
        assert!(a.len() < 128, "{a}");
        let odd = object_name("pods", "x", "a; drop \"\n\u{fc}{}");
        assert!(odd.ends_with("-adrop"), "{odd}");
    }
}
