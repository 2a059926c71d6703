//! In-place resize: allocates changed resources of a pod, and applies them to its cgroup and its
//! running containers (KEP-1287, KEP-5419).

use super::allocation_file::{read_allocation, write_allocation};
use super::pod_worker::PodWorker;
use super::registry::ResizeRequest;
use super::resize_job::ResizeJob;
use super::resize_queue::decide_resize;
use crate::context::{build_reference, now};
use crate::cri_config::resources::{
    build_container_resources, compute_effective_resources, compute_pod_resources,
};
use crate::pod::allocation::Allocation;
use crate::pod::backoff::{RESIZE_DELAY, RESIZE_RETRY};
use crate::pod::memory::Work;
use crate::pod::resize::{
    AppliedPod, DEFERRED, PendingResize, ResizeProgress, format_resize_event,
};
use crate::pod::resize_plan::{ContainerChange, ResizeOutcome, ResizedContainer, plan_resize};
use crate::pod::resource_status::compute_amounts;
use crate::pod::spec::{self, Role};
use crate::pod::status_conditions::RESIZE_CONDITIONS;
use crate::pod::view::CriContainer;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, ResourceRequirements};
use node_runtime::v1::LinuxContainerResources;
use std::collections::BTreeMap;

/// Changes that a resize still has to make.
#[derive(Default)]
struct Changes {
    containers: Vec<ContainerChange>,
    /// A container is being started, stopped or replaced. The pod keeps the size that it may need,
    /// and the resize is not complete before that has ended.
    is_waiting: bool,
}

impl PodWorker {
    /// Takes over what an earlier kubelet allocated, and the conditions of a resize. Returns false
    /// without an allocation.
    pub(super) fn recover_allocation(&mut self) -> bool {
        let conditions = self.status.last().conditions.clone().unwrap_or_default();
        for condition in conditions {
            self.recover_condition(&condition);
        }
        let uid = &self.state.uid;
        let Some(allocation) = base_task::blocking(|| read_allocation(&self.kubelet, uid)) else {
            return false;
        };
        self.state.pod = allocation.apply_to(&self.state.desired);
        self.status.set_allocation(self.state.pod.clone(), None);
        true
    }

    fn recover_condition(&mut self, condition: &PodCondition) {
        let [pending, in_progress] = RESIZE_CONDITIONS;
        let generation = condition.observed_generation;
        let message = condition.message.clone();
        if condition.type_ == pending {
            let since = condition.last_transition_time.as_ref();
            self.state.memory.pending_resize = Some(PendingResize {
                message: message.unwrap_or_default(),
                generation,
                since: since.map_or_else(now, |time| {
                    i64::try_from(time.0.as_nanosecond()).unwrap_or_default()
                }),
            });
        } else if condition.type_ == in_progress {
            self.state.memory.resize_progress = Some(ResizeProgress {
                generation,
                error: message,
            });
        }
    }

    /// Writes the allocation of a pod that was admitted.
    pub(super) fn record_allocation(&mut self) {
        self.resizes.record_at = None;
        if self.state.is_static || !self.state.memory.lifecycle.is_running() {
            return;
        }
        let allocation = Allocation::of_pod(&self.state.pod);
        let written =
            base_task::blocking(|| write_allocation(&self.kubelet, &self.state.uid, &allocation));
        if let Err(e) = written {
            // The pod runs with these resources in any case. A kubelet that restarts before the
            // next try takes those of the spec for allocated.
            self.resizes.record_at = Some(now() + RESIZE_DELAY);
            tracing::warn!(pod = spec::full_name(&self.state.pod), error = %e, "the pod's allocation can't be written; trying again");
        }
    }

    /// Returns whether the node has to decide about the desired resources, after an update of the
    /// pod that had requested those of `before`. Most updates of a pod with a pending resize change
    /// something else, such as its status.
    pub(super) fn needs_decision(&self, before: &Pod) -> bool {
        let is_pending = self.state.memory.pending_resize.is_some();
        if !self.state.is_resized() {
            return is_pending;
        }
        let request = |pod: &Pod| (pod.metadata.generation, Allocation::of_pod(pod));
        !is_pending || request(before) != request(&self.state.desired)
    }

    /// Allocates the desired resources if the node has them, and applies them.
    pub(super) fn allocate_resources(&mut self) {
        self.resizes.allocate_at = None;
        if !self.state.memory.lifecycle.is_running() || !self.state.is_resized() {
            // Ended, or reverted by the client.
            self.state.memory.pending_resize = None;
            self.status.set_allocation(self.state.pod.clone(), None);
            return;
        }
        let pending = self.state.memory.pending_resize.as_ref();
        let request = ResizeRequest {
            desired: self.state.desired.clone(),
            since: pending.map(|resize| resize.since),
        };
        // Published first: from now on this worker is notified of resources that become free.
        self.status
            .set_allocation(self.state.pod.clone(), Some(request));
        if !self.kubelet.workers.allows_resizes() {
            return;
        }
        match base_task::blocking(|| self.try_allocate()) {
            Ok(()) => {
                let generation = self.state.pod.metadata.generation;
                self.state.memory.pending_resize = None;
                self.state.memory.resize_progress = Some(ResizeProgress {
                    generation,
                    error: None,
                });
                self.report_resize("ResizeStarted", "started", generation, "");
                self.sync_resources();
            }
            Err(why) => self.defer_resize(why),
        }
    }

    /// Allocates the desired resources, and records that before another pod can take them.
    fn try_allocate(&mut self) -> Result<(), String> {
        let _turn = self.kubelet.workers.lock_admission();
        let pods = self.kubelet.workers.all();
        decide_resize(&self.state.uid, &pods, &self.kubelet.allocatable)?;
        let allocation = Allocation::of_pod(&self.state.desired);
        write_allocation(&self.kubelet, &self.state.uid, &allocation)
            .map_err(|e| format!("can't write the allocation: {e}"))?;
        self.resizes.record_at = None;
        self.state.pod = self.state.desired.clone();
        self.status.set_allocation(self.state.pod.clone(), None);
        Ok(())
    }

    fn defer_resize(&mut self, message: String) {
        let generation = self.state.desired.metadata.generation;
        let before = self.state.memory.pending_resize.take();
        if before.as_ref().is_none_or(|b| b.generation != generation) {
            self.report_resize("ResizeDeferred", DEFERRED, generation, &message);
        }
        self.resizes.allocate_at = Some(now() + RESIZE_RETRY);
        self.state.memory.pending_resize = Some(PendingResize {
            message,
            generation,
            since: before.map_or_else(now, |before| before.since),
        });
    }

    /// Records an event about the desired resources.
    fn report_resize(&self, reason: &str, what: &str, generation: Option<i64>, error: &str) {
        let about = build_reference(&self.state.pod, None);
        let message = format_resize_event(what, &self.state.desired, generation, error);
        let is_normal = matches!(reason, "ResizeStarted" | "ResizeCompleted");
        let recorder = &self.kubelet.recorder;
        if is_normal {
            recorder.normal(&about, reason, message);
        } else {
            recorder.warning(&about, reason, message);
        }
    }

    /// Applies the allocated resources to the pod's cgroup and to running containers.
    pub(super) fn sync_resources(&mut self) {
        (self.resizes.again, self.resizes.is_waiting) = (None, false);
        let memory = &self.state.memory;
        // One job at a time: two updates could arrive in the other order. The sandbox's creation
        // makes the cgroup, too.
        let is_busy = [Work::Resize, Work::Sandbox]
            .iter()
            .any(|work| memory.busy.contains(work));
        if is_busy || !memory.lifecycle.is_running() {
            return;
        }
        let sandbox = self
            .state
            .observed
            .sandbox()
            .filter(|sandbox| sandbox.ready);
        let Some(sandbox) = sandbox.map(|sandbox| sandbox.id.clone()) else {
            // The next sandbox gets the allocated resources.
            return self.complete_resize();
        };
        let changes = self.collect_changes();
        self.resizes.is_waiting = changes.is_waiting;
        let goal = compute_pod_resources(&self.state.pod);
        let now = self
            .state
            .memory
            .applied
            .pod
            .as_ref()
            .map(|pod| pod.settings);
        let is_done = now.is_some_and(|now| {
            plan_resize(now, goal, &changes.containers, changes.is_waiting).is_empty()
        });
        if !is_done {
            // Until the job has succeeded, whatever its end.
            let unsettled = &mut self.state.memory.applied.unsettled;
            for change in &changes.containers {
                unsettled.entry(change.name.clone()).or_default();
            }
            let job = ResizeJob {
                pod: self.state.pod.clone(),
                sandbox,
                now,
                goal,
                containers: changes.containers,
                holds_shrink: changes.is_waiting,
            };
            self.executor.resize_pod(&mut self.state, job);
        } else if !changes.is_waiting {
            self.complete_resize();
        }
    }

    /// Collects the running containers whose resources are not those allocated, and requests the
    /// replacement of those that have to restart.
    fn collect_changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        for (role, name) in spec::list_containers(&self.state.pod) {
            // Ephemeral containers have no resources.
            if role == Role::Ephemeral {
                continue;
            }
            if self.state.memory.busy_with(&name) {
                changes.is_waiting = true;
                continue;
            }
            let latest = self.state.observed.latest(&name);
            let running = latest.filter(|latest| latest.is_running()).cloned();
            let container = spec::find_container(&self.state.pod, &name);
            if let (Some(running), Some((_, container))) = (running, container) {
                self.collect_change(&container, running, &mut changes);
            }
        }
        changes
    }

    fn collect_change(
        &mut self,
        container: &Container,
        running: CriContainer,
        changes: &mut Changes,
    ) {
        let name = &container.name;
        let after = compute_effective_resources(&self.state.pod, container);
        let applied = &self.state.memory.applied;
        let before = applied.containers.get(name).cloned();
        let attempted_memory = applied.unsettled.get(name).copied();
        let is_unsettled = attempted_memory.is_some();
        if before.as_ref() == Some(&after) && !is_unsettled {
            return;
        }
        // Without a known earlier value nothing changed: the kubelet restarted, not the resources.
        let restarts = before
            .as_ref()
            .is_some_and(|before| needs_restart(container, before, &after));
        if restarts {
            let why = format!("Container {name} resize requires restart");
            self.state.memory.request_replacement(name, running.id, why);
            changes.is_waiting = true;
            return;
        }
        let settings = build_container_resources(
            &self.state.pod,
            container,
            self.kubelet.memory_capacity(),
            self.kubelet.least_oom_score,
        );
        // After a restart of the kubelet only the runtime knows what was applied. What it reported
        // before a resize that failed is old.
        if before.is_none() && !is_unsettled && has_settings(&running, &settings) {
            let applied = &mut self.state.memory.applied.containers;
            applied.insert(name.clone(), after);
            return;
        }
        changes.containers.push(ContainerChange {
            name: name.clone(),
            id: running.id,
            before,
            after,
            attempted_memory,
        });
    }

    /// Handles the end of a resize job; None if it was aborted because the pod terminates.
    pub(super) fn apply_resize(&mut self, outcome: Option<ResizeOutcome>) {
        self.state.memory.busy.remove(&Work::Resize);
        let Some(outcome) = outcome else { return };
        for container in outcome.containers {
            self.record_resized(container);
        }
        let amounts = || compute_amounts(&self.state.pod);
        let memory = &mut self.state.memory;
        // Amounts that an earlier kubelet applied are not known: most likely they are the same.
        let applied = memory.applied.pod.get_or_insert_with(|| AppliedPod {
            amounts: amounts(),
            ..AppliedPod::default()
        });
        applied.settings = outcome.pod;
        let Some(error) = outcome.error else {
            // The allocation may have changed again during the job.
            return self.sync_resources();
        };
        self.resizes.again = Some(now() + RESIZE_DELAY);
        let generation = self.state.pod.metadata.generation;
        let progress = memory.resize_progress.get_or_insert(ResizeProgress {
            generation,
            error: None,
        });
        let generation = progress.generation;
        if progress.error.as_ref() != Some(&error) {
            progress.error = Some(error.clone());
            self.report_resize("ResizeError", "error", generation, &error);
        }
    }

    fn record_resized(&mut self, container: ResizedContainer) {
        let ResizedContainer {
            name,
            id,
            applied,
            attempted_memory,
        } = container;
        let latest = self.state.observed.latest(&name);
        if latest.is_none_or(|latest| latest.id != id) {
            // Its successor has the resources of its own start.
            return;
        }
        let memory = &mut self.state.memory.applied;
        match attempted_memory {
            None => memory.unsettled.remove(&name),
            Some(limit) => memory.unsettled.insert(name.clone(), limit),
        };
        if let Some(applied) = applied {
            memory.containers.insert(name, applied);
        }
    }

    /// Records that all allocated resources are applied.
    fn complete_resize(&mut self) {
        let amounts = compute_amounts(&self.state.pod);
        if let Some(applied) = &mut self.state.memory.applied.pod {
            applied.amounts = amounts;
        }
        if let Some(progress) = self.state.memory.resize_progress.take() {
            self.report_resize("ResizeCompleted", "completed", progress.generation, "");
        }
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
mod tests;
