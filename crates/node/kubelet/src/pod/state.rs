//! The state that a pod worker decides on: desired, observed, and what it remembers.

use super::allocation::Allocation;
use super::memory::{ContainerMemory, Memory};
use super::spec;
use super::view::{CriContainer, CriState, Observed};
use super::{Nanos, SECOND};
use crate::pod::facts::Facts;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::sync::Arc;

/// The state of one pod.
#[derive(Debug)]
pub(crate) struct PodState {
    /// The desired state, with the resources that the node has allocated.
    pub(crate) pod: Arc<Pod>,
    /// The desired state, with resources that the node may not have allocated.
    pub(crate) desired: Arc<Pod>,
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
            desired: pod.clone(),
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

    /// Takes over a changed pod, with the resources that are allocated; returns the one before.
    pub(crate) fn set_desired(&mut self, desired: Arc<Pod>) -> Arc<Pod> {
        let allocated = Allocation::of_pod(&self.pod).apply_to(&desired);
        self.desired = desired;
        std::mem::replace(&mut self.pod, allocated)
    }

    /// Returns whether the pod desires other resources than are allocated.
    pub(crate) fn is_resized(&self) -> bool {
        Allocation::of_pod(&self.desired) != Allocation::of_pod(&self.pod)
    }

    /// Returns the addresses of the pod, those of its node if it uses the host's network.
    pub(crate) fn pod_ips(&self, node_ips: &[String]) -> Vec<String> {
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
        let limit = spec::read_spec(&self.pod).active_deadline_seconds?;
        // The reported start survives a restart of the kubelet; the deadline must not begin again.
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
            .unwrap_or_else(|| spec::grace_seconds(&self.pod))
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
        for (_, name) in spec::list_containers(&self.pod) {
            let Some(latest) = self.observed.latest(&name) else {
                continue;
            };
            // A start that is under way reports its own container when it ends.
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
            let (id, running) = (latest.id.clone(), latest.is_running());
            let verdicts = before.filter(|_| running).map(|s| (s.started, s.ready));
            let memory = self.memory.entry(&name);
            memory.container_id = id;
            // The hook ran, or failed and stopped the container; running it twice would be wrong in
            // any case.
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
        self.memory.devices_retry.allow_now();
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pod::lifecycle::TerminationCause;
    use crate::pod::view::Sandbox;
    use serde_json::{Value, json};

    fn state(spec: Value) -> PodState {
        let pod = serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": spec})).unwrap();
        PodState::new(Arc::new(pod), false, 100 * SECOND)
    }

    fn container(attempt: u32, state: CriState) -> CriContainer {
        CriContainer {
            id: format!("c{attempt}"),
            name: "c".into(),
            attempt,
            state,
            ..CriContainer::default()
        }
    }

    #[test]
    fn active_deadline_counts_from_the_reported_start_while_the_pod_runs() {
        let started = json!({"startTime": "1970-01-01T00:00:20Z"});
        for (limit, status, terminating, expected) in [
            (Value::Null, json!({}), false, None),
            (json!(5), json!({}), false, Some(105)),
            (json!(5), started.clone(), false, Some(25)),
            (json!(5), started, true, None),
        ] {
            let mut state = state(json!({"containers": [], "activeDeadlineSeconds": limit}));
            if terminating {
                let lifecycle = &mut state.memory.lifecycle;
                lifecycle.terminate(TerminationCause::Deleted, 1, 0);
            }
            let last: PodStatus = serde_json::from_value(status.clone()).unwrap();
            assert_eq!(
                state.active_deadline(&last),
                expected.map(|seconds| seconds * SECOND),
                "limit {limit}, {status}, terminating: {terminating}"
            );
        }
    }

    #[test]
    fn container_of_an_earlier_kubelet_keeps_its_probe_results_while_it_runs() {
        let status = |id: &str| {
            json!({"containerStatuses": [{"name": "c", "containerID": id, "ready": true, "started": true,
                "image": "", "imageID": "", "restartCount": 0}]})
        };
        for (id, container_state, ready) in [
            ("containerd://c0", CriState::Running, Some(true)),
            ("containerd://c0", CriState::Exited, None),
            ("containerd://other", CriState::Running, None),
        ] {
            let mut state = state(json!({"containers": [{"name": "c"}]}));
            state.observed.record(container(0, container_state));
            let last: PodStatus = serde_json::from_value(status(id)).unwrap();
            state.recover_containers(&last, "containerd");
            let memory = state.memory.of_container("c", "c0").unwrap();
            assert_eq!(
                (memory.hooked, memory.ready, memory.started),
                (true, ready, ready),
                "{id} {container_state:?}"
            );
        }
    }

    #[test]
    fn old_containers_but_the_newest_exited_are_dropped() {
        use CriState::{Exited, Running};
        for (states, dropped, kept) in [
            (vec![Running], vec![], vec!["c0"]),
            (vec![Exited, Running], vec![], vec!["c1", "c0"]),
            (
                vec![Exited, Exited, Exited, Running],
                vec!["c1", "c0"],
                vec!["c3", "c2"],
            ),
        ] {
            let mut state = state(json!({"containers": [{"name": "c"}]}));
            for (attempt, container_state) in (0..).zip(&states) {
                state.observed.record(container(attempt, *container_state));
            }
            let ids = |all: &[CriContainer]| all.iter().map(|c| c.id.clone()).collect::<Vec<_>>();
            assert_eq!(ids(&state.drop_old_containers("c")), dropped, "{states:?}");
            assert_eq!(ids(&state.observed.containers["c"]), kept, "{states:?}");
        }
    }

    #[test]
    fn pod_addresses_are_those_of_the_sandbox_or_the_node() {
        let sandbox = Sandbox {
            ready: true,
            ips: vec!["10.0.0.1".into()],
            ..Sandbox::default()
        };
        for (host_network, with_sandbox, expected) in [
            (false, false, vec![]),
            (false, true, vec!["10.0.0.1"]),
            (true, false, vec!["192.0.2.1"]),
        ] {
            let mut state = state(json!({"containers": [], "hostNetwork": host_network}));
            if with_sandbox {
                state.observed.put_sandbox(sandbox.clone());
            }
            assert_eq!(
                state.pod_ips(&["192.0.2.1".to_owned()]),
                expected,
                "host network {host_network}, sandbox {with_sandbox}"
            );
        }
    }
}
