//! Rules of the canonical form: members that Go's encoder omits, and members that it always writes.

use crate::members::Members;
use api_schema::{Field, Message, Omit, Shape, Type};
use serde_json::{Map, Number, Value};

/// Returns whether a field with this value stays in the tree.
pub(crate) fn keeps_value(field: &Field, value: &Value) -> bool {
    if value.is_null() {
        return false;
    }
    // A pointer to zero is not empty in Go: `replicas: 0` stays, and an absent field remains
    // absent.
    field.omit == Omit::Never || field.pointer || !is_empty(value)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(bool) => !bool,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Calls `write` for each member that Go writes, in the order of the Go struct; without a value for
/// one that is not in the tree, see [`written_zero`].
pub(crate) fn for_each_written<'a>(
    message: &'static Message,
    map: &'a Map<String, Value>,
    write: &mut impl FnMut(&'static Field, Option<&'a Value>),
) {
    let members = Members::new(message, map);
    for (position, field) in message.fields.iter().enumerate() {
        if field.inline {
            if let Some(inner) = field.ty.message() {
                for_each_written(inner, map, write);
            }
            continue;
        }
        let value = members.get(position, field);
        let value = value.filter(|value| keeps_value(field, value));
        // `omitempty` is a property of the Go type, so it comes from the schema and not from the
        // value.
        if value.is_some() || field.omit == Omit::Never {
            write(field, value);
        }
    }
}

/// Returns the value of a member that is written although it is not in the tree; `None` for null.
pub(crate) fn written_zero(field: &Field) -> Option<Value> {
    // A nil pointer without `omitempty` is null in Go's JSON.
    zero_value(&field.ty).filter(|_| !field.pointer)
}

/// Returns the tree of a field that is a float in Go. Whole numbers become integers, as they are
/// written in JSON.
pub(crate) fn double_tree(n: f64) -> Value {
    // Beyond 2^53 a double is not exact, so it must not become an integer there.
    if n.fract() == 0.0 && n.abs() < 9e15 {
        return Value::from(n as i64);
    }
    Number::from_f64(n).map_or(Value::Null, Value::Number)
}

/// Adds the members that Go always writes, such as `status: {}` or `replicas: 0`, unless they would
/// be null.
pub(crate) fn fill_zero_values(message: &'static Message, map: &mut Map<String, Value>) {
    for field in message.permanent_fields() {
        if field.inline {
            if let Type::Message(_) = field.ty
                && let Some(inner) = field.ty.message()
            {
                fill_zero_values(inner, map);
            }
        } else if !field.pointer
            && !map.contains_key(field.json)
            // Lists and maps are written as null by Go, which is the same as absent in a tree.
            && let Some(zero) = zero_value(&field.ty)
        {
            map.insert(field.json.to_owned(), zero);
        }
    }
}

/// Returns whether [`fill_zero_values`] would add no member.
pub(crate) fn has_zero_values(message: &'static Message, map: &Map<String, Value>) -> bool {
    message.permanent_fields().all(|field| match field.inline {
        true => match (&field.ty, field.ty.message()) {
            (Type::Message(_), Some(inner)) => has_zero_values(inner, map),
            _ => true,
        },
        false => field.pointer || map.contains_key(field.json) || zero_value(&field.ty).is_none(),
    })
}

/// Returns the zero value as a tree; `None` if Go writes null.
pub(crate) fn zero_value(ty: &Type) -> Option<Value> {
    match ty {
        Type::Bool => Some(Value::Bool(false)),
        Type::Int32 | Type::Int64 | Type::Uint32 | Type::Uint64 | Type::Double => {
            Some(Value::from(0))
        }
        Type::String => Some(Value::String(String::new())),
        Type::Bytes | Type::List(_) | Type::Map(_) => None,
        Type::Message(_) => ty.message().and_then(zero_message),
    }
}

fn zero_message(message: &'static Message) -> Option<Value> {
    match message.shape {
        Shape::Struct => {
            let mut map = Map::new();
            fill_zero_values(message, &mut map);
            Some(Value::Object(map))
        }
        Shape::Quantity => Some(Value::from("0")),
        Shape::IntOrString => Some(Value::from(0)),
        Shape::Duration => Some(Value::from("0s")),
        Shape::SchemaOrBool => Some(Value::Bool(false)),
        // Go writes null for the zero values of these types.
        Shape::Time
        | Shape::MicroTime
        | Shape::RawExtension
        | Shape::FieldsV1
        | Shape::Json
        | Shape::Items
        | Shape::SchemaOrArray
        | Shape::SchemaOrStringArray => None,
    }
}
