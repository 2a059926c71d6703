//! The entry points: columns and cells of a kind.

use api_kinds::{ObjectSchema, Resource};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::printer::{Column, DEFAULT, NAME_AND_AGE, Printer};
use crate::view::View;
use crate::{access, config, custom, devices, network, nodes, pods, storage, versions, workloads};

/// Returns the columns of a resource.
pub fn table_columns(resource: &Resource) -> Vec<Column> {
    find_printer(resource).columns.to_vec()
}

/// Returns the column definitions of a Table of a resource.
pub fn define_columns(resource: &Resource) -> Vec<Value> {
    if let ObjectSchema::Custom(schema) = &resource.schema {
        return custom::define_columns(schema);
    }
    let define = |column: &Column| {
        json!({"name": column.name, "type": column.ty, "format": column.format,
            "description": column.description, "priority": column.priority})
    };
    find_printer(resource).columns.iter().map(define).collect()
}

/// Returns the cells of one object, one for each column.
pub fn row_cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    let view = View {
        resource,
        object,
        now,
    };
    match &resource.schema {
        ObjectSchema::Custom(schema) => custom::read_cells(schema, &view),
        ObjectSchema::BuiltIn(_) => (find_printer(resource).cells)(&view),
    }
}

fn find_printer(resource: &Resource) -> &'static Printer {
    // By kind within its group: Event exists in two groups, with one printer.
    match (&*resource.group, &*resource.kind) {
        ("", kind) => core_printer(kind),
        ("apps" | "batch" | "autoscaling" | "policy", kind) => workload_printer(kind),
        ("networking.k8s.io" | "discovery.k8s.io", kind) => network_printer(kind),
        ("storage.k8s.io" | "resource.k8s.io", kind) => storage_printer(kind),
        (_, kind) => other_printer(kind),
    }
}

fn core_printer(kind: &str) -> &'static Printer {
    match kind {
        "Pod" => &pods::POD,
        "PodTemplate" => &workloads::POD_TEMPLATE,
        "ReplicationController" => &workloads::REPLICATION_CONTROLLER,
        "Service" => &network::SERVICE,
        "Endpoints" => &network::ENDPOINTS,
        "Node" => &nodes::NODE,
        "Namespace" => &config::NAMESPACE,
        "Event" => &config::EVENT,
        "ConfigMap" => &config::CONFIG_MAP,
        "Secret" => &config::SECRET,
        "ServiceAccount" => &NAME_AND_AGE,
        "ResourceQuota" => &config::RESOURCE_QUOTA,
        "ComponentStatus" => &config::COMPONENT_STATUS,
        "PersistentVolume" => &storage::PERSISTENT_VOLUME,
        "PersistentVolumeClaim" => &storage::PERSISTENT_VOLUME_CLAIM,
        // LimitRange has no printer of its own upstream either.
        _ => &DEFAULT,
    }
}

fn workload_printer(kind: &str) -> &'static Printer {
    match kind {
        "Deployment" => &workloads::DEPLOYMENT,
        "ReplicaSet" => &workloads::REPLICA_SET,
        "StatefulSet" => &workloads::STATEFUL_SET,
        "DaemonSet" => &workloads::DAEMON_SET,
        "ControllerRevision" => &workloads::CONTROLLER_REVISION,
        "Job" => &workloads::JOB,
        "CronJob" => &workloads::CRON_JOB,
        "HorizontalPodAutoscaler" => &workloads::AUTOSCALER,
        "PodDisruptionBudget" => &workloads::DISRUPTION_BUDGET,
        _ => &DEFAULT,
    }
}

fn network_printer(kind: &str) -> &'static Printer {
    match kind {
        "EndpointSlice" => &network::ENDPOINT_SLICE,
        "Ingress" => &network::INGRESS,
        "IngressClass" => &network::INGRESS_CLASS,
        "NetworkPolicy" => &network::NETWORK_POLICY,
        "ServiceCIDR" => &network::SERVICE_CIDR,
        "IPAddress" => &network::IP_ADDRESS,
        _ => &DEFAULT,
    }
}

fn storage_printer(kind: &str) -> &'static Printer {
    match kind {
        "StorageClass" => &storage::STORAGE_CLASS,
        "VolumeAttachment" => &storage::VOLUME_ATTACHMENT,
        "VolumeAttributesClass" => &storage::VOLUME_ATTRIBUTES_CLASS,
        "CSIDriver" => &storage::CSI_DRIVER,
        "CSINode" => &storage::CSI_NODE,
        "DeviceClass" | "ResourceClaimTemplate" => &NAME_AND_AGE,
        "ResourceClaim" => &storage::RESOURCE_CLAIM,
        "ResourceSlice" => &storage::RESOURCE_SLICE,
        "DeviceTaintRule" => &storage::TAINT_RULE,
        "ResourcePoolStatusRequest" => &devices::POOL_STATUS,
        _ => &DEFAULT,
    }
}

fn other_printer(kind: &str) -> &'static Printer {
    match kind {
        "Event" => &config::EVENT,
        "Lease" => &config::LEASE,
        "LeaseCandidate" => &config::LEASE_CANDIDATE,
        "StorageVersion" => &versions::STORAGE_VERSION,
        "StorageVersionMigration" => &versions::MIGRATION,
        "ClusterTrustBundle" => &access::TRUST_BUNDLE,
        "PodCertificateRequest" => &access::POD_CERTIFICATE,
        "PriorityClass" => &nodes::PRIORITY_CLASS,
        "Workload" => &NAME_AND_AGE,
        "PodGroup" => &nodes::POD_GROUP,
        "RuntimeClass" => &nodes::RUNTIME_CLASS,
        // Roles are missing on purpose: upstream prints them with the default columns.
        "RoleBinding" | "ClusterRoleBinding" => &access::ROLE_BINDING,
        "CertificateSigningRequest" => &access::SIGNING_REQUEST,
        "APIService" => &access::API_SERVICE,
        "FlowSchema" => &access::FLOW_SCHEMA,
        "PriorityLevelConfiguration" => &access::PRIORITY_LEVEL,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => &access::WEBHOOKS,
        "ValidatingAdmissionPolicy" => &access::VALIDATING_POLICY,
        "MutatingAdmissionPolicy" => &access::MUTATING_POLICY,
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            &access::POLICY_BINDING
        }
        _ => &DEFAULT,
    }
}

#[cfg(test)]
mod tests;
