//! Text of others in the output of a program.

/// Escapes characters that control a terminal or break a line: the writer of an object must not
/// control the terminal on which an administrator lists it.
#[must_use]
pub fn escape_controls(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if controls_display(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Escapes such characters in a JSON text, which remains the same JSON. The line breaks between its
/// tokens stay.
#[must_use]
pub fn escape_json_controls(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        // Raw line breaks are between tokens only: JSON requires an escape in a string.
        if controls_display(character) && character != '\n' {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Returns whether a character is a control character, a line break, or changes the direction of
/// the text around it.
fn controls_display(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_control_a_terminal_are_escaped() {
        for (text, expected) in [
            ("for \"node\" 7, caf\u{e9}", "for \"node\" 7, caf\u{e9}"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\0\u{7f}\u{9b}2J", "\\u{0}\\u{7f}\\u{9b}2J"),
            ("\u{202e}abc\u{2069}", "\\u{202e}abc\\u{2069}"),
            ("a\u{2028}b", "a\\u{2028}b"),
        ] {
            assert_eq!(escape_controls(text), expected);
        }
    }

    #[test]
    fn characters_that_control_a_terminal_are_escaped_in_json() {
        for (json, expected) in [
            (
                "{\n  \"a\": \"caf\u{e9}\"\n}",
                "{\n  \"a\": \"caf\u{e9}\"\n}",
            ),
            ("[\"\u{9b}2J\u{7f}\"]", "[\"\\u009b2J\\u007f\"]"),
            (
                "[\"\u{202e}\u{2069}\u{2028}\"]",
                "[\"\\u202e\\u2069\\u2028\"]",
            ),
            ("[\"\\u001b\\n\"]", "[\"\\u001b\\n\"]"),
        ] {
            assert_eq!(escape_json_controls(json), expected);
        }
    }
}
