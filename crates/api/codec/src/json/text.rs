//! JSON text like that of Go's encoder: `<`, `>` and `&` escaped, whole floats without a fraction.

use serde_json::{Number, Value};

/// Writes any tree.
pub fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(list) => {
            out.push(b'[');
            for (index, item) in list.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_value(item, out);
            }
            out.push(b']');
        }
        Value::Object(map) => {
            out.push(b'{');
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(key, out);
                out.push(b':');
                write_value(item, out);
            }
            out.push(b'}');
        }
    }
}

/// Writes a number.
pub(super) fn write_number(number: &Number, out: &mut Vec<u8>) {
    use std::io::Write as _;
    // Writing to a Vec can't fail.
    let _ = if let Some(n) = number.as_i64() {
        write!(out, "{n}")
    } else if let Some(n) = number.as_u64() {
        write!(out, "{n}")
    } else {
        let n = number.as_f64().unwrap_or_default();
        // Go's encoder uses exponents outside of this range, and Rust's formatter never does.
        if n == 0.0 || (1e-6..1e21).contains(&n.abs()) {
            write!(out, "{n}")
        } else {
            write_exponent(n, out)
        }
    };
}

/// Writes an exponent like Go: at least two digits, with a sign if positive (`1e+21`); `1e-07` is
/// shortened to `1e-7`.
fn write_exponent(n: f64, out: &mut Vec<u8>) -> std::io::Result<()> {
    use std::io::Write as _;
    let text = format!("{n:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) if !exponent.starts_with('-') => {
            write!(out, "{mantissa}e+{exponent}")
        }
        _ => write!(out, "{text}"),
    }
}

/// Bytes before which [`write_string`] has to look closer: 0xe2 begins U+2028 and U+2029, among
/// others.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        special[byte] = true;
        byte += 1;
    }
    let marks = *b"\"\\<>&\xe2";
    let mut mark = 0;
    while mark < marks.len() {
        special[marks[mark] as usize] = true;
        mark += 1;
    }
    special
};

/// Writes a string in quotes.
// Go escapes `<`, `>`, `&`, U+2028 and U+2029, so that JSON can stand in HTML. Bytes of stored
// objects are compared with upstream's.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text.as_bytes();
    // Almost all strings have no such byte, and are copied at once.
    while let Some(at) = rest.iter().position(|byte| SPECIAL[usize::from(*byte)]) {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        rest = special
            .get(write_special(special, out)..)
            .unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Writes the character with which `text` begins; returns how many of its bytes were written.
fn write_special(text: &[u8], out: &mut Vec<u8>) -> usize {
    let escape: &[u8] = match text {
        [0xe2, 0x80, 0xa8, ..] => b"\\u2028",
        [0xe2, 0x80, 0xa9, ..] => b"\\u2029",
        [b'"', ..] => b"\\\"",
        [b'\\', ..] => b"\\\\",
        [b'\n', ..] => b"\\n",
        [b'\r', ..] => b"\\r",
        [b'\t', ..] => b"\\t",
        [0x08, ..] => b"\\b",
        [0x0c, ..] => b"\\f",
        [b'<', ..] => b"\\u003c",
        [b'>', ..] => b"\\u003e",
        [b'&', ..] => b"\\u0026",
        [byte @ 0..=0x1f, ..] => {
            out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            return 1;
        }
        // The first byte of another character; the others are not special.
        [byte, ..] => {
            out.push(*byte);
            return 1;
        }
        [] => return 0,
    };
    out.extend_from_slice(escape);
    if text.first() == Some(&0xe2) { 3 } else { 1 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn strings_are_escaped_as_in_go() {
        let check = |value: Value, text: &str| {
            let mut out = Vec::new();
            write_value(&value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        };
        check(
            Value::from("a<b>&\"\\\n\u{1}\u{2028}é"),
            r#""a\u003cb\u003e\u0026\"\\\n\u0001\u2028é""#,
        );
        check(Value::from(5.0), "5");
        check(Value::from(0.25), "0.25");
        check(Value::from(1e21), "1e+21");
        check(Value::from(1e-7), "1e-7");
        check(Value::from(-3), "-3");
        check(Value::from(u64::MAX), "18446744073709551615");
    }
}
