//! Executes the actions that the plan returns.

use super::messages::JobResult;
use super::pod_worker::PodWorker;
use super::start::Start;
use crate::context::{now, reference};
use crate::cri_config::{container, sandbox};
use crate::pod::lifecycle::TerminationCause;
use crate::pod::memory::Work;
use crate::pod::plan::{Command, ready_at};
use crate::pod::spec;
use crate::pod::view::{CriContainer, CriState, Sandbox};
use crate::volumes::prepare;
use base_task::CancellationToken;
use std::time::Duration;

impl PodWorker {
    /// Executes one command; returns true if the plan must be computed again at once.
    pub(super) fn execute(&mut self, command: Command) -> bool {
        match command {
            Command::Wake(at) => {
                self.wake_at = Some(self.wake_at.map_or(at, |w| w.min(at)));
                self.report_backoff();
            }
            Command::PrepareVolumes => self.prepare_volumes(),
            Command::CreateSandbox { attempt } => self.create_sandbox(attempt),
            Command::StopSandbox { id } => self.stop_sandbox(id),
            Command::Start { name, attempt } => self.start(name, attempt),
            Command::Kill {
                name,
                id,
                why,
                grace,
            } => self.kill(name, id, why, grace),
            Command::Finish => {
                self.terminate(TerminationCause::Finished, spec::grace(&self.pod));
                return true;
            }
            Command::Ended => {
                self.memory.lifecycle.complete_termination();
                self.release_resources();
            }
        }
        false
    }

    pub(super) fn prepare_volumes(&mut self) {
        if self.memory.busy.contains(&Work::Volumes) {
            // The running job may have read its inputs before they changed.
            self.volumes_outdated = true;
            return;
        }
        let (node, pod, tokens, addresses) = (
            self.node.clone(),
            self.pod.clone(),
            self.tokens.clone(),
            self.addresses(),
        );
        // A terminating pod must not wait for objects that its volumes lack.
        let abort = if self.memory.lifecycle.is_running() {
            self.abort_starts.clone()
        } else {
            CancellationToken::new()
        };
        self.begin_work(Work::Volumes, async move {
            tokio::select! {
                () = abort.cancelled() => JobResult::VolumesSetUp(None),
                result = prepare(&node, &pod, &tokens, &addresses) => JobResult::VolumesSetUp(Some(result)),
            }
        });
    }

    /// Starts a job that nothing else may do meanwhile.
    pub(super) fn begin_work(
        &mut self,
        work: Work,
        job: impl Future<Output = JobResult> + Send + 'static,
    ) {
        self.memory.busy.insert(work.clone());
        let id = self.jobs.spawn(job).id();
        self.running_work.insert(id, work);
    }

    fn create_sandbox(&mut self, attempt: u32) {
        let (node, pod) = (self.node.clone(), self.pod.clone());
        self.begin_work(Work::Sandbox, async move {
            let resolv = std::fs::read_to_string(&node.settings.resolv_conf).unwrap_or_default();
            let work = async {
                node.cgroups
                    .ensure(&pod)
                    .map_err(|e| format!("can't make the pod's cgroup: {e}"))?;
                let config = sandbox::config(
                    &pod,
                    &node.settings,
                    node.cgroups.of_pod(&pod),
                    attempt,
                    &resolv,
                )?;
                std::fs::create_dir_all(&config.log_directory)
                    .map_err(|e| format!("can't create {}: {e}", config.log_directory))?;
                let handler = read_runtime_handler(&node, &pod).await?;
                let _turn = node.starts.acquire().await;
                let id = node
                    .runtime
                    .run_sandbox(config, handler)
                    .await
                    .map_err(|e| e.to_string())?;
                let status = node
                    .runtime
                    .sandbox_status(&id)
                    .await
                    .map_err(|e| e.to_string())?;
                Ok(Sandbox::of(status))
            };
            JobResult::SandboxCreated(work.await)
        });
    }

    fn stop_sandbox(&mut self, id: String) {
        let node = self.node.clone();
        self.begin_work(Work::Sandbox, async move {
            JobResult::SandboxStopped(
                node.runtime
                    .stop_sandbox(&id)
                    .await
                    .map_err(|e| e.to_string()),
            )
        });
    }

    fn start(&mut self, name: String, attempt: u32) {
        let Some(sandbox) = self.observed.sandbox().cloned() else {
            return;
        };
        let time = now();
        let backoff = &mut self.memory.of(&name).backoff;
        backoff.begin_start(attempt, time);
        let remaining_pull_seconds = backoff.remaining_pull_seconds(time);
        let target = spec::ephemeral_containers(&self.pod).find(|c| c.name == name);
        let target = target
            .and_then(|c| c.target_container_name.as_deref())
            .and_then(|t| self.observed.latest(t));
        let start = Start {
            target: target.filter(|i| i.running()).map(|i| i.id.clone()),
            node: self.node.clone(),
            pod: self.pod.clone(),
            name: name.clone(),
            attempt,
            sandbox_id: sandbox.id,
            sandbox_attempt: sandbox.attempt,
            addresses: self.addresses(),
            volumes: self.volumes.clone(),
            abort: self.abort_starts.clone(),
            back_off: remaining_pull_seconds,
            inbox: self.sender.clone(),
            is_static: self.is_static,
        };
        let resources = spec::find(&self.pod, &name)
            .and_then(|(_, c)| c.resources)
            .unwrap_or_default();
        self.begin_work(Work::Container(name.clone()), async move {
            JobResult::ContainerStart {
                name,
                resources,
                result: start.run().await,
            }
        });
    }

    fn kill(&mut self, name: String, id: String, why: String, grace: i64) {
        let (node, pod) = (self.node.clone(), self.pod.clone());
        let ip = self
            .addresses()
            .pod_ips
            .first()
            .cloned()
            .unwrap_or_default();
        self.begin_work(Work::Container(name.clone()), async move {
            let stopped = super::kill::kill(node, pod, name.clone(), id, why, grace, ip).await;
            JobResult::ContainerStop { name, stopped }
        });
    }

    /// Shortens the stops that are already running, because the grace period was shortened.
    pub(super) fn shorten_stops(&mut self, grace: i64) {
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        for id in self
            .observed
            .all()
            .filter(|i| i.running())
            .map(|i| i.id.clone())
        {
            let node = self.node.clone();
            self.jobs.spawn(async move {
                if let Err(e) = node.runtime.stop_container(&id, grace).await {
                    tracing::warn!(id, error = %e, "container can't be stopped sooner");
                }
                JobResult::Other
            });
        }
    }

    /// Sets up the volumes again and retries everything that waited for changed content or
    /// environment.
    pub(super) fn refresh_volumes(&mut self) {
        // The job computes the next refresh time when it is done.
        self.volumes.refresh_at = None;
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
        let making = self.memory.busy.contains(&Work::Volumes);
        if (self.memory.volumes_ready || making) && !self.memory.lifecycle.is_terminated() {
            self.prepare_volumes();
        }
    }

    /// Replaces containers whose image changed, whatever the restart policy says (as upstream
    /// does).
    pub(super) fn replace_changed(&mut self) {
        if !self.memory.lifecycle.is_running() {
            return;
        }
        for (role, name) in spec::names(&self.pod) {
            if !matches!(role, spec::Role::App | spec::Role::Sidecar) {
                continue;
            }
            let Some((_, container)) = spec::find(&self.pod, &name) else {
                continue;
            };
            let Some(running) = self.observed.latest(&name).filter(|i| i.running()) else {
                continue;
            };
            if container::is_changed(&running.hash, &container) {
                let why = format!("Container {name} definition changed, will be restarted");
                let id = running.id.clone();
                self.replace(&name, id, why);
            }
        }
    }

    /// Stops a CRI container so that a new one is created from the current spec.
    pub(super) fn replace(&mut self, name: &str, id: String, why: String) {
        let memory = self.memory.of(name);
        if memory.kill.as_ref().is_none_or(|kill| kill.id != id) {
            memory.replaced = Some(id.clone());
            memory.kill = Some(crate::pod::memory::Kill {
                id,
                why,
                grace: None,
            });
        }
    }

    fn report_backoff(&mut self) {
        let time = now();
        let loops: Vec<CriContainer> = spec::names(&self.pod)
            .into_iter()
            .filter_map(|(_, name)| self.observed.latest(&name).cloned())
            .filter(|i| i.state == CriState::Exited && ready_at(&self.memory, i) > time)
            .collect();
        for ended in loops {
            if self.backoffs_reported.insert(ended.id.clone()) {
                let about = reference(
                    &self.pod,
                    Some((
                        super::observe::list_name(&self.pod, &ended.name),
                        &ended.name,
                    )),
                );
                let text = format!(
                    "Back-off restarting failed container {} in pod {}",
                    ended.name,
                    spec::full_name(&self.pod)
                );
                self.node.recorder.warning(&about, "BackOff", text);
            }
        }
    }
}

/// Returns the runtime handler of the pod's RuntimeClass.
pub(super) async fn read_runtime_handler(
    node: &crate::context::KubeletContext,
    pod: &k8s_openapi::api::core::v1::Pod,
) -> Result<String, String> {
    use k8s_openapi::api::node::v1::RuntimeClass;
    let Some(name) = spec::spec(pod)
        .runtime_class_name
        .as_deref()
        .filter(|n| !n.is_empty())
    else {
        return Ok(String::new());
    };
    let client = node
        .client
        .as_ref()
        .ok_or("RuntimeClasses can't be read without an API server")?;
    let class = client.api::<RuntimeClass>().get(name).await;
    class
        .map(|c| c.handler)
        .map_err(|e| format!("failed to get RuntimeClass {name:?}: {e}"))
}
