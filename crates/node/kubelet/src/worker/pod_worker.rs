//! The pod worker's loop.

use super::executor::Executor;
use super::messages::Message;
use super::probing::Probes;
use super::status_sync::StatusSync;
use crate::context::{KubeletContext, build_reference, now};
use crate::pod::backoff::RUNTIME_DELAY;
use crate::pod::lifecycle::{TerminationCause, Transition};
use crate::pod::plan::compute_actions;
use crate::pod::relist::PendingRelists;
use crate::pod::spec;
use crate::pod::state::PodState;
use crate::pod::{Nanos, SECOND};
use crate::worker::admit::rejection::Rejection;
use crate::worker::resizes::Resizes;
use api_semantics::resources::{Options, pod_requests};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The task that runs one pod: it applies messages and results of jobs to the state, computes the
/// next actions from it, and hands them to the executor.
pub(crate) struct PodWorker {
    pub(super) kubelet: Arc<KubeletContext>,
    pub(super) state: PodState,
    pub(super) executor: Executor,
    pub(super) status: StatusSync,
    pub(super) probes: Probes,
    pub(super) resizes: Resizes,
    pub(super) relists: PendingRelists,
    /// Notified when resources of the node may have become free for a pending resize.
    pub(super) released: Arc<Notify>,
    pub(super) inbox: UnboundedReceiver<Message>,
    pub(super) sender: UnboundedSender<Message>,
    /// Time of the next plan.
    pub(super) wake_at: Option<Nanos>,
    /// Exited containers whose restart back-off has been reported as an event.
    pub(super) backoffs_reported: BTreeSet<String>,
}

/// Returns the phase in the pod's status if it is a final one.
fn final_phase(pod: &Pod) -> Option<&'static str> {
    match pod.status.as_ref()?.phase.as_deref()? {
        "Failed" => Some("Failed"),
        "Succeeded" => Some("Succeeded"),
        _ => None,
    }
}

/// Returns whether the status shows that a resize has made room for others.
fn releases_resources(before: &Pod, after: &Pod) -> bool {
    let options = Options {
        use_status: true,
        use_pod_status: true,
        ..Options::default()
    };
    let (before, after) = (
        pod_requests(before, &options),
        pod_requests(after, &options),
    );
    ["cpu", "memory"]
        .iter()
        .any(|name| after.count(name) < before.count(name))
}

/// Starts the pod worker.
pub(crate) fn spawn_worker(kubelet: &Arc<KubeletContext>, pod: Arc<Pod>, is_static: bool) {
    let worker = PodWorker::new(kubelet, pod, is_static);
    kubelet.tasks.spawn("pod worker", worker.run());
}

impl PodWorker {
    /// Registers a pod with a worker that does not run yet.
    pub(crate) fn new(kubelet: &Arc<KubeletContext>, pod: Arc<Pod>, is_static: bool) -> Self {
        // Unbounded, because senders hold locks and must not wait; messages are small and a worker
        // drains its inbox at once.
        let (sender, inbox) = unbounded_channel();
        let status = StatusSync::spawn(kubelet, &pod, is_static);
        let state = PodState::new(pod, is_static, now());
        let workers = &kubelet.workers;
        let released = workers.add(&state.uid, sender.clone(), status.snapshot());
        kubelet.objects.register(&state.pod);
        PodWorker {
            kubelet: kubelet.clone(),
            state,
            executor: Executor::new(kubelet, sender.clone()),
            status,
            probes: Probes::default(),
            resizes: Resizes::default(),
            relists: PendingRelists::default(),
            released,
            inbox,
            sender,
            wake_at: None,
            backoffs_reported: BTreeSet::new(),
        }
    }

    /// Returns the reason of the eviction that waits in the inbox.
    #[cfg(test)]
    pub(crate) fn received_eviction(&mut self) -> Option<String> {
        match self.inbox.try_recv() {
            Ok(Message::Evict(reason, _)) => Some(reason),
            _ => None,
        }
    }

    async fn run(mut self) {
        let shutdown = self.kubelet.tasks.shutdown().clone();
        self.recover_and_admit().await;
        loop {
            self.sync_pod();
            let lifecycle = &self.state.memory.lifecycle;
            // A pod that only finished keeps its worker: its status and logs are served until it is
            // deleted.
            let deleted = lifecycle.is_terminated() && lifecycle.is_deletion_requested();
            if deleted && self.executor.is_idle() {
                break;
            }
            let sleep = self.time_to_deadline();
            let mut relist = tokio::select! {
                () = shutdown.cancelled() => {
                    // Aborting a job between two calls of the runtime would lose the id of what was
                    // just created.
                    self.executor.detach_jobs();
                    return;
                }
                Some(message) = self.inbox.recv() => self.handle_message(message),
                Some(end) = self.executor.next_end() => self.handle_job_end(end),
                () = self.released.notified() => {
                    self.allocate_resources();
                    false
                }
                () = tokio::time::sleep(sleep) => self.handle_deadlines(),
            };
            // Several events of one pod arrive together; one relist and one plan serve them all.
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
        let is_recovered =
            self.status.is_reported() && !self.state.is_static && self.recover_allocation();
        // A new pod has nothing in the runtime yet, so the relist is skipped.
        if self.status.is_reported() || self.state.is_static {
            // Nothing may be created before the existing containers are known: they would be
            // created twice.
            while !self.relist().await {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        if self.status.is_finished() {
            // Its containers may still exist: the kubelet may have stopped between the last status
            // and the clean-up.
            self.terminate(TerminationCause::AlreadyFinished, 0);
        } else if let Some(Rejection { reason, message }) = self.admit() {
            self.fail_pod(reason, message);
        } else {
            self.status.set_active(true);
            if !is_recovered {
                self.record_allocation();
            }
            self.sync_resources();
            // Allocates a resize that was requested while no kubelet ran.
            self.allocate_resources();
        }
        self.check_deletion();
    }

    /// Runs the node's admission; from then on an admitted pod counts for the node's resources.
    fn admit(&self) -> Option<Rejection> {
        if !self.state.observed.sandboxes.is_empty() {
            // Only a kubelet that admitted the pod creates a sandbox.
            return None;
        }
        if self.status.is_reported() {
            // Its resources count already. Rejecting it for them would kill it because of a pod
            // that came later. What else the spec requires is checked: other clients than the
            // kubelet can write a status.
            return super::check_node_support(&self.kubelet, &self.state.pod);
        }
        // Held until the pod counts as active: two pods admitted at once would both get the last
        // free resources.
        base_task::blocking(|| {
            let _turn = self.kubelet.workers.lock_admission();
            let rejection = super::admit_pod(&self.kubelet, &self.state.pod);
            self.status.set_active(rejection.is_none());
            rejection
        })
    }

    /// Returns the time until the next deadline.
    fn time_to_deadline(&self) -> Duration {
        let due = [
            self.wake_at,
            self.executor.volumes.refresh_nanos(),
            self.state.active_deadline(self.status.last()),
            self.resizes.next_at(),
        ];
        let due = due.into_iter().flatten().min();
        let wait = due.map_or(3_600 * SECOND, |due| due - now());
        // At least 1 ms: the clock of the plan has finer steps than the timer, and a deadline that
        // is almost due would spin.
        Duration::from_nanos(u64::try_from(wait).unwrap_or_default()).max(Duration::from_millis(1))
    }

    /// Handles the deadlines that have expired; returns true if the runtime must be relisted.
    pub(super) fn handle_deadlines(&mut self) -> bool {
        let time = now();
        let is_due = |at: Option<Nanos>| at.is_some_and(|at| at <= time);
        if is_due(self.state.active_deadline(self.status.last())) {
            let (reason, message) = (
                "DeadlineExceeded".to_owned(),
                "Pod was active on the node longer than the specified deadline".to_owned(),
            );
            let about = build_reference(&self.state.pod, None);
            self.kubelet
                .recorder
                .normal(&about, &reason, message.clone());
            let grace = spec::grace_seconds(&self.state.pod);
            self.terminate(TerminationCause::Failed { reason, message }, grace);
        }
        if is_due(self.executor.volumes.refresh_nanos()) {
            self.refresh_volumes();
        }
        if is_due(self.resizes.again) {
            self.sync_resources();
        }
        if is_due(self.resizes.allocate_at) {
            self.allocate_resources();
        }
        if is_due(self.resizes.record_at) {
            self.record_allocation();
        }
        !self.relists.is_empty()
    }

    /// Computes the next actions, starts them and updates the status.
    pub(super) fn sync_pod(&mut self) {
        self.wake_at = self.relists.next_at(now());
        // Before the plan: the pod shrinks before a container with the new resources is started.
        // After a failure, the next try waits for its delay.
        if self.resizes.is_waiting && self.resizes.again.is_none() {
            self.sync_resources();
        }
        // Before the plan, so that a changed image stops the old container in this round.
        self.replace_changed();
        loop {
            let mut again = false;
            for action in compute_actions(self.state.facts(now())) {
                again |= self.execute(action);
            }
            if !again {
                break;
            }
        }
        // After the actions: probes of a container that is being stopped must not report any more.
        // The status comes last and shows the result of both.
        self.sync_probes();
        self.sync_status();
    }

    /// Computes and publishes the status, and handles exits that were announced before the worker
    /// had published the container.
    pub(super) fn sync_status(&mut self) {
        self.status.sync(&self.kubelet, &self.state);
        let running = self
            .state
            .observed
            .iter_containers()
            .filter(|i| i.is_running());
        for exited in running.filter(|i| self.kubelet.workers.take_early_exit(&i.id)) {
            // Can't fail: the receiver is the worker's own inbox.
            let _ = self.sender.send(Message::Changed(Some(exited.id.clone())));
        }
    }

    /// Relists the pod's sandboxes and containers; returns false if the runtime does not respond.
    async fn relist(&mut self) -> bool {
        let (state, candidates) = (&mut self.state, self.relists.oom_candidates());
        match super::observe::observe_pod(&self.kubelet, &state.pod, &state.observed, candidates)
            .await
        {
            Ok(observed) => state.observed = observed,
            Err(e) => {
                tracing::warn!(pod = spec::full_name(&state.pod), error = %e, "the runtime can't be asked");
                // The observed state stays as it is: an unreachable runtime is not an empty one,
                // and starting everything again would duplicate containers.
                self.wake_at = Some(now() + RUNTIME_DELAY);
                return false;
            }
        }
        self.relists.record_relist(&state.observed);
        state.recover_containers(self.status.last(), &self.kubelet.runtime_name);
        true
    }

    /// Begins the pod's termination, or shortens the remaining grace period; `grace` in seconds.
    pub(super) fn terminate(&mut self, cause: TerminationCause, grace: i64) {
        // First: a pull of many minutes would otherwise delay the end of the pod.
        self.executor.abort_starts();
        // Its resize keeps nothing from those of other pods.
        self.status.set_allocation(self.state.pod.clone(), None);
        let lifecycle = &mut self.state.memory.lifecycle;
        if lifecycle.terminate(cause, grace, now()) == Transition::Shortened {
            self.executor.shorten_stops(&self.state, grace);
        }
    }

    /// Fails the pod at once, with an event.
    fn fail_pod(&mut self, reason: String, message: String) {
        let about = build_reference(&self.state.pod, None);
        self.kubelet
            .recorder
            .warning(&about, &reason, message.clone());
        self.terminate(TerminationCause::Failed { reason, message }, 0);
    }

    /// Begins termination if the pod's deletion was requested.
    fn check_deletion(&mut self) {
        let pod = &self.state.pod;
        if pod.metadata.deletion_timestamp.is_some() {
            let grace = self.state.deletion_grace(pod);
            self.terminate(TerminationCause::Deleted, grace);
        }
    }

    /// Handles a message; returns true if the runtime must be relisted.
    fn handle_message(&mut self, message: Message) -> bool {
        match message {
            Message::Pod(pod) => self.update_pod(pod),
            Message::Removed(pod) => {
                // A grace period of 0 means "do not wait" and would kill at once; a removed pod
                // still gets its stop signal.
                let grace = self.state.deletion_grace(&pod).max(1);
                self.terminate(TerminationCause::Removed, grace);
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
            Message::MirrorCreated => self.status.rewrite(),
            Message::MirrorUpdated(mirror) => self.status.compare(mirror),
            // Before the postStart hook ends: the hook may take long, and the container runs
            // meanwhile.
            Message::Started(container) => self.state.observed.record(container),
            Message::Probe {
                name,
                id,
                kind,
                report,
            } => self.apply_probe_report(&name, &id, kind, report),
            Message::Evict(reason, message) => self.fail_pod(reason, message),
        }
        false
    }

    pub(super) fn update_pod(&mut self, pod: Arc<Pod>) {
        // Labels and annotations are the only metadata that a downward API volume can show.
        let metadata = |p: &Pod| (p.metadata.labels.clone(), p.metadata.annotations.clone());
        let changed = metadata(&pod) != metadata(&self.state.pod);
        match final_phase(&pod) {
            Some(phase) if !self.state.is_static && self.state.memory.lifecycle.is_running() => {
                let status = pod.status.as_ref();
                let cause = TerminationCause::SetByClient {
                    phase,
                    reason: status.and_then(|status| status.reason.clone()),
                    message: status.and_then(|status| status.message.clone()),
                };
                self.terminate(cause, spec::grace_seconds(&pod));
            }
            _ if !self.state.is_static => self.status.compare(pod.clone()),
            _ => {}
        }
        let request = self.state.desired.clone();
        let before = self.state.set_desired(pod);
        self.check_deletion();
        if before.spec != self.state.pod.spec {
            self.kubelet.objects.register(&self.state.pod);
            self.sync_resources();
        }
        if self.needs_decision(&request) {
            self.allocate_resources();
        }
        if releases_resources(&before, &self.state.pod) {
            self.kubelet.workers.retry_resizes();
        }
        if changed {
            self.refresh_volumes();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing;
    use serde_json::{Value, json};

    fn worker(dir: &tempfile::TempDir, spec: Value) -> PodWorker {
        let kubelet = testing::context(testing::settings(dir.path()));
        PodWorker::new(&kubelet, testing::pod(spec), false)
    }

    /// Returns the pod of the worker with more metadata and status.
    fn changed(worker: &PodWorker, more: Value) -> Arc<Pod> {
        let mut pod = serde_json::to_value(&*worker.state.pod).unwrap();
        for (key, value) in more.as_object().unwrap() {
            match pod.get_mut(key).and_then(Value::as_object_mut) {
                Some(map) => map.extend(value.as_object().unwrap().clone()),
                None => pod[key] = value.clone(),
            }
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[tokio::test]
    async fn deletion_begins_termination_and_a_second_one_can_only_shorten_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut worker = worker(&dir, json!({"containers": [{"name": "c"}]}));
        let left = |worker: &PodWorker| {
            let lifecycle = &worker.state.memory.lifecycle;
            let deadline = lifecycle.termination().unwrap().deadline;
            (deadline - now() + SECOND / 2) / SECOND
        };
        for (grace, seconds) in [(60, 60), (10, 10), (90, 10)] {
            let deletion = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": grace}});
            let pod = changed(&worker, deletion);
            worker.handle_message(Message::Pod(pod));
            assert_eq!(left(&worker), seconds, "after {grace} s");
        }
    }

    #[tokio::test]
    async fn eviction_fails_the_pod_without_a_grace_period() {
        let dir = tempfile::tempdir().unwrap();
        let mut worker = worker(&dir, json!({"containers": [{"name": "c"}]}));
        worker.handle_message(Message::Evict("Evicted".into(), "too much".into()));
        let termination = worker.state.memory.lifecycle.termination().unwrap();
        let cause = TerminationCause::Failed {
            reason: "Evicted".into(),
            message: "too much".into(),
        };
        assert_eq!((&termination.cause, termination.deadline), (&cause, 0));
    }

    #[tokio::test]
    async fn final_phase_written_by_a_client_terminates_the_pod() {
        for (phase, terminates) in [("Failed", true), ("Succeeded", true), ("Running", false)] {
            let dir = tempfile::tempdir().unwrap();
            let mut worker = worker(&dir, json!({"containers": [{"name": "c"}]}));
            let pod = changed(&worker, json!({"status": {"phase": phase}}));
            worker.handle_message(Message::Pod(pod));
            let running = worker.state.memory.lifecycle.is_running();
            assert_eq!(running, !terminates, "{phase}");
        }
    }

    #[tokio::test]
    async fn announced_exit_relists_the_pod() {
        let dir = tempfile::tempdir().unwrap();
        let mut worker = worker(&dir, json!({"containers": [{"name": "c"}]}));
        assert!(!worker.handle_message(Message::Refresh));
        assert!(worker.handle_message(Message::Changed(None)));
        assert!(worker.relists.is_empty());
        assert!(worker.handle_message(Message::Changed(Some("c0".into()))));
        assert!(!worker.relists.is_empty());
    }
}
