//! Pods that wait for a node.
//!
//! A pod is active (to be tried next), backing off (tried lately), unschedulable (until a change may help it), held
//! (unschedulable while its preemption runs), gated (not to be tried) or in flight (being tried). Unschedulable pods
//! are woken by cluster events that one of the plugins which rejected them asked for and says may help, and after
//! five minutes at the latest. Pods that back off are tried early when there is nothing else to do, unless they
//! failed with an error. [`Queue::next`] sleeps until the earliest of these times: nothing polls.

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

use state::{NO_PLUGIN, Place, State, Uid, Waiting};

/// Decisions about pods that depend on the profiles.
pub trait Judge: Send + Sync {
    /// Place of a pod in the queue.
    fn rank(&self, pod: &PodInfo, since: i128) -> Rank;
    /// Returns true if a pod may not enter the queue yet.
    fn is_gated(&self, pod: &PodInfo) -> bool;
    /// Returns true if a plugin of any profile wants to see a change.
    fn listens(&self, plugin: &str, event: &ClusterEvent) -> bool;
    /// Returns true if a change that the plugin wants to see may help a pod that it rejected.
    fn hint(&self, plugin: &str, pod: &PodInfo, event: &ClusterEvent) -> bool;
}

/// A pod to be tried.
#[derive(Clone)]
pub struct Attempt {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// How often it was tried, this time included.
    pub attempts: u32,
    /// Time at which the pod first entered the queue (nanoseconds).
    pub arrived: i128,
}

/// The failure of an attempt.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    /// Plugins that rejected the pod.
    pub plugins: HashSet<&'static str>,
    /// An operation failed: the pod is tried again after its back-off, whatever else happens.
    pub errored: bool,
    /// A preemption runs for the pod: it is not tried again before [`Queue::release`].
    pub preempting: bool,
}

/// Numbers of pods by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// To be tried next.
    pub active: usize,
    /// Tried lately.
    pub backoff: usize,
    /// Waiting for a change.
    pub unschedulable: usize,
    /// Gated.
    pub gated: usize,
}

/// Times that pods wait.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// First back-off.
    pub first_backoff: Duration,
    /// Longest back-off.
    pub longest_backoff: Duration,
    /// Longest time without an attempt.
    pub unschedulable: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { first_backoff: seconds(1), longest_backoff: seconds(10), unschedulable: seconds(300) }
    }
}

/// The queue.
pub struct Queue {
    judge: Arc<dyn Judge>,
    waits: Waits,
    state: Mutex<State>,
    changed: Notify,
}

impl Queue {
    /// Returns an empty queue.
    pub fn new(judge: Arc<dyn Judge>, waits: Waits) -> Self {
        Self { judge, waits, state: Mutex::default(), changed: Notify::new() }
    }

    fn admitted(&self, waiting: &Waiting) -> Place {
        if self.judge.is_gated(&waiting.pod) {
            Place::Gated
        } else {
            Place::Active(self.judge.rank(&waiting.pod, waiting.since))
        }
    }

    fn admit(&self, state: &mut State, uid: &str) {
        let place = state.pods.get(uid).map(|waiting| self.admitted(waiting));
        place.into_iter().for_each(|place| state.set_place(uid, place));
    }

    /// Takes over a pod without a node that is new or changed.
    pub fn set(&self, pod: Arc<PodInfo>, event: Option<ClusterEvent>, now: i128) {
        let mut state = self.state.lock();
        let uid: Uid = pod.uid().into();
        match state.pods.get_mut(&uid) {
            Some(known) => {
                known.pod = pod;
                match known.place {
                    Place::Gated | Place::Active(_) => self.admit(&mut state, &uid),
                    Place::Unschedulable(_) | Place::Held { .. } => {
                        if let Some(event) = event {
                            self.consider(&mut state, &uid, &event);
                        }
                    }
                    Place::InFlight => known.updates.extend(event),
                    Place::Backoff(_) => {}
                }
            }
            None => self.insert(&mut state, uid, pod, now),
        }
        drop(state);
        self.changed.notify_one();
    }

    fn insert(&self, state: &mut State, uid: Uid, pod: Arc<PodInfo>, now: i128) {
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
        self.admit(state, &uid);
    }

    /// Drops a pod that was deleted or has a node.
    pub fn remove(&self, uid: &str) {
        let mut state = self.state.lock();
        state.set_place(uid, Place::Gated);
        state.in_flight.forget(uid);
        state.pods.remove(uid);
    }

    /// Wakes the pods that a change of the cluster may help.
    pub fn event(&self, event: ClusterEvent) {
        self.wake(event, None);
    }

    /// Wakes the pods that a change may help, except the pod that caused it.
    pub fn event_for_others(&self, uid: &str, event: ClusterEvent) {
        self.wake(event, Some(uid));
    }

    fn wake(&self, event: ClusterEvent, except: Option<&str>) {
        let mut state = self.state.lock();
        let helped = self.helped(&state, &event, except);
        for uid in &helped {
            self.retry(&mut state, uid);
        }
        state.in_flight.record(event);
        drop(state);
        if !helped.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Pods that a change may help, by the plugins that asked for its kind.
    fn helped(&self, state: &State, event: &ClusterEvent, except: Option<&str>) -> Vec<Uid> {
        let mut helped = Vec::new();
        for (plugin, uids) in &state.rejected {
            if uids.is_empty() || *plugin != NO_PLUGIN && !self.judge.listens(plugin, event) {
                continue;
            }
            let hint = |uid: &Uid| {
                *plugin == NO_PLUGIN
                    || state.pods.get(uid).is_some_and(|waiting| self.judge.hint(plugin, &waiting.pod, event))
            };
            helped.extend(uids.iter().filter(|uid| Some(&***uid) != except && hint(uid)).cloned());
        }
        helped
    }

    /// Wakes one pod that waits if the change may help it.
    fn consider(&self, state: &mut State, uid: &str, event: &ClusterEvent) -> bool {
        let Some(waiting) = state.pods.get(uid) else { return false };
        let helps = |plugin: &&str| self.judge.listens(plugin, event) && self.judge.hint(plugin, &waiting.pod, event);
        let helped = waiting.rejected_by.is_empty() || waiting.rejected_by.iter().any(helps);
        if helped {
            self.retry(state, uid);
        }
        helped
    }

    fn retry(&self, state: &mut State, uid: &str) {
        let place = match state.pods.get(uid) {
            Some(Waiting { place: Place::Held { .. }, .. }) => Place::Held { woken: true },
            Some(waiting) if matches!(waiting.place, Place::Unschedulable(_)) => self.retry_place(waiting),
            _ => return,
        };
        state.set_place(uid, place);
    }

    /// Back-off if it is not over yet, else the active pods.
    fn retry_place(&self, waiting: &Waiting) -> Place {
        let until = waiting.tried.map(|tried| tried + self.backoff(waiting.attempts));
        match until.filter(|until| *until > Instant::now()) {
            Some(until) => Place::Backoff(until),
            None => self.admitted(waiting),
        }
    }

    fn backoff(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(30);
        self.waits.first_backoff.saturating_mul(1 << doublings).min(self.waits.longest_backoff)
    }

    /// Waits for the next pod to try; [`Queue::reject`] or [`Queue::settle`] must follow. None once closed.
    pub async fn next(&self) -> Option<Attempt> {
        loop {
            let changed = self.changed.notified();
            let wake = {
                let mut state = self.state.lock();
                if state.closed {
                    return None;
                }
                let wake = self.promote(&mut state, Instant::now());
                if let Some(attempt) = self.take(&mut state) {
                    return Some(attempt);
                }
                wake
            };
            match wake {
                None => changed.await,
                Some(when) => {
                    // Time having passed is as good a reason to look again as a change.
                    let _ = tokio::time::timeout_at(when, changed).await;
                }
            }
        }
    }

    /// Activates the pods that are due and returns the time of the next.
    fn promote(&self, state: &mut State, now: Instant) -> Option<Instant> {
        let due = |list: &BTreeMap<(Instant, u64), Uid>| {
            list.range(..=(now, u64::MAX)).map(|(_, uid)| uid.clone()).collect::<Vec<_>>()
        };
        let (back, stale) = (due(&state.backoff), due(&state.unschedulable));
        for uid in back.into_iter().chain(stale) {
            self.admit(state, &uid);
        }
        if state.active.is_empty() {
            let early = state.backoff.values().find(|uid| state.pods.get(*uid).is_some_and(|pod| !pod.errored));
            if let Some(uid) = early.cloned() {
                self.admit(state, &uid);
            }
        }
        let first = |list: &BTreeMap<(Instant, u64), Uid>| list.keys().next().map(|(when, _)| *when);
        first(&state.backoff).into_iter().chain(first(&state.unschedulable)).min()
    }

    fn take(&self, state: &mut State) -> Option<Attempt> {
        let uid = state.active.values().next()?.clone();
        state.set_place(&uid, Place::InFlight);
        state.in_flight.start(&uid);
        let waiting = state.pods.get_mut(&uid)?;
        waiting.attempts = waiting.attempts.saturating_add(1);
        waiting.tried = Some(Instant::now());
        waiting.updates.clear();
        Some(Attempt { pod: Arc::clone(&waiting.pod), attempts: waiting.attempts, arrived: waiting.arrived })
    }

    /// Takes back a pod whose attempt failed at `now` (nanoseconds).
    ///
    /// Changes that came while it was tried are considered as if they came now.
    pub fn reject(&self, uid: &str, failure: Failure, now: i128) {
        let mut state = self.state.lock();
        let mut missed = state.in_flight.finish(uid);
        // Out of the index of rejected pods before the rejecting plugins change.
        state.set_place(uid, Place::InFlight);
        let Some(waiting) = state.pods.get_mut(uid) else { return };
        missed.append(&mut waiting.updates);
        waiting.tried = Some(Instant::now());
        waiting.since = now;
        waiting.rejected_by = failure.plugins;
        waiting.errored = failure.errored;
        let place = match failure {
            Failure { errored: true, .. } => self.retry_place(waiting),
            Failure { preempting: true, .. } => Place::Held { woken: false },
            _ => Place::Unschedulable(Instant::now() + self.waits.unschedulable),
        };
        state.set_place(uid, place);
        if !failure.errored {
            let _ = missed.iter().any(|event| self.consider(&mut state, uid, event));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the hold of a pod whose preemption has ended. With `retry`, the preemption failed: the pod is tried again
    /// without waiting for a change.
    pub fn release(&self, uid: &str, retry: bool) {
        let mut state = self.state.lock();
        let Some(Waiting { place: Place::Held { woken }, .. }) = state.pods.get(uid) else { return };
        let wake = retry || *woken;
        state.set_place(uid, Place::Unschedulable(Instant::now() + self.waits.unschedulable));
        if wake {
            self.retry(&mut state, uid);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Has an unschedulable pod tried again, as after a change that helps it.
    pub fn activate(&self, uid: &str) {
        let mut state = self.state.lock();
        self.retry(&mut state, uid);
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the attempt of a pod that is being bound; it stays known until the binding is seen.
    pub fn settle(&self, uid: &str) {
        self.state.lock().in_flight.forget(uid);
    }

    /// The pod as it is known now.
    pub fn pod(&self, uid: &str) -> Option<Arc<PodInfo>> {
        self.state.lock().pods.get(uid).map(|waiting| Arc::clone(&waiting.pod))
    }

    /// How many pods there are where.
    pub fn counts(&self) -> Counts {
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

    /// Puts the pods in flight back, for a new term after a lost lease.
    pub fn recover(&self) {
        let mut state = self.state.lock();
        state.in_flight.clear();
        let in_flight = state.pods.iter().filter(|(_, waiting)| waiting.place == Place::InFlight);
        let uids: Vec<Uid> = in_flight.map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.admit(&mut state, &uid);
        }
    }

    /// Ends the waiting.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_waiters();
        self.changed.notify_one();
    }
}
