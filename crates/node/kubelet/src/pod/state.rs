//! The state that a pod worker decides on: desired, observed, and what it remembers.

use super::memory::{ContainerMemory, Memory};
use super::plan::Facts;
use super::spec;
use super::view::{CriContainer, CriState, Observed};
use super::{Nanos, SECOND};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::sync::Arc;

/// The state of one pod.
#[derive(Debug)]
pub(crate) struct PodState {
    /// The desired state.
    pub(crate) pod: Arc<Pod>,
    pub(crate) uid: String,
    /// The pod comes from a manifest on this node.
    pub(crate) is_static: bool,
    /// Time at which the kubelet first saw the pod.
    pub(crate) first_seen: Nanos,
    pub(crate) observed: Observed,
    pub(crate) memory: Memory,
}

impl PodState {
    pub(crate) fn new(pod: Arc<Pod>, is_static: bool, now: Nanos) -> Self {
        PodState {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            pod,
            is_static,
            first_seen: now,
            observed: Observed::default(),
            memory: Memory::default(),
        }
    }

    pub(crate) fn facts(&self, now: Nanos) -> Facts<'_> {
        Facts {
            pod: &self.pod,
            observed: &self.observed,
            memory: &self.memory,
            now,
        }
    }

    /// Returns the addresses of the pod, those of its node if it uses the host's network.
    pub(crate) fn ips(&self, node_ips: &[String]) -> Vec<String> {
        match self.observed.sandbox() {
            _ if spec::host_network(&self.pod) => node_ips.to_vec(),
            Some(sandbox) => sandbox.ips.clone(),
            None => Vec::new(),
        }
    }

    /// Returns the time at which activeDeadlineSeconds expires.
    pub(crate) fn active_deadline(&self, last_status: &PodStatus) -> Option<Nanos> {
        if !self.memory.lifecycle.is_running() {
            return None;
        }
        let limit = spec::spec(&self.pod).active_deadline_seconds?;
        let begun = last_status
            .start_time
            .as_ref()
            .map_or(self.first_seen, |t| t.0.as_second() * SECOND);
        Some(begun + limit * SECOND)
    }

    /// Returns the grace period of a deletion in seconds, as it stands in `deleted`.
    pub(crate) fn deletion_grace(&self, deleted: &Pod) -> i64 {
        deleted
            .metadata
            .deletion_grace_period_seconds
            .unwrap_or_else(|| spec::grace(&self.pod))
    }

    /// Returns the memory of the container `name` if it is about the CRI container `id`.
    pub(crate) fn memory_of(&mut self, name: &str, id: &str) -> Option<&mut ContainerMemory> {
        self.memory
            .containers
            .get_mut(name)
            .filter(|m| m.container_id == id)
    }

    /// Recovers containers that this worker did not start, those of an earlier run of the kubelet,
    /// with the results of their probes in the status.
    pub(crate) fn recover_containers(&mut self, last_status: &PodStatus, runtime_name: &str) {
        for (_, name) in spec::names(&self.pod) {
            let Some(latest) = self.observed.latest(&name) else {
                continue;
            };
            if self.memory.busy_with(&name) || self.memory.of_container(&name, &latest.id).is_some()
            {
                continue;
            }
            let full = format!("{runtime_name}://{}", latest.id);
            let lists = [
                &last_status.container_statuses,
                &last_status.init_container_statuses,
            ];
            let before = lists
                .into_iter()
                .flatten()
                .flatten()
                .find(|s| s.container_id.as_deref() == Some(&full));
            let (id, running) = (latest.id.clone(), latest.running());
            let verdicts = before.filter(|_| running).map(|s| (s.started, s.ready));
            let memory = self.memory.of(&name);
            memory.container_id = id;
            memory.hooked = true;
            memory.started = verdicts.and_then(|v| v.0);
            memory.ready = verdicts.map(|v| v.1);
        }
    }

    /// Forgets the exited containers of a name but the newest, which is kept for its log and
    /// status; returns those to remove from the runtime.
    pub(crate) fn drop_old_containers(&mut self, name: &str) -> Vec<CriContainer> {
        let Some(all) = self.observed.containers.get_mut(name) else {
            return Vec::new();
        };
        let exited = all.iter().filter(|c| c.state == CriState::Exited);
        let old: Vec<CriContainer> = exited.skip(1).cloned().collect();
        all.retain(|c| !old.iter().any(|o| o.id == c.id));
        old
    }

    /// Allows what waits for changed volumes or environment to be tried at once.
    pub(crate) fn retry_changed_inputs(&mut self) {
        self.memory.volumes_retry.allow_now();
        for memory in self.memory.containers.values_mut() {
            if memory
                .waiting
                .as_ref()
                .is_some_and(|w| w.reason == "CreateContainerConfigError")
            {
                memory.backoff.allow_now();
            }
        }
    }
}
