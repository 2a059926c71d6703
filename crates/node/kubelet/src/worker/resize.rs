//! In-place resize: applies changed resources to running containers.

use super::executor::ResizeContainer;
use super::pod_worker::PodWorker;
use crate::context::now;
use crate::cri_config::resources;
use crate::pod::backoff::RESIZE_DELAY;
use crate::pod::spec;
use crate::pod::view::CriContainer;
use api_semantics::resources::{Options, count, pod_requests};
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use node_runtime::v1::LinuxContainerResources;
use std::collections::BTreeMap;

impl PodWorker {
    /// Applies the spec's resources to running containers.
    pub(super) fn sync_resources(&mut self) {
        self.resizes.again = None;
        self.state.memory.infeasible = self.find_infeasible();
        if self.state.memory.infeasible.is_some() || !self.state.memory.lifecycle.is_running() {
            return;
        }
        for (_, name) in spec::list_containers(&self.state.pod) {
            let Some((_, container)) = spec::find_container(&self.state.pod, &name) else {
                continue;
            };
            let Some(running) = self
                .state
                .observed
                .latest(&name)
                .filter(|i| i.is_running())
                .cloned()
            else {
                continue;
            };
            let desired = container.resources.clone().unwrap_or_default();
            let applied = self.resizes.applied.get(&name);
            if applied == Some(&desired) || self.resizes.busy.contains(&name) {
                continue;
            }
            // Without a known earlier value nothing changed: the kubelet restarted, not the
            // resources.
            if applied.is_some_and(|before| needs_restart(&container, before, &desired)) {
                self.state.memory.request_replacement(
                    &name,
                    running.id,
                    format!("Container {name} resize requires restart"),
                );
                continue;
            }
            let settings = resources::build_container_resources(
                &self.state.pod,
                &container,
                self.kubelet.memory_capacity(),
                self.kubelet.least_oom_score,
            );
            // After a restart of the kubelet only the runtime knows what was applied.
            if applied.is_none() && has_settings(&running, &settings) {
                self.resizes.record(name, desired);
                continue;
            }
            // One call for each container at a time: two updates could arrive in the other order.
            self.resizes.busy.insert(name.clone());
            let resize = ResizeContainer {
                name,
                id: running.id,
                settings,
                resources: desired,
            };
            let pod = self.state.pod.clone();
            self.executor.resize_container(pod, resize);
        }
    }

    pub(super) fn apply_resize(&mut self, name: String, resources: Option<ResourceRequirements>) {
        self.resizes.busy.remove(&name);
        match resources {
            Some(resources) => {
                self.resizes.record(name, resources);
                // The spec may have changed again during the call.
                self.sync_resources();
            }
            None => self.resizes.again = Some(now() + RESIZE_DELAY),
        }
    }

    /// Returns why the node can't ever satisfy the request, even without other pods.
    fn find_infeasible(&self) -> Option<String> {
        let requests = pod_requests(&self.state.pod, &Options::default());
        requests.iter().find_map(|(name, requested)| {
            let requested = count(name, requested);
            let available = count(name, *self.kubelet.allocatable.get(name)?);
            (requested > available).then(|| {
                format!(
                    "Node didn't have enough capacity: {name}, requested: {requested}, capacity: {available}"
                )
            })
        })
    }
}

/// Returns whether the runtime reports these settings for a running container.
fn has_settings(running: &CriContainer, settings: &LinuxContainerResources) -> bool {
    let linux = running.resources.as_ref().and_then(|r| r.linux.as_ref());
    linux.is_some_and(|l| {
        (l.cpu_quota, l.cpu_shares, l.memory_limit_in_bytes)
            == (
                settings.cpu_quota,
                settings.cpu_shares,
                settings.memory_limit_in_bytes,
            )
    })
}

/// Returns whether a resource changed whose resize policy is RestartContainer.
fn needs_restart(
    container: &Container,
    before: &ResourceRequirements,
    desired: &ResourceRequirements,
) -> bool {
    let mut restarting = container
        .resize_policy
        .iter()
        .flatten()
        .filter(|p| p.restart_policy == "RestartContainer");
    let amounts = |r: &ResourceRequirements, name: &str| {
        let of = |m: &Option<BTreeMap<String, _>>| m.as_ref().and_then(|m| m.get(name)).cloned();
        (of(&r.requests), of(&r.limits))
    };
    restarting.any(|p| amounts(before, &p.resource_name) != amounts(desired, &p.resource_name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn resize_restarts_only_for_resources_with_that_policy() {
        let container: Container = serde_json::from_value(json!({"name": "c", "resizePolicy": [
            {"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": "memory", "restartPolicy": "RestartContainer"}]}))
        .unwrap();
        let of = |cpu: &str, memory: &str| -> ResourceRequirements {
            serde_json::from_value(json!({"limits": {"cpu": cpu, "memory": memory}})).unwrap()
        };
        assert!(!needs_restart(&container, &of("1", "1Gi"), &of("2", "1Gi")));
        assert!(needs_restart(&container, &of("1", "1Gi"), &of("1", "2Gi")));
    }

    #[test]
    fn container_of_an_earlier_kubelet_is_resized_unless_the_runtime_reports_the_settings() {
        let desired = LinuxContainerResources {
            cpu_quota: 5,
            cpu_shares: 6,
            ..LinuxContainerResources::default()
        };
        let shown = |linux: Option<LinuxContainerResources>| CriContainer {
            resources: Some(node_runtime::v1::ContainerResources {
                linux,
                ..Default::default()
            }),
            ..CriContainer::default()
        };
        assert!(has_settings(&shown(Some(desired.clone())), &desired));
        assert!(!has_settings(
            &shown(Some(LinuxContainerResources::default())),
            &desired
        ));
        assert!(!has_settings(&shown(None), &desired));
        assert!(!has_settings(&CriContainer::default(), &desired));
    }
}
