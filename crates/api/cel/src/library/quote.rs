//! Text in double quotes as Go's `strconv.Quote` and `%q` write it: error messages and the results
//! of `string.format` contain it.

use std::fmt::Write as _;

/// Returns the text in double quotes.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        push_escaped(&mut quoted, c);
    }
    quoted.push('"');
    quoted
}

/// Returns bytes in double quotes. Bytes that are no UTF-8 are written as `\xNN`.
pub(crate) fn quote_bytes(bytes: &[u8]) -> String {
    let mut quoted = String::with_capacity(bytes.len() + 2);
    quoted.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_escaped(&mut quoted, c);
        }
        for byte in chunk.invalid() {
            let _ = write!(quoted, "\\x{byte:02x}");
        }
    }
    quoted.push('"');
    quoted
}

fn push_escaped(quoted: &mut String, c: char) {
    let short = match c {
        '\x07' => 'a',
        '\x08' => 'b',
        '\x0c' => 'f',
        '\n' => 'n',
        '\r' => 'r',
        '\t' => 't',
        '\x0b' => 'v',
        '\\' | '"' => c,
        _ => {
            if is_printable(c) {
                quoted.push(c);
            } else {
                let _ = match u32::from(c) {
                    code @ (..=0x1f | 0x7f) => write!(quoted, "\\x{code:02x}"),
                    code @ ..=0xffff => write!(quoted, "\\u{code:04x}"),
                    code => write!(quoted, "\\U{code:08x}"),
                };
            }
            return;
        }
    };
    quoted.push('\\');
    quoted.push(short);
}

fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    // The standard library has the table, but shows it only through the escaping of debug output,
    // which also escapes a combining mark unless it follows another character.
    let mut pair = String::from('a');
    pair.push(c);
    pair.escape_debug().nth(1) == Some(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_like_go() {
        for (text, quoted) in [
            ("", r#""""#),
            ("a b", r#""a b""#),
            ("a\"b\\", r#""a\"b\\""#),
            ("\x07\x08\x0c\n\r\t\x0b", r#""\a\b\f\n\r\t\v""#),
            ("\0\x1f\x7f", r#""\x00\x1f\x7f""#),
            ("é😀e\u{301}'", "\"é😀e\u{301}'\""),
            ("\u{a0}\u{200b}\u{feff}", r#""\u00a0\u200b\ufeff""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quote(text), quoted, "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_written_in_hexadecimal() {
        assert_eq!(quote_bytes(b"a\xff\n"), r#""a\xff\n""#);
        assert_eq!(quote_bytes("é".as_bytes()), "\"é\"");
    }
}
