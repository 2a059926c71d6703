//! Percent encoding as Go's `net/url` has it: which bytes each part of a URL may show as they are.

use super::error::Error;
use super::quote::{quote, quote_bytes};

/// Part of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Path,
    Host,
    Zone,
    UserInfo,
    Query,
    Fragment,
}

impl Part {
    fn shows(self, byte: u8) -> bool {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            return true;
        }
        match self {
            // The sub-delimiters of RFC 3986 (3.2.2), and what Go adds: `:` for ports, brackets for
            // IPv6.
            Part::Host | Part::Zone => b"!$&'()*+,;=:[]<>\"".contains(&byte),
            // `?` would start the query.
            Part::Path => b"$&+,/:;=@".contains(&byte),
            // `@`, `/`, `?` and `:` would end the user's name or its password (RFC 3986, 3.2.1).
            Part::UserInfo => b"$&+,;=".contains(&byte),
            // Go encodes all reserved characters in a part of a query (RFC 3986, 3.4).
            Part::Query => false,
            Part::Fragment => b"$&+,/:;=?@!()*".contains(&byte),
        }
    }
}

/// Returns the bytes with everything encoded that the part of a URL cannot show.
pub(crate) fn escape(bytes: &[u8], part: Part) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or('0');
    let mut escaped = String::with_capacity(bytes.len());
    for byte in bytes {
        if part.shows(*byte) {
            escaped.push(char::from(*byte));
        } else {
            escaped.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    escaped
}

/// Returns the bytes that an encoded part of a URL stands for.
pub(crate) fn unescape(text: &str, part: Part) -> Result<Vec<u8>, Error> {
    let is_host = matches!(part, Part::Host | Part::Zone);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'%' => {
                let decoded = match tail {
                    [high, low, ..] => parse_hex(*high, *low),
                    _ => None,
                };
                // Go's message shows the percent sign and at most two bytes after it.
                let shown = [b"%", tail.get(..2).unwrap_or(tail)].concat();
                match decoded {
                    Some(byte) if may_encode(part, byte) => bytes.push(byte),
                    _ => return Err(escape_error(&shown)),
                }
                rest = tail.get(2..).unwrap_or_default();
            }
            // Only in a query does a plus sign stand for a space.
            b'+' if part == Part::Query => bytes.push(b' '),
            byte if is_host && byte.is_ascii() && !part.shows(byte) => {
                let shown = quote(&char::from(byte).to_string());
                return Err(Error(format!("invalid character {shown} in host name")));
            }
            byte => bytes.push(byte),
        }
    }
    Ok(bytes)
}

/// Returns whether a byte may be encoded. Hosts encode only bytes beyond ASCII and `%` (RFC 6874),
/// because `%2F` and the like would be another host for the next reader.
fn may_encode(part: Part, byte: u8) -> bool {
    match part {
        Part::Host => !byte.is_ascii() || byte == b'%',
        // A zone may not encode what it can't show, except for the spaces that Windows puts there.
        Part::Zone => byte == b'%' || byte == b' ' || Part::Host.shows(byte),
        _ => true,
    }
}

fn parse_hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

fn escape_error(shown: &[u8]) -> Error {
    Error(format!("invalid URL escape {}", quote_bytes(shown)))
}

/// Returns whether an encoded path or fragment can be kept as it was written.
pub(crate) fn is_valid_encoding(text: &str, part: Part) -> bool {
    text.bytes()
        .all(|byte| b"!$&'()*+,;=:@[]%".contains(&byte) || part.shows(byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_part_encodes_its_own_bytes() {
        for (part, escaped) in [
            (Part::Path, "a%20%3F%23/;+%C3%A9"),
            (Part::Query, "a%20%3F%23%2F%3B%2B%C3%A9"),
            (Part::Fragment, "a%20?%23/;+%C3%A9"),
            (Part::UserInfo, "a%20%3F%23%2F;+%C3%A9"),
        ] {
            assert_eq!(escape("a ?#/;+é".as_bytes(), part), escaped, "{part:?}");
        }
    }

    #[test]
    fn encoded_text_is_decoded() {
        assert_eq!(unescape("a%2Fb+c", Part::Path).unwrap(), b"a/b+c");
        assert_eq!(unescape("a%2fb+c", Part::Query).unwrap(), b"a/b c");
        assert_eq!(unescape("%ff", Part::Path).unwrap(), b"\xff");
    }

    #[test]
    fn bad_encodings_are_rejected() {
        for (text, part, message) in [
            ("a%", Part::Path, "invalid URL escape \"%\""),
            ("a%z", Part::Path, "invalid URL escape \"%z\""),
            ("a%zzz", Part::Path, "invalid URL escape \"%zz\""),
            ("a%2Fb", Part::Host, "invalid URL escape \"%2F\""),
            ("a b", Part::Host, "invalid character \" \" in host name"),
            (
                "a\\b",
                Part::Zone,
                "invalid character \"\\\\\" in host name",
            ),
        ] {
            assert_eq!(unescape(text, part), Err(Error::new(message)), "{text}");
        }
        assert!(unescape("%25", Part::Host).is_ok());
    }
}
