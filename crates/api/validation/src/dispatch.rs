//! Table of the rules of each kind.

use crate::field::{Errors, FieldError, Path};
use crate::kind_rules::Rules;
use crate::metadata;
use crate::{
    admissionregistration, apiextensions, apiregistration, apps, autoscaling, batch, certificates,
    claim, coordination, core, discovery, flowcontrol, networking, node, pod, policy, rbac,
    resource, scheduling, service, storage, storage_versions,
};
use api_meta::Kind;
use serde_json::Value;

/// Validates a new object. Returns no errors for a valid one.
pub fn validate_create(kind: Kind<'_>, object: &Value) -> Vec<FieldError> {
    let rules = select_rules(kind);
    // Errors of the metadata come first, as in the messages of upstream.
    let mut errors = Errors::default();
    metadata::validate_metadata(
        object,
        kind,
        rules.name,
        &Path::ROOT.child("metadata"),
        &mut errors,
    );
    validate_finalizers(kind, object, &mut errors);
    (rules.create)(object, &mut errors);
    errors.0
}

/// Validates a changed object. `subresource` is empty for the object itself, else `status`,
/// `scale`, `ephemeralcontainers`, ...
pub fn validate_update(
    kind: Kind<'_>,
    subresource: &str,
    new: &Value,
    old: &Value,
) -> Vec<FieldError> {
    let rules = select_rules(kind);
    let mut errors = Errors::default();
    metadata::validate_metadata_update(
        new,
        old,
        kind,
        rules.name,
        &Path::ROOT.child("metadata"),
        &mut errors,
    );
    validate_finalizers(kind, new, &mut errors);
    if subresource.is_empty() {
        (rules.update)(new, old, &mut errors);
    } else {
        (rules.sub)(subresource, new, old, &mut errors);
    }
    errors.0
}

/// Groups and kinds whose finalizers need no domain: upstream validates their metadata as that of
/// custom resources. An empty kind stands for all of a group.
const ANY_FINALIZER: [(&str, &str); 6] = [
    ("", "Event"),
    ("admissionregistration.k8s.io", ""),
    ("apiextensions.k8s.io", ""),
    ("apiregistration.k8s.io", ""),
    ("coordination.k8s.io", ""),
    ("policy", ""),
];

fn validate_finalizers(kind: Kind<'_>, object: &Value, errors: &mut Errors) {
    let is_any = |(group, name): &(&str, &str)| {
        *group == kind.group && (name.is_empty() || *name == kind.kind)
    };
    if !ANY_FINALIZER.iter().any(is_any) {
        metadata::validate_finalizer_domains(object, &Path::ROOT.child("metadata"), errors);
    }
}

fn select_rules(kind: Kind<'_>) -> Rules {
    match (kind.group, kind.kind) {
        ("", name) => select_core_rules(name),
        ("apps", "Deployment") => apps::DEPLOYMENT,
        ("apps", "ReplicaSet") => apps::REPLICA_SET,
        ("apps", "DaemonSet") => apps::DAEMON_SET,
        ("apps", "StatefulSet") => apps::STATEFUL_SET,
        ("apps", "ControllerRevision") => apps::CONTROLLER_REVISION,
        ("batch", "Job") => batch::JOB,
        ("batch", "CronJob") => batch::CRON_JOB,
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::AUTOSCALER,
        ("policy", "PodDisruptionBudget") => policy::BUDGET,
        ("networking.k8s.io", "Ingress") => networking::INGRESS,
        ("networking.k8s.io", "IngressClass") => networking::INGRESS_CLASS,
        ("networking.k8s.io", "NetworkPolicy") => networking::NETWORK_POLICY,
        ("networking.k8s.io", "ServiceCIDR") => networking::SERVICE_CIDR,
        ("networking.k8s.io", "IPAddress") => networking::IP_ADDRESS,
        ("rbac.authorization.k8s.io", "Role") => rbac::ROLE,
        ("rbac.authorization.k8s.io", "ClusterRole") => rbac::CLUSTER_ROLE,
        ("rbac.authorization.k8s.io", "RoleBinding") => rbac::ROLE_BINDING,
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => rbac::CLUSTER_ROLE_BINDING,
        ("discovery.k8s.io", "EndpointSlice") => discovery::ENDPOINT_SLICE,
        ("events.k8s.io", "Event") => core::SERIES_EVENT,
        ("coordination.k8s.io", "Lease") => coordination::LEASE,
        ("coordination.k8s.io", "LeaseCandidate") => coordination::LEASE_CANDIDATE,
        ("node.k8s.io", "RuntimeClass") => node::RUNTIME_CLASS,
        ("scheduling.k8s.io", "PriorityClass") => scheduling::PRIORITY_CLASS,
        ("scheduling.k8s.io", "Workload") => scheduling::WORKLOAD,
        ("scheduling.k8s.io", "PodGroup") => scheduling::POD_GROUP,
        ("certificates.k8s.io", "CertificateSigningRequest") => certificates::SIGNING_REQUEST,
        ("certificates.k8s.io", "ClusterTrustBundle") => certificates::TRUST_BUNDLE,
        ("certificates.k8s.io", "PodCertificateRequest") => certificates::POD_CERTIFICATE,
        ("internal.apiserver.k8s.io", "StorageVersion") => storage_versions::STORAGE_VERSION,
        ("storagemigration.k8s.io", "StorageVersionMigration") => storage_versions::MIGRATION,
        ("storage.k8s.io", name) => select_storage_rules(name),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => flowcontrol::FLOW_SCHEMA,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            flowcontrol::PRIORITY_LEVEL
        }
        ("admissionregistration.k8s.io", name) => select_admission_rules(name),
        ("resource.k8s.io", "ResourceSlice") => resource::SLICE,
        ("resource.k8s.io", "DeviceClass") => resource::DEVICE_CLASS,
        ("resource.k8s.io", "DeviceTaintRule") => resource::TAINT_RULE,
        ("resource.k8s.io", "ResourcePoolStatusRequest") => resource::POOL_STATUS,
        ("resource.k8s.io", "ResourceClaim") => resource::CLAIM,
        ("resource.k8s.io", "ResourceClaimTemplate") => resource::TEMPLATE,
        ("apiregistration.k8s.io", "APIService") => apiregistration::API_SERVICE,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => apiextensions::DEFINITION,
        // Kinds without rules of their own are validated by the schema when they are decoded.
        _ => Rules::PLAIN,
    }
}

fn select_core_rules(name: &str) -> Rules {
    match name {
        "Pod" => pod::POD,
        "PodTemplate" => pod::POD_TEMPLATE,
        "ReplicationController" => apps::REPLICATION_CONTROLLER,
        "Service" => service::SERVICE,
        "Endpoints" => core::ENDPOINTS,
        "ConfigMap" => core::CONFIG_MAP,
        "Secret" => core::SECRET,
        "Namespace" => core::NAMESPACE,
        "Node" => core::NODE,
        "Event" => core::EVENT,
        "LimitRange" => core::LIMIT_RANGE,
        "ResourceQuota" => core::RESOURCE_QUOTA,
        "PersistentVolume" => storage::VOLUME,
        "PersistentVolumeClaim" => claim::CLAIM,
        _ => Rules::PLAIN,
    }
}

fn select_storage_rules(name: &str) -> Rules {
    match name {
        "StorageClass" => storage::STORAGE_CLASS,
        "CSIDriver" => storage::CSI_DRIVER,
        "CSINode" => storage::CSI_NODE,
        "CSIStorageCapacity" => storage::CSI_STORAGE_CAPACITY,
        "VolumeAttachment" => storage::VOLUME_ATTACHMENT,
        "VolumeAttributesClass" => storage::VOLUME_ATTRIBUTES_CLASS,
        _ => Rules::PLAIN,
    }
}

fn select_admission_rules(name: &str) -> Rules {
    match name {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            admissionregistration::WEBHOOKS
        }
        "ValidatingAdmissionPolicyBinding" => admissionregistration::VALIDATING_BINDING,
        "MutatingAdmissionPolicyBinding" => admissionregistration::MUTATING_BINDING,
        "ValidatingAdmissionPolicy" => admissionregistration::VALIDATING_POLICY,
        "MutatingAdmissionPolicy" => admissionregistration::MUTATING_POLICY,
        _ => Rules::PLAIN,
    }
}

#[cfg(test)]
mod tests;
