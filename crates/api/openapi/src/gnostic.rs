//! Documents in protobuf, in the two formats of gnostic that Go clients request.
//!
//! Each version has a table that maps keys of the JSON document to numbers. This module encodes the
//! document by that table. Keys that are not in the table are omitted; those with the prefix `x-`
//! become extensions as YAML text.

mod message;
mod version2;
mod version3;

use crate::gnostic::message::{Message, Part};
use api_codec::proto::wire::{write_bytes, write_int, write_nested, write_tag};
use serde_json::{Map, Value};

/// Encodes a document of version 2 as `openapi.v2.Document`.
pub fn version2(document: &Value) -> Vec<u8> {
    encode_message(&version2::DOCUMENT, document)
}

/// Encodes a document of version 3 as `openapi.v3.Document`.
pub fn version3(document: &Value) -> Vec<u8> {
    encode_message(&version3::DOCUMENT, document)
}

fn encode_message(message: &'static Message, document: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 * 1024);
    write_message(message, document, &mut out);
    out
}

fn write_message(message: &'static Message, value: &Value, out: &mut Vec<u8>) {
    let empty = Map::new();
    let object = value.as_object().unwrap_or(&empty);
    // In the order of the table, not of the document, so that equal documents have equal bytes.
    for (key, number, part) in message.fields {
        if let Some(value) = object.get(*key) {
            write_part(*number, *part, value, out);
        }
    }
    for (key, value) in object
        .iter()
        .filter(|(key, _)| !message.fields.iter().any(|(known, ..)| known == key))
    {
        // Extensions carry what kubectl needs: kinds, merge keys and list types.
        if message.extensions != 0 && key.starts_with("x-") {
            write_named(message.extensions, Part::Any, key, value, out);
        } else if let Some((number, part)) = message.others {
            write_named(number, part, key, value, out);
        }
    }
}

fn write_named(number: u32, part: Part, name: &str, value: &Value, out: &mut Vec<u8>) {
    write_nested(number, out, |out| {
        write_bytes(1, name.as_bytes(), out);
        write_part(2, part, value, out);
    });
}

fn write_part(number: u32, part: Part, value: &Value, out: &mut Vec<u8>) {
    match part {
        Part::Text => write_text(number, value, out),
        // gnostic omits false, as proto3 does.
        Part::Bool if value == &Value::Bool(true) => write_int(number, 1, out),
        Part::Bool => {}
        // Two's complement, as protobuf requires.
        Part::Int => write_int(number, value.as_i64().unwrap_or_default() as u64, out),
        Part::Double => write_double(number, value, out),
        Part::Any => write_nested(number, out, |out| {
            // JSON is YAML, so extensions need no other encoder.
            write_bytes(2, value.to_string().as_bytes(), out)
        }),
        Part::Scalar => write_scalar(number, value, out),
        Part::One(message) => write_nested(number, out, |out| write_message(message, value, out)),
        Part::Each(part) => {
            for item in value.as_array().into_iter().flatten() {
                write_part(number, *part, item, out);
            }
        }
        Part::BoolOr(part) => match value {
            Value::Bool(bool) => {
                write_nested(number, out, |out| write_int(2, u64::from(*bool), out));
            }
            other => write_part(number, *part, other, out),
        },
        Part::In([], part) => write_part(number, *part, value, out),
        Part::In([first, rest @ ..], part) => {
            write_nested(number, out, |out| {
                write_part(*first, Part::In(rest, part), value, out)
            });
        }
        Part::Choice(choose) => {
            let (path, message) = choose(value);
            write_nested(number, out, |out| write_chosen(path, message, value, out));
        }
    }
}

fn write_chosen(path: &'static [u32], message: &'static Message, value: &Value, out: &mut Vec<u8>) {
    match path {
        [] => write_message(message, value, out),
        [first, rest @ ..] => {
            write_nested(*first, out, |out| write_chosen(rest, message, value, out))
        }
    }
}

fn write_text(number: u32, value: &Value, out: &mut Vec<u8>) {
    // proto3 has no absent strings, so gnostic's bytes omit empty ones.
    if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
        write_bytes(number, text.as_bytes(), out);
    }
}

fn write_double(number: u32, value: &Value, out: &mut Vec<u8>) {
    if let Some(double) = value.as_f64() {
        // Doubles are fixed to 64 bits on the wire, little-endian.
        write_tag(number, 1, out);
        out.extend_from_slice(&double.to_le_bytes());
    }
}

fn write_scalar(number: u32, value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Number(_) => write_nested(number, out, |out| write_double(1, value, out)),
        Value::Bool(bool) => write_nested(number, out, |out| write_int(2, u64::from(*bool), out)),
        Value::String(text) => {
            write_nested(number, out, |out| write_bytes(3, text.as_bytes(), out))
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parts_are_where_gnostic_has_them() {
        let bytes = version2(&json!({"swagger": "2.0", "info": {"title": "T", "version": "v"}}));
        assert_eq!(bytes, b"\x0a\x032.0\x12\x06\x0a\x01T\x12\x01v");
        let bytes = version2(&json!({"definitions": {"A": {"type": "object", "x-a": 1}}}));
        let schema = b"\xb2\x01\x08\x0a\x06object\xfa\x01\x0a\x0a\x03x-a\x12\x03\x12\x011";
        let named = [b"\x0a\x01A\x12", &[schema.len() as u8][..], schema].concat();
        let definitions = [b"\x0a", &[named.len() as u8][..], &named].concat();
        assert_eq!(
            bytes,
            [b"\x4a", &[definitions.len() as u8][..], &definitions].concat()
        );
        let bytes =
            version3(&json!({"openapi": "3.0.0", "paths": {"/a": {"get": {"operationId": "x"}}}}));
        assert_eq!(
            bytes,
            b"\x0a\x053.0.0\x22\x0d\x0a\x0b\x0a\x02/a\x12\x05\x22\x03\x2a\x01x"
        );
    }
}
