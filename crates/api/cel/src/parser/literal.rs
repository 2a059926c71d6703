//! Escape sequences of string and bytes literals, and numbers.

const UNREADABLE: &str = "unable to unescape string";
const INVALID_CODE_POINT: &str = "invalid unicode code point";

/// Returns the content of a literal without its escapes. In bytes, `\x` and octal escapes are
/// single bytes.
pub fn unescape(content: &str, is_raw: bool, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    if is_raw || !content.contains('\\') {
        return Ok(content.as_bytes().to_vec());
    }
    let mut result = Vec::with_capacity(content.len());
    let mut characters = content.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            push_character(&mut result, character);
            continue;
        }
        let escape = characters.next().ok_or(UNREADABLE)?;
        let simple = match escape {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 11,
            '\\' | '\'' | '"' | '`' | '?' => escape as u8,
            // No escape of one letter stands for 0, so 0 marks the others.
            _ => 0,
        };
        if simple != 0 {
            result.push(simple);
            continue;
        }
        let (radix, digits, first) = match escape {
            'x' | 'X' => (16, 2, 0),
            'u' if !is_bytes => (16, 4, 0),
            'U' if !is_bytes => (16, 8, 0),
            // Three octal digits from 000 to 377, so that a byte can hold the value.
            '0'..='3' => (8, 2, escape as u32 - '0' as u32),
            _ => return Err(UNREADABLE),
        };
        let mut code = first;
        for _ in 0..digits {
            let digit = characters
                .next()
                .and_then(|c| c.to_digit(radix))
                .ok_or(UNREADABLE)?;
            code = code
                .checked_mul(radix)
                .ok_or(INVALID_CODE_POINT)?
                .saturating_add(digit);
        }
        if is_bytes {
            result.push(u8::try_from(code).map_err(|_| UNREADABLE)?);
        } else {
            push_character(&mut result, char::from_u32(code).ok_or(INVALID_CODE_POINT)?);
        }
    }
    Ok(result)
}

fn push_character(result: &mut Vec<u8>, character: char) {
    result.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Parses a whole number, decimal or hexadecimal.
pub fn parse_int(digits: &str, negative: bool) -> Option<i64> {
    let (digits, radix) = digits
        .strip_prefix("0x")
        .map_or((digits, 10), |hex| (hex, 16));
    let magnitude = i128::from(u64::from_str_radix(digits, radix).ok()?);
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// Parses an unsigned number, decimal or hexadecimal.
pub fn parse_uint(digits: &str) -> Option<u64> {
    let (digits, radix) = digits
        .strip_prefix("0x")
        .map_or((digits, 10), |hex| (hex, 16));
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_replaced() {
        type Expected = Result<&'static [u8], &'static str>;
        let cases: [(&str, bool, Expected); 11] = [
            (r"a\n\t\\", false, Ok(b"a\n\t\\")),
            (r"\x41\101\u00e9", false, Ok("AA\u{e9}".as_bytes())),
            (r"\U0001f431", false, Ok("\u{1f431}".as_bytes())),
            (r"\xff", true, Ok(&[0xff])),
            (r"\377", true, Ok(&[0xff])),
            (r"\xff", false, Ok("\u{ff}".as_bytes())),
            (r"\u00e9", true, Err(UNREADABLE)),
            (r"\ud800", false, Err(INVALID_CODE_POINT)),
            (r"\UFFFFFFFF", false, Err(INVALID_CODE_POINT)),
            (r"\q", false, Err(UNREADABLE)),
            (r"\x4", false, Err(UNREADABLE)),
        ];
        for (content, is_bytes, expected) in cases {
            let actual = unescape(content, false, is_bytes);
            assert_eq!(actual.as_deref(), expected.as_ref().copied(), "{content}");
        }
    }

    #[test]
    fn raw_literals_keep_backslashes() {
        assert_eq!(unescape(r"\d\", true, false).as_deref(), Ok(&br"\d\"[..]));
    }

    #[test]
    fn least_number_is_read_with_its_sign() {
        assert_eq!(parse_int("9223372036854775808", true), Some(i64::MIN));
        assert_eq!(parse_int("9223372036854775808", false), None);
        assert_eq!(parse_int("0x7f", true), Some(-127));
        assert_eq!(parse_uint("0xffffffffffffffff"), Some(u64::MAX));
    }
}
