//! Protobuf decoder. Unknown numbers are skipped, nesting is limited, and later values replace
//! earlier ones.

use std::borrow::Cow;

use api_schema::{Field, Message, Shape, Type};
use serde_json::{Map, Value};

use super::part::Part;
use super::wire::{Reader, Wire};
use crate::{DecodeError, canonical, scalars};

/// Maximum depth of nested messages, as for JSON.
pub(crate) const MAX_DEPTH: u8 = 100;

/// Decodes a message into a canonical tree.
pub(crate) fn read_message(
    message: &'static Message,
    bytes: &[u8],
    depth: u8,
) -> Result<Value, DecodeError> {
    read_part(message, bytes, depth, &Part::Whole)
}

/// Decodes a part of a message into a canonical tree.
pub(super) fn read_part(
    message: &'static Message,
    bytes: &[u8],
    depth: u8,
    part: &Part,
) -> Result<Value, DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::TooDeep("exceeded max depth".to_owned()));
    }
    if message.shape != Shape::Struct {
        return read_special(message, bytes, depth);
    }
    let mut map = Map::new();
    read_members(message, bytes, depth, part, &mut map)?;
    canonical::fill_zero_values(message, &mut map);
    Ok(Value::Object(map))
}

fn read_members(
    message: &'static Message,
    bytes: &[u8],
    depth: u8,
    part: &Part,
    map: &mut Map<String, Value>,
) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        // A newer client may send fields of its release. Protobuf has no strict mode upstream,
        // either.
        let Some(field) = message.field_by_number(number) else {
            continue;
        };
        if field.inline {
            if let (Some(inner), Wire::Bytes(bytes)) = (field.ty.message(), wire) {
                read_members(inner, bytes, depth + 1, part, map)?;
            }
            continue;
        }
        let Some(part) = part.member(field.json) else {
            continue;
        };
        match &field.ty {
            Type::List(inner) => push_element(field, inner, wire, depth, map)?,
            Type::Map(inner) => insert_value(field, inner, wire, depth, map)?,
            ty => {
                let value = match (part, ty.message(), wire) {
                    (Part::Members(_), Some(message), Wire::Bytes(bytes)) => {
                        read_part(message, bytes, depth + 1, part)?
                    }
                    _ => read_value(field, ty, wire, depth)?,
                };
                if canonical::keeps_value(field, &value) {
                    map.insert(field.json.to_owned(), value);
                } else {
                    // A later empty value replaces an earlier one. In protobuf the last value of a
                    // field counts.
                    map.remove(field.json);
                }
            }
        }
    }
    Ok(())
}

fn push_element(
    field: &'static Field,
    inner: &'static Type,
    wire: Wire<'_>,
    depth: u8,
    map: &mut Map<String, Value>,
) -> Result<(), DecodeError> {
    let entry = map
        .entry(field.json)
        .or_insert_with(|| Value::Array(Vec::new()));
    let Value::Array(list) = entry else {
        return Ok(());
    };
    // Texts and messages cannot be packed: their bytes are one element.
    let is_scalar = matches!(
        inner,
        Type::Bool | Type::Int32 | Type::Int64 | Type::Uint32 | Type::Uint64
    );
    // Kubernetes' types are not packed, but other encoders pack by default (proto3), and decoders
    // must accept both.
    if let (true, Wire::Bytes(packed)) = (is_scalar, wire) {
        let mut reader = Reader::new(packed);
        while !reader.is_empty() {
            list.push(read_value(
                field,
                inner,
                Wire::Varint(reader.varint()?),
                depth,
            )?);
        }
        return Ok(());
    }
    list.push(read_value(field, inner, wire, depth)?);
    Ok(())
}

fn insert_value(
    field: &'static Field,
    inner: &'static Type,
    wire: Wire<'_>,
    depth: u8,
    map: &mut Map<String, Value>,
) -> Result<(), DecodeError> {
    let Wire::Bytes(bytes) = wire else {
        return Err(wrong_wire(field));
    };
    let (mut key, mut value) = (String::new(), None);
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        match (number, wire) {
            // A map is a list of messages in protobuf, whose members may come in any order.
            (1, Wire::Bytes(bytes)) => key = decode_text(bytes),
            (2, wire) => value = Some(read_value(field, inner, wire, depth)?),
            _ => {}
        }
    }
    let value = match (value, inner) {
        // Protobuf omits the zero value of a map entry.
        (Some(value), _) => value,
        (None, Type::Bytes) => Value::Null,
        (None, _) => canonical::zero_value(inner).unwrap_or(Value::Null),
    };
    if let Value::Object(entries) = map
        .entry(field.json)
        .or_insert_with(|| Value::Object(Map::new()))
    {
        entries.insert(key, value);
    }
    Ok(())
}

pub(crate) fn wrong_wire(field: &Field) -> DecodeError {
    DecodeError::Type(format!("proto: wrong wireType for field {}", field.json))
}

/// Decodes text. Invalid UTF-8 is replaced, as for JSON.
fn decode_text(bytes: &[u8]) -> String {
    read_text(bytes).into_owned()
}

/// Returns the text of bytes as [`String::from_utf8_lossy`] does, which is slower for valid text.
pub(crate) fn read_text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

fn read_value(
    field: &'static Field,
    ty: &'static Type,
    wire: Wire<'_>,
    depth: u8,
) -> Result<Value, DecodeError> {
    Ok(match (ty, wire) {
        (Type::Bool, Wire::Varint(n)) => Value::Bool(n != 0),
        // Go truncates to 32 bits and reads two's complement.
        (Type::Int32, Wire::Varint(n)) => Value::from(n as i32),
        (Type::Int64, Wire::Varint(n)) => Value::from(n as i64),
        (Type::Uint32, Wire::Varint(n)) => Value::from(n as u32),
        (Type::Uint64, Wire::Varint(n)) => Value::from(n),
        (Type::Double, Wire::Fixed64(bits)) => canonical::double_tree(f64::from_bits(bits)),
        (Type::String, Wire::Bytes(bytes)) => Value::String(decode_text(bytes)),
        (Type::Bytes, Wire::Bytes(bytes)) => Value::String(scalars::base64_encode(bytes)),
        (Type::Message(_), Wire::Bytes(bytes)) => match ty.message() {
            Some(message) => read_message(message, bytes, depth + 1)?,
            None => Value::Null,
        },
        _ => return Err(wrong_wire(field)),
    })
}

fn read_special(message: &'static Message, bytes: &[u8], depth: u8) -> Result<Value, DecodeError> {
    let mut parts = Parts::default();
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        parts.add(message, number, wire, depth)?;
    }
    Ok(match message.shape {
        Shape::Struct => Value::Null,
        Shape::Time | Shape::MicroTime => parts.read_time(message.shape == Shape::MicroTime),
        Shape::Duration => Value::String(base_duration::format_duration(parts.ints[0])),
        Shape::Quantity => parts.read_quantity()?,
        Shape::IntOrString if parts.ints[0] == 1 => {
            Value::String(decode_text(parts.bytes.last().copied().unwrap_or_default()))
        }
        Shape::IntOrString => Value::from(parts.ints[1] as i32),
        Shape::RawExtension | Shape::FieldsV1 | Shape::Json => match parts.bytes.last() {
            // Raw fields hold JSON, whatever the encoding of the object around them is.
            Some(raw) if !raw.is_empty() => crate::json::parse(raw)?,
            _ => Value::Null,
        },
        Shape::Items => parts.read_texts(),
        Shape::SchemaOrBool => parts
            .messages
            .pop()
            .unwrap_or(Value::Bool(parts.ints[0] != 0)),
        Shape::SchemaOrArray if parts.list.is_empty() => {
            parts.messages.pop().unwrap_or(Value::Null)
        }
        Shape::SchemaOrArray => Value::Array(parts.list),
        Shape::SchemaOrStringArray if parts.bytes.is_empty() => {
            parts.messages.pop().unwrap_or(Value::Null)
        }
        Shape::SchemaOrStringArray => parts.read_texts(),
    })
}

/// Fields of a message with a special shape, by type of value.
#[derive(Default)]
struct Parts<'a> {
    any: bool,
    ints: [i64; 2],
    bytes: Vec<&'a [u8]>,
    messages: Vec<Value>,
    list: Vec<Value>,
}

impl<'a> Parts<'a> {
    fn read_time(&self, micro: bool) -> Value {
        // `metav1.Time` drops fractions of a second when it is encoded, so a client cannot store
        // one.
        let nanos = if micro {
            i32::try_from(self.ints[1]).unwrap_or(0)
        } else {
            0
        };
        // An empty message is the zero time, which is null in JSON.
        if !self.any {
            return Value::Null;
        }
        scalars::from_unix(self.ints[0], nanos, micro).map_or(Value::Null, Value::String)
    }

    fn read_quantity(&self) -> Result<Value, DecodeError> {
        let given = self
            .bytes
            .first()
            .map(|bytes| decode_text(bytes))
            .unwrap_or_default();
        // An absent text is read as zero.
        let given = if given.is_empty() { "0" } else { &given };
        let quantity = scalars::canonical_quantity(given).map_err(DecodeError::Type)?;
        Ok(Value::String(quantity))
    }

    fn read_texts(&self) -> Value {
        self.bytes
            .iter()
            .map(|bytes| Value::String(decode_text(bytes)))
            .collect()
    }

    fn add(
        &mut self,
        message: &'static Message,
        number: u32,
        wire: Wire<'a>,
        depth: u8,
    ) -> Result<(), DecodeError> {
        self.any = true;
        match wire {
            Wire::Varint(n) => {
                if let Some(slot) = usize::try_from(number)
                    .ok()
                    .and_then(|n| self.ints.get_mut(n.wrapping_sub(1)))
                {
                    *slot = n as i64;
                }
            }
            Wire::Bytes(bytes) => match message.field_by_number(number).map(|field| &field.ty) {
                Some(ty @ Type::Message(_)) => {
                    if let Some(inner) = ty.message() {
                        self.messages.push(read_message(inner, bytes, depth + 1)?);
                    }
                }
                Some(Type::List(ty)) if ty.message().is_some() => {
                    if let Some(inner) = ty.message() {
                        self.list.push(read_message(inner, bytes, depth + 1)?);
                    }
                }
                _ => self.bytes.push(bytes),
            },
            _ => {}
        }
        Ok(())
    }
}
