#![allow(clippy::unwrap_used)]

use super::*;
use api_structural::parse_unchecked;
use serde_json::json;
use std::sync::Arc;

const KIND: Kind<'static> = Kind {
    group: "example.com",
    version: "v1",
    kind: "Widget",
    namespaced: true,
};

fn schema() -> Arc<Schema> {
    let set =
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    parse_unchecked(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "maximum": 5}, "tags": set, "replicas": {"type": "integer"},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string", "maxLength": 3},
            "replicas": {"type": "integer"}, "names": set}}}}))
    .unwrap()
}

fn widget(spec: Value, status: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "a", "namespace": "b"}, "spec": spec, "status": status})
}

fn texts(validate: impl Fn(CustomResourceRules<'_>) -> Vec<FieldError>) -> Vec<String> {
    let schema = schema();
    let scale = ScalePaths::parse(
        &json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}),
    );
    let rules = CustomResourceRules {
        kind: KIND,
        schema: &schema,
        scale: Some(&scale),
    };
    validate(rules).iter().map(ToString::to_string).collect()
}

#[test]
fn new_object_is_checked_by_all_rules() {
    let create = |object: Value| texts(|rules| rules.validate_create(&object));
    assert_eq!(create(widget(json!({"size": 1}), json!({}))), [""; 0]);
    let object = widget(
        json!({"replicas": -1, "tags": ["a", "a"], "template": {"metadata": {"labels": {"a": "-"}}}}),
        json!({}),
    );
    let found = create(object);
    let expected = [
        "spec.size: Required value",
        ".spec.replicas: Invalid value: -1: should be a non-negative integer",
        "spec.template.apiVersion: Required value",
        "spec.template.kind: Required value",
        "spec.template.metadata.labels: Invalid value: \"-\": a valid label must be",
        "spec.tags[1]: Duplicate value: \"a\"",
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn wrong_type_hides_other_errors() {
    let mut object = widget(json!({}), json!({}));
    object["kind"] = "Gadget".into();
    object["apiVersion"] = "v1".into();
    assert_eq!(
        texts(|rules| rules.validate_create(&object)),
        [
            "kind: Invalid value: \"Gadget\": must be Widget",
            "apiVersion: Invalid value: \"v1\": must be example.com/v1",
        ]
    );
}

#[test]
fn unchanged_violations_may_remain() {
    let old = widget(
        json!({"size": 9, "tags": ["a", "a"]}),
        json!({"phase": "long"}),
    );
    let new = widget(
        json!({"size": 9, "tags": ["a", "a"], "replicas": 1}),
        json!({"phase": "long"}),
    );
    assert_eq!(texts(|rules| rules.validate_update(&new, &old)), [""; 0]);
    let new = widget(json!({"size": 8}), json!({"phase": "longer"}));
    assert_eq!(
        texts(|rules| rules.validate_update(&new, &old)),
        [
            "spec.size: Invalid value: 8: spec.size in body should be less than or equal to 5",
            "status.phase: Too long: may not be more than 3 bytes",
        ]
    );
}

#[test]
fn status_is_checked_alone() {
    let old = widget(json!({}), json!({"replicas": 1}));
    let new = widget(
        json!({}),
        json!({"phase": "long", "replicas": -1, "names": ["a", "a"]}),
    );
    assert_eq!(
        texts(|rules| rules.validate_status_update(&new, &old)),
        [
            "status.phase: Too long: may not be more than 3 bytes",
            ".status.replicas: Invalid value: -1: should be a non-negative integer",
            "status.names[1]: Duplicate value: \"a\"",
        ]
    );
}

#[test]
fn rules_run_after_errors_that_leave_the_types_intact() {
    let errors = |object: Value| {
        let schema = schema();
        CustomResourceRules {
            kind: KIND,
            schema: &schema,
            scale: None,
        }
        .validate_create(&object)
    };
    assert!(CustomResourceRules::blocks_rules(&errors(widget(
        json!({}),
        json!({})
    ))));
    assert!(!CustomResourceRules::blocks_rules(&errors(widget(
        json!({"size": 9}),
        json!({})
    ))));
}
