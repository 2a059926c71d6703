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

/// Writes a string in quotes.
// Go escapes `<`, `>`, `&`, U+2028 and U+2029, so that JSON can stand in HTML. Bytes of stored
// objects are compared with upstream's.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;
    for (index, byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            b'<' => b"\\u003c",
            b'>' => b"\\u003e",
            b'&' => b"\\u0026",
            0..=0x1f => b"",
            0xe2 => match bytes.get(index + 1..index + 3) {
                Some([0x80, 0xa8]) => b"\\u2028",
                Some([0x80, 0xa9]) => b"\\u2029",
                _ => continue,
            },
            _ => continue,
        };
        out.extend_from_slice(bytes.get(start..index).unwrap_or_default());
        if escape.is_empty() {
            out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
        } else {
            out.extend_from_slice(escape);
        }
        start = index + if *byte == 0xe2 { 3 } else { 1 };
    }
    out.extend_from_slice(bytes.get(start..).unwrap_or_default());
    out.push(b'"');
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
