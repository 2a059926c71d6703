//! Schema-directed encoder: writes members in the order of the Go struct, directly into a buffer.

use api_schema::{Field, Message, Omit, Shape, Type};
use serde_json::{Map, Value};

use super::text::{write_string, write_value};
use crate::{canonical, scalars};

/// Encodes the object like Go.
pub fn encode(message: &'static Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    encode_to(message, value, &mut out);
    out
}

/// Appends the encoded object to `out`, like Go.
pub fn encode_to(message: &'static Message, value: &Value, out: &mut Vec<u8>) {
    write_message(message, value, out);
}

fn write_message(message: &'static Message, value: &Value, out: &mut Vec<u8>) {
    match (message.shape, value) {
        (Shape::Struct, Value::Object(map)) => write_struct(message, map, out),
        (Shape::Struct, _) => write_struct(message, &Map::new(), out),
        (Shape::SchemaOrBool, Value::Object(map)) => write_part(message, 2, map, out),
        (Shape::SchemaOrArray | Shape::SchemaOrStringArray, Value::Object(map)) => {
            write_part(message, 1, map, out)
        }
        (Shape::SchemaOrArray, Value::Array(list)) => match message.field_by_number(2) {
            Some(field) => write_list(field.ty.element().unwrap_or(&field.ty), list, out),
            None => out.extend_from_slice(b"null"),
        },
        (Shape::Quantity, Value::String(text)) => match scalars::canonical_quantity(text) {
            // Trees that were patched may have another form of the amount.
            Ok(text) => write_string(&text, out),
            Err(_) => write_string(text, out),
        },
        (Shape::Quantity, Value::Number(number)) => {
            write_string(
                &scalars::canonical_quantity(&number.to_string()).unwrap_or_default(),
                out,
            );
        }
        _ => write_value(value, out),
    }
}

fn write_part(message: &'static Message, number: u32, map: &Map<String, Value>, out: &mut Vec<u8>) {
    match message
        .field_by_number(number)
        .and_then(|field| field.ty.message())
    {
        Some(schema) => write_struct(schema, map, out),
        None => out.extend_from_slice(b"null"),
    }
}

fn write_struct(message: &'static Message, map: &Map<String, Value>, out: &mut Vec<u8>) {
    out.push(b'{');
    let start = out.len();
    write_members(message, map, start, out);
    out.push(b'}');
}

fn write_members(
    message: &'static Message,
    map: &Map<String, Value>,
    start: usize,
    out: &mut Vec<u8>,
) {
    for field in &message.fields {
        if field.inline {
            if let Some(inner) = field.ty.message() {
                write_members(inner, map, start, out);
            }
            continue;
        }
        let value = map
            .get(field.json)
            .filter(|value| canonical::keeps_value(field, value));
        // `omitempty` is a property of the Go type, so it comes from the schema and not from the
        // value.
        if value.is_none() && field.omit != Omit::Never {
            continue;
        }
        // Inline members are written into the same object, so the position shows whether one
        // precedes.
        if out.len() > start {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(field.json.as_bytes());
        out.extend_from_slice(b"\":");
        match value {
            Some(value) => write_typed(&field.ty, value, out),
            None => write_zero(field, out),
        }
    }
}

fn write_zero(field: &'static Field, out: &mut Vec<u8>) {
    // A nil pointer without `omitempty` is null in Go's JSON.
    match canonical::zero_value(&field.ty).filter(|_| !field.pointer) {
        Some(zero) => write_typed(&field.ty, &zero, out),
        None => out.extend_from_slice(b"null"),
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
            out.push(b'{');
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(key, out);
                out.push(b':');
                write_typed(inner, item, out);
            }
            out.push(b'}');
        }
        _ => write_value(value, out),
    }
}

fn write_list(inner: &'static Type, list: &[Value], out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, item) in list.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_typed(inner, item, out);
    }
    out.push(b']');
}
