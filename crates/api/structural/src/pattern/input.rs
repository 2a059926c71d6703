//! Limits, errors and input of the translation of patterns.

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

/// Limit of a compiled pattern, in bytes. Go's limit is on the number of instructions.
pub(super) const SIZE_LIMIT: usize = 10 << 20;
/// Limit of the cache of a pattern's states, in bytes. Above it, matching is slower but linear.
pub(super) const STATES_LIMIT: usize = 256 << 10;
/// Limit of the text of a pattern, in bytes. Parsing needs hundreds of bytes for each.
pub(super) const SOURCE_LIMIT: usize = 64 << 10;
/// Limit of nested groups.
pub(super) const NESTING_LIMIT: u32 = 200;

/// Reason why a pattern is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// The pattern is malformed. The text is Go's.
    Syntax(String),
    /// The pattern is too large for this server. Go may accept it.
    TooLarge,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(text) => write!(f, "error parsing regexp: {text}"),
            Self::TooLarge => write!(
                f,
                "error parsing regexp: expression too large: it exceeds {SOURCE_LIMIT} bytes, {NESTING_LIMIT} nested groups, or {SIZE_LIMIT} bytes when compiled"
            ),
        }
    }
}

/// The rest of a pattern.
pub(super) type Input<'a> = Peekable<Chars<'a>>;

/// Returns an error in the form of Go's parser.
pub(super) fn syntax<T>(code: &str, part: &str) -> Result<T, PatternError> {
    Err(PatternError::Syntax(format!("{code}: `{part}`")))
}
