//! Merge semantics of a value, from the schema.

use crate::path::Step;
use api_kinds::ObjectSchema;
use api_schema::{Field, ListKind, Message, Shape as Encoding, Type, schema};
use serde_json::{Map, Value};

const METADATA: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Merge semantics of one place in an object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// An atomic value.
    Leaf,
    /// Fields by the schema.
    Struct(&'static Message),
    /// Members of one type.
    Map(&'static Type),
    /// Elements identified by key fields.
    Keyed(&'static [&'static str], &'static Type),
    /// Elements identified by their value.
    Set,
    /// A custom resource: metadata by its message, everything else deduced.
    CustomObject,
    /// Deduced from the value: objects are maps, lists are atomic.
    Deduced,
}

impl Shape {
    /// Returns the shape of an object.
    pub(crate) fn of_object(schema: &ObjectSchema) -> Shape {
        match schema {
            ObjectSchema::BuiltIn(message) => Shape::of_message(message),
            ObjectSchema::Custom(_) => Shape::CustomObject,
        }
    }

    /// Returns the shape of a field.
    pub(crate) fn of_field(field: &'static Field) -> Shape {
        match (&field.ty, field.list) {
            // First: x-kubernetes-list-type atomic overrides what the type would allow.
            (_, ListKind::Atomic) => Shape::Leaf,
            (Type::List(element), ListKind::Map(keys)) => Shape::Keyed(keys, element),
            (Type::List(_), ListKind::Set) => Shape::Set,
            (ty, _) => Shape::of_type(ty),
        }
    }

    /// Returns the shape of a type without a field.
    pub(crate) fn of_type(ty: &'static Type) -> Shape {
        match ty {
            Type::Map(element) => Shape::Map(element),
            Type::Message(_) => ty.message().map_or(Shape::Leaf, Shape::of_message),
            _ => Shape::Leaf,
        }
    }

    /// Returns the shape of a message.
    pub(crate) fn of_message(message: &'static Message) -> Shape {
        if message.shape == Encoding::Struct && !message.atomic {
            Shape::Struct(message)
        } else {
            Shape::Leaf
        }
    }

    /// Returns the shape of a member.
    pub(crate) fn member(self, name: &str) -> Shape {
        match self {
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
            _ => false,
        }
    }

    /// Returns the shape of an element.
    pub(crate) fn element(self) -> Shape {
        match self {
            Shape::Keyed(_, element) => Shape::of_type(element),
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
                let value = |key: &str| element.get(key).cloned().or_else(|| default(key));
                let held: Map<String, Value> = keys
                    .iter()
                    .filter_map(|key| Some(((*key).to_owned(), value(key)?)))
                    .collect();
                Step::Key(Value::Object(held).to_string())
            }
            // Elements of a set have no key: the value itself identifies them.
            _ => Step::Value(element.to_string()),
        }
    }

    /// Returns whether this is a list that is merged element by element.
    pub(crate) fn is_list(self) -> bool {
        matches!(self, Shape::Keyed(..) | Shape::Set)
    }

    /// Returns whether this is merged member by member.
    pub(crate) fn is_map(self) -> bool {
        matches!(
            self,
            Shape::Struct(_) | Shape::Map(_) | Shape::CustomObject | Shape::Deduced
        )
    }
}
