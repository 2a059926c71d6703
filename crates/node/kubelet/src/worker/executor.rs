//! The executor: runs a pod's jobs, each in a task of its own, and returns their results.
//!
//! It decides nothing: when a job runs, and what follows from its result, is up to the worker.

use super::messages::{JobResult, Message};
use super::start::Start;
use super::stop::{StopContainer, remaining_grace};
use crate::context::{KubeletContext, now};
use crate::cri_config::fields::Addresses;
use crate::cri_config::resources::compute_effective_resources;
use crate::cri_config::sandbox;
use crate::pod::memory::Work;
use crate::pod::resize::AppliedPod;
use crate::pod::resize_plan::ResizeOutcome;
use crate::pod::spec;
use crate::pod::state::PodState;
use crate::pod::view::{CriContainer, Sandbox};
use crate::volumes::{Tokens, Volumes, prepare_volumes};
use crate::worker::resize_job::ResizeJob;
use crate::worker::runtime_handler::read_runtime_handler;
use base_task::CancellationToken;
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::{self, JoinError, JoinSet};

/// The jobs of one pod.
pub(crate) struct Executor {
    kubelet: Arc<KubeletContext>,
    /// The worker's inbox, for reports of a job before its end.
    inbox: UnboundedSender<Message>,
    jobs: JoinSet<JobResult>,
    /// The work of each running job, to find it again if the job panics.
    running_work: HashMap<task::Id, Work>,
    /// Cancelled when termination begins: aborts starts that still wait for an image pull or a
    /// hook, and a resize that waits for the runtime.
    abort_starts: CancellationToken,
    /// The volumes that are set up.
    pub(super) volumes: Volumes,
    tokens: Arc<Tokens>,
    /// An input changed while the volumes were being set up, so they are set up once more.
    volumes_outdated: bool,
}

/// The panic of a job.
pub(crate) struct JobPanic {
    /// None if other jobs need not wait for this one.
    pub(crate) work: Option<Work>,
    pub(crate) error: JoinError,
}

impl Executor {
    pub(crate) fn new(kubelet: &Arc<KubeletContext>, inbox: UnboundedSender<Message>) -> Self {
        Executor {
            kubelet: kubelet.clone(),
            inbox,
            jobs: JoinSet::new(),
            running_work: HashMap::new(),
            abort_starts: CancellationToken::new(),
            volumes: Volumes::default(),
            tokens: Arc::default(),
            volumes_outdated: false,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Lets the running jobs end by themselves, because the kubelet stops.
    pub(crate) fn detach_jobs(&mut self) {
        self.jobs.detach_all();
    }

    /// Waits for the end of a job; None if none runs. Cancellation loses no result.
    pub(crate) async fn next_end(&mut self) -> Option<Result<JobResult, JobPanic>> {
        Some(match self.jobs.join_next_with_id().await? {
            Ok((id, result)) => {
                self.running_work.remove(&id);
                Ok(result)
            }
            Err(error) => Err(JobPanic {
                work: self.running_work.remove(&error.id()),
                error,
            }),
        })
    }

    /// Starts a job that nothing else may do meanwhile.
    pub(super) fn begin_work(
        &mut self,
        state: &mut PodState,
        work: Work,
        job: impl Future<Output = JobResult> + Send + 'static,
    ) {
        state.memory.busy.insert(work.clone());
        // The id finds the work again if the job panics; otherwise the work would count as running
        // for ever.
        let id = self.jobs.spawn(job).id();
        self.running_work.insert(id, work);
    }

    /// Aborts starts that wait for an image pull or a hook, and resizes.
    pub(crate) fn abort_starts(&self) {
        self.abort_starts.cancel();
    }

    pub(crate) fn addresses(&self, state: &PodState) -> Addresses {
        Addresses {
            pod_ips: state.pod_ips(&self.kubelet.ips),
            host_ips: self.kubelet.ips.clone(),
        }
    }

    /// Sets up the volumes; once more afterwards if that is being done already.
    pub(crate) fn set_up_volumes(&mut self, state: &mut PodState) {
        if state.memory.busy.contains(&Work::Volumes) {
            // The running job may have read its inputs before they changed.
            self.volumes_outdated = true;
            return;
        }
        let (kubelet, pod, tokens, addresses) = (
            self.kubelet.clone(),
            state.pod.clone(),
            self.tokens.clone(),
            self.addresses(state),
        );
        // A terminating pod must not wait for objects that its volumes lack.
        let abort = if state.memory.lifecycle.is_running() {
            self.abort_starts.clone()
        } else {
            CancellationToken::new()
        };
        self.begin_work(state, Work::Volumes, async move {
            tokio::select! {
                () = abort.cancelled() => JobResult::VolumesSetUp(None),
                result = prepare_volumes(&kubelet, &pod, &tokens, &addresses) => {
                    JobResult::VolumesSetUp(Some(result))
                }
            }
        });
    }

    /// Prepares the devices of the pod's claims.
    pub(crate) fn prepare_devices(&mut self, state: &mut PodState) {
        let (kubelet, pod) = (self.kubelet.clone(), state.pod.clone());
        let abort = self.abort_starts.clone();
        self.begin_work(state, Work::Devices, async move {
            tokio::select! {
                () = abort.cancelled() => JobResult::DevicesPrepared(None),
                result = crate::devices::prepare_devices(&kubelet, &pod) => {
                    JobResult::DevicesPrepared(Some(result))
                }
            }
        });
    }

    /// Releases the devices of the pod's claims.
    pub(crate) fn release_devices(&mut self, state: &mut PodState) {
        let (kubelet, uid) = (self.kubelet.clone(), state.uid.clone());
        self.begin_work(state, Work::Devices, async move {
            let released = kubelet.devices.release_pod(&uid).await;
            JobResult::DevicesReleased(released.map_err(|error| error.to_string()))
        });
    }

    /// Returns whether the volumes must be set up once more, and resets that.
    pub(crate) fn take_volumes_outdated(&mut self) -> bool {
        std::mem::take(&mut self.volumes_outdated)
    }

    pub(crate) fn create_sandbox(&mut self, state: &mut PodState, attempt: u32) {
        let (kubelet, pod) = (self.kubelet.clone(), state.pod.clone());
        // The cgroup is made together with the sandbox.
        state.memory.applied.pod = Some(AppliedPod::of_pod(&pod));
        self.begin_work(state, Work::Sandbox, async move {
            JobResult::SandboxCreated(run_sandbox(&kubelet, &pod, attempt).await)
        });
    }

    pub(crate) fn stop_sandbox(&mut self, state: &mut PodState, id: String) {
        let kubelet = self.kubelet.clone();
        self.begin_work(state, Work::Sandbox, async move {
            let stopped = kubelet.runtime.stop_sandbox(&id).await;
            JobResult::SandboxStopped(stopped.map_err(|e| e.to_string()))
        });
    }

    pub(crate) fn start_container(&mut self, state: &mut PodState, name: String, attempt: u32) {
        let Some(sandbox) = state.observed.sandbox().cloned() else {
            return;
        };
        let time = now();
        let backoff = &mut state.memory.entry(&name).backoff;
        backoff.begin_start(attempt, time);
        let remaining_pull_seconds = backoff.remaining_pull_seconds(time);
        let target = spec::ephemeral_containers(&state.pod).find(|c| c.name == name);
        // An exited target has no process namespace that the ephemeral container could join.
        let target = target
            .and_then(|c| c.target_container_name.as_deref())
            .and_then(|t| state.observed.latest(t));
        let start = Start {
            target: target.filter(|i| i.is_running()).map(|i| i.id.clone()),
            kubelet: self.kubelet.clone(),
            pod: state.pod.clone(),
            name: name.clone(),
            attempt,
            sandbox_id: sandbox.id,
            sandbox_attempt: sandbox.attempt,
            addresses: self.addresses(state),
            volumes: self.volumes.clone(),
            abort: self.abort_starts.clone(),
            back_off: remaining_pull_seconds,
            inbox: self.inbox.clone(),
            is_static: state.is_static,
        };
        let resources = spec::find_container(&state.pod, &name)
            .map(|(_, container)| compute_effective_resources(&state.pod, &container))
            .unwrap_or_default();
        self.begin_work(state, Work::Container(name.clone()), async move {
            JobResult::ContainerStart {
                name,
                resources,
                result: start.run().await,
            }
        });
    }

    pub(crate) fn stop_container(&mut self, state: &mut PodState, stop: StopContainer) {
        let (kubelet, pod, ips) = (
            self.kubelet.clone(),
            state.pod.clone(),
            state.pod_ips(&self.kubelet.ips),
        );
        self.begin_work(state, Work::Container(stop.name.clone()), async move {
            JobResult::ContainerStop {
                // The runtime call itself waits up to the grace period, so this is a job of its
                // own.
                stopped: stop.run(&kubelet, &pod, ips.first()).await,
                name: stop.name,
            }
        });
    }

    /// Shortens the stops that are already running, because the grace period was shortened to
    /// `grace` seconds.
    pub(crate) fn shorten_stops(&mut self, state: &PodState, grace: i64) {
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        let grace = remaining_grace(grace, Duration::ZERO);
        for container in state.observed.iter_containers().filter(|c| c.is_running()) {
            let (kubelet, id) = (self.kubelet.clone(), container.id.clone());
            self.jobs.spawn(async move {
                if let Err(e) = kubelet.runtime.stop_container(&id, grace).await {
                    tracing::warn!(id, error = %e, "container can't be stopped sooner");
                }
                JobResult::Other
            });
        }
    }

    /// Removes an exited container and its logs.
    pub(crate) fn remove_container(&mut self, pod: &Pod, old: CriContainer) {
        let kubelet = self.kubelet.clone();
        let log = super::observe::locate_log(&self.kubelet, pod, &old);
        self.jobs.spawn(async move {
            // The log belongs to the container as long as the runtime has it.
            if kubelet.runtime.remove_container(&old.id).await.is_ok() {
                base_task::blocking(|| crate::housekeeping::remove_logs(&log));
            }
            JobResult::Other
        });
    }

    /// Applies a resize.
    pub(crate) fn resize_pod(&mut self, state: &mut PodState, job: ResizeJob) {
        let kubelet = self.kubelet.clone();
        self.begin_resize(state, async move { job.run(&kubelet).await });
    }

    /// Starts a resize that ends without a result when the pod terminates.
    pub(super) fn begin_resize(
        &mut self,
        state: &mut PodState,
        resize: impl Future<Output = ResizeOutcome> + Send + 'static,
    ) {
        let abort = self.abort_starts.clone();
        self.begin_work(state, Work::Resize, async move {
            tokio::select! {
                () = abort.cancelled() => JobResult::Resize(None),
                outcome = resize => JobResult::Resize(Some(outcome)),
            }
        });
    }

    /// Releases the pod's files and its cgroup.
    pub(crate) fn release_resources(&mut self, uid: String) {
        let kubelet = self.kubelet.clone();
        self.jobs.spawn(async move {
            base_task::blocking(|| super::release_resources(&kubelet, &uid));
            JobResult::Other
        });
    }
}

async fn run_sandbox(kubelet: &KubeletContext, pod: &Pod, attempt: u32) -> Result<Sandbox, String> {
    // The cgroup comes first: runc would create a missing parent without limits.
    let config = base_task::blocking(|| {
        let resolv = std::fs::read_to_string(&kubelet.settings.resolv_conf).unwrap_or_default();
        kubelet
            .cgroups
            .ensure_pod_cgroup(pod)
            .map_err(|e| format!("can't make the pod's cgroup: {e}"))?;
        let cgroup = kubelet.cgroups.pod_path(pod);
        let config =
            sandbox::build_sandbox_config(pod, &kubelet.settings, cgroup, attempt, &resolv)?;
        std::fs::create_dir_all(&config.log_directory)
            .map_err(|e| format!("can't create {}: {e}", config.log_directory))?;
        Ok::<_, String>(config)
    })?;
    let handler = read_runtime_handler(kubelet, pod).await?;
    // After the files are written: only calls that occupy the processors take a turn.
    let _turn = kubelet.starts.acquire().await;
    let created = kubelet.runtime.run_sandbox(config, handler).await;
    let id = created.map_err(|e| e.to_string())?;
    // CNI assigns the addresses during the creation, and RunPodSandbox does not return them.
    let status = kubelet.runtime.sandbox_status(&id).await;
    status.map(Sandbox::from_status).map_err(|e| e.to_string())
}
