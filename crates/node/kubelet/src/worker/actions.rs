//! Executes the actions that the plan returns.

use super::pod_worker::PodWorker;
use super::stop::StopContainer;
use crate::context::{now, reference};
use crate::cri_config::container;
use crate::pod::lifecycle::TerminationCause;
use crate::pod::memory::Work;
use crate::pod::plan::{Command, ready_at};
use crate::pod::spec;
use crate::pod::view::{CriContainer, CriState};

impl PodWorker {
    /// Executes one command; returns true if the plan must be computed again at once.
    pub(super) fn execute(&mut self, command: Command) -> bool {
        let (executor, state) = (&mut self.executor, &mut self.state);
        match command {
            Command::Wake(at) => {
                self.wake_at = Some(self.wake_at.map_or(at, |w| w.min(at)));
                self.report_backoff();
            }
            Command::PrepareVolumes => executor.set_up_volumes(state),
            Command::CreateSandbox { attempt } => executor.create_sandbox(state, attempt),
            Command::StopSandbox { id } => executor.stop_sandbox(state, id),
            Command::Start { name, attempt } => executor.start_container(state, name, attempt),
            Command::Kill {
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
            Command::Finish => {
                let grace = spec::grace(&state.pod);
                self.terminate(TerminationCause::Finished, grace);
                return true;
            }
            Command::Ended => {
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
        for (role, name) in spec::names(&self.state.pod) {
            if !matches!(role, spec::Role::App | spec::Role::Sidecar) {
                continue;
            }
            let Some((_, container)) = spec::find(&self.state.pod, &name) else {
                continue;
            };
            let latest = self.state.observed.latest(&name);
            let Some(running) = latest.filter(|i| i.running()) else {
                continue;
            };
            if container::is_changed(&running.hash, &container) {
                let why = format!("Container {name} definition changed, will be restarted");
                let id = running.id.clone();
                self.state.memory.replace(&name, id, why);
            }
        }
    }

    /// Records an event for each container that waits for its restart, once.
    fn report_backoff(&mut self) {
        let (state, time) = (&self.state, now());
        let waiting: Vec<CriContainer> = spec::names(&state.pod)
            .into_iter()
            .filter_map(|(_, name)| state.observed.latest(&name).cloned())
            .filter(|i| i.state == CriState::Exited && ready_at(&state.memory, i) > time)
            .collect();
        for exited in waiting {
            if !self.backoffs_reported.insert(exited.id.clone()) {
                continue;
            }
            let list = super::observe::list_name(&state.pod, &exited.name);
            let about = reference(&state.pod, Some((list, &exited.name)));
            let text = format!(
                "Back-off restarting failed container {} in pod {}",
                exited.name,
                spec::full_name(&state.pod)
            );
            self.node.recorder.warning(&about, "BackOff", text);
        }
    }
}
