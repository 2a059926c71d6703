//! Applies a resize: the cgroup of the pod and those of its running containers.

use crate::context::KubeletContext;
use crate::cri_config::resources::{PERIOD, PodResources, PodSetting, compute_overhead_resources};
use crate::pod::resize_plan::{Compute, ContainerChange, ResizeOutcome, ResizeStep, plan_resize};
use crate::pod::spec;
use k8s_openapi::api::core::v1::Pod;
use node_runtime::v1::LinuxContainerResources;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The resize of one pod.
pub(crate) struct ResizeJob {
    /// The pod with its allocation.
    pub(crate) pod: Arc<Pod>,
    pub(crate) sandbox: String,
    /// Settings of the pod's cgroup; None if an earlier kubelet created it.
    pub(crate) now: Option<PodResources>,
    pub(crate) goal: PodResources,
    pub(crate) containers: Vec<ContainerChange>,
    /// Containers that are being started, stopped or replaced may need the pod's present size.
    pub(crate) holds_shrink: bool,
}

/// The part of a resize that is applied.
struct Reached {
    pod: PodResources,
    /// Resources by the container's name.
    containers: BTreeMap<String, Vec<Compute>>,
    /// The container and the resource whose step failed.
    failed: Option<(String, Compute)>,
}

impl ResizeJob {
    /// Runs the steps up to the first that fails.
    pub(super) async fn run(self, kubelet: &KubeletContext) -> ResizeOutcome {
        let read = || kubelet.cgroups.read_pod_limits(&self.pod);
        let now = self.now.or_else(|| base_task::blocking(read));
        let mut reached = Reached {
            pod: now.unwrap_or_default(),
            containers: BTreeMap::new(),
            failed: None,
        };
        let error = self.apply(kubelet, &mut reached).await.err();
        if let Some(error) = &error {
            tracing::warn!(
                pod = spec::full_name(&self.pod),
                error,
                "resize failed; trying again"
            );
        }
        let end = |change: ContainerChange| match &error {
            None => change.complete(),
            Some(_) => {
                let applied = reached.containers.remove(&change.name);
                let failed = reached.failed.as_ref();
                let failed = failed.filter(|(name, _)| *name == change.name);
                let failed = failed.map(|(_, compute)| *compute);
                change.interrupt(&applied.unwrap_or_default(), failed)
            }
        };
        ResizeOutcome {
            pod: reached.pod,
            containers: self.containers.into_iter().map(end).collect(),
            error,
        }
    }

    async fn apply(&self, kubelet: &KubeletContext, reached: &mut Reached) -> Result<(), String> {
        let now = reached.pod;
        self.check_usage(kubelet, now).await?;
        for step in plan_resize(now, self.goal, &self.containers, self.holds_shrink) {
            match step {
                ResizeStep::Pod(setting) => {
                    self.change_pod(kubelet, setting, &mut reached.pod).await?;
                }
                ResizeStep::Container {
                    name,
                    id,
                    compute,
                    settings,
                } => {
                    let result = kubelet.runtime.update_resources(&id, *settings).await;
                    if let Err(e) = result {
                        let error = format!("can't resize container {name}: {e}");
                        reached.failed = Some((name, compute));
                        return Err(error);
                    }
                    reached.containers.entry(name).or_default().push(compute);
                }
            }
        }
        Ok(())
    }

    /// Checks that memory which shrinks is not in use: the kernel would kill a process.
    async fn check_usage(&self, kubelet: &KubeletContext, now: PodResources) -> Result<(), String> {
        let shrunk: BTreeMap<&str, i64> = self
            .containers
            .iter()
            .filter_map(|c| Some((c.id.as_str(), c.shrunk_memory()?)))
            .collect();
        let limit = self.goal.memory;
        let shrinks = limit > 0 && (now.memory == 0 || limit < now.memory);
        let mut problems = Vec::new();
        if shrinks && !self.holds_shrink {
            let usage = base_task::blocking(|| kubelet.cgroups.read_pod_memory(&self.pod));
            // Without a cgroup there is nothing to kill.
            if let Some(usage) = usage.filter(|usage| *usage >= limit) {
                problems.push(format!(
                    "attempting to set pod memory limit ({limit}) below current usage ({usage})"
                ));
            }
        }
        if !shrunk.is_empty() {
            problems.extend(self.find_used_memory(kubelet, &shrunk).await?);
        }
        match problems.as_slice() {
            [] => Ok(()),
            [one] => Err(format!("cannot decrease memory limits: {one}")),
            many => Err(format!(
                "cannot decrease memory limits: [{}]",
                many.join(", ")
            )),
        }
    }

    /// Compares the memory of containers with their new limits, by the containers' ids.
    async fn find_used_memory(
        &self,
        kubelet: &KubeletContext,
        limits: &BTreeMap<&str, i64>,
    ) -> Result<Vec<String>, String> {
        let stats = kubelet.runtime.container_stats().await;
        let stats = stats.map_err(|e| format!("unable to read memory usage: {e}"))?;
        let problems = stats.into_iter().filter_map(|stats| {
            let attributes = stats.attributes?;
            let limit = limits.get(attributes.id.as_str())?;
            let usage = i64::try_from(stats.memory?.usage_bytes?.value).unwrap_or(i64::MAX);
            let name = attributes.metadata.unwrap_or_default().name;
            (usage >= *limit).then(|| {
                format!(
                    "attempting to set container {name:?} memory limit ({limit}) below current usage ({usage})"
                )
            })
        });
        Ok(problems.collect())
    }

    /// Changes the cgroup of the pod, after the runtime has accepted the change.
    async fn change_pod(
        &self,
        kubelet: &KubeletContext,
        setting: PodSetting,
        reached: &mut PodResources,
    ) -> Result<(), String> {
        let before = *reached;
        let after = before.with(setting);
        self.notify_runtime(kubelet, after).await?;
        let changed = base_task::blocking(|| kubelet.cgroups.change_pod(&self.pod, setting));
        if let Err(e) = changed {
            // The error of the cgroup is reported; the next try notifies the runtime again.
            let _ = self.notify_runtime(kubelet, before).await;
            return Err(format!("can't change the pod's cgroup: {e}"));
        }
        *reached = after;
        Ok(())
    }

    async fn notify_runtime(
        &self,
        kubelet: &KubeletContext,
        settings: PodResources,
    ) -> Result<(), String> {
        let overhead = compute_overhead_resources(&self.pod);
        let own = to_linux_resources(settings.without(overhead));
        let overhead = to_linux_resources(overhead);
        let notified = kubelet
            .runtime
            .update_sandbox_resources(&self.sandbox, own, overhead);
        match notified.await {
            // Most runtimes do not keep the size of a pod.
            Err(e) if !e.is_unimplemented() => Err(format!("the runtime rejects the resize: {e}")),
            _ => Ok(()),
        }
    }
}

fn to_linux_resources(settings: PodResources) -> LinuxContainerResources {
    LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: settings.quota,
        cpu_shares: settings.shares,
        memory_limit_in_bytes: settings.memory,
        ..LinuxContainerResources::default()
    }
}
