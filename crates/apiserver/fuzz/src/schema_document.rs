//! Schemas of custom resources, and objects that nearly fit them.

use crate::choices::Choices;
use crate::expression_text::build_expression;
use crate::values::{NAMES, build_value};
use serde_json::{Map, Value, json};

const PATTERNS: [&str; 10] = [
    "^a*$",
    "(a+)+$",
    "[",
    "\\p{L}+",
    "(?i)A",
    "^(a|aa)+$",
    ".{1,1000}",
    "(?<=a)b",
    "\\d{3}",
    "",
];

const FORMATS: [&str; 12] = [
    "date-time",
    "date",
    "duration",
    "ipv4",
    "ipv6",
    "cidr",
    "email",
    "uuid",
    "byte",
    "int32",
    "int64",
    "unknown",
];

const TYPES: [&str; 6] = ["object", "array", "string", "integer", "number", "boolean"];

const RULES: [&str; 5] = [
    "self == self",
    "self == oldSelf",
    "size(self) < 3",
    "self.all(x, x == x)",
    "has(self.a)",
];

const STRING_RULES: [&str; 5] = [
    "self.size() < 5",
    "self == oldSelf",
    "self.matches('^(a|aa)+$')",
    "self.split('').all(x, self.contains(x))",
    "self.upperAscii().replace('A', self) != 'x'",
];

/// Builds a schema, usually with an object at the root, as all definitions have.
pub(crate) fn build_document(choices: &mut Choices<'_>) -> Value {
    let depth = 1 + choices.below(6);
    let schema = build_schema(choices, depth);
    if choices.hits(6) {
        return schema;
    }
    let status = build_schema(choices, 1);
    json!({"type": "object", "properties": {"spec": schema, "status": status}})
}

/// Builds a schema of about `depth` levels.
fn build_schema(choices: &mut Choices<'_>, depth: usize) -> Value {
    // A deep schema of one kind of level: the generator below rarely gets deep.
    if depth > 4 && choices.hits(30) {
        let (key, value_type) = if choices.hits(2) {
            ("items", "array")
        } else {
            ("additionalProperties", "object")
        };
        let levels = choices.below(180);
        return (0..levels).fold(
            json!({"type": "string", "default": "x"}),
            |inner, _| json!({"type": value_type, key: inner}),
        );
    }
    let value_type = choices.pick(&TYPES);
    let mut node = Map::new();
    if !choices.hits(12) {
        node.insert("type".into(), json!(value_type));
    }
    if depth > 0 {
        add_children(choices, depth, value_type, &mut node);
    }
    // Most nodes have none: one that doesn't fit its node makes the whole schema invalid.
    for _ in 0..choices.below(8).saturating_sub(5) {
        let (key, value) = build_keyword(choices, depth, value_type);
        node.insert(key.into(), value);
    }
    let mut node = Value::Object(node);
    if choices.hits(6) {
        let default = build_fitting(choices, &node, 4);
        if let Some(node) = node.as_object_mut() {
            node.insert("default".into(), default);
        }
    }
    node
}

fn add_children(
    choices: &mut Choices<'_>,
    depth: usize,
    value_type: &str,
    node: &mut Map<String, Value>,
) {
    match value_type {
        "array" if choices.hits(3) => {
            node.insert("x-kubernetes-list-type".into(), json!("map"));
            node.insert("x-kubernetes-list-map-keys".into(), json!(["name"]));
            let value = build_schema(choices, depth - 1);
            let items = json!({"type": "object", "required": ["name"],
                "properties": {"name": {"type": "string"}, "value": value}});
            node.insert("items".into(), items);
        }
        "array" => drop(node.insert("items".into(), build_schema(choices, depth - 1))),
        "object" if choices.hits(4) => {
            let values = match choices.below(6) {
                0 => json!(true),
                1 => json!(false),
                _ => build_schema(choices, depth - 1),
            };
            node.insert("additionalProperties".into(), values);
        }
        "object" => {
            let mut properties = Map::new();
            for _ in 0..=choices.below(4) {
                let name = choices.pick(&NAMES).to_owned();
                properties.insert(name, build_schema(choices, depth - 1));
            }
            node.insert("properties".into(), Value::Object(properties));
        }
        _ => {}
    }
}

fn build_keyword(
    choices: &mut Choices<'_>,
    depth: usize,
    value_type: &str,
) -> (&'static str, Value) {
    let yes = json!(true);
    let of_type = choices.below(6);
    match (value_type, of_type) {
        ("string", 0) => return ("pattern", json!(choices.pick(&PATTERNS))),
        ("string", 1) => return ("format", json!(choices.pick(&FORMATS))),
        ("string", 2) => return ("maxLength", json!(choices.below(20))),
        ("integer" | "number", 0) => return ("minimum", build_value(choices, 0)),
        ("integer" | "number", 1) => return ("multipleOf", build_value(choices, 0)),
        ("array", 0) => return ("maxItems", json!(choices.below(3))),
        ("array", 1) => {
            let kind = choices.pick(&["set", "map", "atomic", "odd"]);
            return ("x-kubernetes-list-type", json!(kind));
        }
        ("object", 0) => return ("required", json!([choices.pick(&NAMES)])),
        ("object", 1) => return ("x-kubernetes-preserve-unknown-fields", yes),
        ("object", 2) => return ("x-kubernetes-embedded-resource", yes),
        ("object", 3) => {
            let kind = choices.pick(&["atomic", "granular"]);
            return ("x-kubernetes-map-type", json!(kind));
        }
        _ => {}
    }
    match choices.below(10) {
        0..=2 => ("nullable", yes),
        3 => (
            "enum",
            json!([build_value(choices, 1), build_value(choices, 1)]),
        ),
        4 => ("x-kubernetes-int-or-string", yes),
        5 | 6 => ("x-kubernetes-validations", build_rules(choices, value_type)),
        7 => ("not", build_schema(choices, depth / 3)),
        8 => {
            let key = ["allOf", "anyOf", "oneOf"];
            let schemas = json!([build_schema(choices, depth / 3), build_schema(choices, 0)]);
            (
                key.get(choices.below(3)).copied().unwrap_or("allOf"),
                schemas,
            )
        }
        _ => (
            "properties",
            json!({choices.pick(&NAMES): build_schema(choices, depth / 2)}),
        ),
    }
}

fn build_rules(choices: &mut Choices<'_>, value_type: &str) -> Value {
    let rule = match value_type {
        _ if choices.hits(4) => build_expression(choices),
        "string" => choices.pick(&STRING_RULES).to_owned(),
        "array" | "object" => choices.pick(&RULES).to_owned(),
        _ => "self == self".to_owned(),
    };
    let mut rule = json!({"rule": rule});
    if choices.hits(3) {
        rule["messageExpression"] = json!("'a' + string(self)");
    }
    if choices.hits(6) {
        rule["fieldPath"] = json!(".a");
    }
    if choices.hits(4) {
        rule["optionalOldSelf"] = json!(choices.hits(2));
    }
    json!([rule])
}

/// Builds a value for a schema; some parts don't fit it.
pub(crate) fn build_fitting(choices: &mut Choices<'_>, schema: &Value, depth: usize) -> Value {
    if depth == 0 || choices.hits(10) {
        return build_value(choices, depth.min(4));
    }
    let child = |key: &str| schema.get(key).unwrap_or(&Value::Null);
    match child("type").as_str() {
        Some("object") => {
            let mut fields = Map::new();
            for (name, inner) in child("properties").as_object().into_iter().flatten() {
                if !choices.hits(4) {
                    fields.insert(name.clone(), build_fitting(choices, inner, depth - 1));
                }
            }
            if child("additionalProperties").is_object() || choices.hits(6) {
                let name = choices.pick(&NAMES).to_owned();
                let inner = child("additionalProperties");
                fields.insert(name, build_fitting(choices, inner, depth - 1));
            }
            Value::Object(fields)
        }
        Some("array") => {
            let length = choices.below(4);
            (0..length)
                .map(|_| build_fitting(choices, child("items"), depth - 1))
                .collect()
        }
        _ => build_value(choices, 0),
    }
}
