//! Executes the actions that the plan returns.

use super::pod_worker::PodWorker;
use super::stop::StopContainer;
use crate::context::{build_reference, now};
use crate::cri_config::container;
use crate::pod::action::PodAction;
use crate::pod::lifecycle::TerminationCause;
use crate::pod::memory::Work;
use crate::pod::plan::restart_time;
use crate::pod::spec;
use crate::pod::view::{CriContainer, CriState};

impl PodWorker {
    /// Executes one action; returns true if the plan must be computed again at once.
    pub(super) fn execute(&mut self, action: PodAction) -> bool {
        let (executor, state) = (&mut self.executor, &mut self.state);
        match action {
            PodAction::WakeAt(at) => {
                // Several actions may set a time, and the earliest must not be lost.
                self.wake_at = Some(self.wake_at.map_or(at, |w| w.min(at)));
                self.report_backoff();
            }
            PodAction::SetUpVolumes => executor.set_up_volumes(state),
            PodAction::PrepareDevices => executor.prepare_devices(state),
            PodAction::ReleaseDevices => executor.release_devices(state),
            PodAction::CreateSandbox { attempt } => executor.create_sandbox(state, attempt),
            PodAction::StopSandbox { id } => executor.stop_sandbox(state, id),
            PodAction::Start { name, attempt } => executor.start_container(state, name, attempt),
            PodAction::Kill {
                name,
                id,
                why,
                grace,
            } => {
                let stop = StopContainer {
                    name,
                    id,
                    why,
                    grace,
                };
                executor.stop_container(state, stop);
            }
            PodAction::Terminate => {
                let grace = spec::grace_seconds(&state.pod);
                // Sidecars still run, and get the grace period of the pod.
                self.terminate(TerminationCause::Finished, grace);
                return true;
            }
            PodAction::CompleteTermination => {
                state.memory.lifecycle.complete_termination();
                // A pod whose deletion was requested is cleaned up instead.
                if !state.memory.lifecycle.is_deletion_requested() {
                    executor.release_resources(state.uid.clone());
                }
            }
        }
        false
    }

    /// Sets up the volumes again and retries everything that waited for changed content or
    /// environment.
    pub(super) fn refresh_volumes(&mut self) {
        // The job computes the next refresh time when it is done.
        // Cleared at once, or the expired time would wake the worker again until the job ends.
        self.executor.volumes.refresh_at = None;
        self.state.retry_changed_inputs();
        let memory = &self.state.memory;
        let set_up = memory.volumes_ready || memory.busy.contains(&Work::Volumes);
        if set_up && !memory.lifecycle.is_terminated() {
            self.executor.set_up_volumes(&mut self.state);
        }
    }

    /// Replaces containers whose image changed, whatever the restart policy says (as upstream
    /// does).
    pub(super) fn replace_changed(&mut self) {
        if !self.state.memory.lifecycle.is_running() {
            return;
        }
        for (role, name) in spec::list_containers(&self.state.pod) {
            // The API allows a change of the image for these only; an init container that has
            // completed must not run again.
            if !matches!(role, spec::Role::App | spec::Role::Sidecar) {
                continue;
            }
            let Some((_, container)) = spec::find_container(&self.state.pod, &name) else {
                continue;
            };
            let latest = self.state.observed.latest(&name);
            let Some(running) = latest.filter(|i| i.is_running()) else {
                continue;
            };
            // Compared by the hash that is stored with the container, which survives a restart of
            // the kubelet.
            if container::is_changed(&running.hash, &container) {
                let why = format!("Container {name} definition changed, will be restarted");
                let id = running.id.clone();
                self.state.memory.request_replacement(&name, id, why);
            }
        }
    }

    /// Records an event for each container that waits for its restart, once.
    fn report_backoff(&mut self) {
        let (state, time) = (&self.state, now());
        let waiting: Vec<CriContainer> = spec::list_containers(&state.pod)
            .into_iter()
            .filter_map(|(_, name)| state.observed.latest(&name).cloned())
            .filter(|i| i.state == CriState::Exited && restart_time(&state.memory, i) > time)
            .collect();
        for exited in waiting {
            if !self.backoffs_reported.insert(exited.id.clone()) {
                continue;
            }
            let list = super::observe::list_name(&state.pod, &exited.name);
            let about = build_reference(&state.pod, Some((list, &exited.name)));
            let text = format!(
                "Back-off restarting failed container {} in pod {}",
                exited.name,
                spec::full_name(&state.pod)
            );
            self.kubelet.recorder.warning(&about, "BackOff", text);
        }
    }
}
