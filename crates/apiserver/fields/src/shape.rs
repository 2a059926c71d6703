//! Merge semantics of a value, from the schema.

use crate::path::Step;
use api_kinds::ObjectSchema;
use api_schema::{Field, ListKind, Message, Shape as Encoding, Type, schema};
use api_structural::{ListKind as CustomList, MapKind, Schema, ValueType};
use serde_json::Value;
use std::borrow::Cow;

const METADATA: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Merge semantics of one place in an object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape<'s> {
    /// A scalar, or a value without a known type.
    Leaf,
    /// A list or a map that is owned as a whole.
    Atomic,
    /// Fields by the schema.
    Struct(&'static Message),
    /// Members of one type.
    Map(&'static Type),
    /// Elements identified by key fields.
    Keyed(&'static [&'static str], &'static Type),
    /// Elements identified by their value.
    Set,
    /// A custom resource without a schema: metadata by its message, everything else deduced.
    CustomObject,
    /// An object of a custom resource, and whether it is a resource with metadata of its own.
    Custom(&'s Schema, bool),
    /// A list of a custom resource with key fields.
    CustomList(&'s Schema),
    /// Deduced from the value: objects are maps, lists are atomic.
    Deduced,
}

impl<'s> Shape<'s> {
    /// Returns the shape of an object.
    pub(crate) fn of_object(schema: &'s ObjectSchema) -> Shape<'s> {
        match schema {
            ObjectSchema::BuiltIn(message) => Shape::of_message(message),
            ObjectSchema::Custom(schema) if schema.preserve_unknown => Shape::CustomObject,
            ObjectSchema::Custom(schema) => Shape::Custom(&schema.structural, true),
        }
    }

    /// Returns the shape of a node of a structural schema.
    fn of_node(schema: &'s Schema) -> Shape<'s> {
        if schema.int_or_string {
            return Shape::Leaf;
        }
        if schema.map_type == Some(MapKind::Atomic) {
            return Shape::Atomic;
        }
        match (schema.value_type, schema.list_type) {
            (Some(ValueType::Object), _) => Shape::Custom(schema, schema.embedded),
            (Some(ValueType::Array), Some(CustomList::Map)) => Shape::CustomList(schema),
            (Some(ValueType::Array), Some(CustomList::Set)) => Shape::Set,
            (Some(ValueType::Array), _) => Shape::Atomic,
            (None, _) if schema.preserves_unknown => Shape::Deduced,
            _ => Shape::Leaf,
        }
    }

    /// Returns the shape of a field.
    pub(crate) fn of_field(field: &'static Field) -> Shape<'s> {
        match (&field.ty, field.list) {
            // First: x-kubernetes-list-type atomic overrides what the type would allow.
            (_, ListKind::Atomic) => Shape::Atomic,
            (Type::List(element), ListKind::Map(keys)) => Shape::Keyed(keys, element),
            (Type::List(_), ListKind::Set) => Shape::Set,
            (ty, _) => Shape::of_type(ty),
        }
    }

    /// Returns the shape of a type without a field.
    pub(crate) fn of_type(ty: &'static Type) -> Shape<'s> {
        match ty {
            Type::Map(element) => Shape::Map(element),
            Type::Message(_) => ty.message().map_or(Shape::Leaf, Shape::of_message),
            Type::List(_) => Shape::Atomic,
            _ => Shape::Leaf,
        }
    }

    /// Returns the shape of a message.
    pub(crate) fn of_message(message: &'static Message) -> Shape<'s> {
        match (message.shape == Encoding::Struct, message.atomic) {
            (true, false) => Shape::Struct(message),
            (true, true) => Shape::Atomic,
            _ => Shape::Leaf,
        }
    }

    /// Returns the shape of a member.
    pub(crate) fn member(self, name: &str) -> Shape<'s> {
        match self {
            Shape::Custom(_, true) if name == "metadata" => Shape::CustomObject.member(name),
            Shape::Custom(schema, _) => schema.member(name).map_or(Shape::Deduced, Shape::of_node),
            Shape::Struct(message) => message.field(name).map_or(Shape::Leaf, Shape::of_field),
            Shape::Map(element) => Shape::of_type(element),
            Shape::CustomObject if name == "metadata" => schema()
                .message(METADATA)
                .map_or(Shape::Leaf, Shape::of_message),
            Shape::CustomObject | Shape::Deduced => Shape::Deduced,
            _ => Shape::Leaf,
        }
    }

    /// Returns whether a member is owned itself, apart from the fields in it: it is a key of a map,
    /// not a field of the schema.
    pub(crate) fn owns_member(self, name: &str) -> bool {
        match self {
            Shape::Map(_) | Shape::Deduced => true,
            Shape::CustomObject => name != "metadata",
            Shape::Custom(schema, is_resource) => {
                let is_type = matches!(name, "apiVersion" | "kind" | "metadata");
                schema.property(name).is_none() && !(is_resource && is_type)
            }
            _ => false,
        }
    }

    /// Returns whether a member is a field of the schema, not a key of a map.
    pub(crate) fn has_field(self, name: &str) -> bool {
        match self {
            Shape::Struct(_) => true,
            Shape::CustomObject => name == "metadata",
            Shape::Custom(schema, is_resource) => {
                schema.property(name).is_some() || (is_resource && name == "metadata")
            }
            _ => false,
        }
    }

    /// Returns a key field that an element of a list lacks, and that has no default.
    pub(crate) fn missing_key(self, element: &Value) -> Option<&'s str> {
        let is_absent = |key: &str| element.get(key).is_none();
        match self {
            Shape::Keyed(keys, ty) => {
                let has_default = |key: &str| {
                    let field = ty.message().and_then(|message| message.field(key));
                    field.is_some_and(|field| !field.default.is_empty())
                };
                let mut keys = keys.iter().copied();
                keys.find(|key| is_absent(key) && !has_default(key))
            }
            Shape::CustomList(schema) => {
                let items = schema.items.as_deref();
                let has_default = |key: &str| {
                    let property = items.and_then(|items| items.property(key));
                    property.is_some_and(|property| property.default.is_some())
                };
                let mut keys = schema.map_keys().iter().map(|key| &**key);
                keys.find(|key| is_absent(key) && !has_default(key))
            }
            _ => None,
        }
    }

    /// Returns the shape of an element.
    pub(crate) fn element(self) -> Shape<'s> {
        match self {
            Shape::Keyed(_, element) => Shape::of_type(element),
            Shape::CustomList(schema) => {
                schema.items.as_deref().map_or(Shape::Leaf, Shape::of_node)
            }
            _ => Shape::Leaf,
        }
    }

    /// Returns the step to an element of a list.
    pub(crate) fn step(self, element: &Value) -> Step {
        match self {
            Shape::Keyed(keys, ty) => {
                // Keys with a default may be absent, for example the protocol of a port.
                let default =
                    |key: &str| serde_json::from_str(ty.message()?.field(key)?.default).ok();
                let value = |key: &'s str| {
                    let held = element.get(key).map(Cow::Borrowed);
                    Some((key, held.or_else(|| default(key).map(Cow::Owned))?))
                };
                Step::Key(write_keys(keys.iter().filter_map(|key| value(key))))
            }
            Shape::CustomList(schema) => {
                let items = schema.items.as_deref();
                let default = |key: &str| items?.property(key)?.default.as_deref();
                let value = |key: &'s str| {
                    let held = element.get(key).or_else(|| default(key))?;
                    Some((key, Cow::Borrowed(held)))
                };
                let keys = schema.map_keys().iter();
                Step::Key(write_keys(keys.filter_map(|key| value(key))))
            }
            // Elements of a set have no key: the value itself identifies them.
            _ => Step::Value(element.to_string()),
        }
    }

    /// Returns whether this is a list that is merged element by element.
    pub(crate) fn is_list(self) -> bool {
        matches!(self, Shape::Keyed(..) | Shape::CustomList(_) | Shape::Set)
    }

    /// Returns whether this is merged member by member.
    pub(crate) fn is_map(self) -> bool {
        matches!(
            self,
            Shape::Struct(_)
                | Shape::Map(_)
                | Shape::Custom(..)
                | Shape::CustomObject
                | Shape::Deduced
        )
    }
}

/// Writes the keys of an element as `Value` writes an object of them, without building it: this is
/// done for each element of each list of a write.
fn write_keys<'a>(keys: impl Iterator<Item = (&'a str, Cow<'a, Value>)>) -> String {
    let mut keys: Vec<(&str, Cow<'_, Value>)> = keys.collect();
    keys.sort_by_key(|(key, _)| *key);
    keys.dedup_by_key(|(key, _)| *key);
    // Enough for nearly all keys: a name, or a port with its protocol.
    let mut text = String::with_capacity(64);
    text.push('{');
    for (key, value) in &keys {
        if text.len() > 1 {
            text.push(',');
        }
        push_string(&mut text, key);
        text.push(':');
        match value.as_ref() {
            Value::String(value) => push_string(&mut text, value),
            value => text.push_str(&value.to_string()),
        }
    }
    text.push('}');
    text
}

/// Appends a JSON string.
fn push_string(text: &mut String, value: &str) {
    let is_special = |byte: u8| matches!(byte, b'"' | b'\\' | 0..b' ');
    if value.bytes().any(is_special) {
        text.push_str(&Value::from(value).to_string());
        return;
    }
    text.push('"');
    text.push_str(value);
    text.push('"');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api_kinds::CustomSchema;
    use serde_json::json;
    use std::sync::Arc;

    fn schema() -> ObjectSchema {
        let version = json!({"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string", "default": "d"}}}},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "list": {"type": "array", "items": {"type": "string"}},
                "atom": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}}});
        ObjectSchema::Custom(Arc::new(CustomSchema::parse(&json!({}), &version).unwrap()))
    }

    #[test]
    fn nodes_merge_by_their_list_and_map_types() {
        let schema = schema();
        let spec = Shape::of_object(&schema).member("spec");
        for (name, is_list, is_map) in [
            ("keyed", true, false),
            ("set", true, false),
            ("list", false, false),
            ("atom", false, false),
            ("map", false, true),
            ("free", false, true),
        ] {
            let shape = spec.member(name);
            assert_eq!(
                (shape.is_list(), shape.is_map()),
                (is_list, is_map),
                "{name}"
            );
        }
        assert!(spec.member("keyed").element().is_map());
    }

    #[test]
    fn fields_of_the_schema_are_not_owned_apart_from_their_content() {
        let schema = schema();
        let root = Shape::of_object(&schema);
        let spec = root.member("spec");
        assert!(!root.owns_member("metadata") && !root.owns_member("spec"));
        assert!(!spec.owns_member("map") && spec.member("map").owns_member("x"));
        assert!(spec.member("free").owns_member("x"));
    }

    #[test]
    fn absent_keys_have_their_default() {
        let schema = schema();
        let keyed = Shape::of_object(&schema).member("spec").member("keyed");
        assert_eq!(keyed.step(&json!({})), Step::Key(r#"{"k":"d"}"#.to_owned()));
    }

    #[test]
    fn step_of_an_element_is_the_object_of_its_keys() {
        let keys = [
            json!({"b": 1, "a": "x"}),
            json!({"a": "x\"\\\n\u{1}ü", "b": null}),
            json!({"a\"": true}),
            json!({"a": {"d": 1, "c": [1.5, -2]}}),
            json!({}),
        ];
        for keys in keys {
            let members = keys.as_object().unwrap();
            // The order of the keys in the schema is another one.
            let reversed = members.iter().rev();
            let written = write_keys(reversed.map(|(key, value)| (&**key, Cow::Borrowed(value))));
            assert_eq!(written, keys.to_string());
        }
    }
}
