//! Schemas of types for OpenAPI version 3. [`crate::v2`] derives version 2 from them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use api_schema::{Field, ListKind, Message, Omit, Shape, Type};
use serde_json::{Map, Value, json};

use crate::descriptions::Descriptions;
use crate::names::{find_group_version_kind, type_name};
use crate::values::describe_values;

/// Prefix of references.
pub(crate) const PREFIX: &str = "#/components/schemas/";
const META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.";
/// A type that only exists in OpenAPI.
pub(crate) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// Returns the schemas of the roots and of all types that they refer to, by name.
pub(crate) fn collect_schemas(
    roots: impl IntoIterator<Item = &'static Message>,
    groups: &[(&str, &str)],
    descriptions: &Descriptions,
) -> Map<String, Value> {
    // Sorted, so that the bytes of a document do not depend on the order of the visits.
    let mut done: BTreeMap<String, Value> = BTreeMap::new();
    let mut open: Vec<&'static Message> = roots.into_iter().collect();
    // Types refer to each other in cycles (JSONSchemaProps), so visited ones are remembered.
    while let Some(message) = open.pop() {
        let name = type_name(message);
        if let Entry::Vacant(entry) = done.entry(name) {
            entry.insert(message_schema(message, groups, descriptions));
            open.extend(referred_messages(message));
        }
    }
    done.into_iter().collect()
}

/// Returns the types that a type refers to.
fn referred_messages(message: &'static Message) -> Vec<&'static Message> {
    // Schemas of other shapes refer to nothing, because upstream leaves the unions open.
    if message.shape != Shape::Struct {
        return Vec::new();
    }
    let mut found = Vec::new();
    for field in &message.fields {
        match field.ty.message() {
            // Members of an inlined type belong to the outer one; the inner type has no schema of
            // its own.
            Some(inner) if field.inline => found.extend(referred_messages(inner)),
            Some(inner) if inner.shape != Shape::Items => found.push(inner),
            _ => {}
        }
    }
    found
}

fn message_schema(
    message: &'static Message,
    groups: &[(&str, &str)],
    descriptions: &Descriptions,
) -> Value {
    let name = type_name(message);
    let mut schema = match message.shape {
        Shape::Struct => object_schema(message, &name, descriptions),
        Shape::Time | Shape::MicroTime => json!({"type": "string", "format": "date-time"}),
        Shape::Duration => json!({"type": "string"}),
        // Both forms are accepted in requests. Responses have the string.
        Shape::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Shape::IntOrString => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        // Types of embedded objects are not known here, so the schema admits any members.
        Shape::RawExtension | Shape::FieldsV1 => json!({"type": "object"}),
        Shape::Items => json!({"type": "array", "items": {"type": "string"}}),
        // No schema can describe these unions for all generators, so upstream leaves them open.
        Shape::Json | Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrStringArray => {
            json!({})
        }
    };
    if let Value::Object(map) = &mut schema {
        if let Some(text) = descriptions.of_type(&name) {
            map.insert("description".to_owned(), Value::from(text));
        }
        if message.atomic {
            map.insert("x-kubernetes-map-type".to_owned(), Value::from("atomic"));
        }
        // kubectl finds the schema of an object by this extension and not by the type's name.
        let kinds = list_kinds(message, groups);
        if !kinds.is_empty() {
            map.insert(
                "x-kubernetes-group-version-kind".to_owned(),
                Value::Array(kinds),
            );
        }
    }
    schema
}

/// Returns the kinds of a type.
fn list_kinds(message: &'static Message, groups: &[(&str, &str)]) -> Vec<Value> {
    let short = message.short_name();
    let is_shared =
        matches!(short, "DeleteOptions" | "WatchEvent") && message.name.starts_with(META);
    if !message.has_type_meta() && !is_shared {
        return Vec::new();
    }
    let entry = |(group, version): &(&str, &str)| json!({"group": group, "version": version, "kind": short});
    // Options and watch events are decoded in the version of the request, so they have a kind in
    // every group.
    if is_shared {
        let core = ("", "v1");
        let others = groups.iter().filter(|group| **group != core);
        return std::iter::once(&core).chain(others).map(entry).collect();
    }
    find_group_version_kind(message).iter().map(entry).collect()
}

fn object_schema(message: &'static Message, name: &str, descriptions: &Descriptions) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    add_members(message, name, descriptions, &mut properties, &mut required);
    let mut schema = Map::new();
    schema.insert("type".to_owned(), Value::from("object"));
    if !properties.is_empty() {
        schema.insert("properties".to_owned(), Value::Object(properties));
    }
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    Value::Object(schema)
}

/// Returns the properties of a type, including members of inline types.
fn add_members(
    message: &'static Message,
    name: &str,
    descriptions: &Descriptions,
    properties: &mut Map<String, Value>,
    required: &mut Vec<&'static str>,
) {
    for field in &message.fields {
        if let (Some(inner), true) = (field.ty.message(), field.inline) {
            add_members(inner, name, descriptions, properties, required);
            continue;
        }
        let description = descriptions
            .of_field(name, field.json)
            // Fields of an inlined type are described at the outer type or at their own.
            .or_else(|| descriptions.of_field(&type_name(message), field.json));
        properties.insert(field.json.to_owned(), property_schema(field, description));
        if field.required {
            required.push(field.json);
        }
    }
}

fn property_schema(field: &'static Field, description: Option<String>) -> Value {
    let mut schema = type_schema(&field.ty);
    let Value::Object(map) = &mut schema else {
        return schema;
    };
    if let Some(default) = default_value(field) {
        map.insert("default".to_owned(), default);
    }
    // Only single values: a list of enumerated values has no `enum` upstream.
    let values = field.values.filter(|_| matches!(field.ty, Type::String));
    if let Some(values) = values {
        map.insert("enum".to_owned(), json!(values.values));
    }
    merge_markers(field, map);
    let description = description
        .map(|text| values.map_or(text.clone(), |values| describe_values(&text, values)));
    if let Some(text) = description {
        map.insert("description".to_owned(), Value::from(text));
    }
    // Keywords beside a reference are ignored, so the reference is wrapped.
    if map.len() > 1
        && let Some(reference) = map.remove("$ref")
    {
        map.insert("allOf".to_owned(), json!([{"$ref": reference}]));
    }
    schema
}

fn type_schema(ty: &'static Type) -> Value {
    match ty {
        Type::Bool => json!({"type": "boolean"}),
        Type::Int32 => json!({"type": "integer", "format": "int32"}),
        Type::Int64 => json!({"type": "integer", "format": "int64"}),
        // OpenAPI has no unsigned formats; 64 bits hold all values.
        Type::Uint32 => json!({"type": "integer", "format": "int64"}),
        Type::Uint64 => json!({"type": "integer", "format": "int64"}),
        Type::Double => json!({"type": "number", "format": "double"}),
        Type::String => json!({"type": "string"}),
        Type::Bytes => json!({"type": "string", "format": "byte"}),
        Type::List(inner) => json!({"type": "array", "items": type_schema(inner)}),
        Type::Map(inner) => json!({"type": "object", "additionalProperties": type_schema(inner)}),
        Type::Message(_) => match ty.message() {
            Some(message) if message.shape == Shape::Items => {
                json!({"type": "array", "items": {"type": "string"}})
            }
            Some(message) => json!({"$ref": format!("{PREFIX}{}", type_name(message))}),
            None => json!({}),
        },
    }
}

/// Returns the default that the API documents, or the zero value of a field that is always written.
fn default_value(field: &'static Field) -> Option<Value> {
    if !field.default.is_empty() {
        return serde_json::from_str(field.default).ok();
    }
    // An absent pointer stays absent, so it has no default beyond a documented one.
    if field.pointer {
        return None;
    }
    match &field.ty {
        // A struct that is no pointer cannot be absent in Go, so its default is the empty object.
        Type::Message(_) => field
            .ty
            .message()
            .filter(|message| message.shape == Shape::Struct)
            .map(|_| json!({})),
        // Go does not write a zero value with `omitempty`, so no client would ever see this
        // default.
        _ if field.omit != Omit::Never => None,
        Type::Bool => Some(json!(false)),
        Type::Int32 | Type::Int64 | Type::Uint32 | Type::Uint64 | Type::Double => Some(json!(0)),
        Type::String => Some(json!("")),
        Type::Bytes | Type::List(_) | Type::Map(_) => None,
    }
}

fn merge_markers(field: &'static Field, map: &mut Map<String, Value>) {
    // Clients merge by these extensions: kubectl in strategic merge patches, typed clients in
    // applies.
    let mut put = |name: &str, value: Value| map.insert(format!("x-kubernetes-{name}"), value);
    // Bytes are a slice in Go, so their markers are those of a list.
    let is_list = matches!(field.ty, Type::List(_) | Type::Bytes);
    let is_atomic_type = field.ty.message().is_some_and(|message| message.atomic)
        && matches!(field.ty, Type::Message(_));
    match field.list {
        ListKind::Default => None,
        ListKind::Atomic if is_list => put("list-type", json!("atomic")),
        // The marker stands at the schema of the type already.
        ListKind::Atomic if is_atomic_type => None,
        ListKind::Atomic => put("map-type", json!("atomic")),
        ListKind::Granular => put("map-type", json!("granular")),
        ListKind::Set => put("list-type", json!("set")),
        ListKind::Map(keys) => {
            put("list-map-keys", json!(keys));
            put("list-type", json!("map"))
        }
    };
    let strategies: Vec<&str> = [
        (field.patch_merge, "merge"),
        (field.patch_replace, "replace"),
        (field.patch_retain_keys, "retainKeys"),
    ]
    .into_iter()
    .filter_map(|(is, name)| is.then_some(name))
    .collect();
    if !strategies.is_empty() {
        put("patch-strategy", json!(strategies.join(",")));
    }
    if !field.patch_key.is_empty() {
        put("patch-merge-key", json!(field.patch_key));
    }
}
