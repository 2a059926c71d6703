//! Table of the rules of each kind.

use crate::field::{Errors, FieldError, Path};
use crate::metadata::{self, NameRule};
use crate::{
    admissionregistration, apiextensions, apps, autoscaling, batch, certificates, coordination,
    core, discovery, flowcontrol, networking, node, pod, policy, rbac, resource, scheduling,
    service, storage,
};
use serde_json::Value;

/// Kind of an object and its scope.
#[derive(Clone, Copy, Debug)]
pub struct Kind<'a> {
    /// API group; empty for core.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// True if the kind is namespaced.
    pub namespaced: bool,
}

pub(crate) type Create = fn(&Value, &mut Errors);
pub(crate) type Update = fn(&Value, &Value, &mut Errors);

/// The rules of a kind.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Rule for names.
    pub name: NameRule,
    /// Validates a new object.
    pub create: Create,
    /// Validates a changed object (new, old), including the checks of `create` that upstream
    /// repeats.
    pub update: Update,
    /// Validates a write to a subresource (subresource, new, old).
    pub sub: fn(&str, &Value, &Value, &mut Errors),
}

fn nothing(_: &Value, _: &mut Errors) {}
fn nothing_changed(_: &Value, _: &Value, _: &mut Errors) {}
pub(crate) fn no_sub(_: &str, _: &Value, _: &Value, _: &mut Errors) {}

impl Rules {
    /// Rules of kinds with metadata rules only.
    pub const PLAIN: Rules = Rules {
        name: NameRule::Subdomain,
        create: nothing,
        update: nothing_changed,
        sub: no_sub,
    };
}

/// Validates a new object. Returns no errors for a valid one.
pub fn validate_create(kind: Kind<'_>, object: &Value) -> Vec<FieldError> {
    let rules = rules(kind);
    let mut errors = Errors::default();
    metadata::create(
        object,
        kind,
        rules.name,
        &Path::ROOT.child("metadata"),
        &mut errors,
    );
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
    let rules = rules(kind);
    let mut errors = Errors::default();
    metadata::update(
        new,
        old,
        kind,
        rules.name,
        &Path::ROOT.child("metadata"),
        &mut errors,
    );
    if subresource.is_empty() {
        (rules.update)(new, old, &mut errors);
    } else {
        (rules.sub)(subresource, new, old, &mut errors);
    }
    errors.0
}

fn rules(kind: Kind<'_>) -> Rules {
    match (kind.group, kind.kind) {
        ("", name) => core_rules(name),
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
        ("node.k8s.io", "RuntimeClass") => node::RUNTIME_CLASS,
        ("scheduling.k8s.io", "PriorityClass") => scheduling::PRIORITY_CLASS,
        ("certificates.k8s.io", "CertificateSigningRequest") => certificates::SIGNING_REQUEST,
        ("storage.k8s.io", name) => storage_rules(name),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => flowcontrol::FLOW_SCHEMA,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            flowcontrol::PRIORITY_LEVEL
        }
        ("admissionregistration.k8s.io", name) => admission_rules(name),
        ("resource.k8s.io", "ResourceSlice") => resource::SLICE,
        ("resource.k8s.io", "DeviceClass") => resource::DEVICE_CLASS,
        ("resource.k8s.io", "ResourceClaim") => resource::CLAIM,
        ("resource.k8s.io", "ResourceClaimTemplate") => resource::TEMPLATE,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => apiextensions::DEFINITION,
        _ => Rules::PLAIN,
    }
}

fn core_rules(name: &str) -> Rules {
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
        "PersistentVolumeClaim" => storage::CLAIM,
        _ => Rules::PLAIN,
    }
}

fn storage_rules(name: &str) -> Rules {
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

fn admission_rules(name: &str) -> Rules {
    match name {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            admissionregistration::WEBHOOKS
        }
        "ValidatingAdmissionPolicyBinding" => admissionregistration::VALIDATING_BINDING,
        "MutatingAdmissionPolicyBinding" => admissionregistration::BINDING,
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => admissionregistration::POLICY,
        _ => Rules::PLAIN,
    }
}

#[cfg(test)]
mod tests;
