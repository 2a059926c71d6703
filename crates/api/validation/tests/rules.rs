//! Field paths and messages of the rules that users meet most, kind by kind, as upstream reports
//! them. Objects are defaulted and prepared as on the write path.
//!
//! Each case prints `case GROUP/KIND` where `--nocapture` shows it, so that the cases of a kind can
//! be counted.
#![allow(clippy::unwrap_used)]

#[path = "rules/access.rs"]
mod access;
#[path = "rules/admission_tables.rs"]
mod admission_tables;
#[path = "rules/class_tables.rs"]
mod class_tables;
#[path = "rules/cluster.rs"]
mod cluster;
#[path = "rules/core.rs"]
mod core;
#[path = "rules/core_tables.rs"]
mod core_tables;
#[path = "rules/device_tables.rs"]
mod device_tables;
#[path = "rules/every_kind.rs"]
mod every_kind;
#[path = "rules/flow_tables.rs"]
mod flow_tables;
#[path = "rules/metadata.rs"]
mod metadata;
#[path = "rules/network.rs"]
mod network;
#[path = "rules/network_tables.rs"]
mod network_tables;
#[path = "rules/object_tables.rs"]
mod object_tables;
#[path = "rules/pods.rs"]
mod pods;
#[path = "rules/ratcheting.rs"]
mod ratcheting;
#[path = "rules/review_tables.rs"]
mod review_tables;
#[path = "rules/services.rs"]
mod services;
#[path = "rules/storage.rs"]
mod storage;
#[path = "rules/storage_tables.rs"]
mod storage_tables;
#[path = "rules/table.rs"]
mod table;
#[path = "rules/tables.rs"]
mod tables;
#[path = "rules/version_tables.rs"]
mod version_tables;
#[path = "rules/volume_tables.rs"]
mod volume_tables;
#[path = "rules/warnings.rs"]
mod warnings;
#[path = "rules/workloads.rs"]
mod workloads;

use api_defaulting::default_object;
use api_meta::Kind;
use api_strategy::{prepare_create, prepare_update};
use api_validation::{FieldError, validate_create, validate_update};
use serde_json::{Value, json};

/// Group and kind.
pub type Name = (&'static str, &'static str);

const CLUSTER_KINDS: [&str; 32] = [
    "APIService",
    "CertificateSigningRequest",
    "ClusterRole",
    "ClusterRoleBinding",
    "CSIDriver",
    "CSINode",
    "CustomResourceDefinition",
    "DeviceClass",
    "DeviceTaintRule",
    "FlowSchema",
    "IPAddress",
    "IngressClass",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "ResourcePoolStatusRequest",
    "ResourceSlice",
    "RuntimeClass",
    "ServiceCIDR",
    "StorageClass",
    "StorageVersion",
    "StorageVersionMigration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
    "VolumeAttachment",
    "VolumeAttributesClass",
];

fn kind((group, kind): Name) -> Kind<'static> {
    Kind {
        group,
        version: if group == "autoscaling" { "v2" } else { "v1" },
        kind,
        namespaced: !CLUSTER_KINDS.contains(&kind),
    }
}

/// Merges `change` into `target`; null removes a field, a list replaces a list.
pub fn merge(target: &mut Value, change: Value) {
    match change {
        Value::Object(fields) if target.is_object() => {
            for (field, value) in fields {
                match value {
                    Value::Null => drop(target.as_object_mut().unwrap().remove(&field)),
                    value => merge(&mut target[field.as_str()], value),
                }
            }
        }
        value => *target = value,
    }
}

/// Returns the object that a create of `fields` would validate.
pub fn build(name: Name, fields: Value) -> Value {
    let kind = kind(name);
    let mut object = json!({"metadata": {"name": "x", "uid": "u-1", "creationTimestamp": "2024-01-01T00:00:00Z"}});
    if kind.namespaced {
        object["metadata"]["namespace"] = "n".into();
    }
    merge(&mut object, fields);
    default_object(kind, &mut object);
    prepare_create(kind, &mut object);
    object
}

/// Asserts that each error begins with its expectation: field path, reason and, mostly, all of it.
fn compare(errors: &[FieldError], expected: &[&str], object: &Value) {
    let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let matches = found.len() == expected.len()
        && found
            .iter()
            .zip(expected)
            .all(|(found, expected)| found.starts_with(expected));
    assert!(
        matches,
        "errors: {found:#?}\nexpected: {expected:#?}\nobject: {object}"
    );
}

/// Prints a line for each case of a kind, so that cases can be counted.
#[allow(clippy::print_stdout)]
pub fn count_case((group, kind): Name) {
    println!("case {group}/{kind}");
}

/// Checks the errors of a create.
pub fn create(name: Name, fields: Value, expected: &[&str]) {
    count_case(name);
    let object = build(name, fields);
    compare(&validate_new(name, None, &object), expected, &object);
}

/// Validates a new object. Its errors are those of updates, too: of one that keeps the object, and
/// of one that makes it from `base`.
pub fn validate_new(name: Name, base: Option<&Value>, object: &Value) -> Vec<FieldError> {
    let errors = validate_create(kind(name), object);
    ratcheting::check_unchanged(name, object, &errors);
    if let Some(base) = base {
        ratcheting::check_introduced(name, base, object);
    }
    errors
}

/// Checks the errors of an update of `old` with `change`.
pub fn update(name: Name, old: &Value, change: Value, expected: &[&str]) {
    write(name, "", old, change, expected);
}

/// Checks the errors of a write to a subresource.
pub fn write(name: Name, subresource: &str, old: &Value, change: Value, expected: &[&str]) {
    count_case(name);
    let kind = kind(name);
    let mut new = old.clone();
    merge(&mut new, change);
    default_object(kind, &mut new);
    prepare_update(kind, subresource, &mut new, old);
    compare(
        &validate_update(kind, subresource, &new, old),
        expected,
        &new,
    );
}
