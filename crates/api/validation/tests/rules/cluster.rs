//! Classes, leases and custom resource definitions.

use super::{Name, build, create, merge, update};
use serde_json::{Value, json};

const DEFINITION: Name = ("apiextensions.k8s.io", "CustomResourceDefinition");
const PRIORITY_CLASS: Name = ("scheduling.k8s.io", "PriorityClass");
const RUNTIME_CLASS: Name = ("node.k8s.io", "RuntimeClass");
const LEASE: Name = ("coordination.k8s.io", "Lease");

fn definition(change: Value) -> Value {
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}}});
    let mut spec = json!({"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"}, "versions": [version]});
    merge(&mut spec, change);
    json!({"metadata": {"name": "widgets.example.com"}, "spec": spec})
}

#[test]
fn definition_is_named_after_plural_and_group() {
    create(DEFINITION, definition(json!({})), &[]);
    let mut other = definition(json!({}));
    other["metadata"]["name"] = "others.example.com".into();
    create(
        DEFINITION,
        other,
        &[
            "metadata.name: Invalid value: \"others.example.com\": must be spec.names.plural+\".\"+spec.group",
        ],
    );
}

#[test]
fn definition_stores_one_version() {
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
    for storage in [true, false] {
        let versions = json!([version("v1", storage), version("v2", storage)]);
        let object = build(DEFINITION, definition(json!({"versions": versions})));
        let errors = super::validate_new(DEFINITION, None, &object);
        let found = errors.iter().any(|error| {
            error
                .to_string()
                .starts_with("spec.versions: Invalid value: ")
                && error.detail == "must have exactly one version marked as storage version"
        });
        assert!(found, "{errors:?}");
    }
}

#[test]
fn scope_of_a_definition_is_known() {
    create(
        DEFINITION,
        definition(json!({"scope": "Galaxy"})),
        &[
            "spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\"",
        ],
    );
}

#[test]
fn version_of_a_definition_has_a_schema() {
    let version = json!({"name": "v1", "served": true, "storage": true});
    create(
        DEFINITION,
        definition(json!({"versions": [version]})),
        &["spec.versions[0].schema.openAPIV3Schema: Required value"],
    );
}

#[test]
fn user_classes_have_at_most_a_billion_points() {
    create(PRIORITY_CLASS, json!({"value": 1_000_000_000}), &[]);
    create(
        PRIORITY_CLASS,
        json!({"value": 1_000_000_001}),
        &["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
    );
}

#[test]
fn system_prefix_is_reserved() {
    create(
        PRIORITY_CLASS,
        json!({"metadata": {"name": "system-x"}, "value": 1}),
        &[
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only",
        ],
    );
}

#[test]
fn value_of_a_priority_class_does_not_change() {
    let old = build(PRIORITY_CLASS, json!({"value": 1}));
    update(PRIORITY_CLASS, &old, json!({"description": "d"}), &[]);
    update(
        PRIORITY_CLASS,
        &old,
        json!({"value": 2}),
        &["value: Forbidden: may not be changed in an update."],
    );
}

#[test]
fn handler_of_a_runtime_class_is_a_label_and_fixed() {
    create(
        RUNTIME_CLASS,
        json!({"handler": "A"}),
        &["handler: Invalid value: \"A\": a lowercase RFC 1123 label must"],
    );
    let old = build(RUNTIME_CLASS, json!({"handler": "runc"}));
    update(
        RUNTIME_CLASS,
        &old,
        json!({"handler": "kata"}),
        &["handler: Invalid value: \"kata\": field is immutable"],
    );
}

#[test]
fn lease_has_a_positive_duration() {
    create(
        LEASE,
        json!({"spec": {"leaseDurationSeconds": 15, "leaseTransitions": 0}}),
        &[],
    );
    create(
        LEASE,
        json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}),
        &[
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
}
