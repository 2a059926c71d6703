//! Handles the results of jobs.

use super::messages::{JobResult, StartError};
use super::pod_worker::PodWorker;
use crate::context::{now, reference};
use crate::pod::backoff::{FailedStep, RUNTIME_DELAY, SANDBOX, VOLUMES};
use crate::pod::memory::Work;
use crate::pod::spec;
use crate::pod::view::{CriContainer, CriState, Sandbox};
use k8s_openapi::api::core::v1::ResourceRequirements;
use tokio::task::{self, JoinError};

impl PodWorker {
    /// Handles the end of a job, a panic included; returns true if the runtime must be relisted.
    pub(super) fn handle_job_end(
        &mut self,
        ended: Result<(task::Id, JobResult), JoinError>,
    ) -> bool {
        match ended {
            Ok((id, done)) => {
                self.running_work.remove(&id);
                self.finish(done)
            }
            Err(e) => {
                let work = self.running_work.remove(&e.id());
                tracing::error!(pod = spec::full_name(&self.pod), ?work, error = %e, "a pod's job panicked");
                if let Some(work) = &work {
                    self.memory.record_panic(work, now());
                }
                work.is_some()
            }
        }
    }

    /// Handles a job's result; returns true if the runtime must be relisted.
    fn finish(&mut self, done: JobResult) -> bool {
        match done {
            JobResult::VolumesSetUp(result) => self.volumes_done(result),
            JobResult::SandboxCreated(result) => return self.sandbox_done(result),
            JobResult::SandboxStopped(result) => {
                self.memory.busy.remove(&Work::Sandbox);
                if let Err(e) = result {
                    tracing::warn!(
                        pod = spec::full_name(&self.pod),
                        error = e,
                        "sandbox can't be stopped"
                    );
                    self.wake_at = Some(now() + RUNTIME_DELAY);
                }
                return true;
            }
            JobResult::ContainerStart {
                name,
                resources,
                result,
            } => {
                self.memory.busy.remove(&Work::Container(name.clone()));
                return match result {
                    Ok(container) => self.started(name, resources, container),
                    Err(e) => self.not_started(&name, e),
                };
            }
            JobResult::ContainerStop { name, stopped } => {
                self.memory.busy.remove(&Work::Container(name.clone()));
                if stopped {
                    self.memory.of(&name).kill = None;
                }
                return true;
            }
            JobResult::Resize { name, resources } => self.resized(name, resources),
            JobResult::Other => return true,
        }
        false
    }

    fn volumes_done(&mut self, result: Option<Result<crate::volumes::Volumes, String>>) {
        self.memory.busy.remove(&Work::Volumes);
        let outdated = std::mem::take(&mut self.volumes_outdated);
        let Some(result) = result else { return };
        match result {
            Ok(volumes) => {
                self.volumes = volumes;
                self.memory.volumes_ready = true;
                self.memory.volumes_retry.record_success();
            }
            Err(why) => {
                self.node
                    .recorder
                    .warning(&reference(&self.pod, None), "FailedMount", why);
                let again = self.memory.volumes_retry.record_failure(VOLUMES, now());
                if self.memory.volumes_ready {
                    // A failed refresh keeps the present content and is retried.
                    self.volumes.refresh_at =
                        jiff::Timestamp::from_nanosecond(i128::from(again)).ok();
                }
            }
        }
        if outdated {
            self.refresh_volumes();
        }
    }

    fn sandbox_done(&mut self, result: Result<Sandbox, String>) -> bool {
        self.memory.busy.remove(&Work::Sandbox);
        match result {
            Ok(sandbox) => {
                self.observed.put_sandbox(sandbox);
                self.memory.sandbox_retry.record_success();
                false
            }
            Err(why) => {
                let message = format!("Failed to create pod sandbox: {why}");
                self.node.recorder.warning(
                    &reference(&self.pod, None),
                    "FailedCreatePodSandBox",
                    message,
                );
                self.memory.sandbox_retry.record_failure(SANDBOX, now());
                true
            }
        }
    }

    fn started(
        &mut self,
        name: String,
        resources: ResourceRequirements,
        container: CriContainer,
    ) -> bool {
        let gone = container.state != CriState::Running;
        let memory = self.memory.of(&name);
        memory.container_id.clone_from(&container.id);
        (memory.hooked, memory.started, memory.ready) = (true, None, None);
        (memory.waiting, memory.kill, memory.replaced) = (None, None, None);
        memory.backoff.record_success();
        self.resizes.note(name.clone(), resources);
        self.observed.put(container);
        self.drop_old(&name);
        // The pod may have been resized during the start.
        self.sync_resources();
        gone
    }

    /// Removes exited containers but the newest, which is kept for its log and status.
    fn drop_old(&mut self, name: &str) {
        for old in self.exited_containers(name).into_iter().skip(1) {
            if let Some(all) = self.observed.containers.get_mut(name) {
                all.retain(|i| i.id != old.id);
            }
            let node = self.node.clone();
            let log = super::observe::log_file(&self.node, &self.pod, &old);
            self.jobs.spawn(async move {
                if node.runtime.remove_container(&old.id).await.is_ok() {
                    crate::housekeeping::remove_logs(&log);
                }
                JobResult::Other
            });
        }
    }

    fn not_started(&mut self, name: &str, e: StartError) -> bool {
        let created = e.step == FailedStep::Created;
        let memory = self.memory.of(name);
        memory.backoff.record_failure(e.step, now());
        memory.waiting = if created { None } else { Some(e.waiting) };
        created
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::pod::plan::{Command, Facts, plan};
    use crate::pod::{Nanos, SECOND};
    use crate::testing;
    use serde_json::json;

    #[tokio::test]
    async fn work_of_a_job_that_panicked_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let node = testing::context(testing::settings(dir.path()));
        let pod = testing::pod(json!({"containers": [{"name": "c"}]}));
        let name = "c".to_owned();
        for (work, command) in [
            (Work::Volumes, Command::PrepareVolumes),
            (Work::Sandbox, Command::CreateSandbox { attempt: 0 }),
            (
                Work::Container(name.clone()),
                Command::Start { name, attempt: 0 },
            ),
        ] {
            let mut worker = PodWorker::new(&node, pod.clone(), false);
            worker.memory.volumes_ready = work != Work::Volumes;
            if work != Work::Sandbox {
                let sandbox = Sandbox {
                    id: "box".into(),
                    attempt: 0,
                    ready: true,
                    created_at: 0,
                    ips: Vec::new(),
                };
                worker.observed.put_sandbox(sandbox);
            }
            let begun = now();
            worker.begin_work(work.clone(), async { panic!("planted") });
            let ended = worker.jobs.join_next_with_id().await.unwrap();
            assert!(
                worker.handle_job_end(ended),
                "{work:?}: what the job left at the runtime is not looked for"
            );
            let planned = |after: Nanos| {
                let (observed, memory) = (&worker.observed, &worker.memory);
                plan(Facts {
                    pod: &worker.pod,
                    observed,
                    memory,
                    now: begun + after,
                })
                .contains(&command)
            };
            assert!(!planned(5 * SECOND), "{work:?}: too early");
            assert!(planned(20 * SECOND), "{work:?}: the pod stands still");
        }
    }
}
