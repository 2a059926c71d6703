//! Handles the results of jobs.

use super::executor::JobPanic;
use super::messages::{JobResult, StartError};
use super::pod_worker::PodWorker;
use crate::context::{build_reference, now};
use crate::pod::backoff::{FailedStep, RESIZE_DELAY, RUNTIME_DELAY, SANDBOX, VOLUMES};
use crate::pod::memory::Work;
use crate::pod::spec;
use crate::pod::view::{CriContainer, CriState, Sandbox};
use k8s_openapi::api::core::v1::ResourceRequirements;

impl PodWorker {
    /// Handles the end of a job, a panic included; returns true if the runtime must be relisted.
    pub(super) fn handle_job_end(&mut self, end: Result<JobResult, JobPanic>) -> bool {
        match end {
            Ok(result) => self.apply_result(result),
            Err(JobPanic { work, error }) => {
                tracing::error!(pod = spec::full_name(&self.state.pod), ?work, %error, "a pod's job panicked");
                if let Some(work) = &work {
                    self.state.memory.record_panic(work, now());
                }
                if work == Some(Work::Resize) {
                    self.resizes.again = Some(now() + RESIZE_DELAY);
                }
                work.is_some()
            }
        }
    }

    /// Handles a job's result; returns true if the runtime must be relisted.
    fn apply_result(&mut self, result: JobResult) -> bool {
        match result {
            JobResult::VolumesSetUp(result) => self.apply_volumes(result),
            JobResult::DevicesPrepared(result) => self.apply_devices(result),
            JobResult::DevicesReleased(result) => self.apply_devices_released(result),
            JobResult::SandboxCreated(result) => return self.apply_sandbox(result),
            JobResult::SandboxStopped(result) => {
                self.state.memory.busy.remove(&Work::Sandbox);
                if let Err(e) = result {
                    tracing::warn!(
                        pod = spec::full_name(&self.state.pod),
                        error = e,
                        "sandbox can't be stopped"
                    );
                    // No event of the runtime follows a failed stop, so that a timer has to repeat
                    // it.
                    self.wake_at = Some(now() + RUNTIME_DELAY);
                }
                return true;
            }
            // The mark is removed whatever the result: it only keeps a second job of the container
            // from starting.
            JobResult::ContainerStart {
                name,
                resources,
                result,
            } => {
                self.state
                    .memory
                    .busy
                    .remove(&Work::Container(name.clone()));
                return match result {
                    Ok(container) => self.apply_start(name, resources, container),
                    Err(e) => self.apply_start_error(&name, e),
                };
            }
            JobResult::ContainerStop { name, stopped } => {
                self.state
                    .memory
                    .busy
                    .remove(&Work::Container(name.clone()));
                // Otherwise the request stays, and the plan stops the container again.
                if stopped {
                    self.state.memory.entry(&name).kill = None;
                }
                return true;
            }
            JobResult::Resize(outcome) => self.apply_resize(outcome),
            JobResult::Other => return true,
        }
        false
    }

    fn apply_volumes(&mut self, result: Option<Result<crate::volumes::Volumes, String>>) {
        self.state.memory.busy.remove(&Work::Volumes);
        // Taken even if the job failed or was aborted: the flag is about inputs of that job.
        let outdated = self.executor.take_volumes_outdated();
        let Some(result) = result else { return };
        match result {
            Ok(volumes) => {
                self.executor.volumes = volumes;
                // Containers wait for this once; a later refresh runs beside them.
                self.state.memory.volumes_ready = true;
                self.state.memory.volumes_retry.record_success();
            }
            Err(why) => {
                self.kubelet.recorder.warning(
                    &build_reference(&self.state.pod, None),
                    "FailedMount",
                    why,
                );
                let again = self
                    .state
                    .memory
                    .volumes_retry
                    .record_failure(VOLUMES, now());
                if self.state.memory.volumes_ready {
                    // A failed refresh keeps the present content and is retried.
                    self.executor.volumes.refresh_at =
                        jiff::Timestamp::from_nanosecond(i128::from(again)).ok();
                }
            }
        }
        if outdated {
            self.refresh_volumes();
        }
    }

    fn apply_devices(&mut self, result: Option<Result<(), String>>) {
        let about = build_reference(&self.state.pod, None);
        let memory = &mut self.state.memory;
        memory.busy.remove(&Work::Devices);
        match result {
            None => {}
            Some(Ok(())) => {
                memory.devices_ready = true;
                memory.devices_retry.record_success();
            }
            Some(Err(why)) => {
                memory.devices_retry.record_failure(VOLUMES, now());
                let text = format!("Failed to prepare dynamic resources: {why}");
                self.kubelet
                    .recorder
                    .warning(&about, "FailedPrepareDynamicResources", text);
            }
        }
    }

    fn apply_devices_released(&mut self, result: Result<(), String>) {
        let memory = &mut self.state.memory;
        memory.busy.remove(&Work::Devices);
        match result {
            Ok(()) => memory.devices_released = true,
            Err(why) => {
                memory.release_retry.record_failure(VOLUMES, now());
                tracing::warn!(
                    pod = spec::full_name(&self.state.pod),
                    error = why,
                    "devices can't be released; trying again"
                );
            }
        }
    }

    fn apply_sandbox(&mut self, result: Result<Sandbox, String>) -> bool {
        self.state.memory.busy.remove(&Work::Sandbox);
        match result {
            Ok(sandbox) => {
                self.state.observed.put_sandbox(sandbox);
                self.state.memory.sandbox_retry.record_success();
                // The pod may have been resized meanwhile.
                self.sync_resources();
                false
            }
            Err(why) => {
                let message = format!("Failed to create pod sandbox: {why}");
                self.kubelet.recorder.warning(
                    &build_reference(&self.state.pod, None),
                    "FailedCreatePodSandBox",
                    message,
                );
                self.state
                    .memory
                    .sandbox_retry
                    .record_failure(SANDBOX, now());
                true
            }
        }
    }

    fn apply_start(
        &mut self,
        name: String,
        resources: ResourceRequirements,
        container: CriContainer,
    ) -> bool {
        // A short-lived container may be over before its start is reported, and no further event
        // comes then.
        let exited = container.state != CriState::Running;
        let memory = self.state.memory.entry(&name);
        memory.container_id.clone_from(&container.id);
        // A new CRI container: results of the probes of its predecessor do not count.
        (memory.hooked, memory.started, memory.ready) = (true, None, None);
        (memory.waiting, memory.kill, memory.replaced) = (None, None, None);
        memory.backoff.record_success();
        let applied = &mut self.state.memory.applied;
        applied.containers.insert(name.clone(), resources);
        applied.unsettled.remove(&name);
        self.state.observed.record(container);
        for old in self.state.drop_old_containers(&name) {
            self.executor.remove_container(&self.state.pod, old);
        }
        // The pod may have been resized during the start.
        self.sync_resources();
        exited
    }

    fn apply_start_error(&mut self, name: &str, e: StartError) -> bool {
        let created = e.step == FailedStep::Created;
        let memory = self.state.memory.entry(name);
        memory.backoff.record_failure(e.step, now());
        // A container that was created reports the failure in its own exit status.
        memory.waiting = if created { None } else { Some(e.waiting) };
        created
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::pod::action::PodAction;
    use crate::pod::plan::compute_actions;
    use crate::pod::{Nanos, SECOND};
    use crate::testing;
    use serde_json::json;

    #[tokio::test]
    async fn work_of_a_job_that_panicked_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let kubelet = testing::context(testing::settings(dir.path()));
        let pod = testing::pod(json!({"containers": [{"name": "c"}]}));
        let name = "c".to_owned();
        for (work, command) in [
            (Work::Volumes, PodAction::SetUpVolumes),
            (Work::Sandbox, PodAction::CreateSandbox { attempt: 0 }),
            (
                Work::Container(name.clone()),
                PodAction::Start { name, attempt: 0 },
            ),
        ] {
            let mut worker = PodWorker::new(&kubelet, pod.clone(), false);
            worker.state.memory.volumes_ready = work != Work::Volumes;
            if work != Work::Sandbox {
                let sandbox = Sandbox {
                    id: "box".into(),
                    attempt: 0,
                    ready: true,
                    created_at: 0,
                    ips: Vec::new(),
                };
                worker.state.observed.put_sandbox(sandbox);
            }
            let begun = now();
            let panics = async { panic!("planted") };
            worker
                .executor
                .begin_work(&mut worker.state, work.clone(), panics);
            let end = worker.executor.next_end().await.unwrap();
            assert!(
                worker.handle_job_end(end),
                "{work:?}: the runtime is not relisted"
            );
            let planned = |after: Nanos| {
                compute_actions(worker.state.facts(begun + after)).contains(&command)
            };
            assert!(!planned(5 * SECOND), "{work:?}: too early");
            assert!(
                planned(20 * SECOND),
                "{work:?}: the work is not tried again"
            );
        }
    }
}
