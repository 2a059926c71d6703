//! The state of a pod's resize: pending until the node has allocated the resources, then in
//! progress until they are applied.

use super::{Nanos, spec};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use serde::Serialize;
use std::collections::BTreeMap;

/// The reason of a resize that the node has not allocated.
pub(crate) const DEFERRED: &str = "Deferred";

/// A resize that the node has not allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingResize {
    pub(crate) message: String,
    /// Generation of the pod that requested it.
    pub(crate) generation: Option<i64>,
    /// Time at which the first of these resizes became pending.
    pub(crate) since: Nanos,
}

/// A resize that is being applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResizeProgress {
    /// Generation of the pod that was allocated.
    pub(crate) generation: Option<i64>,
    /// Reason why the last attempt failed.
    pub(crate) error: Option<String>,
}

/// Resources that were set in cgroups.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AppliedResources {
    /// None if the sandbox was created by an earlier kubelet.
    pub(crate) pod: Option<AppliedPod>,
    /// Resources of running containers, with the limits that they have from their pod.
    pub(crate) containers: BTreeMap<String, ResourceRequirements>,
    /// Containers whose last resize has not succeeded, with the highest memory limit in bytes that
    /// an attempt may have set (0 for none): they may have other resources.
    pub(crate) unsettled: BTreeMap<String, i64>,
}

/// Resources that were set in a pod's cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AppliedPod {
    pub(crate) settings: crate::cri_config::resources::PodResources,
    /// CPU and memory of the last allocation that was applied as a whole.
    pub(crate) amounts: ResourceRequirements,
}

#[derive(Serialize)]
struct ContainerSummary<'a> {
    name: &'a str,
    resources: ResourceRequirements,
}

/// The part of an event's message that programs read, as upstream's.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResizeSummary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<ContainerSummary<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<ContainerSummary<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

/// Returns the message of an event about a resize: `Pod resize started: {...}`.
pub(crate) fn format_resize_event(
    what: &str,
    pod: &Pod,
    generation: Option<i64>,
    error: &str,
) -> String {
    let summary = ResizeSummary {
        init_containers: spec::init_containers(pod)
            .map(|(_, container)| summarize_container(container))
            .collect(),
        containers: spec::app_containers(pod).map(summarize_container).collect(),
        generation: generation.unwrap_or_default(),
        error,
    };
    // Serializing our own types can't fail.
    let summary = serde_json::to_string(&summary).unwrap_or_default();
    format!("Pod resize {what}: {summary}")
}

fn summarize_container(container: &Container) -> ContainerSummary<'_> {
    ContainerSummary {
        name: &container.name,
        resources: container.resources.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn event_lists_the_resources_of_the_containers() {
        let pod = crate::testing::pod(json!({
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}],
            "initContainers": [{"name": "i"}]}));
        for (generation, error, expected) in [
            (
                Some(3),
                "",
                r#"Pod resize started: {"initContainers":[{"name":"i","resources":{}}],"containers":[{"name":"c","resources":{"limits":{"cpu":"2"},"requests":{"cpu":"1"}}}],"generation":3}"#,
            ),
            (
                None,
                "why",
                r#"Pod resize started: {"initContainers":[{"name":"i","resources":{}}],"containers":[{"name":"c","resources":{"limits":{"cpu":"2"},"requests":{"cpu":"1"}}}],"generation":0,"error":"why"}"#,
            ),
        ] {
            let text = format_resize_event("started", &pod, generation, error);
            assert_eq!(text, expected);
        }
    }
}
