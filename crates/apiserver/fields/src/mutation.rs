//! Merges of partial objects without ownership, as mutating admission policies make them.

use crate::apply::merge_values;
use crate::shape::Shape;
use api_kinds::ObjectSchema;
use serde_json::Value;

/// The reason why a partial object can't be merged, with upstream's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeError {
    /// An element of a list can't be identified.
    Untyped(String),
    /// Values that a merge would replace as a whole: fields that the author did not name would be
    /// removed.
    Atomic(Vec<String>),
}

impl std::error::Error for MergeError {}

impl std::fmt::Display for MergeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MergeError::Untyped(why) => {
                write!(f, "failed to convert patch object to typed object: {why}")
            }
            MergeError::Atomic(paths) => write!(
                f,
                "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
                paths.join(", ")
            ),
        }
    }
}

/// Merges a partial object into an object, by the list and map types of the schema. Nothing is
/// removed.
///
/// # Errors
/// The partial object has a value that can only be replaced as a whole, or an element without keys.
pub fn merge_object(
    schema: &ObjectSchema,
    live: &Value,
    partial: &Value,
) -> Result<Value, MergeError> {
    let shape = Shape::of_object(schema);
    let mut atomic = Vec::new();
    check_partial(shape, partial, &mut String::new(), &mut atomic)?;
    if atomic.is_empty() {
        Ok(merge_values(shape, live, partial))
    } else {
        Err(MergeError::Atomic(atomic))
    }
}

/// Collects the paths of atomic values. The depth is that of the partial object, which is bounded.
fn check_partial(
    shape: Shape<'_>,
    value: &Value,
    path: &mut String,
    atomic: &mut Vec<String>,
) -> Result<(), MergeError> {
    let length = path.len();
    match value {
        Value::Object(fields) if shape.is_map() => {
            // As upstream, the values of maps with arbitrary keys are not looked at.
            for (name, field) in fields.iter().filter(|(name, _)| shape.has_field(name)) {
                path.push('.');
                path.push_str(name);
                check_partial(shape.member(name), field, path, atomic)?;
                path.truncate(length);
            }
        }
        Value::Array(elements) if shape.is_list() => {
            check_elements(shape, elements, path)?;
            for (index, element) in elements.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                check_partial(shape.element(), element, path, atomic)?;
                path.truncate(length);
            }
        }
        Value::Object(_) | Value::Array(_) => atomic.push(path.clone()),
        _ => {}
    }
    Ok(())
}

fn check_elements(shape: Shape<'_>, elements: &[Value], path: &str) -> Result<(), MergeError> {
    let mut steps = std::collections::BTreeSet::new();
    for (index, element) in elements.iter().enumerate() {
        if let Some(key) = shape.missing_key(element) {
            return Err(MergeError::Untyped(format!(
                "{path}: element {index}: associative list with keys has an element that omits key field {key:?} \
                 (and doesn't have default value)"
            )));
        }
        let step = shape.step(element);
        if steps.contains(&step) {
            let key = step.to_message_text();
            return Err(MergeError::Untyped(format!(
                "{path}: duplicate entries for key {key}"
            )));
        }
        steps.insert(step);
    }
    Ok(())
}

/// Checks that the elements of keyed lists and sets are distinguishable.
///
/// # Errors
/// The first list with an element without its keys, or with two of the same keys.
pub fn check_elements_of(schema: &ObjectSchema, object: &Value) -> Result<(), String> {
    // Atomic values are the manager's as a whole in an apply.
    let checked = check_partial(
        Shape::of_object(schema),
        object,
        &mut String::new(),
        &mut Vec::new(),
    );
    match checked {
        Err(MergeError::Untyped(why)) => Err(why),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api_kinds::CustomSchema;
    use serde_json::json;
    use std::sync::Arc;

    fn merge_pod(live: Value, partial: Value) -> Result<Value, String> {
        let schema = &api_kinds::find("", "v1", "pods").unwrap().schema;
        merge_object(schema, &live, &partial).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_and_keyed_elements_are_merged() {
        let live = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"nodeName": "n",
            "containers": [{"name": "c", "image": "i"}, {"name": "d"}]}});
        let partial = json!({"metadata": {"labels": {"b": "2"}}, "spec": {
            "containers": [{"name": "d", "image": "j"}, {"name": "e"}]}});
        let expect = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"nodeName": "n",
            "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}, {"name": "e"}]}});
        assert_eq!(merge_pod(live, partial), Ok(expect));
    }

    #[test]
    fn atomic_values_are_rejected() {
        for (partial, paths) in [
            (
                json!({"spec": {"containers": [{"name": "c", "args": ["x"]}]}}),
                ".spec.containers[0].args",
            ),
            (
                json!({"spec": {"nodeSelector": {"a": "b"}}}),
                ".spec.nodeSelector",
            ),
            (
                json!({"spec": {"tolerations": [], "containers": [{"name": "c", "command": ["x"]}]}}),
                ".spec.containers[0].command, .spec.tolerations",
            ),
        ] {
            let error = merge_pod(json!({}), partial.clone()).unwrap_err();
            let mut expect: Vec<&str> = paths.split(", ").collect();
            let (start, found) = error.split_once("structs: ").unwrap();
            let mut found: Vec<&str> = found.split(", ").collect();
            expect.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expect, "{partial}");
            assert_eq!(
                start,
                "invalid ApplyConfiguration: may not mutate atomic arrays, maps or "
            );
        }
    }

    #[test]
    fn elements_need_their_keys() {
        let error = merge_pod(json!({}), json!({"spec": {"containers": [{"image": "x"}]}}));
        assert!(error.unwrap_err().contains(
            ".spec.containers: element 0: associative list with keys has an element that omits key field \"name\""
        ));
        let twice = json!({"spec": {"containers": [{"name": "x"}, {"name": "x"}]}});
        let error = merge_pod(json!({}), twice).unwrap_err();
        assert!(error.contains("duplicate entries for key"), "{error}");
    }

    #[test]
    fn custom_resource_is_merged_by_its_schema() {
        let version = json!({"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
                "list": {"type": "array", "items": {"type": "string"}},
                "size": {"type": "integer"}}}}}}});
        let schema = CustomSchema::parse(&json!({}), &version).unwrap();
        let schema = ObjectSchema::Custom(Arc::new(schema));
        let live = json!({"spec": {"keyed": [{"k": "a"}], "list": ["x"]}});
        let merged = merge_object(
            &schema,
            &live,
            &json!({"metadata": {"labels": {"a": "b"}}, "spec": {"size": 1, "keyed": [{"k": "b"}]}}),
        );
        let expect = json!({"metadata": {"labels": {"a": "b"}},
            "spec": {"size": 1, "keyed": [{"k": "a"}, {"k": "b"}], "list": ["x"]}});
        assert_eq!(merged, Ok(expect));
        let error = merge_object(&schema, &live, &json!({"spec": {"list": ["y"]}}));
        assert_eq!(error, Err(MergeError::Atomic(vec![".spec.list".into()])));
    }
}
