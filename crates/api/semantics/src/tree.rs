//! Converts JSON trees to typed objects that hold only the fields that the rules read.
//!
//! Rejected: decoding the whole object, because admission needs a few fields of a large one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

/// Returns the fields of a pod that determine its resources, its QoS class and its phase.
pub fn pod(tree: &Value) -> Pod {
    let (spec, status) = (tree.get("spec"), tree.get("status"));
    Pod {
        spec: spec.map(|spec| PodSpec {
            containers: containers(spec, "containers"),
            init_containers: Some(containers(spec, "initContainers")),
            overhead: quantities(spec.get("overhead")),
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
        ..Pod::default()
    }
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
