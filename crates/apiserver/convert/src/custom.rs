//! Coercion of custom resources to their schema: what decoding into a type does for other kinds.

use api_codec::{DecodeError, Problem, json};
use api_kinds::CustomSchema;
use api_schema::{Message, schema};
use api_structural::{apply_defaults, coerce_metadata, prune, prune_nulls};
use serde_json::Value;

const METADATA: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Removes what the schema does not have, and makes metadata canonical. Returns the unknown and
/// duplicate fields in upstream's order.
///
/// # Errors
/// The type or metadata have the wrong type.
pub(crate) fn coerce_request(
    schema: &CustomSchema,
    mut tree: Value,
) -> Result<(Value, Vec<Problem>), DecodeError> {
    let mut problems = check_root(&mut tree)?;
    let unknown = |path| Problem::Unknown(path);
    problems.extend(prune_unknown(schema, &mut tree).into_iter().map(unknown));
    let embedded = coerce_metadata(&schema.structural, &mut tree, false, false)
        .map_err(|problem| DecodeError::Type(problem.to_string()))?;
    problems.extend(embedded.into_iter().map(unknown));
    Ok((tree, problems))
}

/// Sets the defaults of the schema.
pub fn default_custom(schema: &CustomSchema, tree: &mut Value) {
    apply_defaults(&schema.structural, tree);
}

/// Coerces and defaults an object that an older server, or an older schema, has stored. Invalid
/// metadata is dropped, so that the object stays readable.
pub(crate) fn coerce_stored(schema: &CustomSchema, tree: &mut Value) {
    // Without dropping nothing can be invalid here.
    let _ = coerce_metadata(&schema.structural, tree, true, true);
    prune_unknown(schema, tree);
    // Very old objects have no generation.
    if let Some(Value::Object(metadata)) = tree.get_mut("metadata") {
        metadata
            .entry("generation")
            .and_modify(|generation| {
                if generation.as_i64() == Some(0) {
                    *generation = 1.into();
                }
            })
            .or_insert_with(|| 1.into());
    }
    apply_defaults(&schema.structural, tree);
}

/// Coerces and defaults an object after a change by the server, such as admission or a conversion
/// to another version.
pub fn coerce_changed(schema: &CustomSchema, tree: &mut Value) {
    prune_unknown(schema, tree);
    // Invalid parts are left for validation.
    let _ = coerce_metadata(&schema.structural, tree, false, true);
    apply_defaults(&schema.structural, tree);
}

/// Removes from a converted object what its version does not have. It is not defaulted, as
/// upstream.
pub(crate) fn coerce_converted(schema: &CustomSchema, tree: &mut Value) {
    // Invalid parts are left for validation.
    let _ = coerce_metadata(&schema.structural, tree, false, true);
    prune_unknown(schema, tree);
}

fn prune_unknown(schema: &CustomSchema, tree: &mut Value) -> Vec<String> {
    if schema.preserve_unknown {
        return Vec::new();
    }
    let unknown = prune(&schema.structural, tree, true);
    prune_nulls(&schema.structural, tree);
    unknown
}

/// Checks what all objects have in common: the object itself, its type and its metadata.
pub(crate) fn check_root(tree: &mut Value) -> Result<Vec<Problem>, DecodeError> {
    let Value::Object(map) = tree else {
        let text = "cannot unmarshal a value that is no object".to_owned();
        return Err(DecodeError::Type(text));
    };
    for name in ["apiVersion", "kind"] {
        if map.get(name).is_some_and(|value| !value.is_string()) {
            return Err(DecodeError::Type(format!("{name} must be a string")));
        }
    }
    let mut problems = Vec::new();
    if let (Some(message), Some(metadata)) = (metadata_message(), map.get_mut("metadata")) {
        let (canonical, found) = json::check(message, metadata.take())?;
        *metadata = canonical;
        problems.extend(found.into_iter().map(below_metadata));
    }
    Ok(problems)
}

/// Returns the message of `metadata`, which has the same type everywhere.
pub(crate) fn metadata_message() -> Option<&'static Message> {
    schema().message(METADATA)
}

fn below_metadata(problem: Problem) -> Problem {
    match problem {
        Problem::Unknown(path) => Problem::Unknown(format!("metadata.{path}")),
        Problem::Duplicate(path) => Problem::Duplicate(format!("metadata.{path}")),
        line @ Problem::YamlDuplicate { .. } => line,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn schema() -> CustomSchema {
        let version = json!({"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "a": {"type": "string", "default": "x"},
                "b": {"type": "string", "nullable": true},
                "c": {"type": "string"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true}}}}}}});
        CustomSchema::parse(&json!({}), &version).unwrap()
    }

    #[test]
    fn request_loses_unknown_fields_and_nulls() {
        let sent = json!({"kind": "T", "apiVersion": "e.io/v1", "metadata": {"name": "a", "colour": 1},
            "spec": {"c": null, "b": null, "u": 1, "free": {"z": 1},
                "template": {"kind": "P", "metadata": {"name": "x", "odd": 1}}}, "more": 2});
        let (tree, problems) = coerce_request(&schema(), sent).unwrap();
        assert_eq!(
            tree["spec"],
            json!({"b": null, "free": {"z": 1}, "template": {"kind": "P", "metadata": {"name": "x"}}})
        );
        assert_eq!(tree.get("more"), None);
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "unknown field \"metadata.colour\"",
                "unknown field \"more\"",
                "unknown field \"spec.u\"",
                "unknown field \"spec.template.metadata.odd\"",
            ]
        );
    }

    #[test]
    fn embedded_metadata_of_a_wrong_type_is_rejected_in_requests_and_dropped_from_the_store() {
        let mut object = json!({"metadata": {"name": "a"},
            "spec": {"template": {"kind": "P", "metadata": {"labels": 1}}}});
        assert!(coerce_request(&schema(), object.clone()).is_err());
        coerce_stored(&schema(), &mut object);
        assert_eq!(
            object["spec"]["template"],
            json!({"kind": "P", "metadata": {}})
        );
        assert_eq!(object["spec"]["a"], "x");
        assert_eq!(object["metadata"]["generation"], 1);
    }

    #[test]
    fn changed_object_is_pruned_and_defaulted() {
        let mut object = json!({"metadata": {"name": "a"}, "spec": {"added": true}});
        coerce_changed(&schema(), &mut object);
        assert_eq!(object["spec"], json!({"a": "x"}));
    }

    #[test]
    fn preserved_object_keeps_everything() {
        let mut preserving = schema();
        preserving.preserve_unknown = true;
        let sent = json!({"spec": {"u": 1, "c": null}});
        let (tree, problems) = coerce_request(&preserving, sent.clone()).unwrap();
        assert_eq!((tree, problems.len()), (sent, 0));
    }
}
