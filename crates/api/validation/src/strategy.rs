//! Create and update strategies: server-owned fields, generation, and the part of the object that a
//! subresource owns.
//!
//! Invariant: fields that a writer must not change are silently taken from the old object, like in
//! upstream's strategies. Validation then sees the result.

mod create;
mod jobs;
mod update;

use crate::dispatch::Kind;
use crate::tree::{at_mut, list, remove};
use serde_json::Value;

/// Applies the changes that storing an object as protobuf causes: it has no empty lists, so those
/// that are always written are read back as null.
pub fn as_stored(kind: Kind<'_>, object: &mut Value) {
    if (kind.group, kind.kind) == ("storage.k8s.io", "CSINode")
        && let Some(spec) = at_mut(object, "spec")
        && list(spec, "drivers").is_empty()
    {
        // An absent list is written as null.
        remove(spec, "drivers");
    }
}

/// Changes that increment a kind's generation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Generation {
    /// None: the kind has no generation.
    None,
    /// Changes of this field.
    Field(&'static str),
    /// None after the creation.
    Fixed,
    /// Changes of `spec`; not set at creation.
    Late,
    /// All changes except of the resourceVersion.
    Any,
}

/// Metadata that a status write may change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    /// There is no status, or writes to the object set it.
    Open,
    /// Labels and annotations.
    WithMetadata,
    /// Nothing: only the status.
    Alone,
}

fn generation(kind: Kind<'_>) -> Generation {
    match (kind.group, kind.kind) {
        ("apps", "ControllerRevision") => Generation::None,
        ("apps" | "batch" | "flowcontrol.apiserver.k8s.io" | "policy", _) => {
            Generation::Field("spec")
        }
        ("", "Pod" | "ReplicationController") => Generation::Field("spec"),
        ("", "PodTemplate") => Generation::Field("template"),
        ("admissionregistration.k8s.io", name) if name.ends_with("WebhookConfiguration") => {
            Generation::Field("webhooks")
        }
        ("admissionregistration.k8s.io", _) => Generation::Field("spec"),
        ("networking.k8s.io", "Ingress" | "IngressClass" | "NetworkPolicy") => {
            Generation::Field("spec")
        }
        ("resource.k8s.io", "DeviceClass" | "ResourceSlice") => Generation::Field("spec"),
        ("apiextensions.k8s.io", _) => Generation::Field("spec"),
        ("scheduling.k8s.io", "PriorityClass") => Generation::Fixed,
        ("storage.k8s.io", "CSIDriver") => Generation::Late,
        ("discovery.k8s.io", _) => Generation::Any,
        _ => Generation::None,
    }
}

fn status(kind: Kind<'_>) -> Status {
    match (kind.group, kind.kind) {
        ("apps", "ControllerRevision") => Status::Open,
        (
            "",
            "Pod"
            | "ReplicationController"
            | "Namespace"
            | "Node"
            | "PersistentVolume"
            | "PersistentVolumeClaim"
            | "ResourceQuota"
            | "Service",
        )
        | ("apps" | "batch" | "autoscaling", _)
        | ("certificates.k8s.io", "CertificateSigningRequest")
        | ("apiextensions.k8s.io", "CustomResourceDefinition")
        | ("networking.k8s.io", "Ingress")
        | ("policy", "PodDisruptionBudget") => Status::WithMetadata,
        ("apiregistration.k8s.io", "APIService")
        | ("flowcontrol.apiserver.k8s.io", _)
        | ("resource.k8s.io", "ResourceClaim")
        | ("networking.k8s.io", "ServiceCIDR")
        | ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
        | ("storage.k8s.io", "VolumeAttachment") => Status::Alone,
        _ => Status::Open,
    }
}

/// Prepares a new object: drops fields that only the server or a controller writes, and sets
/// initial values. `metadata.uid` and `metadata.creationTimestamp` must be set already.
pub fn prepare_create(kind: Kind<'_>, object: &mut Value) {
    create::prepare(kind, object);
}

/// Prepares a changed object. `subresource` is empty for the object itself.
pub fn prepare_update(kind: Kind<'_>, subresource: &str, new: &mut Value, old: &Value) {
    update::prepare(kind, subresource, new, old);
}
