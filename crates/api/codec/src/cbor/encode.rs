//! Schema-directed encoder: the members of JSON, with bytes as bytes, sorted by the bytes of their
//! encoded keys.

use std::cmp::Ordering;

use api_schema::{Field, Message, Shape, Type};
use serde_json::{Map, Number, Value};

use super::float::write_float;
use super::head::{ARRAY, BYTES, MAP, NEGATIVE, SIMPLE, TAG, UNSIGNED, write_head};
use crate::{canonical, scalars};

const FALSE: u64 = 20;
const TRUE: u64 = 21;
const NULL: u64 = 22;
/// Tag of bytes that become base64 in JSON.
const BASE64: u64 = 22;

/// Writes any tree.
pub(crate) fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => write_head(SIMPLE, NULL, out),
        Value::Bool(value) => write_head(SIMPLE, if *value { TRUE } else { FALSE }, out),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_text(text, out),
        Value::Array(list) => {
            write_head(ARRAY, list.len() as u64, out);
            list.iter().for_each(|item| write_value(item, out));
        }
        Value::Object(map) => write_map(map, out, write_value),
    }
}

/// Writes text as a byte string. Upstream writes all text so, because it need not be checked.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    write_bytes(text.as_bytes(), out);
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_head(BYTES, bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn write_number(number: &Number, out: &mut Vec<u8>) {
    match number.as_i64() {
        Some(n) if n < 0 => write_head(NEGATIVE, n.unsigned_abs() - 1, out),
        Some(n) => write_head(UNSIGNED, n.unsigned_abs(), out),
        // Upstream's JSON decoder makes a float of a larger number, and no decoder of CBOR accepts
        // it as an integer.
        None => write_float(number.as_f64().unwrap_or_default(), out),
    }
}

fn write_map(
    map: &Map<String, Value>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(&Value, &mut Vec<u8>),
) {
    let mut members: Vec<(&String, &Value)> = map.iter().collect();
    members.sort_unstable_by(|(a, _), (b, _)| compare_keys(a, b));
    write_head(MAP, members.len() as u64, out);
    for (key, value) in members {
        write_text(key, out);
        write(value, out);
    }
}

/// Orders keys by the bytes of their encoding, whose head has the length (RFC 8949, 4.2.1).
fn compare_keys(a: &str, b: &str) -> Ordering {
    (a.len(), a).cmp(&(b.len(), b))
}

/// Writes an object of the type.
pub(super) fn write_message(message: &'static Message, value: &Value, out: &mut Vec<u8>) {
    match (message.shape, value) {
        (Shape::Struct, Value::Object(map)) => write_struct(message, map, out),
        (Shape::Struct, _) => write_struct(message, &Map::new(), out),
        (Shape::SchemaOrBool, Value::Object(map)) => write_part(message, 2, map, out),
        (Shape::SchemaOrArray | Shape::SchemaOrStringArray, Value::Object(map)) => {
            write_part(message, 1, map, out);
        }
        (Shape::SchemaOrArray, Value::Array(list)) => match message.field_by_number(2) {
            Some(field) => write_list(field.ty.element().unwrap_or(&field.ty), list, out),
            None => write_value(&Value::Null, out),
        },
        (Shape::Quantity, Value::String(_) | Value::Number(_)) => {
            write_text(&scalars::quantity_text(value), out);
        }
        _ => write_value(value, out),
    }
}

fn write_part(message: &'static Message, number: u32, map: &Map<String, Value>, out: &mut Vec<u8>) {
    let field = message.field_by_number(number);
    match field.and_then(|field| field.ty.message()) {
        Some(schema) => write_struct(schema, map, out),
        None => write_value(&Value::Null, out),
    }
}

fn write_struct(message: &'static Message, map: &Map<String, Value>, out: &mut Vec<u8>) {
    let mut members: Vec<(&'static Field, Option<&Value>)> = Vec::with_capacity(map.len() + 2);
    canonical::for_each_written(message, map, &mut |field, value| {
        members.push((field, value));
    });
    members.sort_unstable_by(|(a, _), (b, _)| compare_keys(a.json, b.json));
    write_head(MAP, members.len() as u64, out);
    for (field, value) in members {
        write_text(field.json, out);
        match value {
            Some(value) => write_typed(&field.ty, value, out),
            None => match canonical::written_zero(field) {
                Some(zero) => write_typed(&field.ty, &zero, out),
                None => write_value(&Value::Null, out),
            },
        }
    }
}

fn write_typed(ty: &'static Type, value: &Value, out: &mut Vec<u8>) {
    match (ty, value) {
        (Type::Message(_), _) => match ty.message() {
            Some(message) => write_message(message, value, out),
            None => write_value(value, out),
        },
        (Type::List(inner), Value::Array(list)) => write_list(inner, list, out),
        (Type::Map(inner), Value::Object(map)) => {
            write_map(map, out, |item, out| write_typed(inner, item, out));
        }
        (Type::Bytes, Value::String(text)) => match scalars::base64_decode(text) {
            Ok(bytes) => {
                write_head(TAG, BASE64, out);
                write_bytes(&bytes, out);
            }
            // Validation reports it; a decoder reads it as base64, too.
            Err(_) => write_text(text, out),
        },
        // Whole numbers are integers in the tree.
        (Type::Double, Value::Number(number)) => {
            write_float(number.as_f64().unwrap_or_default(), out);
        }
        _ => write_value(value, out),
    }
}

fn write_list(inner: &'static Type, list: &[Value], out: &mut Vec<u8>) {
    write_head(ARRAY, list.len() as u64, out);
    for item in list {
        write_typed(inner, item, out);
    }
}
