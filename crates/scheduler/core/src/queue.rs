//! The scheduling queue: pods without a node.
//!
//! A pod is active (activeQ), backing off (backoffQ), unschedulable (until a cluster event may help
//! it), held (unschedulable while its preemption runs), gated (PreEnqueue rejects it) or in flight
//! (being tried). A cluster event requeues an unschedulable pod if a plugin that rejected it
//! listens for the event and its queueing hint says that it may help; after five minutes the pod is
//! requeued in any case. Pods in back-off are tried early if activeQ is empty, unless they failed
//! with an error. [`Queue::next`] sleeps until the earliest of these times: nothing polls.

mod in_flight;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use scheduler_framework::{ClusterEvent, PodInfo, Rank};
use tokio::sync::Notify;
use tokio::time::Instant;

use in_flight::Uid;
use state::{NO_PLUGIN, Place, State, Waiting};

/// Profile-dependent decisions about pods.
pub trait QueuePlugins: Send + Sync {
    /// Returns the pod's rank in activeQ.
    fn rank(&self, pod: &PodInfo, since: i128) -> Rank;
    /// Returns whether a PreEnqueue plugin rejects the pod.
    fn is_gated(&self, pod: &PodInfo) -> bool;
    /// Returns whether a plugin of any profile listens for an event.
    fn listens_for(&self, plugin: &str, event: &ClusterEvent) -> bool;
    /// Returns whether an event that the plugin listens for may help a pod that it rejected.
    fn queueing_hint(&self, plugin: &str, pod: &PodInfo, event: &ClusterEvent) -> bool;
}

/// A pod to be scheduled.
#[derive(Clone)]
pub struct Attempt {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// Number of attempts, this one included.
    pub attempts: u32,
    /// Time at which the pod first entered the queue, in nanoseconds.
    pub arrived: i128,
}

/// The result of a failed attempt.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    /// Plugins that rejected the pod.
    pub plugins: HashSet<&'static str>,
    /// An operation failed: the pod is retried after its back-off, without waiting for an event.
    pub errored: bool,
    /// A preemption runs for the pod: it is not tried before [`Queue::release_held`].
    pub preempting: bool,
}

/// Number of pods by queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// activeQ.
    pub active: usize,
    /// backoffQ.
    pub backoff: usize,
    /// Unschedulable pods.
    pub unschedulable: usize,
    /// Gated pods.
    pub gated: usize,
}

/// Delays of pods in the queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueDelays {
    /// Initial back-off.
    pub first_backoff: Duration,
    /// Maximum back-off.
    pub longest_backoff: Duration,
    /// Maximum time without an attempt.
    pub unschedulable: Duration,
}

impl Default for QueueDelays {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            first_backoff: seconds(1),
            longest_backoff: seconds(10),
            unschedulable: seconds(300),
        }
    }
}

/// The queue.
pub struct Queue {
    plugins: Arc<dyn QueuePlugins>,
    delays: QueueDelays,
    state: Mutex<State>,
    changed: Notify,
}

impl Queue {
    /// Creates an empty queue.
    pub fn new(plugins: Arc<dyn QueuePlugins>, delays: QueueDelays) -> Self {
        Self {
            plugins,
            delays,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn place_after_admission(&self, waiting: &Waiting) -> Place {
        if self.plugins.is_gated(&waiting.pod) {
            Place::Gated
        } else {
            Place::Active(self.plugins.rank(&waiting.pod, waiting.since))
        }
    }

    fn admit_pod(&self, state: &mut State, uid: &str) {
        let place = state
            .pods
            .get(uid)
            .map(|waiting| self.place_after_admission(waiting));
        place
            .into_iter()
            .for_each(|place| state.set_place(uid, place));
    }

    /// Records an added or changed pod without a node.
    pub fn set_pod(&self, pod: Arc<PodInfo>, event: Option<ClusterEvent>, now: i128) {
        let mut state = self.state.lock();
        let uid: Uid = pod.uid().into();
        match state.pods.get_mut(&uid) {
            Some(known) => {
                // The newest state in any case, also in flight: the next attempt must not use a
                // state that the informer has replaced.
                known.pod = pod;
                match known.place {
                    // A change may remove the last gate, add one, or change the priority.
                    Place::Gated | Place::Active(_) => self.admit_pod(&mut state, &uid),
                    Place::Unschedulable(_) | Place::Held { .. } => {
                        if let Some(event) = event {
                            self.requeue_if_helped(&mut state, &uid, &event);
                        }
                    }
                    // The attempt runs on the former state. If it fails, the change is evaluated as
                    // if it came now.
                    Place::InFlight => known.updates.extend(event),
                    // The pod is tried at the end of its back-off anyway, with the newest state. A
                    // change does not shorten the back-off, as upstream.
                    Place::Backoff(_) => {}
                }
            }
            None => self.insert_pod(&mut state, uid, pod, now),
        }
        drop(state);
        self.changed.notify_one();
    }

    fn insert_pod(&self, state: &mut State, uid: Uid, pod: Arc<PodInfo>, now: i128) {
        state.serial += 1;
        let waiting = Waiting {
            pod,
            serial: state.serial,
            arrived: now,
            since: now,
            attempts: 0,
            rejected_by: HashSet::new(),
            errored: false,
            tried: None,
            place: Place::Gated,
            updates: Vec::new(),
        };
        state.pods.insert(uid.clone(), waiting);
        self.admit_pod(state, &uid);
    }

    /// Removes a pod that was deleted or bound.
    pub fn remove_pod(&self, uid: &str) {
        let mut state = self.state.lock();
        state.set_place(uid, Place::Gated);
        state.in_flight.forget_attempt(uid);
        state.pods.remove(uid);
    }

    /// Requeues the pods that a cluster event may help.
    pub fn move_pods(&self, event: ClusterEvent) {
        self.move_helped_pods(event, None);
    }

    /// Requeues the pods that an event may help, except the pod that caused it.
    pub fn move_other_pods(&self, uid: &str, event: ClusterEvent) {
        self.move_helped_pods(event, Some(uid));
    }

    fn move_helped_pods(&self, event: ClusterEvent, except: Option<&str>) {
        let mut state = self.state.lock();
        let helped = self.find_helped_pods(&state, &event, except);
        for uid in &helped {
            self.requeue_pod(&mut state, uid);
        }
        // Recorded under the same lock as the requeueing: an attempt that ends in between would
        // otherwise miss the event.
        state.in_flight.record_event(event);
        drop(state);
        if !helped.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Returns the pods that an event may help, by the plugins that listen for its kind.
    fn find_helped_pods(
        &self,
        state: &State,
        event: &ClusterEvent,
        except: Option<&str>,
    ) -> Vec<Uid> {
        let mut helped = Vec::new();
        for (plugin, uids) in &state.rejected {
            // Plugins are filtered once, not for each pod: in large clusters most events concern
            // none of thousands of waiting pods.
            if uids.is_empty() || *plugin != NO_PLUGIN && !self.plugins.listens_for(plugin, event) {
                continue;
            }
            let hint = |uid: &Uid| {
                *plugin == NO_PLUGIN
                    || state.pods.get(uid).is_some_and(|waiting| {
                        self.plugins.queueing_hint(plugin, &waiting.pod, event)
                    })
            };
            helped.extend(
                uids.iter()
                    .filter(|uid| Some(&***uid) != except && hint(uid))
                    .cloned(),
            );
        }
        helped
    }

    /// Requeues one unschedulable pod if the event may help it.
    fn requeue_if_helped(&self, state: &mut State, uid: &str, event: &ClusterEvent) -> bool {
        let Some(waiting) = state.pods.get(uid) else {
            return false;
        };
        let helps = |plugin: &&str| {
            self.plugins.listens_for(plugin, event)
                && self.plugins.queueing_hint(plugin, &waiting.pod, event)
        };
        let helped = waiting.rejected_by.is_empty() || waiting.rejected_by.iter().any(helps);
        if helped {
            self.requeue_pod(state, uid);
        }
        helped
    }

    fn requeue_pod(&self, state: &mut State, uid: &str) {
        let place = match state.pods.get(uid) {
            Some(Waiting {
                // While the preemption runs, victims disappear one by one. Each would requeue the
                // pod, and the next attempt could choose further victims.
                place: Place::Held { .. },
                ..
            }) => Place::Held { woken: true },
            Some(waiting) if matches!(waiting.place, Place::Unschedulable(_)) => {
                self.place_after_backoff(waiting)
            }
            _ => return,
        };
        state.set_place(uid, place);
    }

    /// Returns backoffQ if the pod's back-off has not expired, else activeQ.
    fn place_after_backoff(&self, waiting: &Waiting) -> Place {
        let until = waiting
            .tried
            .map(|tried| tried + self.backoff_duration(waiting.attempts));
        // The back-off counts from the last attempt, not from the event: a pod that waited longer
        // than its back-off goes to activeQ at once.
        match until.filter(|until| *until > Instant::now()) {
            Some(until) => Place::Backoff(until),
            None => self.place_after_admission(waiting),
        }
    }

    fn backoff_duration(&self, attempts: u32) -> Duration {
        // Bounded, since 1 << 32 overflows. The maximum applies long before.
        let doublings = attempts.saturating_sub(1).min(30);
        self.delays
            .first_backoff
            .saturating_mul(1 << doublings)
            .min(self.delays.longest_backoff)
    }

    /// Waits for the next pod; [`Queue::requeue_failed`] or [`Queue::done`] must follow. None once
    /// closed.
    pub async fn next(&self) -> Option<Attempt> {
        loop {
            // Registered before the state is read, so that a change between reading and waiting is
            // not lost.
            let changed = self.changed.notified();
            let wake = {
                let mut state = self.state.lock();
                if state.closed {
                    return None;
                }
                // Pods that are due come before the choice, since one of them may have the highest
                // priority.
                let wake = self.promote_due_pods(&mut state, Instant::now());
                if let Some(attempt) = self.pop_active(&mut state) {
                    return Some(attempt);
                }
                wake
            };
            match wake {
                None => changed.await,
                Some(when) => {
                    // A timeout is handled like a change: check again.
                    let _ = tokio::time::timeout_at(when, changed).await;
                }
            }
        }
    }

    /// Activates the pods that are due; returns the time of the next.
    fn promote_due_pods(&self, state: &mut State, now: Instant) -> Option<Instant> {
        let due = |list: &BTreeMap<(Instant, u64), Uid>| {
            list.range(..=(now, u64::MAX))
                .map(|(_, uid)| uid.clone())
                .collect::<Vec<_>>()
        };
        let (back, stale) = (due(&state.backoff), due(&state.unschedulable));
        for uid in back.into_iter().chain(stale) {
            self.admit_pod(state, &uid);
        }
        // As upstream's SchedulerPopFromBackoffQ: an idle scheduler need not wait. Pods that failed
        // with an error are left out, because the API server is probably overloaded.
        if state.active.is_empty() {
            let early = state
                .backoff
                .values()
                .find(|uid| state.pods.get(*uid).is_some_and(|pod| !pod.errored));
            if let Some(uid) = early.cloned() {
                self.admit_pod(state, &uid);
            }
        }
        let first =
            |list: &BTreeMap<(Instant, u64), Uid>| list.keys().next().map(|(when, _)| *when);
        first(&state.backoff)
            .into_iter()
            .chain(first(&state.unschedulable))
            .min()
    }

    fn pop_active(&self, state: &mut State) -> Option<Attempt> {
        let uid = state.active.values().next()?.clone();
        state.set_place(&uid, Place::InFlight);
        // From here on events are recorded for this pod; the snapshot that the attempt uses is
        // taken later, so that none falls between.
        state.in_flight.start_attempt(&uid);
        let waiting = state.pods.get_mut(&uid)?;
        waiting.attempts = waiting.attempts.saturating_add(1);
        waiting.tried = Some(Instant::now());
        // The attempt starts with the newest state, which contains these changes.
        waiting.updates.clear();
        Some(Attempt {
            pod: waiting.pod.clone(),
            attempts: waiting.attempts,
            arrived: waiting.arrived,
        })
    }

    /// Requeues a pod whose attempt failed at `now` (nanoseconds).
    ///
    /// Events that came during the attempt are evaluated as if they came now.
    pub fn requeue_failed(&self, uid: &str, failure: Failure, now: i128) {
        let mut state = self.state.lock();
        let mut missed = state.in_flight.finish_attempt(uid);
        // Remove the pod from the index before its rejecting plugins change.
        state.set_place(uid, Place::InFlight);
        let Some(waiting) = state.pods.get_mut(uid) else {
            return;
        };
        missed.append(&mut waiting.updates);
        waiting.tried = Some(Instant::now());
        // Ordering by the time of the last failure lets younger pods of equal priority go first; an
        // unschedulable pod would otherwise block them.
        waiting.since = now;
        waiting.rejected_by = failure.plugins;
        waiting.errored = failure.errored;
        let place = match failure {
            Failure { errored: true, .. } => self.place_after_backoff(waiting),
            Failure {
                preempting: true, ..
            } => Place::Held { woken: false },
            _ => Place::Unschedulable(Instant::now() + self.delays.unschedulable),
        };
        state.set_place(uid, place);
        // A pod that failed with an error is in back-off already and waits for no event.
        if !failure.errored {
            let _ = missed
                .iter()
                .any(|event| self.requeue_if_helped(&mut state, uid, event));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the hold of a pod after its preemption. With `retry` the preemption failed: the pod is
    /// retried without waiting for an event.
    pub fn release_held(&self, uid: &str, retry: bool) {
        let mut state = self.state.lock();
        let Some(Waiting {
            place: Place::Held { woken },
            ..
        }) = state.pods.get(uid)
        else {
            return;
        };
        // Otherwise the deletion of the last victim is still to come, and its event requeues the
        // pod.
        let wake = retry || *woken;
        state.set_place(
            uid,
            Place::Unschedulable(Instant::now() + self.delays.unschedulable),
        );
        if wake {
            self.requeue_pod(&mut state, uid);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Requeues an unschedulable pod, as after an event that helps it.
    pub fn activate(&self, uid: &str) {
        let mut state = self.state.lock();
        self.requeue_pod(&mut state, uid);
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the attempt of a pod that is being bound; the queue keeps the pod until the informer
    /// shows the binding.
    pub fn done(&self, uid: &str) {
        self.state.lock().in_flight.forget_attempt(uid);
    }

    /// Returns the latest known state of the pod.
    pub fn pod(&self, uid: &str) -> Option<Arc<PodInfo>> {
        self.state
            .lock()
            .pods
            .get(uid)
            .map(|waiting| waiting.pod.clone())
    }

    /// Returns the number of pods in each queue.
    pub fn count_pending(&self) -> Counts {
        let state = self.state.lock();
        let (mut gated, mut held) = (0, 0);
        for waiting in state.pods.values() {
            gated += usize::from(waiting.place == Place::Gated);
            held += usize::from(matches!(waiting.place, Place::Held { .. }));
        }
        Counts {
            active: state.active.len(),
            backoff: state.backoff.len(),
            unschedulable: state.unschedulable.len() + held,
            gated,
        }
    }

    /// Requeues the pods in flight, for a new term after the Lease was lost.
    pub fn requeue_in_flight(&self) {
        let mut state = self.state.lock();
        // Results of the former term are void: the Lease was lost, and another instance may have
        // bound the pods.
        state.in_flight.clear();
        let in_flight = state
            .pods
            .iter()
            .filter(|(_, waiting)| waiting.place == Place::InFlight);
        let uids: Vec<Uid> = in_flight.map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.admit_pod(&mut state, &uid);
        }
    }

    /// Closes the queue: `next` returns None.
    pub fn close(&self) {
        self.state.lock().closed = true;
        // Both: a task that waits now, and one that is about to wait.
        self.changed.notify_waiters();
        self.changed.notify_one();
    }
}
