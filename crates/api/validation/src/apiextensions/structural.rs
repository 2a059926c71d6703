//! Structural schemas of custom resources: every value has a type, and defaults match it.

use crate::field::{Errors, Path};
use api_meta::tree::{flag, get, has, list, text};
use serde_json::Value;

/// Maximum depth of nested schemas. The depth of the body was limited before.
const DEPTH: usize = 64;

/// Validates a schema. A missing one is reported elsewhere.
pub(super) fn validate_structural_schema(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    if schema.is_object() {
        validate_schema_node(schema, path, 0, errors);
    }
}

// Unlike arbitrary JSON schemas, a structural schema says for every value which type it has, so
// that pruning and defaulting are possible.
fn validate_schema_node(schema: &Value, path: &Path<'_>, depth: usize, errors: &mut Errors) {
    // Both extensions stand for a type that OpenAPI cannot express.
    let open = flag(schema, "x-kubernetes-int-or-string")
        || flag(schema, "x-kubernetes-preserve-unknown-fields");
    let kind = text(schema, "type");
    if kind.is_empty() && !open {
        let what = if depth == 0 {
            "the root"
        } else {
            "specified object fields"
        };
        errors.required(&path.child("type"), format!("must not be empty for {what}"));
    } else if depth == 0 && !kind.is_empty() && kind != "object" {
        errors.invalid(&path.child("type"), kind, "must be object at the root");
    }
    // Defaults are written into stored objects, where a wrong type would make them invalid.
    if has(schema, "default")
        && !kind.is_empty()
        && !is_of_type(kind, get(schema, "default"), schema)
    {
        errors.wrong_type(&path.child("default"), get(schema, "default").clone(), kind);
    }
    if depth > DEPTH {
        return;
    }
    let at = path.child("properties");
    for (name, member) in get(schema, "properties").as_object().into_iter().flatten() {
        validate_schema_node(member, &at.key(name), depth + 1, errors);
    }
    let more = get(schema, "additionalProperties");
    if more.is_object() {
        validate_schema_node(more, &path.child("additionalProperties"), depth + 1, errors);
    }
    let items = get(schema, "items");
    if items.is_object() {
        validate_schema_node(items, &path.child("items"), depth + 1, errors);
    }
}

fn is_of_type(kind: &str, value: &Value, schema: &Value) -> bool {
    // Values of an enumeration may have any type.
    if (value.is_null() && flag(schema, "nullable")) || list(schema, "enum").contains(value) {
        return true;
    }
    match kind {
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}
