//! Text of objects: its length.

/// Returns the longest beginning of a text that has at most `limit` bytes and ends between
/// characters.
#[must_use]
pub fn truncate_text(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    // The limit may fall inside a character.
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_truncated_between_characters() {
        for (text, limit, expected) in [
            ("", 0, ""),
            ("abc", 4, "abc"),
            ("abc", 3, "abc"),
            ("abc", 2, "ab"),
            ("caf\u{e9}", 5, "caf\u{e9}"),
            ("caf\u{e9}", 4, "caf"),
            ("\u{1f600}", 3, ""),
        ] {
            assert_eq!(truncate_text(text, limit), expected, "{text} {limit}");
        }
    }
}
