//! Types of the expression language, from an OpenAPI document of the API server.

use std::collections::HashMap;

use api_cel::escaping::unescape;
use api_cel::{Type, TypeProvider};
use serde_json::{Map, Value};

use super::select::ServedKind;

/// Schemas nested more deeply, through references too, have any type.
const MAX_DEPTH: usize = 64;
const REFERENCE: &str = "#/components/schemas/";

/// The object types of one kind and of all that it contains.
#[derive(Debug)]
pub struct SchemaTypes {
    /// The type of the kind's objects.
    pub root: Type,
    objects: HashMap<String, HashMap<String, Type>>,
}

impl SchemaTypes {
    /// Reads the types of a kind; none if the document doesn't have it. The names of the types
    /// start with `prefix`, so that those of two documents differ.
    pub fn from_document(document: &Value, kind: &ServedKind, prefix: &str) -> Option<SchemaTypes> {
        let schemas = document.pointer("/components/schemas")?.as_object()?;
        let (name, schema) = schemas.iter().find(|(_, schema)| is_kind(schema, kind))?;
        let mut reader = Reader {
            schemas,
            prefix,
            objects: HashMap::new(),
        };
        let root = reader.read_type(schema, &format!("{prefix}{name}"), 0)?;
        if let Type::Struct(name) = &root {
            reader.add_root_fields(name);
        }
        let objects = reader.objects;
        Some(SchemaTypes { root, objects })
    }
}

impl TypeProvider for SchemaTypes {
    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        let fields = self.objects.get(type_name)?;
        let found = fields.get(field);
        found.or_else(|| fields.get(&*unescape(field)?)).cloned()
    }

    fn has_type(&self, type_name: &str) -> bool {
        self.objects.contains_key(type_name)
    }
}

fn is_kind(schema: &Value, kind: &ServedKind) -> bool {
    let listed = schema.get("x-kubernetes-group-version-kind");
    let mut listed = listed.and_then(Value::as_array).into_iter().flatten();
    listed.any(|listed| {
        text(listed, "group") == kind.group
            && text(listed, "version") == kind.version
            && text(listed, "kind") == kind.kind
    })
}

fn text<'v>(node: &'v Value, field: &str) -> &'v str {
    node.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn flag(node: &Value, field: &str) -> bool {
    node.get(field).and_then(Value::as_bool).unwrap_or_default()
}

/// Returns the schema that a node stands for. `allOf` around a reference adds a description to it.
fn find_reference(node: &Value) -> Option<&str> {
    let wrapped = node.get("allOf").and_then(Value::as_array);
    let mut nodes = std::iter::once(node).chain(wrapped.into_iter().flatten());
    nodes.find_map(|node| text(node, "$ref").strip_prefix(REFERENCE))
}

struct Reader<'d> {
    schemas: &'d Map<String, Value>,
    prefix: &'d str,
    objects: HashMap<String, HashMap<String, Type>>,
}

impl Reader<'_> {
    /// Returns the type of a node; none if expressions can't see it.
    fn read_type(&mut self, node: &Value, name: &str, depth: usize) -> Option<Type> {
        if depth > MAX_DEPTH {
            return Some(Type::Dyn);
        }
        if let Some(target) = find_reference(node) {
            let schema = self.schemas.get(target)?;
            let name = format!("{}{target}", self.prefix);
            return self.read_type(schema, &name, depth + 1);
        }
        if flag(node, "x-kubernetes-int-or-string") || text(node, "format") == "int-or-string" {
            return Some(Type::Dyn);
        }
        match text(node, "type") {
            "array" => {
                let items = node.get("items")?;
                let inner = self.read_type(items, &format!("{name}/items"), depth + 1)?;
                Some(Type::list(inner))
            }
            "object" => match node.get("additionalProperties").filter(|v| v.is_object()) {
                Some(values) => {
                    let inner = self.read_type(values, &format!("{name}/values"), depth + 1)?;
                    Some(Type::map(Type::String, inner))
                }
                None => Some(self.read_object(node, name, depth)),
            },
            "string" => Some(string_type(text(node, "format"))),
            "boolean" => Some(Type::Bool),
            "number" => Some(Type::Double),
            "integer" => Some(Type::Int),
            // Quantities are strings or numbers.
            _ => node.get("oneOf").map(|_| Type::Dyn),
        }
    }

    fn read_object(&mut self, node: &Value, name: &str, depth: usize) -> Type {
        let found = Type::object(name);
        if self.objects.contains_key(name) {
            return found;
        }
        // A type may contain itself, so it is known before its fields are.
        self.objects.insert(name.to_owned(), HashMap::new());
        let properties = node.get("properties").and_then(Value::as_object);
        let mut fields = HashMap::new();
        for (field, property) in properties.into_iter().flatten() {
            let inner = format!("{name}/properties/{}", field.replace('/', "~1"));
            if let Some(declared) = self.read_type(property, &inner, depth + 1) {
                fields.insert(field.clone(), declared);
            }
        }
        self.objects.insert(name.to_owned(), fields);
        if flag(node, "x-kubernetes-embedded-resource") {
            self.add_root_fields(name);
        }
        found
    }

    /// Adds the fields that each resource has, whether its schema declares them or not.
    fn add_root_fields(&mut self, name: &str) {
        let metadata = format!("{name}/metadata");
        let fields = self.objects.entry(name.to_owned()).or_default();
        for field in ["apiVersion", "kind"] {
            fields.entry(field.to_owned()).or_insert(Type::String);
        }
        let declared = fields
            .entry("metadata".to_owned())
            .or_insert_with(|| Type::object(&metadata));
        if let Type::Struct(declared) = declared {
            let declared = declared.to_string();
            let fields = self.objects.entry(declared).or_default();
            for field in ["generateName", "name"] {
                fields.entry(field.to_owned()).or_insert(Type::String);
            }
        }
    }
}

fn string_type(format: &str) -> Type {
    match format {
        "byte" => Type::Bytes,
        "duration" => Type::Duration,
        "date" | "date-time" => Type::Timestamp,
        _ => Type::String,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn read(schemas: Value) -> SchemaTypes {
        let kind = ServedKind {
            group: "g".to_owned(),
            version: "v1".to_owned(),
            kind: "K".to_owned(),
        };
        let document = json!({"components": {"schemas": schemas}});
        SchemaTypes::from_document(&document, &kind, "p:").unwrap()
    }

    fn kind_with(properties: Value) -> Value {
        json!({"type": "object", "properties": properties,
            "x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "K"}]})
    }

    #[test]
    fn schema_becomes_the_type_that_rules_see() {
        for (schema, expect) in [
            (json!({"type": "integer"}), Some(Type::Int)),
            (json!({"type": "number"}), Some(Type::Double)),
            (json!({"type": "boolean"}), Some(Type::Bool)),
            (json!({"type": "string"}), Some(Type::String)),
            (
                json!({"type": "string", "format": "date-time"}),
                Some(Type::Timestamp),
            ),
            (json!({"x-kubernetes-int-or-string": true}), Some(Type::Dyn)),
            (
                json!({"format": "int-or-string", "oneOf": []}),
                Some(Type::Dyn),
            ),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                Some(Type::list(Type::String)),
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "integer"}}),
                Some(Type::map(Type::String, Type::Int)),
            ),
            (json!({"x-kubernetes-preserve-unknown-fields": true}), None),
            (json!({"type": "array"}), None),
        ] {
            let types = read(json!({"K": kind_with(json!({"f": schema}))}));
            assert_eq!(types.find_field("p:K", "f"), expect, "{schema}");
        }
    }

    #[test]
    fn types_may_contain_themselves() {
        let node = json!({"type": "object", "properties": {
            "next": {"allOf": [{"$ref": "#/components/schemas/N"}], "description": "d"}}});
        let reference = json!({"$ref": "#/components/schemas/N"});
        let types = read(json!({"N": node, "K": kind_with(json!({"first": reference}))}));
        assert_eq!(types.find_field("p:K", "first"), Some(Type::object("p:N")));
        assert_eq!(types.find_field("p:N", "next"), Some(Type::object("p:N")));
        let cycle = json!({"$ref": "#/components/schemas/C"});
        let types = read(json!({"C": cycle, "K": kind_with(json!({"c": cycle}))}));
        assert_eq!(types.find_field("p:K", "c"), Some(Type::Dyn));
    }

    #[test]
    fn resource_without_a_schema_has_a_name() {
        let types = read(json!({"K": kind_with(json!({}))}));
        let Some(Type::Struct(metadata)) = types.find_field("p:K", "metadata") else {
            panic!("metadata is an object");
        };
        assert_eq!(types.find_field(&metadata, "name"), Some(Type::String));
        assert_eq!(types.find_field("p:K", "spec"), None);
    }
}
