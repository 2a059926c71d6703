//! Simple tokens: log and data directory only contain their digests, from which a token can't be
//! derived.

use ring::digest::{SHA256, digest as hash};
use std::fmt::Write;

/// Returns the digest of a token's secret part, in hexadecimal digits. The secret is random, so it
/// needs no salt.
pub(crate) fn digest_token(secret: &str) -> String {
    let mut text = String::with_capacity(64);
    for byte in hash(&SHA256, secret.as_bytes()).as_ref() {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns the log index of the login that issued a token.
pub(crate) fn login_index(token: &str) -> Option<u64> {
    token.rsplit_once('.')?.1.parse().ok()
}

/// Returns the stored form of a token `SECRET.INDEX`: the digest and the index of its login.
pub(crate) fn known_form(token: &str) -> Option<String> {
    let (secret, index) = token.rsplit_once('.')?;
    Some(format!("{}.{index}", digest_token(secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_form_of_a_token_has_no_secret_and_is_no_token() {
        let known = known_form("secret.7").unwrap_or_default();
        assert_eq!(
            known,
            "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b.7"
        );
        assert_ne!(known_form(&known), Some(known));
        assert_eq!(known_form("nonsense"), None);
    }

    #[test]
    fn digest_is_sha_256_in_hexadecimal() {
        // The digest of the empty text, from FIPS 180-2's test vectors.
        assert_eq!(
            digest_token(""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn token_ends_with_the_log_index_of_its_login() {
        for (token, expect) in [
            ("secret.7", Some(7)),
            ("a.b.12", Some(12)),
            ("secret", None),
            ("secret.", None),
            ("secret.-1", None),
        ] {
            assert_eq!(login_index(token), expect, "{token}");
        }
    }
}
