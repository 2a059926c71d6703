//! Table of the writes that increment a kind's generation, and of what a status write may change.

use api_meta::Kind;

/// Changes that increment a kind's generation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GenerationRule {
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
pub(crate) enum StatusRule {
    /// There is no status, or writes to the object set it.
    Open,
    /// Labels and annotations.
    WithMetadata,
    /// Nothing: only the status.
    Alone,
}

pub(crate) fn generation_rule(kind: Kind<'_>) -> GenerationRule {
    match (kind.group, kind.kind) {
        ("apps", "ControllerRevision") => GenerationRule::None,
        ("apps" | "batch" | "flowcontrol.apiserver.k8s.io" | "policy", _) => {
            GenerationRule::Field("spec")
        }
        ("", "Pod" | "ReplicationController") => GenerationRule::Field("spec"),
        ("", "PodTemplate") => GenerationRule::Field("template"),
        ("admissionregistration.k8s.io", name) if name.ends_with("WebhookConfiguration") => {
            GenerationRule::Field("webhooks")
        }
        ("admissionregistration.k8s.io", _) => GenerationRule::Field("spec"),
        ("networking.k8s.io", "Ingress" | "IngressClass" | "NetworkPolicy") => {
            GenerationRule::Field("spec")
        }
        ("resource.k8s.io", "DeviceClass" | "DeviceTaintRule" | "ResourceSlice") => {
            GenerationRule::Field("spec")
        }
        ("apiextensions.k8s.io", _) => GenerationRule::Field("spec"),
        ("scheduling.k8s.io", "PriorityClass") => GenerationRule::Fixed,
        ("storage.k8s.io", "CSIDriver") => GenerationRule::Late,
        ("discovery.k8s.io", _) => GenerationRule::Any,
        _ => GenerationRule::None,
    }
}

pub(crate) fn status_rule(kind: Kind<'_>) -> StatusRule {
    match (kind.group, kind.kind) {
        ("apps", "ControllerRevision") => StatusRule::Open,
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
        | ("policy", "PodDisruptionBudget") => StatusRule::WithMetadata,
        ("apiregistration.k8s.io", "APIService")
        | ("certificates.k8s.io", "PodCertificateRequest")
        | ("flowcontrol.apiserver.k8s.io", _)
        | ("resource.k8s.io", "DeviceTaintRule" | "ResourceClaim" | "ResourcePoolStatusRequest")
        | ("scheduling.k8s.io", "PodGroup")
        | ("networking.k8s.io", "ServiceCIDR")
        | ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
        | ("internal.apiserver.k8s.io", "StorageVersion")
        | ("storagemigration.k8s.io", "StorageVersionMigration")
        | ("storage.k8s.io", "VolumeAttachment") => StatusRule::Alone,
        _ => StatusRule::Open,
    }
}
