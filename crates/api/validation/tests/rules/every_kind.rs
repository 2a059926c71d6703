//! Metadata of every kind: that no kind is left out.

use super::table::check_with;
use super::{Name, build, kind};
use api_strategy::prepare_update;
use api_validation::{FieldError, validate_create, validate_update};
use serde_json::{Value, json};

const KINDS: [(&str, &[&str]); 18] = [
    (
        "",
        &[
            "ConfigMap",
            "Endpoints",
            "LimitRange",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", &["APIService"]),
    (
        "apps",
        &[
            "ControllerRevision",
            "DaemonSet",
            "Deployment",
            "ReplicaSet",
            "StatefulSet",
        ],
    ),
    ("autoscaling", &["HorizontalPodAutoscaler"]),
    ("batch", &["CronJob", "Job"]),
    ("certificates.k8s.io", &["CertificateSigningRequest"]),
    ("coordination.k8s.io", &["Lease"]),
    ("discovery.k8s.io", &["EndpointSlice"]),
    (
        "flowcontrol.apiserver.k8s.io",
        &["FlowSchema", "PriorityLevelConfiguration"],
    ),
    (
        "networking.k8s.io",
        &[
            "IPAddress",
            "Ingress",
            "IngressClass",
            "NetworkPolicy",
            "ServiceCIDR",
        ],
    ),
    ("node.k8s.io", &["RuntimeClass"]),
    ("policy", &["PodDisruptionBudget"]),
    (
        "rbac.authorization.k8s.io",
        &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    ),
    (
        "resource.k8s.io",
        &[
            "DeviceClass",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceSlice",
        ],
    ),
    ("scheduling.k8s.io", &["PriorityClass"]),
    (
        "storage.k8s.io",
        &[
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
];

const CREATES: &str = r#"
    /metadata/labels={"a.io/b":"c"} & /metadata/annotations={"A.io/b":"c d"} => ok
    /metadata/name=null => metadata.name: Required value: name or generateName is required ;; ...
    /metadata/labels={"a/b/c":"d"} => metadata.labels: Invalid value: "a/b/c": a valid label key must consist of
    /metadata/labels={"a":"-"} => metadata.labels: Invalid value: "-": a valid label must be an empty string or
    /metadata/annotations={"a/b/c":"d"} => metadata.annotations: Invalid value: "a/b/c": a valid label key must consist of
    /metadata/finalizers=["a.io/b","foregroundDeletion"] => ok
    /metadata/finalizers=["a b"] => metadata.finalizers: Invalid value: "a b": name part must consist of ;; ...
    /metadata/finalizers=["orphan","foregroundDeletion"] => metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set
    /metadata/ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}] => ok
    /metadata/ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"","uid":"u"}] => metadata.ownerReferences.name: Invalid value: "": must not be empty
    /metadata/ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"p","uid":""}] => metadata.ownerReferences.uid: Invalid value: "": must not be empty
    /metadata/managedFields=[{"manager":"m","operation":"Delete","fieldsType":"FieldsV1"}] => metadata.managedFields[0].operation: Invalid value: "Delete": must be `Apply` or `Update`
"#;

const UPDATES: &str = r#"
    /metadata/labels={"a":"b"} => ok
    /metadata/labels={"a":"-"} => metadata.labels: Invalid value: "-": a valid label must be an empty string or
    /metadata/name="y" => metadata.name: Invalid value: "y": field is immutable ;; ...
    /metadata/uid="u-2" => metadata.uid: Invalid value: "u-2": field is immutable
    /metadata/creationTimestamp="2025-01-01T00:00:00Z" => metadata.creationTimestamp: Invalid value: 
"#;

/// An object with a valid name and hardly other fields.
fn object(name: Name) -> Value {
    let fields = match name.1 {
        "APIService" => {
            json!({"metadata": {"name": "v1.a.io"}, "spec": {"group": "a.io", "version": "v1"}})
        }
        "CustomResourceDefinition" => {
            json!({"metadata": {"name": "b.a.io"}, "spec": {"group": "a.io", "names": {"plural": "b"}}})
        }
        "IPAddress" => json!({"metadata": {"name": "10.0.0.1"}}),
        _ => json!({}),
    };
    build(name, fields)
}

/// Leaves out the errors of other rules.
fn of_metadata(errors: Vec<FieldError>) -> Vec<FieldError> {
    let mut errors = errors;
    errors.retain(|error| error.to_string().starts_with("metadata."));
    errors
}

fn kinds() -> impl Iterator<Item = Name> {
    KINDS
        .iter()
        .flat_map(|(group, kinds)| kinds.iter().map(|kind| (*group, *kind)))
}

#[test]
fn metadata_of_every_kind_is_checked_on_create() {
    for name in kinds() {
        check_with(name, &object(name), CREATES, |object| {
            of_metadata(validate_create(kind(name), &object))
        });
    }
}

#[test]
fn metadata_of_every_kind_is_checked_on_update() {
    for name in kinds() {
        let old = object(name);
        check_with(name, &old, UPDATES, |mut object| {
            prepare_update(kind(name), "", &mut object, &old);
            of_metadata(validate_update(kind(name), "", &object, &old))
        });
    }
}

#[test]
fn scope_of_every_kind_is_checked() {
    for name in kinds() {
        let table = if kind(name).namespaced {
            "/metadata/namespace=null => metadata.namespace: Required value"
        } else {
            r#"/metadata/namespace="n" => metadata.namespace: Forbidden: not allowed on this type"#
        };
        check_with(name, &object(name), table, |object| {
            of_metadata(validate_create(kind(name), &object))
        });
    }
}
