//! Converts JSON trees to typed objects that hold only the fields that the rules read.
//!
//! Rejected: decoding the whole object, because admission needs a few fields of a large one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus, ResourceQuotaSpec,
    ResourceRequirements, ScopeSelector,
};
use k8s_openapi::api::discovery::v1::EndpointConditions;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::Deserialize;
use serde_json::Value;

/// Returns the fields of a pod that determine its resources, its QoS class, its phase and the
/// quotas that count it.
pub fn pod(tree: &Value) -> Pod {
    let (spec, status) = (tree.get("spec"), tree.get("status"));
    Pod {
        metadata: read_metadata(tree),
        spec: spec.map(|spec| PodSpec {
            active_deadline_seconds: read_number(spec, "activeDeadlineSeconds"),
            affinity: spec
                .get("affinity")
                .and_then(|affinity| Affinity::deserialize(affinity).ok()),
            containers: read_containers(spec, "containers"),
            init_containers: Some(read_containers(spec, "initContainers")),
            overhead: read_quantities(spec.get("overhead")),
            priority_class_name: read_text(spec, "priorityClassName"),
            resources: read_requirements(spec.get("resources")),
            ..PodSpec::default()
        }),
        status: status.map(|status| PodStatus {
            allocated_resources: read_quantities(status.get("allocatedResources")),
            conditions: Some(
                read_list(status, "conditions")
                    .map(read_condition)
                    .collect(),
            ),
            container_statuses: Some(read_statuses(status, "containerStatuses")),
            init_container_statuses: Some(read_statuses(status, "initContainerStatuses")),
            phase: read_text(status, "phase"),
            qos_class: read_text(status, "qosClass"),
            resources: read_requirements(status.get("resources")),
            ..PodStatus::default()
        }),
    }
}

/// Returns the scopes of a ResourceQuota.
pub fn quota_scopes(tree: &Value) -> ResourceQuotaSpec {
    let spec = tree.get("spec").unwrap_or(&Value::Null);
    let scopes = read_list(spec, "scopes").filter_map(Value::as_str);
    ResourceQuotaSpec {
        scope_selector: spec
            .get("scopeSelector")
            .and_then(|selector| ScopeSelector::deserialize(selector).ok()),
        scopes: Some(scopes.map(str::to_owned).collect()),
        ..ResourceQuotaSpec::default()
    }
}

/// Returns the owner references of an object.
pub fn owner_references(tree: &Value) -> Vec<OwnerReference> {
    let metadata = tree.get("metadata").unwrap_or(&Value::Null);
    let owners = read_list(metadata, "ownerReferences").map(|owner| OwnerReference {
        api_version: read_text(owner, "apiVersion").unwrap_or_default(),
        block_owner_deletion: read_flag(owner, "blockOwnerDeletion"),
        controller: read_flag(owner, "controller"),
        kind: read_text(owner, "kind").unwrap_or_default(),
        name: read_text(owner, "name").unwrap_or_default(),
        uid: read_text(owner, "uid").unwrap_or_default(),
    });
    owners.collect()
}

/// Returns the conditions of an endpoint of an EndpointSlice.
pub fn endpoint_conditions(endpoint: &Value) -> Option<EndpointConditions> {
    let conditions = endpoint.get("conditions")?;
    Some(EndpointConditions {
        ready: read_flag(conditions, "ready"),
        serving: read_flag(conditions, "serving"),
        terminating: read_flag(conditions, "terminating"),
    })
}

fn read_metadata(tree: &Value) -> ObjectMeta {
    let Some(metadata) = tree.get("metadata") else {
        return ObjectMeta::default();
    };
    let deleted = read_text(metadata, "deletionTimestamp");
    ObjectMeta {
        deletion_grace_period_seconds: read_number(metadata, "deletionGracePeriodSeconds"),
        deletion_timestamp: deleted.and_then(|at| at.parse().ok()).map(Time),
        ..ObjectMeta::default()
    }
}

fn read_number(tree: &Value, field: &str) -> Option<i64> {
    tree.get(field)?.as_i64()
}

fn read_flag(tree: &Value, field: &str) -> Option<bool> {
    tree.get(field)?.as_bool()
}

fn read_text(tree: &Value, field: &str) -> Option<String> {
    tree.get(field)?.as_str().map(str::to_owned)
}

pub(crate) fn read_list<'t>(tree: &'t Value, field: &str) -> impl Iterator<Item = &'t Value> {
    tree.get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn read_containers(spec: &Value, field: &str) -> Vec<Container> {
    let container = |tree: &Value| Container {
        name: read_text(tree, "name").unwrap_or_default(),
        resources: read_requirements(tree.get("resources")),
        restart_policy: read_text(tree, "restartPolicy"),
        ..Container::default()
    };
    read_list(spec, field).map(container).collect()
}

fn read_statuses(status: &Value, field: &str) -> Vec<ContainerStatus> {
    let container = |tree: &Value| ContainerStatus {
        allocated_resources: read_quantities(tree.get("allocatedResources")),
        name: read_text(tree, "name").unwrap_or_default(),
        resources: read_requirements(tree.get("resources")),
        ..ContainerStatus::default()
    };
    read_list(status, field).map(container).collect()
}

fn read_condition(tree: &Value) -> PodCondition {
    PodCondition {
        reason: read_text(tree, "reason"),
        status: read_text(tree, "status").unwrap_or_default(),
        type_: read_text(tree, "type").unwrap_or_default(),
        ..PodCondition::default()
    }
}

pub(crate) fn read_requirements(tree: Option<&Value>) -> Option<ResourceRequirements> {
    let tree = tree.filter(|tree| tree.is_object())?;
    Some(ResourceRequirements {
        limits: read_quantities(tree.get("limits")),
        requests: read_quantities(tree.get("requests")),
        ..ResourceRequirements::default()
    })
}

/// Quantities are strings or, in objects that were not decoded by the codec, numbers.
fn read_quantities(tree: Option<&Value>) -> Option<BTreeMap<String, Quantity>> {
    let entries = tree?.as_object()?.iter().filter_map(|(name, value)| {
        let amount = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        Some((name.clone(), Quantity(amount)))
    });
    Some(entries.collect())
}
