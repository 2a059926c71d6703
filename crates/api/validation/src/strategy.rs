//! What a write may touch: the server's own fields, generation, and which part a subresource owns.
//!
//! Invariant: what a writer may not change comes from the old object, silently, as the stock server's strategies do;
//! validation then sees the result.

mod create;
mod jobs;
mod update;

use crate::dispatch::Kind;
use crate::tree::{at_mut, list, remove};
use serde_json::Value;

/// What becomes of an object by being stored: protobuf knows no empty lists, so those that are always written come back
/// as null.
pub fn as_stored(kind: Kind<'_>, object: &mut Value) {
    if (kind.group, kind.kind) == ("storage.k8s.io", "CSINode")
        && let Some(spec) = at_mut(object, "spec")
        && list(spec, "drivers").is_empty()
    {
        // What is absent is written as null.
        remove(spec, "drivers");
    }
}

/// What makes a kind's generation go up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Generation {
    /// The kind has none.
    None,
    /// A change of this field.
    Field(&'static str),
    /// Set at creation, never again.
    Fixed,
    /// Not set at creation, counted from the first change of `spec`.
    Late,
    /// Any change but of the resourceVersion.
    Any,
}

/// What a write to the status may change of the metadata.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    /// There is no status, or the object's own writes set it.
    Open,
    /// Status writes may change labels and annotations.
    WithMetadata,
    /// Status writes change the status only.
    Alone,
}

fn generation(kind: Kind<'_>) -> Generation {
    match (kind.group, kind.kind) {
        ("apps", "ControllerRevision") => Generation::None,
        ("apps" | "batch" | "flowcontrol.apiserver.k8s.io" | "policy", _) => Generation::Field("spec"),
        ("", "Pod" | "ReplicationController") => Generation::Field("spec"),
        ("", "PodTemplate") => Generation::Field("template"),
        ("admissionregistration.k8s.io", name) if name.ends_with("WebhookConfiguration") => {
            Generation::Field("webhooks")
        }
        ("admissionregistration.k8s.io", _) => Generation::Field("spec"),
        ("networking.k8s.io", "Ingress" | "IngressClass" | "NetworkPolicy") => Generation::Field("spec"),
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

/// Prepares a new object: drops what only the server or a controller writes and sets what it starts with.
/// `metadata.uid` and `metadata.creationTimestamp` are there already.
pub fn prepare_create(kind: Kind<'_>, object: &mut Value) {
    create::prepare(kind, object);
}

/// Prepares a changed object. `subresource` is empty for the object itself.
pub fn prepare_update(kind: Kind<'_>, subresource: &str, new: &mut Value, old: &Value) {
    update::prepare(kind, subresource, new, old);
}
