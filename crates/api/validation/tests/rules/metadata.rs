//! Metadata, by the rules of all kinds.

use super::{Name, build, create, update};
use serde_json::json;

const CONFIG_MAP: Name = ("", "ConfigMap");

#[test]
fn name_is_required() {
    create(
        CONFIG_MAP,
        json!({"metadata": {"name": null}}),
        &["metadata.name: Required value: name or generateName is required"],
    );
}

#[test]
fn name_of_most_kinds_is_a_dns_subdomain() {
    let message = "metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must";
    create(CONFIG_MAP, json!({"metadata": {"name": "A_b"}}), &[message]);
    create(CONFIG_MAP, json!({"metadata": {"name": "a.b"}}), &[]);
    let long = "a".repeat(254);
    create(
        CONFIG_MAP,
        json!({"metadata": {"name": long}}),
        &["metadata.name: Invalid value: "],
    );
}

#[test]
fn name_of_a_namespace_is_a_dns_label() {
    let name = json!({"metadata": {"name": "a.b"}});
    let message = "metadata.name: Invalid value: \"a.b\": must not contain dots";
    create(("", "Namespace"), name, &[message]);
}

#[test]
fn name_of_a_role_is_a_path_segment() {
    let role = ("rbac.authorization.k8s.io", "Role");
    create(
        role,
        json!({"metadata": {"name": "system:x"}, "rules": []}),
        &[],
    );
    create(
        role,
        json!({"metadata": {"name": "a/b"}, "rules": []}),
        &["metadata.name: Invalid value: \"a/b\": may not contain '/'"],
    );
}

#[test]
fn generated_name_may_end_with_a_dash() {
    create(CONFIG_MAP, json!({"metadata": {"generateName": "x-"}}), &[]);
    create(
        CONFIG_MAP,
        json!({"metadata": {"generateName": "XY-"}}),
        &["metadata.generateName: Invalid value: \"XY-\": a lowercase RFC 1123 subdomain must"],
    );
}

#[test]
fn namespace_is_required_or_forbidden_by_scope() {
    create(
        CONFIG_MAP,
        json!({"metadata": {"namespace": null}}),
        &["metadata.namespace: Required value"],
    );
    create(
        ("", "Namespace"),
        json!({"metadata": {"namespace": "n"}}),
        &["metadata.namespace: Forbidden: not allowed on this type"],
    );
}

#[test]
fn label_keys_are_qualified_names() {
    create(
        CONFIG_MAP,
        json!({"metadata": {"labels": {"a/b/c": "v"}}}),
        &["metadata.labels: Invalid value: \"a/b/c\": a valid label key must consist of"],
    );
}

#[test]
fn label_values_have_at_most_63_bytes() {
    create(
        CONFIG_MAP,
        json!({"metadata": {"labels": {"a": "v".repeat(63)}}}),
        &[],
    );
    create(
        CONFIG_MAP,
        json!({"metadata": {"labels": {"a": "v".repeat(64)}}}),
        &["metadata.labels: Invalid value: \"vvv"],
    );
    create(
        CONFIG_MAP,
        json!({"metadata": {"labels": {"a": "-v"}}}),
        &["metadata.labels: Invalid value: \"-v\": a valid label must be an empty string or"],
    );
}

#[test]
fn annotations_have_at_most_256_kibibytes() {
    let annotations = json!({"a": "v".repeat(256 * 1024)});
    create(
        CONFIG_MAP,
        json!({"metadata": {"annotations": annotations}}),
        &["metadata.annotations: Too long: may not be more than 262144 bytes"],
    );
}

#[test]
fn annotation_keys_may_have_upper_case_prefixes() {
    create(
        CONFIG_MAP,
        json!({"metadata": {"annotations": {"Example.com/Key": ""}}}),
        &[],
    );
}

#[test]
fn finalizers_are_qualified_or_standard() {
    let finalizers = |names: &[&str]| json!({"metadata": {"finalizers": names}});
    create(
        CONFIG_MAP,
        finalizers(&["example.com/f", "foregroundDeletion"]),
        &[],
    );
    create(
        CONFIG_MAP,
        finalizers(&["f"]),
        &[
            "metadata.finalizers[0]: Invalid value: \"f\": name is neither a standard finalizer name nor is it fully qualified",
        ],
    );
    create(
        CONFIG_MAP,
        finalizers(&["orphan", "foregroundDeletion"]),
        &[
            "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
        ],
    );
}

#[test]
fn finalizers_of_some_kinds_need_no_domain() {
    for (name, fields) in [
        (
            ("coordination.k8s.io", "Lease"),
            json!({"spec": {"holderIdentity": "a"}}),
        ),
        (
            ("policy", "PodDisruptionBudget"),
            json!({"spec": {"maxUnavailable": 1}}),
        ),
        (
            (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration",
            ),
            json!({"webhooks": []}),
        ),
    ] {
        let mut object = fields;
        object["metadata"]["finalizers"] = json!(["f"]);
        create(name, object, &[]);
    }
}

#[test]
fn managed_fields_have_known_operations_and_short_names() {
    let entry = |changes: serde_json::Value| {
        let mut entry = json!({"manager": "m", "operation": "Update", "fieldsType": "FieldsV1"});
        super::merge(&mut entry, changes);
        json!({"metadata": {"managedFields": [entry]}})
    };
    for (changes, expected) in [
        (json!({}), &[][..]),
        (json!({"operation": "Apply", "fieldsType": null}), &[]),
        (
            json!({"operation": "Delete"}),
            &[
                "metadata.managedFields[0].operation: Invalid value: \"Delete\": must be `Apply` or `Update`",
            ],
        ),
        (
            json!({"fieldsType": "FieldsV2"}),
            &[
                "metadata.managedFields[0].fieldsType: Invalid value: \"FieldsV2\": must be `FieldsV1`",
            ],
        ),
        (
            json!({"manager": "m".repeat(129)}),
            &["metadata.managedFields[0].manager: Too long: may not be more than 128 bytes"],
        ),
        (
            json!({"manager": "\u{7}".repeat(129)}),
            &["metadata.managedFields[0].manager: Too long: may not be more than 128 bytes"],
        ),
        (
            json!({"manager": "a\u{7}"}),
            &[
                "metadata.managedFields[0].manager: Invalid value: \"a\\a\": invalid character U+0007 (at position 1)",
            ],
        ),
        (
            json!({"subresource": "s".repeat(257)}),
            &["metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes"],
        ),
    ] {
        create(CONFIG_MAP, entry(changes), expected);
    }
}

#[test]
fn owner_reference_needs_kind_name_and_uid() {
    let owner = json!({"apiVersion": "v1", "kind": "", "name": "", "uid": ""});
    create(
        CONFIG_MAP,
        json!({"metadata": {"ownerReferences": [owner]}}),
        &[
            "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
        ],
    );
}

#[test]
fn object_has_one_controller() {
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true});
    create(
        CONFIG_MAP,
        json!({"metadata": {"ownerReferences": [owner("a"), owner("b")]}}),
        &["metadata.ownerReferences: Invalid value: "],
    );
}

#[test]
fn event_owns_nothing() {
    let owner = json!({"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"});
    create(
        CONFIG_MAP,
        json!({"metadata": {"ownerReferences": [owner]}}),
        &["metadata.ownerReferences: Invalid value: "],
    );
}

#[test]
fn identity_of_an_object_does_not_change() {
    let old = build(CONFIG_MAP, json!({}));
    for (field, value) in [("name", "y"), ("namespace", "m"), ("uid", "u-2")] {
        let message = format!("metadata.{field}: Invalid value: \"{value}\": field is immutable");
        update(
            CONFIG_MAP,
            &old,
            json!({"metadata": {field: value}}),
            &[&message],
        );
    }
}

#[test]
fn object_that_is_being_deleted_gets_no_new_finalizers() {
    let mut old = build(
        CONFIG_MAP,
        json!({"metadata": {"finalizers": ["a.io/a", "a.io/b"]}}),
    );
    old["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
    let finalizers = |names: &[&str]| json!({"metadata": {"finalizers": names}});
    update(CONFIG_MAP, &old, finalizers(&["a.io/a"]), &[]);
    update(
        CONFIG_MAP,
        &old,
        finalizers(&["a.io/a", "a.io/c"]),
        &[
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"a.io/c\"}",
        ],
    );
}

#[test]
fn deletion_timestamp_cannot_be_removed() {
    let mut old = build(CONFIG_MAP, json!({}));
    old["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
    update(
        CONFIG_MAP,
        &old,
        json!({"metadata": {"deletionTimestamp": null}}),
        &["metadata.deletionTimestamp: Invalid value: null: field is immutable"],
    );
}
