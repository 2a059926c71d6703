//! Plain words with a special meaning in YAML 1.1 but not in the parser's YAML 1.2: `yes`, `off`,
//! `0644`.
//!
//! The parser returns text that is a literal part of the document by reference. So the character
//! before it tells whether it is quoted. Rejected: a second pass over the document, which would
//! need another YAML parser.

/// Meaning of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    Bool(bool),
    Int(i64),
    Text,
}

/// Returns the meaning of `value`, which is a slice of `text`.
pub(super) fn resolve_plain(text: &str, value: &str) -> Plain {
    let meaning = match value {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Plain::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Plain::Bool(false),
        // File modes are written as `0644` in manifests, which is 420 in YAML 1.1.
        _ => parse_octal(value).map_or(Plain::Text, Plain::Int),
    };
    if meaning == Plain::Text || is_quoted(text, value) {
        Plain::Text
    } else {
        meaning
    }
}

fn parse_octal(value: &str) -> Option<i64> {
    let digits = value
        .strip_prefix('0')
        .filter(|rest| !rest.is_empty() && rest.len() <= 20)?;
    digits
        .bytes()
        .all(|digit| digit.is_ascii_digit())
        .then(|| i64::from_str_radix(digits, 8).ok())?
}

/// Returns the offset of `value` in `text`, if it is a slice of it.
pub(super) fn find_offset(text: &str, value: &str) -> Option<usize> {
    let start = (value.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    start
        .checked_add(value.len())
        .is_some_and(|end| end <= text.len())
        .then_some(start)
}

/// Returns whether a value is quoted. Text from elsewhere (no document, or a copy) counts as
/// quoted.
fn is_quoted(text: &str, value: &str) -> bool {
    let Some(start) = find_offset(text, value) else {
        return true;
    };
    let before = start.checked_sub(1).and_then(|at| text.as_bytes().get(at));
    matches!(before, Some(b'\'' | b'"'))
}
