//! State that the kubelet keeps of a pod and that the runtime does not report.

use super::Nanos;
use super::backoff::{Retry, StartBackoff};
use super::lifecycle::PodLifecycle;
use super::resize::{AppliedResources, PendingResize, ResizeProgress};
use std::collections::{BTreeMap, BTreeSet};

/// Reason and message of a container's waiting state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitingReason {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// The state kept of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerMemory {
    /// Reason why the last start failed.
    pub(crate) waiting: Option<WaitingReason>,
    pub(crate) backoff: StartBackoff,
    /// CRI container that `hooked`, `started` and `ready` are about.
    pub(crate) container_id: String,
    /// The postStart hook has completed.
    pub(crate) hooked: bool,
    /// Result of the startup probe.
    pub(crate) started: Option<bool>,
    /// Result of the readiness probe.
    pub(crate) ready: Option<bool>,
    /// A stop requested by a probe or a hook.
    pub(crate) kill: Option<StopRequest>,
    /// CRI container stopped to be replaced; its successor starts whatever the restart policy says.
    pub(crate) replaced: Option<String>,
}

/// The stop of one container while its pod continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StopRequest {
    pub(crate) id: String,
    /// Message of the event.
    pub(crate) why: String,
    /// Grace period in seconds.
    pub(crate) grace: Option<i64>,
}

/// A running job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    Volumes,
    Sandbox,
    /// Preparation or release of the devices of claims.
    Devices,
    /// Change of resources in cgroups.
    Resize,
    /// Start or stop of a container.
    Container(String),
}

/// The state kept of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    pub(crate) containers: BTreeMap<String, ContainerMemory>,
    pub(crate) busy: BTreeSet<Work>,
    /// Volumes are set up.
    pub(crate) volumes_ready: bool,
    pub(crate) volumes_retry: Retry,
    pub(crate) sandbox_retry: Retry,
    /// The devices of the pod's claims are prepared.
    pub(crate) devices_ready: bool,
    pub(crate) devices_retry: Retry,
    /// The devices are released after the containers have stopped.
    pub(crate) devices_released: bool,
    pub(crate) release_retry: Retry,
    pub(crate) lifecycle: PodLifecycle,
    /// A resize that the node has not allocated.
    pub(crate) pending_resize: Option<PendingResize>,
    /// A resize that is allocated and not yet applied.
    pub(crate) resize_progress: Option<ResizeProgress>,
    pub(crate) applied: AppliedResources,
}

impl Memory {
    pub(crate) fn entry(&mut self, name: &str) -> &mut ContainerMemory {
        self.containers.entry(name.to_owned()).or_default()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ContainerMemory> {
        self.containers.get(name)
    }

    pub(crate) fn busy_with(&self, name: &str) -> bool {
        self.busy.contains(&Work::Container(name.to_owned()))
    }

    /// Requests the stop of a CRI container, so that a new one is created from the current spec.
    pub(crate) fn request_replacement(&mut self, name: &str, id: String, why: String) {
        let memory = self.entry(name);
        if memory.kill.as_ref().is_none_or(|kill| kill.id != id) {
            memory.replaced = Some(id.clone());
            memory.kill = Some(StopRequest {
                id,
                why,
                grace: None,
            });
        }
    }

    /// Records that the job of this work panicked; the work may be tried again later.
    pub(crate) fn record_panic(&mut self, work: &Work, now: Nanos) {
        match work {
            Work::Volumes => self.volumes_retry.record_panic(now),
            Work::Sandbox => self.sandbox_retry.record_panic(now),
            Work::Devices => {
                self.devices_retry.record_panic(now);
                self.release_retry.record_panic(now);
            }
            Work::Container(name) => self.entry(name).backoff.record_panic(now),
            // The worker has the time of the next try.
            Work::Resize => {}
        }
        self.busy.remove(work);
    }

    /// Returns the memory of the CRI container `id` if it is the current one.
    pub(crate) fn of_container(&self, name: &str, id: &str) -> Option<&ContainerMemory> {
        self.containers.get(name).filter(|m| m.container_id == id)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn replacement_of_a_container_is_requested_once() {
        let mut memory = Memory::default();
        memory.request_replacement("c", "c0".into(), "image changed".into());
        memory.request_replacement("c", "c0".into(), "resize".into());
        let c = memory.get("c").unwrap();
        assert_eq!(c.kill.as_ref().unwrap().why, "image changed");
        assert_eq!(c.replaced.as_deref(), Some("c0"));
        memory.request_replacement("c", "c1".into(), "resize".into());
        assert_eq!(memory.get("c").unwrap().replaced.as_deref(), Some("c1"));
    }

    #[test]
    fn memory_is_about_one_cri_container() {
        let mut memory = Memory::default();
        memory.entry("c").container_id = "c0".into();
        assert!(memory.of_container("c", "c0").is_some());
        assert!(memory.of_container("c", "c1").is_none());
    }
}
