#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::parse::parse_unchecked;
use serde_json::json;
use std::sync::Arc;

fn schema() -> Arc<Schema> {
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    parse_unchecked(&json!({"type": "object", "properties": {
        "pod": embedded, "list": {"type": "array", "items": embedded},
        "map": {"type": "object", "additionalProperties": embedded}}}))
    .unwrap()
}

fn coerce(object: Value, drop_invalid: bool) -> (Value, Result<Vec<String>, String>) {
    let mut object = object;
    let result = coerce_metadata(&schema(), &mut object, true, drop_invalid);
    (object, result.map_err(|problem| problem.to_string()))
}

#[test]
fn metadata_becomes_canonical_and_loses_unknown_fields() {
    let (object, unknown) = coerce(
        json!({"metadata": {"name": "a", "creationTimestamp": null, "x": 1},
            "pod": {"metadata": {"labels": {"a": "b"}, "y": 1}, "other": {"z": 1}},
            "list": [{}, {"metadata": {"z": 1}}], "map": {"k": {"metadata": {"w": 1}}}}),
        false,
    );
    assert_eq!(
        object,
        json!({"metadata": {"name": "a"}, "pod": {"metadata": {"labels": {"a": "b"}}, "other": {"z": 1}},
            "list": [{}, {"metadata": {}}], "map": {"k": {"metadata": {}}}})
    );
    let paths = [
        "list[1].metadata.z",
        "map[k].metadata.w",
        "metadata.x",
        "pod.metadata.y",
    ];
    assert_eq!(unknown.unwrap(), paths);
}

#[test]
fn wrong_types_are_errors_on_write() {
    let (_, kind) = coerce(json!({"pod": {"kind": 1}}), false);
    assert_eq!(
        kind.unwrap_err(),
        "pod.kind: Invalid value: 1: must be a string"
    );
    let (_, labels) = coerce(json!({"list": [{"metadata": {"labels": {"a": 1}}}]}), false);
    assert!(
        labels
            .unwrap_err()
            .starts_with("list[0].metadata: Invalid value: {\"labels\":{\"a\":1}}: ")
    );
}

#[test]
fn wrong_types_are_dropped_on_read() {
    let (object, result) = coerce(
        json!({"kind": 1, "pod": {"apiVersion": [], "metadata": {"name": "a", "labels": 1, "generation": "x"}}}),
        true,
    );
    assert!(result.is_ok());
    assert_eq!(object, json!({"pod": {"metadata": {"name": "a"}}}));
    assert_eq!(
        coerce(json!({"metadata": "text"}), true).0,
        json!({"metadata": "text"})
    );
}

fn validate(object: Value) -> Vec<String> {
    let metadata = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let at = FieldPath::start("metadata");
        let bad = FieldProblem::invalid(&at.child("name"), name, "bad");
        if name == "bad" { vec![bad] } else { Vec::new() }
    };
    let problems = validate_embedded(&schema(), &object, false, &metadata, &FieldPath::ROOT);
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn embedded_resources_need_version_and_kind() {
    assert_eq!(
        validate(json!({"pod": {}, "map": {"k": {"kind": "", "apiVersion": 3}}})),
        [
            "map[k].apiVersion: Invalid value: 3: must be a string",
            "map[k].kind: Invalid value: \"\": must not be empty",
            "pod.apiVersion: Required value",
            "pod.kind: Required value",
        ]
    );
    let object = json!({"kind": "A_b", "apiVersion": "a/b/c"});
    let problems = validate(json!({"pod": object}));
    assert_eq!(
        problems[0],
        "pod.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"
    );
    assert!(
        problems[1].contains("may have mixed case, but should otherwise match: a DNS-1035 label")
    );
    assert_eq!(
        validate(json!({"pod": {"kind": "Pod", "apiVersion": "v1"}})),
        [""; 0]
    );
}

#[test]
fn metadata_is_checked_by_the_rules_of_the_caller() {
    let object = |metadata: Value| json!({"list": [{"kind": "A", "apiVersion": "v1", "metadata": metadata}]});
    assert_eq!(validate(object(json!({"name": "good"}))), [""; 0]);
    assert_eq!(
        validate(object(json!({"name": "bad"}))),
        ["list[0].metadata.name: Invalid value: \"bad\": bad"]
    );
    assert!(
        validate(object(json!({"labels": 1})))[0]
            .starts_with("list[0].metadata: Invalid value: {\"labels\":1}")
    );
}

#[test]
fn root_is_checked_on_request() {
    let none = |_: &Value| Vec::new();
    let problems = validate_embedded(&schema(), &json!({}), true, &none, &FieldPath::ROOT);
    assert_eq!(problems.len(), 2);
}
