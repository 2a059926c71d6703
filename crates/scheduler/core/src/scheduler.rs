//! The loop: take a pod, decide on a snapshot, hand the outcome to a task that writes it down.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base_task::CancellationToken;
use client::object_reference;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use scheduler_framework::cycle::{self, Chosen, Nominations, Unfit};
use scheduler_framework::{ClusterEvent, CycleState, PermitOutcome, PodInfo, Profile, Rank, Rejection};

use crate::cache::Cache;
use crate::metrics::Numbers;
use crate::outcome::Writer;
use crate::queue::{Attempt, Judge, Queue};

const UNSCHEDULABLE: &str = "Unschedulable";
const ERROR: &str = "SchedulerError";

/// Pods that room is being made for.
#[derive(Default)]
pub(crate) struct Nominated {
    inner: Mutex<HashMap<String, (String, Arc<PodInfo>)>>,
}

impl Nominated {
    /// Takes over what the pod's status says.
    pub(crate) fn observe(&self, pod: &Arc<PodInfo>) {
        match pod.nominated_node() {
            Some(node) => self.set(pod, node),
            None => drop(self.remove(pod.uid())),
        }
    }

    pub(crate) fn set(&self, pod: &Arc<PodInfo>, node: &str) {
        self.inner.lock().insert(pod.uid().to_owned(), (node.to_owned(), Arc::clone(pod)));
    }

    /// True if there was one.
    pub(crate) fn remove(&self, uid: &str) -> bool {
        self.inner.lock().remove(uid).is_some()
    }
}

impl Nominations for Nominated {
    fn on(&self, node: &str) -> Vec<Arc<PodInfo>> {
        let inner = self.inner.lock();
        inner.values().filter(|(name, _)| name == node).map(|(_, pod)| Arc::clone(pod)).collect()
    }

    fn is_empty(&self) -> bool {
        self.inner.lock().is_empty()
    }
}

/// Profiles by scheduler name; what the queue asks.
pub(crate) struct Profiles(pub(crate) Vec<Profile>);

impl Profiles {
    fn of(&self, pod: &Pod) -> Option<&Profile> {
        let name = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or_default();
        let name = if name.is_empty() { crate::profiles::DEFAULT_NAME } else { name };
        self.0.iter().find(|profile| profile.name == name)
    }

    fn gate(&self, pod: &PodInfo) -> Option<Rejection> {
        let points = &self.of(&pod.pod)?.points;
        points.pre_enqueue.iter().find_map(|entry| entry.plugin.pre_enqueue(pod))
    }
}

impl Judge for Profiles {
    fn rank(&self, pod: &PodInfo, since: i128) -> Rank {
        let sort = self.of(&pod.pod).and_then(|profile| profile.points.queue_sort.first());
        sort.map_or(Rank(0, since), |entry| entry.plugin.rank(pod, since))
    }

    fn is_gated(&self, pod: &PodInfo) -> bool {
        self.gate(pod).is_some()
    }

    fn hint(&self, plugin: &str, pod: &PodInfo, event: &ClusterEvent) -> bool {
        self.of(&pod.pod).is_none_or(|profile| profile.points.hint(plugin, pod, event))
    }
}

/// The scheduler's parts.
pub(crate) struct Scheduler {
    pub(crate) cache: Cache,
    pub(crate) queue: Queue,
    pub(crate) nominations: Nominated,
    pub(crate) profiles: Arc<Profiles>,
    pub(crate) writer: Writer,
    pub(crate) numbers: Numbers,
}

impl Scheduler {
    /// Whether a pod is to be scheduled by one of the profiles.
    pub(crate) fn is_ours(&self, pod: &Pod) -> bool {
        self.profiles.of(pod).is_some()
    }

    /// Says of a gated pod that it is, if the API server has not said so.
    pub(crate) fn note_gated(self: &Scheduler, pod: &Arc<PodInfo>) {
        let gates = pod.spec().and_then(|spec| spec.scheduling_gates.as_deref()).unwrap_or_default();
        let conditions = pod.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let said = conditions.iter().any(|condition| condition.reason.as_deref() == Some("SchedulingGated"));
        if gates.is_empty() || said {
            return;
        }
        let (writer, pod) = (self.writer.clone(), Arc::clone(&pod.pod));
        tokio::spawn(async move {
            let message = "Scheduling is blocked due to non-empty scheduling gates";
            writer.condition(&pod, "SchedulingGated", message, None).await;
        });
    }

    /// Schedules until `term` ends.
    pub(crate) async fn run(self: Arc<Self>, term: CancellationToken) {
        self.queue.recover();
        let mut start = 0;
        loop {
            let attempt = tokio::select! {
                () = term.cancelled() => return,
                attempt = self.queue.next() => attempt,
            };
            let Some(attempt) = attempt else { return };
            self.attempt(attempt, &mut start);
        }
    }

    fn attempt(self: &Arc<Self>, attempt: Attempt, start: &mut usize) {
        let pod = Arc::clone(&attempt.pod);
        let Some(profile) = self.profiles.of(&pod.pod) else { return self.queue.remove(pod.uid()) };
        if pod.pod.metadata.deletion_timestamp.is_some() || self.cache.has_pod(pod.uid()) {
            // On its way out, or being bound: the informer or the binding's end will say more.
            return self.queue.settle(pod.uid());
        }
        let (snapshot, began) = (self.cache.snapshot(), Instant::now());
        match cycle::schedule(profile, &snapshot, &self.nominations, &pod, start) {
            Ok(chosen) => {
                drop(snapshot);
                self.numbers.attempt("scheduled", &profile.name, began.elapsed());
                self.commit(attempt, chosen);
            }
            Err(unfit) => {
                let result = if unfit.error.is_some() { "error" } else { "unschedulable" };
                self.numbers.attempt(result, &profile.name, began.elapsed());
                self.unfit(&pod, *unfit);
            }
        }
    }

    /// Keeps the node for the pod and binds in the background.
    fn commit(self: &Arc<Self>, attempt: Attempt, chosen: Chosen) {
        let (pod, node) = (Arc::clone(&attempt.pod), chosen.node.to_string());
        self.cache.assume(&pod, &node);
        self.queue.settle(pod.uid());
        let this = Arc::clone(self);
        let mut state = chosen.state;
        tokio::spawn(async move {
            match this.bind(&mut state, &pod, &node).await {
                Ok(took) => {
                    this.nominations.remove(pod.uid());
                    let since = jiff::Timestamp::now().as_nanosecond() - attempt.since;
                    this.numbers.bound(took, Duration::from_nanos(u64::try_from(since).unwrap_or(0)));
                    this.writer.scheduled(&pod, &node);
                }
                Err(rejection) => this.unbound(&state, &pod, &node, &rejection).await,
            }
        });
    }

    async fn bind(&self, state: &mut CycleState, pod: &PodInfo, node: &str) -> Result<Duration, Rejection> {
        let Some(profile) = self.profiles.of(&pod.pod) else {
            return Err(Rejection::error("", "the profile is gone"));
        };
        for entry in &profile.points.reserve {
            entry.plugin.reserve(state, pod, node)?;
        }
        for entry in &profile.points.permit {
            match entry.plugin.permit(state, pod, node) {
                PermitOutcome::Allow => {}
                PermitOutcome::Wait(limit) => tokio::time::sleep(limit).await,
                PermitOutcome::Reject(rejection) => return Err(rejection),
            }
        }
        let failed = |error: scheduler_framework::BindError| Rejection::error(error.plugin, error.message);
        for entry in &profile.points.pre_bind {
            entry.plugin.pre_bind(state, pod, node).await.map_err(failed)?;
        }
        let began = Instant::now();
        for entry in &profile.points.bind {
            if entry.plugin.bind(pod, node).await.map_err(failed)? {
                profile.points.post_bind.iter().for_each(|entry| entry.plugin.post_bind(pod, node));
                return Ok(began.elapsed());
            }
        }
        Err(Rejection::error("", "no plugin bound the pod"))
    }

    /// Gives the node back and has the pod tried again.
    async fn unbound(&self, state: &CycleState, pod: &Arc<PodInfo>, node: &str, rejection: &Rejection) {
        let mut state = state.clone();
        if let Some(profile) = self.profiles.of(&pod.pod) {
            for entry in profile.points.reserve.iter().rev() {
                entry.plugin.unreserve(&mut state, pod, node);
            }
        }
        self.cache.forget(pod.uid());
        // The node has room again for others too.
        self.queue.event(ClusterEvent::AssignedPodDeleted(Arc::clone(&pod.pod)));
        if self.queue.pod(pod.uid()).is_none() || self.cache.has_pod(pod.uid()) {
            return;
        }
        let message = format!("binding rejected: {}", rejection.reasons.join(", "));
        tracing::warn!(pod = pod.key(), node, message, "a pod could not be bound");
        self.queue.reject(pod.uid(), HashSet::new(), true);
        self.writer.unschedulable(&pod.pod, ERROR, &message, None).await;
    }

    /// Writes down why the pod found no node, and makes room for it if there is a way.
    fn unfit(self: &Arc<Self>, pod: &Arc<PodInfo>, unfit: Unfit) {
        let message = match &unfit.error {
            Some(error) => error.clone(),
            None => unfit.diagnosis.message(),
        };
        let reason = if unfit.error.is_some() { ERROR } else { UNSCHEDULABLE };
        let nominate = unfit.remedy.nominate;
        match nominate.as_deref() {
            Some("") => drop(self.nominations.remove(pod.uid())),
            Some(node) => self.nominations.set(pod, node),
            None => {}
        }
        tracing::debug!(pod = pod.key(), message, "no node");
        let (this, pod, evictions) = (Arc::clone(self), Arc::clone(pod), unfit.remedy.evict);
        let errored = unfit.error.is_some();
        self.queue.reject(pod.uid(), unfit.diagnosis.plugins, errored);
        tokio::spawn(async move {
            this.writer.unschedulable(&pod.pod, reason, &message, nominate.as_deref()).await;
            for eviction in &evictions {
                this.numbers.preempted();
                this.evict(eviction, &pod).await;
            }
        });
    }

    async fn evict(&self, eviction: &scheduler_framework::Eviction, pod: &Arc<PodInfo>) {
        tracing::info!(pod = pod.key(), victim = ?object_reference(&*eviction.pod).name, "making room");
        self.writer.evict(eviction, &pod.pod).await;
    }
}
