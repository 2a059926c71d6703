//! Schema-directed encoder: writes members in the order of the Go struct, directly into a buffer.

use api_schema::{Message, Shape, Type};
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
        (Shape::Quantity, Value::String(_) | Value::Number(_)) => {
            write_string(&scalars::quantity_text(value), out);
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
    canonical::for_each_written(message, map, &mut |field, value| {
        if out.len() > start {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(field.json.as_bytes());
        out.extend_from_slice(b"\":");
        match value {
            Some(value) => write_typed(&field.ty, value, out),
            None => match canonical::written_zero(field) {
                Some(zero) => write_typed(&field.ty, &zero, out),
                None => out.extend_from_slice(b"null"),
            },
        }
    });
    out.push(b'}');
}

/// Writes a value of a type.
pub(crate) fn write_typed(ty: &'static Type, value: &Value, out: &mut Vec<u8>) {
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
