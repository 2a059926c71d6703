//! Uniqueness of the elements of sets and of the keys of maps.

use crate::model::{ListKind, Schema};
use crate::path::FieldPath;
use crate::problem::{FieldProblem, MAX_PROBLEMS};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Validates that lists of type set have no equal elements, and lists of type map no equal keys.
pub fn validate_lists(schema: &Schema, object: &Value, path: &FieldPath<'_>) -> Vec<FieldProblem> {
    let mut out = Vec::new();
    validate_value(schema, object, path, &mut out);
    // A list in which all elements are equal would otherwise make a response many times as large as
    // the request.
    out.truncate(MAX_PROBLEMS);
    out
}

fn validate_value(
    schema: &Schema,
    value: &Value,
    path: &FieldPath<'_>,
    out: &mut Vec<FieldProblem>,
) {
    if out.len() >= MAX_PROBLEMS {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                // Both paths exist upstream: a declared field follows a dot, and a key of a map
                // stands in brackets.
                if let Some(schema) = schema.property(name) {
                    validate_value(schema, inner, &path.child(name), out);
                } else if let Some(schema) = schema.additional_schema() {
                    validate_value(schema, inner, &path.key(name), out);
                }
            }
        }
        Value::Array(all) => {
            match schema.list_type {
                Some(ListKind::Set) => validate_set(all, path, out),
                Some(ListKind::Map) => validate_map(schema, all, path, out),
                _ => {}
            }
            // The elements are visited even if the list has duplicates, since lists inside them are
            // independent.
            if let Some(items) = &schema.items {
                for (i, inner) in all.iter().enumerate() {
                    validate_value(items, inner, &path.index(i), out);
                }
            }
        }
        _ => {}
    }
}

/// Returns the position of the second one of equal keys, for each key that occurs again.
fn find_duplicates(keys: impl Iterator<Item = String>) -> Vec<usize> {
    // Hashing keeps this linear, even for a list that fills a request.
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut out = Vec::new();
    for (i, key) in keys.enumerate() {
        let times = seen.entry(key).or_default();
        *times += 1;
        if *times == 2 && out.len() < MAX_PROBLEMS {
            out.push(i);
        }
    }
    out
}

fn validate_set(all: &[Value], path: &FieldPath<'_>, out: &mut Vec<FieldProblem>) {
    // Equal values have equal texts: members are sorted, and whole numbers differ from fractions.
    for i in find_duplicates(all.iter().map(Value::to_string)) {
        let value = all.get(i).cloned().unwrap_or_default();
        out.push(FieldProblem::duplicate(&path.index(i), value));
    }
}

fn validate_map(schema: &Schema, all: &[Value], path: &FieldPath<'_>, out: &mut Vec<FieldProblem>) {
    // Elements of another type have no keys, so the comparison would report all of them as equal.
    let wrong = all
        .iter()
        .position(|element| !element.is_object() && !element.is_null());
    if let Some((i, element)) = wrong.and_then(|i| Some((i, all.get(i)?))) {
        let detail = "must be an object for an array of list-type map";
        out.push(FieldProblem::invalid(
            &path.index(i),
            element.clone(),
            detail,
        ));
        return;
    }
    let keys_of = |element: &Value| -> Value {
        let present = schema.map_keys().iter().filter_map(|key| {
            element
                .get(&**key)
                .map(|value| (key.to_string(), value.clone()))
        });
        // An absent key differs from a null.
        Value::Object(Map::from_iter(present))
    };
    for i in find_duplicates(all.iter().map(|element| keys_of(element).to_string())) {
        let keys = all.get(i).map(keys_of).unwrap_or_default();
        out.push(FieldProblem::duplicate(&path.index(i), keys));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::parse::parse_unchecked;
    use serde_json::json;

    fn check(list: Value, object: Value, expected: &[&str]) {
        let schema =
            parse_unchecked(&json!({"type": "object", "properties": {"l": list}})).unwrap();
        let problems = validate_lists(&schema, &json!({"l": object}), &FieldPath::ROOT);
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected, "{object}");
    }

    fn map(keys: Value) -> Value {
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
            "items": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}})
    }

    #[test]
    fn elements_of_sets_are_unique() {
        let set =
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
        check(set.clone(), json!(["a", "b"]), &[]);
        check(
            set.clone(),
            json!(["a", "b", "a", "a", "b"]),
            &[
                "l[2]: Duplicate value: \"a\"",
                "l[4]: Duplicate value: \"b\"",
            ],
        );
        check(set.clone(), json!([1, 1.0, "1", null]), &[]);
        check(
            set,
            json!([{"x": 1, "y": 2}, {"y": 2, "x": 1}]),
            &["l[1]: Duplicate value: {\"x\":1,\"y\":2}"],
        );
    }

    #[test]
    fn keys_of_maps_are_unique() {
        check(
            map(json!(["a"])),
            json!([{"a": "1"}, {"a": "2"}, {"a": "1", "b": "x"}]),
            &["l[2]: Duplicate value: {\"a\":\"1\"}"],
        );
        check(
            map(json!(["a"])),
            json!([{}, null, {"b": "1"}]),
            &["l[1]: Duplicate value: {}"],
        );
        check(
            map(json!(["a", "b"])),
            json!([{"a": "1", "b": "1"}, {"a": "1"}, {"a": "1", "b": "1"}]),
            &["l[2]: Duplicate value: {\"a\":\"1\",\"b\":\"1\"}"],
        );
        check(
            map(json!(["a"])),
            json!([{"a": "1"}, "x"]),
            &["l[1]: Invalid value: \"x\": must be an object for an array of list-type map"],
        );
    }

    #[test]
    fn nested_lists_are_found() {
        let nested = json!({"type": "object", "additionalProperties": {"type": "array",
            "items": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}});
        check(
            nested,
            json!({"k": [["a", "a"]]}),
            &["l[k][0][1]: Duplicate value: \"a\""],
        );
    }

    #[test]
    fn atomic_lists_may_repeat_elements() {
        check(
            json!({"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}}),
            json!(["a", "a"]),
            &[],
        );
        check(
            json!({"type": "array", "items": {"type": "string"}}),
            json!(["a", "a"]),
            &[],
        );
    }

    #[test]
    fn problems_of_long_lists_are_limited() {
        let set =
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}});
        let schema = parse_unchecked(&set).unwrap();
        let list: Value = (0..10_000).map(|i| i / 2).collect::<Vec<i32>>().into();
        assert_eq!(
            validate_lists(&schema, &list, &FieldPath::ROOT).len(),
            MAX_PROBLEMS
        );
    }
}
