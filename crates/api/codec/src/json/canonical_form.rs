//! Recognizes canonical trees, which decoding would return unchanged.

use api_schema::{Message, Shape, Type};
use serde_json::{Map, Number, Value};

use crate::{canonical, scalars};

/// Returns whether decoding the tree returns it without a change and without a problem. Some trees
/// are not recognized; they only take longer.
pub(super) fn is_canonical(message: &'static Message, value: &Value) -> bool {
    let is_text = |canonical: fn(&str) -> Option<String>| {
        let text = value.as_str();
        text.is_some_and(|text| canonical(text).as_deref() == Some(text))
    };
    match message.shape {
        Shape::Struct => match value {
            Value::Object(map) => is_canonical_struct(message, map),
            _ => false,
        },
        Shape::RawExtension | Shape::FieldsV1 | Shape::Json => true,
        Shape::Quantity => is_text(|text| scalars::canonical_quantity(text).ok()),
        Shape::Time => is_text(|text| scalars::canonical_time(text).ok().flatten()),
        Shape::MicroTime => is_text(|text| scalars::canonical_micro_time(text).ok().flatten()),
        Shape::IntOrString => match value {
            Value::Number(number) => is_integer::<i32>(number),
            other => other.is_string(),
        },
        // Rare.
        Shape::Duration
        | Shape::Items
        | Shape::SchemaOrBool
        | Shape::SchemaOrArray
        | Shape::SchemaOrStringArray => false,
    }
}

fn is_canonical_struct(message: &'static Message, map: &Map<String, Value>) -> bool {
    let is_kept = |(name, value): (&String, &Value)| {
        let field = message.field(name);
        field
            .is_some_and(|field| canonical::keeps_value(field, value) && has_type(&field.ty, value))
    };
    map.iter().all(is_kept) && canonical::has_zero_values(message, map)
}

fn has_type(ty: &'static Type, value: &Value) -> bool {
    match (ty, value) {
        (_, Value::Null) => false,
        (Type::Message(_), value) => match ty.message() {
            Some(message) => is_canonical(message, value),
            None => false,
        },
        (Type::Bool, value) => value.is_boolean(),
        (Type::String, value) => value.is_string(),
        (Type::Int32, Value::Number(number)) => is_integer::<i32>(number),
        (Type::Int64, Value::Number(number)) => number.as_i64().is_some(),
        (Type::Uint32, Value::Number(number)) => is_integer::<u32>(number),
        (Type::Uint64, Value::Number(number)) => number.as_u64().is_some(),
        // Whole floats become integers.
        (Type::Double, Value::Number(number)) => !number.is_f64(),
        (Type::Bytes, Value::String(text)) => {
            let bytes = scalars::base64_decode(text);
            bytes.is_ok_and(|bytes| scalars::base64_encode(&bytes) == *text)
        }
        (Type::List(inner), Value::Array(list)) => list.iter().all(|item| has_type(inner, item)),
        (Type::Map(inner), Value::Object(map)) => map.values().all(|item| has_type(inner, item)),
        _ => false,
    }
}

fn is_integer<T: TryFrom<i64>>(number: &Number) -> bool {
    number.as_i64().is_some_and(|n| T::try_from(n).is_ok())
}
