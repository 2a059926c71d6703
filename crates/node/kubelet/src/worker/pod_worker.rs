//! The pod worker's loop.

use super::admit::Rejection;
use super::messages::{JobResult, Message};
use super::probing::Probes;
use super::registry::PodSnapshot;
use super::resize::Resizes;
use super::status_writer::StatusWriter;
use crate::context::{KubeletContext, now};
use crate::cri_config::fields::Addresses;
use crate::pod::backoff::RUNTIME_DELAY;
use crate::pod::lifecycle::{TerminationCause, Transition};
use crate::pod::memory::{ContainerMemory, Memory, Work};
use crate::pod::plan::{Facts, plan};
use crate::pod::relist::PendingRelists;
use crate::pod::spec;
use crate::pod::status::{Surroundings, status};
use crate::pod::view::{CriContainer, CriState, Observed};
use crate::pod::{Nanos, SECOND};
use crate::volumes::{Tokens, Volumes};
use base_task::CancellationToken;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use parking_lot::RwLock;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{self, JoinSet};

/// The task that runs one pod.
pub(crate) struct PodWorker {
    pub(super) node: Arc<KubeletContext>,
    pub(super) pod: Arc<Pod>,
    pub(super) uid: String,
    /// The pod comes from a manifest on this node.
    pub(super) is_static: bool,
    pub(super) observed: Observed,
    pub(super) memory: Memory,
    pub(super) volumes: Volumes,
    pub(super) tokens: Arc<Tokens>,
    pub(super) inbox: UnboundedReceiver<Message>,
    pub(super) sender: UnboundedSender<Message>,
    pub(super) jobs: JoinSet<JobResult>,
    pub(super) probes: Probes,
    pub(super) status_writer: StatusWriter,
    pub(super) last_status: PodStatus,
    pub(super) snapshot: Arc<RwLock<PodSnapshot>>,
    pub(super) first_seen: Nanos,
    /// Cancelled when termination begins: aborts starts that still wait for an image pull or a
    /// hook.
    pub(super) abort_starts: CancellationToken,
    pub(super) wake_at: Option<Nanos>,
    pub(super) relists: PendingRelists,
    pub(super) backoffs_reported: BTreeSet<String>,
    pub(super) resizes: Resizes,
    /// An input changed while the volumes were being set up, so they are set up once more.
    pub(super) volumes_outdated: bool,
    /// The work of each running job, to find it again if the job panics.
    pub(super) running_work: HashMap<task::Id, Work>,
}

/// Returns the phase in the pod's status if it is a final one.
fn terminal_phase(pod: &Pod) -> Option<&'static str> {
    match pod.status.as_ref()?.phase.as_deref()? {
        "Failed" => Some("Failed"),
        "Succeeded" => Some("Succeeded"),
        _ => None,
    }
}

/// Starts the pod worker.
pub(crate) fn spawn_worker(node: &Arc<KubeletContext>, pod: Arc<Pod>, is_static: bool) {
    let worker = PodWorker::new(node, pod, is_static);
    node.tasks.spawn("pod worker", worker.run());
}

impl PodWorker {
    /// Registers a pod with a worker that does not run yet.
    pub(crate) fn new(node: &Arc<KubeletContext>, pod: Arc<Pod>, is_static: bool) -> Self {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let (sender, inbox) = unbounded_channel();
        let last_status = pod.status.clone().unwrap_or_default();
        let snapshot = PodSnapshot {
            pod: pod.clone(),
            status: Arc::new(last_status.clone()),
            observed: Arc::default(),
            // A pod of an earlier life of the kubelet was admitted then; a new one counts from its
            // admission on.
            active: last_status.start_time.is_some()
                && !matches!(last_status.phase.as_deref(), Some("Succeeded" | "Failed")),
            is_static,
            is_desired: true,
        };
        let snapshot = Arc::new(RwLock::new(snapshot));
        node.workers.add(&uid, sender.clone(), snapshot.clone());
        node.objects.register(&pod);
        PodWorker {
            status_writer: StatusWriter::spawn(node, &pod, is_static),
            node: node.clone(),
            pod,
            uid,
            is_static,
            observed: Observed::default(),
            memory: Memory::default(),
            volumes: Volumes::default(),
            tokens: Arc::default(),
            inbox,
            sender,
            jobs: JoinSet::new(),
            probes: Probes::default(),
            last_status,
            snapshot,
            first_seen: now(),
            abort_starts: CancellationToken::new(),
            wake_at: None,
            relists: PendingRelists::default(),
            backoffs_reported: BTreeSet::new(),
            resizes: Resizes::default(),
            volumes_outdated: false,
            running_work: HashMap::new(),
        }
    }

    /// Returns the reason of the eviction that waits in the inbox.
    #[cfg(test)]
    pub(crate) fn evicted(&mut self) -> Option<String> {
        match self.inbox.try_recv() {
            Ok(Message::Evict(reason, _)) => Some(reason),
            _ => None,
        }
    }

    async fn run(mut self) {
        let shutdown = self.node.tasks.shutdown().clone();
        self.recover_and_admit().await;
        loop {
            self.sync_pod();
            let lifecycle = &self.memory.lifecycle;
            let cleaned_up = lifecycle.is_terminated() && lifecycle.is_deletion_requested();
            if cleaned_up && self.jobs.is_empty() {
                break;
            }
            let sleep = self.sleep();
            let mut relist = tokio::select! {
                () = shutdown.cancelled() => {
                    self.jobs.detach_all();
                    return;
                }
                Some(message) = self.inbox.recv() => self.handle_message(message),
                Some(end) = self.jobs.join_next_with_id() => self.handle_job_end(end),
                () = tokio::time::sleep(sleep) => self.handle_deadlines(),
            };
            while let Ok(message) = self.inbox.try_recv() {
                relist |= self.handle_message(message);
            }
            if relist {
                self.relist().await;
            }
        }
        self.clean_up().await;
    }

    /// Reads the pod's existing containers from the runtime, and admits or rejects the pod.
    async fn recover_and_admit(&mut self) {
        // A new pod has nothing in the runtime yet, so the relist is skipped.
        if self.last_status.start_time.is_some() || self.is_static {
            // Nothing may be created before the existing containers are known: they would be
            // created twice.
            while !self.relist().await {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        if matches!(
            self.last_status.phase.as_deref(),
            Some("Succeeded" | "Failed")
        ) {
            self.terminate(TerminationCause::AlreadyFinished, 0);
        } else if self.observed.sandboxes.is_empty()
            && self.last_status.start_time.is_none()
            && let Some(rejection) = self.admit()
        {
            let about = crate::context::reference(&self.pod, None);
            self.node
                .recorder
                .warning(&about, &rejection.reason, rejection.message.clone());
            self.terminate(
                TerminationCause::Failed {
                    reason: rejection.reason,
                    message: rejection.message,
                },
                0,
            );
        } else {
            self.snapshot.write().active = true;
            // Applies a resize that was requested while no kubelet ran.
            self.sync_resources();
        }
        self.check_deletion();
    }

    /// Runs the node's admission; from then on an admitted pod counts for the node's resources.
    fn admit(&self) -> Option<Rejection> {
        let _turn = self.node.workers.admission();
        let rejection = super::admit(&self.node, &self.pod);
        self.snapshot.write().active = rejection.is_none();
        rejection
    }

    /// Returns the time until the next deadline.
    fn sleep(&self) -> Duration {
        let refresh = self
            .volumes
            .refresh_at
            .and_then(|t| i64::try_from(t.as_nanosecond()).ok());
        let due = [self.wake_at, refresh, self.deadline(), self.resizes.again]
            .into_iter()
            .flatten()
            .min();
        let wait = due.map_or(3_600 * SECOND, |due| due - now());
        Duration::from_nanos(u64::try_from(wait).unwrap_or_default()).max(Duration::from_millis(1))
    }

    /// Returns the time at which activeDeadlineSeconds expires.
    fn deadline(&self) -> Option<Nanos> {
        if !self.memory.lifecycle.is_running() {
            return None;
        }
        let limit = spec::spec(&self.pod).active_deadline_seconds?;
        let begun = self
            .last_status
            .start_time
            .as_ref()
            .map_or(self.first_seen, |t| t.0.as_second() * SECOND);
        Some(begun + limit * SECOND)
    }

    fn handle_deadlines(&mut self) -> bool {
        let time = now();
        let is_due = |at: Option<Nanos>| at.is_some_and(|at| at <= time);
        if is_due(self.deadline()) {
            let message =
                "Pod was active on the node longer than the specified deadline".to_owned();
            let about = crate::context::reference(&self.pod, None);
            self.node
                .recorder
                .normal(&about, "DeadlineExceeded", message.clone());
            self.terminate(
                TerminationCause::Failed {
                    reason: "DeadlineExceeded".into(),
                    message,
                },
                spec::grace(&self.pod),
            );
        }
        if is_due(
            self.volumes
                .refresh_at
                .and_then(|t| i64::try_from(t.as_nanosecond()).ok()),
        ) {
            self.refresh_volumes();
        }
        if is_due(self.resizes.again) {
            self.sync_resources();
        }
        !self.relists.is_empty()
    }

    /// Computes the next actions, starts them and updates the status.
    fn sync_pod(&mut self) {
        self.wake_at = self.relists.next_at(now());
        self.replace_changed();
        loop {
            let facts = Facts {
                pod: &self.pod,
                observed: &self.observed,
                memory: &self.memory,
                now: now(),
            };
            let commands = plan(facts);
            let mut again = false;
            for command in commands {
                again |= self.execute(command);
            }
            if !again {
                break;
            }
        }
        self.sync_probes();
        self.sync_status();
    }

    pub(super) fn addresses(&self) -> Addresses {
        let host_ips = self.node.ips.clone();
        let pod_ips = match self.observed.sandbox() {
            _ if spec::host_network(&self.pod) => host_ips.clone(),
            Some(sandbox) => sandbox.ips.clone(),
            None => Vec::new(),
        };
        Addresses { pod_ips, host_ips }
    }

    /// Computes the status, and sends it to the status writer if it changed.
    pub(super) fn sync_status(&mut self) {
        let facts = Facts {
            pod: &self.pod,
            observed: &self.observed,
            memory: &self.memory,
            now: now(),
        };
        let around = Surroundings {
            node_ips: &self.node.ips,
            runtime: &self.node.runtime_name,
            before: &self.last_status,
            first_seen: self.first_seen,
        };
        let new = if self.memory.lifecycle.is_status_final() {
            self.last_status.clone()
        } else {
            status(facts, around)
        };
        if new != self.last_status {
            self.status_writer.queue(new.clone());
            self.last_status = new;
        }
        let mut snapshot = self.snapshot.write();
        snapshot.pod = self.pod.clone();
        snapshot.status = Arc::new(self.last_status.clone());
        snapshot.observed = Arc::new(self.observed.clone());
        snapshot.active = !self.memory.lifecycle.is_terminated()
            && !matches!(
                self.last_status.phase.as_deref(),
                Some("Succeeded" | "Failed")
            );
        snapshot.is_desired = !self.memory.lifecycle.is_deletion_requested();
        drop(snapshot);
        let running = self.observed.all().filter(|i| i.running());
        for id in running
            .filter(|i| self.node.workers.ended_early(&i.id))
            .map(|i| i.id.clone())
            .collect::<Vec<_>>()
        {
            // Can't fail: the receiver is the worker's own inbox.
            let _ = self.sender.send(Message::Changed(Some(id)));
        }
    }

    /// Relists the pod's sandboxes and containers; returns false if the runtime does not respond.
    async fn relist(&mut self) -> bool {
        let candidates = self.relists.oom_candidates();
        match super::observe::observe(&self.node, &self.pod, &self.observed, candidates).await {
            Ok(observed) => self.observed = observed,
            Err(e) => {
                tracing::warn!(pod = spec::full_name(&self.pod), error = %e, "the runtime can't be asked");
                self.wake_at = Some(now() + RUNTIME_DELAY);
                return false;
            }
        }
        self.relists.record_relist(&self.observed);
        self.recover_containers();
        true
    }

    /// Recovers containers that this worker did not start: those of an earlier run of the kubelet.
    fn recover_containers(&mut self) {
        for (_, name) in spec::names(&self.pod) {
            let Some(latest) = self.observed.latest(&name) else {
                continue;
            };
            if self.memory.busy_with(&name) || self.memory.of_container(&name, &latest.id).is_some()
            {
                continue;
            }
            let full = format!("{}://{}", self.node.runtime_name, latest.id);
            let lists = [
                &self.last_status.container_statuses,
                &self.last_status.init_container_statuses,
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

    /// Begins the pod's termination, or shortens the remaining grace period; `grace` in seconds.
    pub(super) fn terminate(&mut self, cause: TerminationCause, grace: i64) {
        self.abort_starts.cancel();
        if self.memory.lifecycle.terminate(cause, grace, now()) == Transition::Shortened {
            self.shorten_stops(grace);
        }
    }

    /// Begins termination if the pod's deletion was requested.
    fn check_deletion(&mut self) {
        if self.pod.metadata.deletion_timestamp.is_some() {
            let grace = self
                .pod
                .metadata
                .deletion_grace_period_seconds
                .unwrap_or_else(|| spec::grace(&self.pod));
            self.terminate(TerminationCause::Deleted, grace);
        }
    }

    /// Handles a message; returns true if the runtime must be relisted.
    fn handle_message(&mut self, message: Message) -> bool {
        match message {
            Message::Pod(pod) => self.update_pod(pod),
            Message::Removed(pod) => {
                let given = pod
                    .metadata
                    .deletion_grace_period_seconds
                    .unwrap_or_else(|| spec::grace(&self.pod));
                self.terminate(TerminationCause::Removed, given.max(1));
            }
            Message::Changed(id) => {
                if let Some(id) = id {
                    self.relists.expect_exit(id);
                }
                return true;
            }
            Message::OutOfMemory(id) => {
                self.relists.expect_oom_exit(id);
                return true;
            }
            Message::Refresh => self.refresh_volumes(),
            Message::MirrorCreated => self.status_writer.queue(self.last_status.clone()),
            Message::MirrorUpdated(mirror) => self.status_writer.compare(mirror),
            Message::Started(container) => self.observed.put(container),
            Message::Probe {
                name,
                id,
                kind,
                report,
            } => self.apply_probe_report(&name, &id, kind, report),
            Message::Evict(reason, message) => {
                let about = crate::context::reference(&self.pod, None);
                self.node.recorder.warning(&about, &reason, message.clone());
                self.terminate(TerminationCause::Failed { reason, message }, 0);
            }
        }
        false
    }

    fn update_pod(&mut self, pod: Arc<Pod>) {
        let metadata = |p: &Pod| (p.metadata.labels.clone(), p.metadata.annotations.clone());
        let changed = metadata(&pod) != metadata(&self.pod);
        let spec_changed = pod.spec != self.pod.spec;
        if !self.is_static {
            self.status_writer.compare(pod.clone());
        }
        self.pod = pod;
        self.check_deletion();
        if spec_changed {
            self.node.objects.register(&self.pod);
            self.sync_resources();
        }
        if changed {
            self.refresh_volumes();
        }
    }

    /// Returns the memory of the container `name` if it is about the CRI container `id`.
    pub(super) fn memory_of(&mut self, name: &str, id: &str) -> Option<&mut ContainerMemory> {
        self.memory
            .containers
            .get_mut(name)
            .filter(|m| m.container_id == id)
    }

    pub(super) fn exited_containers(&self, name: &str) -> Vec<CriContainer> {
        let all = self.observed.containers.get(name).into_iter().flatten();
        all.filter(|i| i.state == CriState::Exited)
            .cloned()
            .collect()
    }
}
