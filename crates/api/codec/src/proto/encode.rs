//! Protobuf encoder. Like gogo, it always writes members that are not pointers, even if zero, in
//! ascending order of numbers and with sorted map keys.

use api_schema::{Field, Message, Shape, Type};
use serde_json::{Map, Value};

use super::wire::{write_bytes, write_int, write_nested, write_tag, write_varint};
use crate::members::Members;
use crate::{json, scalars};

/// Appends the encoded message to `out`.
pub(super) fn write_message(message: &'static Message, value: &Value, out: &mut Vec<u8>) {
    match message.shape {
        Shape::Struct => match value {
            Value::Object(map) => write_struct(message, map, out),
            _ => write_struct(message, &Map::new(), out),
        },
        _ => write_special(message, value, out),
    }
}

fn write_struct(message: &'static Message, map: &Map<String, Value>, out: &mut Vec<u8>) {
    let members = Members::new(message, map);
    for (position, field) in message.positions_by_number() {
        // An inlined Go struct is a message of its own in protobuf (`Volume.volumeSource`).
        if field.inline {
            if let Some(inner) = field.ty.message() {
                write_nested(field.number, out, |out| write_struct(inner, map, out));
            }
        } else {
            let value = members.get(position, field).unwrap_or(&Value::Null);
            write_field(field, value, out);
        }
    }
}

fn write_field(field: &'static Field, value: &Value, out: &mut Vec<u8>) {
    // Other fields are written even if zero. gogo does so for fields that are no pointers, and
    // stored bytes are compared with upstream's.
    if value.is_null() && is_nullable(field) {
        return;
    }
    write_value(field.number, &field.ty, value, out);
}

/// Returns whether nothing is written for null: pointers, lists, maps, bytes and named lists.
fn is_nullable(field: &'static Field) -> bool {
    match field.ty {
        Type::List(_) | Type::Map(_) | Type::Bytes => true,
        Type::Message(_) => {
            field.pointer
                || field
                    .ty
                    .message()
                    .is_some_and(|message| message.shape == Shape::Items)
        }
        _ => field.pointer,
    }
}

fn encode_integer(value: &Value) -> u64 {
    match value {
        // A negative number is written as 64 bits of two's complement.
        Value::Number(number) => number
            .as_i64()
            .map(|n| n as u64)
            .or(number.as_u64())
            .unwrap_or_default(),
        _ => 0,
    }
}

fn write_value(number: u32, ty: &'static Type, value: &Value, out: &mut Vec<u8>) {
    match ty {
        Type::Bool => write_int(number, u64::from(value.as_bool().unwrap_or_default()), out),
        Type::Int32 | Type::Int64 | Type::Uint32 | Type::Uint64 => {
            write_int(number, encode_integer(value), out)
        }
        Type::Double => {
            write_tag(number, 1, out);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Type::String => write_bytes(number, value.as_str().unwrap_or_default().as_bytes(), out),
        Type::Bytes => {
            let bytes =
                scalars::base64_decode(value.as_str().unwrap_or_default()).unwrap_or_default();
            write_bytes(number, &bytes, out);
        }
        Type::Message(_) => {
            if let Some(message) = ty.message() {
                write_nested(number, out, |out| write_message(message, value, out));
            }
        }
        Type::List(inner) => {
            for item in value.as_array().into_iter().flatten() {
                write_value(number, inner, item, out);
            }
        }
        Type::Map(inner) => {
            // The map is sorted by key, as gogo sorts: equal objects have equal bytes.
            for (key, item) in value.as_object().into_iter().flatten() {
                write_nested(number, out, |out| {
                    write_bytes(1, key.as_bytes(), out);
                    if !(item.is_null() && matches!(**inner, Type::Bytes)) {
                        write_value(2, inner, item, out);
                    }
                });
            }
        }
    }
}

fn write_special(message: &'static Message, value: &Value, out: &mut Vec<u8>) {
    match message.shape {
        Shape::Struct => {}
        Shape::Time => write_time(value, false, out),
        Shape::MicroTime => write_time(value, true, out),
        Shape::Duration => {
            // A duration is a number of nanoseconds in protobuf, and a text in JSON.
            let nanos = value
                .as_str()
                .and_then(|text| base_duration::parse_duration(text).ok())
                .unwrap_or_default();
            write_int(1, nanos as u64, out);
        }
        Shape::Quantity => {
            let text = scalars::quantity_text(value);
            write_bytes(1, text.as_bytes(), out);
        }
        Shape::IntOrString => {
            // All three members are written, whichever is used: 0 means the integer, 1 the string.
            write_int(1, u64::from(value.is_string()), out);
            write_int(2, encode_integer(value), out);
            write_bytes(3, value.as_str().unwrap_or_default().as_bytes(), out);
        }
        Shape::RawExtension | Shape::FieldsV1 | Shape::Json => write_raw(value, out),
        Shape::Items => {
            for item in value.as_array().into_iter().flatten() {
                write_bytes(1, item.as_str().unwrap_or_default().as_bytes(), out);
            }
        }
        // Go sets `allows` beside a schema, too, when it decodes JSON.
        Shape::SchemaOrBool => {
            write_int(
                1,
                u64::from(value.is_object() || value == &Value::Bool(true)),
                out,
            );
            write_part(message, 2, value.as_object(), out);
        }
        Shape::SchemaOrArray | Shape::SchemaOrStringArray => {
            write_part(message, 1, value.as_object(), out);
            if let Some(field) = message.field_by_number(2) {
                write_value(2, &field.ty, value, out);
            }
        }
    }
}

fn write_part(
    message: &'static Message,
    number: u32,
    map: Option<&Map<String, Value>>,
    out: &mut Vec<u8>,
) {
    let schema = message
        .field_by_number(number)
        .and_then(|field| field.ty.message());
    if let (Some(schema), Some(map)) = (schema, map) {
        write_nested(number, out, |out| write_struct(schema, map, out));
    }
}

/// Writes JSON as bytes, without Go's escapes.
fn write_raw(value: &Value, out: &mut Vec<u8>) {
    if !value.is_null() {
        write_nested(1, out, |out| json::write_value(value, out));
    }
}

fn write_time(value: &Value, micro: bool, out: &mut Vec<u8>) {
    let Some((seconds, nanos)) = value.as_str().and_then(scalars::unix_time) else {
        return;
    };
    write_tag(1, 0, out);
    write_varint(seconds as u64, out);
    // `metav1.Time` is precise to the second.
    write_int(
        2,
        if micro {
            u64::from(nanos.unsigned_abs()) / 1000 * 1000
        } else {
            0
        },
        out,
    );
}
