//! The token: `ID.SECRET`, both of lower-case letters and digits.

use std::fmt;
use std::str::FromStr;

const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
const CHARACTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// A bootstrap token. Its ID is public, its secret is not: `Debug` omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    id: String,
    secret: String,
}

/// A text is no bootstrap token. The text itself is omitted, since it may be a mistyped secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a bootstrap token is 6 characters, a dot and 16 characters, all lower-case letters or digits, such as \
     abcdef.0123456789abcdef"
)]
pub struct InvalidToken;

impl BootstrapToken {
    /// Builds a token from its parts.
    ///
    /// # Errors
    /// A part has another length, or other characters than lower-case letters and digits.
    pub fn new(id: &str, secret: &str) -> Result<Self, InvalidToken> {
        if !is_token_id(id) || !is_plain(secret, SECRET_LENGTH) {
            return Err(InvalidToken);
        }
        Ok(Self {
            id: id.to_owned(),
            secret: secret.to_owned(),
        })
    }

    /// Builds a token from random bytes; None if there are too few.
    pub fn from_random(bytes: impl IntoIterator<Item = u8>) -> Option<Self> {
        // 252 is the largest multiple of 36 in a byte. Without the rest, each character is equally
        // likely.
        const LIMIT: u8 = 252;
        let mut characters = bytes
            .into_iter()
            .filter(|byte| *byte < LIMIT)
            .filter_map(|byte| CHARACTERS.get(usize::from(byte) % CHARACTERS.len()))
            .map(|byte| char::from(*byte));
        let id: String = characters.by_ref().take(ID_LENGTH).collect();
        let secret: String = characters.take(SECRET_LENGTH).collect();
        Self::new(&id, &secret).ok()
    }

    /// Returns the public part.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the secret part.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Returns the whole token, as clients send it. No `Display`: a secret must not get into a
    /// message by accident.
    #[must_use]
    pub fn expose(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BootstrapToken")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl FromStr for BootstrapToken {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let (id, secret) = text.split_once('.').ok_or(InvalidToken)?;
        Self::new(id, secret)
    }
}

/// Returns whether a text is the public part of a token.
#[must_use]
pub fn is_token_id(text: &str) -> bool {
    is_plain(text, ID_LENGTH)
}

fn is_plain(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| CHARACTERS.contains(&byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn token_has_two_parts_of_lower_case_letters_and_digits() {
        for (text, valid) in [
            ("abcdef.0123456789abcdef", true),
            ("000000.zzzzzzzzzzzzzzzz", true),
            ("abcdef.0123456789abcde", false),
            ("abcdef.0123456789abcdef0", false),
            ("abcde.0123456789abcdef", false),
            ("ABCDEF.0123456789abcdef", false),
            ("abcdef.0123456789abcde\n", false),
            ("abcdef.01234567.9abcdef", false),
            ("abcd/f.0123456789abcdef", false),
            ("abcdef0123456789abcdef", false),
            ("", false),
        ] {
            assert_eq!(text.parse::<BootstrapToken>().is_ok(), valid, "{text:?}");
        }
    }

    #[test]
    fn random_token_uses_each_character_equally_often() {
        let token = BootstrapToken::from_random(0..=255).unwrap();
        assert_eq!(token.expose(), "012345.6789abcdefghijkl");
        // 252 to 255 would make the first four characters more likely.
        let skipped = (252..=255).chain(0..=21);
        let other = BootstrapToken::from_random(skipped).unwrap();
        assert_eq!(other, token);
        assert_eq!(BootstrapToken::from_random(0..21), None);
        let mut counts = std::collections::BTreeMap::new();
        for byte in 0..=251 {
            let token = BootstrapToken::from_random(std::iter::repeat_n(byte, 22)).unwrap();
            *counts.entry(token.id().to_owned()).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 36);
        assert!(counts.values().all(|count| *count == 7), "{counts:?}");
    }

    #[test]
    fn debug_output_and_errors_omit_the_secret() {
        let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
        let debug = format!("{token:?}");
        assert!(debug.contains("abcdef") && !debug.contains(token.secret()));
        let error = "abcdef.0123456789abcdeX".parse::<BootstrapToken>();
        assert!(!error.unwrap_err().to_string().contains("cdeX"));
    }
}
