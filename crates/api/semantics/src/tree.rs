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

/// Returns the fields of a pod that determine its resources, its QoS class, its phase and the quotas
/// that count it.
pub fn pod(tree: &Value) -> Pod {
    let (spec, status) = (tree.get("spec"), tree.get("status"));
    Pod {
        metadata: metadata(tree),
        spec: spec.map(|spec| PodSpec {
            active_deadline_seconds: number(spec, "activeDeadlineSeconds"),
            affinity: spec
                .get("affinity")
                .and_then(|affinity| Affinity::deserialize(affinity).ok()),
            containers: containers(spec, "containers"),
            init_containers: Some(containers(spec, "initContainers")),
            overhead: quantities(spec.get("overhead")),
            priority_class_name: text(spec, "priorityClassName"),
            resources: requirements(spec.get("resources")),
            ..PodSpec::default()
        }),
        status: status.map(|status| PodStatus {
            allocated_resources: quantities(status.get("allocatedResources")),
            conditions: Some(list(status, "conditions").map(condition).collect()),
            container_statuses: Some(statuses(status, "containerStatuses")),
            init_container_statuses: Some(statuses(status, "initContainerStatuses")),
            phase: text(status, "phase"),
            qos_class: text(status, "qosClass"),
            resources: requirements(status.get("resources")),
            ..PodStatus::default()
        }),
    }
}

/// Returns the scopes of a ResourceQuota.
pub fn quota_scopes(tree: &Value) -> ResourceQuotaSpec {
    let spec = tree.get("spec").unwrap_or(&Value::Null);
    let scopes = list(spec, "scopes").filter_map(Value::as_str);
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
    let owners = list(metadata, "ownerReferences").map(|owner| OwnerReference {
        api_version: text(owner, "apiVersion").unwrap_or_default(),
        block_owner_deletion: flag(owner, "blockOwnerDeletion"),
        controller: flag(owner, "controller"),
        kind: text(owner, "kind").unwrap_or_default(),
        name: text(owner, "name").unwrap_or_default(),
        uid: text(owner, "uid").unwrap_or_default(),
    });
    owners.collect()
}

/// Returns the conditions of an endpoint of an EndpointSlice.
pub fn endpoint_conditions(endpoint: &Value) -> Option<EndpointConditions> {
    let conditions = endpoint.get("conditions")?;
    Some(EndpointConditions {
        ready: flag(conditions, "ready"),
        serving: flag(conditions, "serving"),
        terminating: flag(conditions, "terminating"),
    })
}

fn metadata(tree: &Value) -> ObjectMeta {
    let Some(metadata) = tree.get("metadata") else {
        return ObjectMeta::default();
    };
    let deleted = text(metadata, "deletionTimestamp");
    ObjectMeta {
        deletion_grace_period_seconds: number(metadata, "deletionGracePeriodSeconds"),
        deletion_timestamp: deleted.and_then(|at| at.parse().ok()).map(Time),
        ..ObjectMeta::default()
    }
}

fn number(tree: &Value, field: &str) -> Option<i64> {
    tree.get(field)?.as_i64()
}

fn flag(tree: &Value, field: &str) -> Option<bool> {
    tree.get(field)?.as_bool()
}

fn text(tree: &Value, field: &str) -> Option<String> {
    tree.get(field)?.as_str().map(str::to_owned)
}

fn list<'t>(tree: &'t Value, field: &str) -> impl Iterator<Item = &'t Value> {
    tree.get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn containers(spec: &Value, field: &str) -> Vec<Container> {
    let container = |tree: &Value| Container {
        name: text(tree, "name").unwrap_or_default(),
        resources: requirements(tree.get("resources")),
        restart_policy: text(tree, "restartPolicy"),
        ..Container::default()
    };
    list(spec, field).map(container).collect()
}

fn statuses(status: &Value, field: &str) -> Vec<ContainerStatus> {
    let container = |tree: &Value| ContainerStatus {
        allocated_resources: quantities(tree.get("allocatedResources")),
        name: text(tree, "name").unwrap_or_default(),
        resources: requirements(tree.get("resources")),
        ..ContainerStatus::default()
    };
    list(status, field).map(container).collect()
}

fn condition(tree: &Value) -> PodCondition {
    PodCondition {
        reason: text(tree, "reason"),
        status: text(tree, "status").unwrap_or_default(),
        type_: text(tree, "type").unwrap_or_default(),
        ..PodCondition::default()
    }
}

fn requirements(tree: Option<&Value>) -> Option<ResourceRequirements> {
    let tree = tree.filter(|tree| tree.is_object())?;
    Some(ResourceRequirements {
        limits: quantities(tree.get("limits")),
        requests: quantities(tree.get("requests")),
        ..ResourceRequirements::default()
    })
}

/// Quantities are strings or, in objects that were not decoded by the codec, numbers.
fn quantities(tree: Option<&Value>) -> Option<BTreeMap<String, Quantity>> {
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
