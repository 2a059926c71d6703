//! Schemas of custom resources, converted from their definitions.

use api_meta::tree::{flag, get, list, text};
use api_structural::parse_schema;
use serde_json::{Map, Value, json};

use crate::custom::CustomVersion;
use crate::descriptions::Descriptions;
use crate::names::{kind_of, list_type, resource_type};
use crate::schemas::PREFIX;

/// Version of OpenAPI.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// With the constructs that kubectl can't read in version 2 removed.
    Version2,
    Version3,
}

type Node = Map<String, Value>;

/// Keywords that are copied. Nested schemas of validation are a part of them.
const KEYWORDS: [&str; 34] = [
    "allOf",
    "anyOf",
    "default",
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "oneOf",
    "pattern",
    "required",
    "title",
    "type",
    "uniqueItems",
    EMBEDDED,
    INT_OR_STRING,
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    PRESERVE_UNKNOWN,
    "x-kubernetes-validations",
];
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE_UNKNOWN: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

/// Adds the schemas of the objects and of their lists. Existing ones are kept.
pub(crate) fn add_schemas(
    version: &CustomVersion,
    form: Form,
    descriptions: &Descriptions,
    schemas: &mut Map<String, Value>,
) {
    let metadata = Metadata::load(descriptions);
    let resource = &version.resource;
    let definition = version.definition.load().unwrap_or_default();
    let spec = get(&definition, "spec");
    let declared = find_declared(spec, &resource.version);
    let mut object = object_schema(spec, declared, form, &metadata);
    let mut object_list = list_schema(version, &metadata);
    let list_kind =
        json!({"group": resource.group, "version": resource.version, "kind": resource.list_kind});
    let declared_fields = list(declared, "selectableFields");
    for (schema, kind) in [
        (&mut object, kind_of(resource)),
        (&mut object_list, list_kind),
    ] {
        schema.insert("x-kubernetes-group-version-kind".into(), json!([kind]));
        let fields: Vec<Value> = declared_fields
            .iter()
            .map(|field| text(field, "jsonPath"))
            .map(|path| json!({"fieldPath": path.strip_prefix('.').unwrap_or(path)}))
            .collect();
        if !fields.is_empty() {
            schema.insert("x-kubernetes-selectable-fields".into(), json!(fields));
        }
    }
    for (name, schema) in [
        (resource_type(resource), object),
        (list_type(resource), object_list),
    ] {
        schemas.entry(name).or_insert(Value::Object(schema));
    }
}

/// Returns the version's own part of the definition.
fn find_declared<'a>(spec: &'a Value, name: &str) -> &'a Value {
    let mut versions = list(spec, "versions").iter();
    let found = versions.find(|version| text(version, "name") == name);
    found.unwrap_or(&Value::Null)
}

fn object_schema(spec: &Value, declared: &Value, form: Form, metadata: &Metadata) -> Node {
    let document = get(get(declared, "schema"), "openAPIV3Schema");
    let bare = || Node::from_iter([("type".to_owned(), json!("object"))]);
    // Without a structural schema, clients must not conclude that there are no other fields.
    let Some(node) = document
        .as_object()
        .filter(|_| parse_schema(document).is_ok())
    else {
        return bare();
    };
    let keeps_unknown = flag(document, PRESERVE_UNKNOWN) || flag(spec, "preserveUnknownFields");
    // kubectl would reject all fields but the listed ones.
    if form == Form::Version2 && keeps_unknown {
        return bare();
    }
    let mut schema = convert_node(node, form);
    metadata.add_to(&mut schema);
    add_embedded(&mut schema, form, metadata);
    schema
}

fn list_schema(version: &CustomVersion, metadata: &Metadata) -> Node {
    let resource = &version.resource;
    let mut schema = Node::new();
    let items = json!({
        "description": format!("List of {}.", resource.plural),
        "type": "array",
        "items": {"$ref": format!("{PREFIX}{}", resource_type(resource))},
    });
    let text = format!("{} is a list of {}", resource.list_kind, resource.kind);
    schema.insert("type".into(), json!("object"));
    schema.insert("description".into(), text.into());
    schema.insert("required".into(), json!(["items"]));
    schema.insert("properties".into(), json!({"items": items}));
    metadata.add_to(&mut schema);
    let list = wrap_reference("ListMeta", &metadata.list);
    insert_property(&mut schema, "metadata", list);
    schema
}

/// Descriptions of the fields that every object has. They are those of a built-in kind.
struct Metadata {
    api_version: String,
    kind: String,
    object: String,
    list: String,
}

impl Metadata {
    fn load(descriptions: &Descriptions) -> Self {
        let find = |kind: &str, field: &str| {
            let name = format!("io.k8s.api.core.v1.{kind}");
            descriptions.of_field(&name, field).unwrap_or_default()
        };
        Self {
            api_version: find("Pod", "apiVersion"),
            kind: find("Pod", "kind"),
            object: find("Pod", "metadata"),
            list: find("PodList", "metadata"),
        }
    }

    fn add_to(&self, schema: &mut Node) {
        for (name, text) in [("apiVersion", &self.api_version), ("kind", &self.kind)] {
            let property = json!({"type": "string", "description": text});
            insert_property(schema, name, property);
        }
        let object = wrap_reference("ObjectMeta", &self.object);
        insert_property(schema, "metadata", object);
    }
}

fn wrap_reference(name: &str, description: &str) -> Value {
    let name = format!("{PREFIX}io.k8s.apimachinery.pkg.apis.meta.v1.{name}");
    json!({"description": description, "allOf": [{"$ref": name}]})
}

fn insert_property(schema: &mut Node, name: &str, property: Value) {
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        properties.insert(name.to_owned(), property);
    }
}

/// Converts a node of a structural schema, whose depth its parser has limited.
fn convert_node(node: &Node, form: Form) -> Node {
    let mut out = Node::new();
    for keyword in KEYWORDS {
        if let Some(value) = node.get(keyword).filter(|value| is_written(keyword, value)) {
            out.insert(keyword.to_owned(), value.clone());
        }
    }
    let properties = node.get("properties").and_then(Value::as_object);
    if let Some(properties) = properties.filter(|properties| !properties.is_empty()) {
        let convert =
            |(name, property): (&String, &Value)| (name.clone(), convert_value(property, form));
        let properties: Node = properties.iter().map(convert).collect();
        out.insert("properties".into(), properties.into());
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(value) = node.get(keyword) {
            out.insert(keyword.to_owned(), convert_value(value, form));
        }
    }
    match form {
        Form::Version2 => restrict_node(node, &mut out),
        Form::Version3 => unfold_node(&mut out),
    }
    out
}

fn convert_value(value: &Value, form: Form) -> Value {
    match value {
        Value::Object(node) => convert_node(node, form).into(),
        // `additionalProperties` can be a boolean.
        other => other.clone(),
    }
}

/// Returns whether upstream's encoder writes the value.
fn is_written(keyword: &str, value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(false) => matches!(keyword, "default" | "example"),
        Value::Array(list) => !list.is_empty() || matches!(keyword, "default" | "example"),
        _ => true,
    }
}

/// Removes what kubectl can't read in version 2.
fn restrict_node(node: &Node, out: &mut Node) {
    for keyword in ["allOf", "anyOf", "oneOf", "not", "default"] {
        out.remove(keyword);
    }
    let is_set = |node: &Node, keyword: &str| node.get(keyword) == Some(&Value::Bool(true));
    let preserves = is_set(node, PRESERVE_UNKNOWN);
    if out.remove("nullable").is_some() {
        for keyword in ["type", "items", "properties"] {
            out.remove(keyword);
        }
    }
    if preserves {
        for keyword in ["items", "properties"] {
            out.remove(keyword);
        }
    }
    let value_type = out.get("type").and_then(Value::as_str);
    let is_untyped = match value_type {
        Some("array") => !out.contains_key("items"),
        Some("object") => preserves,
        _ => false,
    };
    if is_untyped {
        out.remove("type");
    }
    // A field that can be null can be absent for a client that doesn't know null.
    let is_nullable = |schema: &Value| flag(schema, "nullable");
    let properties = node.get("properties").unwrap_or(&Value::Null);
    let has_nullable_values = node.get("additionalProperties").is_some_and(is_nullable);
    if let Some(Value::Array(required)) = out.get_mut("required") {
        required.retain(|name| {
            let name = name.as_str().unwrap_or_default();
            !has_nullable_values && !properties.get(name).is_some_and(is_nullable)
        });
        if required.is_empty() {
            out.remove("required");
        }
    }
}

/// Writes the types of an int-or-string value in terms of OpenAPI.
fn unfold_node(out: &mut Node) {
    if !out.contains_key(INT_OR_STRING) {
        return;
    }
    let types = json!([{"type": "integer"}, {"type": "string"}]);
    let all_of = out.get("allOf").and_then(Value::as_array);
    let first = all_of.and_then(|list| list.first()?.get("anyOf"));
    let any_of = out.get("anyOf");
    if any_of == Some(&types) || first == Some(&types) {
        return;
    }
    if any_of.is_none() {
        out.insert("anyOf".into(), types);
        return;
    }
    let mut all_of = all_of.cloned().unwrap_or_default();
    all_of.insert(0, json!({"anyOf": types}));
    out.insert("allOf".into(), all_of.into());
}

/// Adds the fields of embedded objects.
fn add_embedded(schema: &mut Node, form: Form, metadata: &Metadata) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut().filter_map(Value::as_object_mut) {
            add_embedded(property, form, metadata);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(Value::Object(inner)) = schema.get_mut(keyword) {
            add_embedded(inner, form, metadata);
        }
    }
    // kubectl would reject all fields but the listed ones.
    let is_open = schema.contains_key(PRESERVE_UNKNOWN) && form == Form::Version2;
    if is_open || !schema.contains_key(EMBEDDED) {
        return;
    }
    metadata.add_to(schema);
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required {
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|known| known == name) {
                required.push(name.into());
            }
        }
    }
}
