//! Pods that wait for a node.
//!
//! A pod is active (to be tried next), backing off (tried lately), unschedulable (until something changes
//! that may help it), gated (not to be tried) or in flight (being tried). Unschedulable pods are woken by
//! cluster events that one of the plugins which rejected them says may help, and after five minutes at the
//! latest. Pods that back off are tried early when there is nothing else to do, unless they failed with an
//! error. Whoever waits in [`Queue::next`] sleeps until the earliest of these times: nothing polls.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use scheduler_framework::{ClusterEvent, PodInfo, Rank};
use tokio::sync::Notify;
use tokio::time::Instant;

const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// What the queue asks the profiles.
pub trait Judge: Send + Sync {
    /// Place of a pod in the queue.
    fn rank(&self, pod: &PodInfo, since: i128) -> Rank;
    /// Whether a pod may not enter the queue yet.
    fn is_gated(&self, pod: &PodInfo) -> bool;
    /// Whether a change may help a pod that a plugin rejected.
    fn hint(&self, plugin: &str, pod: &PodInfo, event: &ClusterEvent) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Active(Rank),
    Backoff(Instant),
    Unschedulable(Instant),
    Gated,
    InFlight,
}

struct Waiting {
    pod: Arc<PodInfo>,
    serial: u64,
    since: i128,
    attempts: u32,
    rejected_by: HashSet<&'static str>,
    errored: bool,
    tried: Option<Instant>,
    place: Place,
}

/// A pod to be tried.
#[derive(Clone)]
pub struct Attempt {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// How often it was tried, this time included.
    pub attempts: u32,
    /// When it came (nanoseconds).
    pub since: i128,
}

#[derive(Default)]
struct State {
    pods: HashMap<String, Waiting>,
    active: BTreeMap<(Rank, u64), String>,
    backoff: BTreeMap<(Instant, u64), String>,
    unschedulable: BTreeMap<(Instant, u64), String>,
    /// Changes since the pod in flight was taken.
    missed: Vec<ClusterEvent>,
    in_flight: Option<String>,
    serial: u64,
    closed: bool,
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

/// The queue.
pub struct Queue {
    judge: Arc<dyn Judge>,
    first_backoff: Duration,
    longest_backoff: Duration,
    state: Mutex<State>,
    changed: Notify,
}

impl State {
    fn set_place(&mut self, uid: &str, place: Place) {
        let Some(waiting) = self.pods.get_mut(uid) else { return };
        let serial = waiting.serial;
        match waiting.place {
            Place::Active(rank) => drop(self.active.remove(&(rank, serial))),
            Place::Backoff(until) => drop(self.backoff.remove(&(until, serial))),
            Place::Unschedulable(until) => drop(self.unschedulable.remove(&(until, serial))),
            Place::Gated | Place::InFlight => {}
        }
        waiting.place = place;
        match place {
            Place::Active(rank) => drop(self.active.insert((rank, serial), uid.to_owned())),
            Place::Backoff(until) => drop(self.backoff.insert((until, serial), uid.to_owned())),
            Place::Unschedulable(until) => drop(self.unschedulable.insert((until, serial), uid.to_owned())),
            Place::Gated | Place::InFlight => {}
        }
    }
}

impl Queue {
    /// An empty queue with its back-off times.
    pub fn new(judge: Arc<dyn Judge>, first_backoff: Duration, longest_backoff: Duration) -> Self {
        let (state, changed) = (Mutex::default(), Notify::new());
        Self { judge, first_backoff, longest_backoff, state, changed }
    }

    fn admitted(&self, waiting: &Waiting) -> Place {
        if self.judge.is_gated(&waiting.pod) {
            Place::Gated
        } else {
            Place::Active(self.judge.rank(&waiting.pod, waiting.since))
        }
    }

    /// A pod without a node came, or changed.
    pub fn set(&self, pod: Arc<PodInfo>, event: Option<ClusterEvent>, now: i128) {
        let mut state = self.state.lock();
        let uid = pod.uid().to_owned();
        match state.pods.get_mut(&uid) {
            Some(known) => {
                known.pod = pod;
                let place = known.place;
                match place {
                    Place::Gated | Place::Active(_) => {
                        let place = state.pods.get(&uid).map(|known| self.admitted(known));
                        place.into_iter().for_each(|place| state.set_place(&uid, place));
                    }
                    Place::Unschedulable(_) => {
                        if let Some(event) = event {
                            self.consider(&mut state, &uid, &event);
                        }
                    }
                    Place::InFlight => state.missed.extend(event),
                    Place::Backoff(_) => {}
                }
            }
            None => {
                state.serial += 1;
                let waiting = Waiting {
                    pod,
                    serial: state.serial,
                    since: now,
                    attempts: 0,
                    rejected_by: HashSet::new(),
                    errored: false,
                    tried: None,
                    place: Place::Gated,
                };
                let place = self.admitted(&waiting);
                state.pods.insert(uid.clone(), waiting);
                state.set_place(&uid, place);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// A pod is gone or has a node.
    pub fn remove(&self, uid: &str) {
        let mut state = self.state.lock();
        state.set_place(uid, Place::Gated);
        state.pods.remove(uid);
    }

    /// Something changed in the cluster.
    pub fn event(&self, event: ClusterEvent) {
        let mut state = self.state.lock();
        let waiting: Vec<String> = state.unschedulable.values().cloned().collect();
        let mut woken = false;
        for uid in waiting {
            woken |= self.consider(&mut state, &uid, &event);
        }
        if state.in_flight.is_some() {
            state.missed.push(event);
        }
        drop(state);
        if woken {
            self.changed.notify_one();
        }
    }

    /// Wakes an unschedulable pod if the change may help it.
    fn consider(&self, state: &mut State, uid: &str, event: &ClusterEvent) -> bool {
        let Some(waiting) = state.pods.get(uid) else { return false };
        let helped = waiting.rejected_by.is_empty()
            || waiting.rejected_by.iter().any(|plugin| self.judge.hint(plugin, &waiting.pod, event));
        if helped {
            let place = self.retry_place(waiting);
            state.set_place(uid, place);
        }
        helped
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
        self.first_backoff.saturating_mul(1 << doublings).min(self.longest_backoff)
    }

    /// The next pod to try; [`Queue::reject`] or [`Queue::settle`] must follow. None once closed.
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

    /// Activates what is due; gives the time of the next.
    fn promote(&self, state: &mut State, now: Instant) -> Option<Instant> {
        let due = |list: &BTreeMap<(Instant, u64), String>| {
            list.range(..=(now, u64::MAX)).map(|(_, uid)| uid.clone()).collect::<Vec<_>>()
        };
        let (back, stale) = (due(&state.backoff), due(&state.unschedulable));
        for uid in back.into_iter().chain(stale) {
            let place = state.pods.get(&uid).map(|waiting| self.admitted(waiting));
            place.into_iter().for_each(|place| state.set_place(&uid, place));
        }
        if state.active.is_empty() {
            let early = state.backoff.values().find(|uid| state.pods.get(*uid).is_some_and(|pod| !pod.errored));
            if let Some(uid) = early.cloned() {
                let place = state.pods.get(&uid).map(|waiting| self.admitted(waiting));
                place.into_iter().for_each(|place| state.set_place(&uid, place));
            }
        }
        let first = |list: &BTreeMap<(Instant, u64), String>| list.keys().next().map(|(when, _)| *when);
        first(&state.backoff).into_iter().chain(first(&state.unschedulable)).min()
    }

    fn take(&self, state: &mut State) -> Option<Attempt> {
        let uid = state.active.values().next()?.clone();
        state.set_place(&uid, Place::InFlight);
        state.missed.clear();
        state.in_flight = Some(uid.clone());
        let waiting = state.pods.get_mut(&uid)?;
        waiting.attempts = waiting.attempts.saturating_add(1);
        waiting.tried = Some(Instant::now());
        Some(Attempt { pod: Arc::clone(&waiting.pod), attempts: waiting.attempts, since: waiting.since })
    }

    /// The pod found no node because of these plugins; with `errored`, something failed.
    ///
    /// Changes that came while it was tried are considered as if they came now.
    pub fn reject(&self, uid: &str, plugins: HashSet<&'static str>, errored: bool) {
        let mut state = self.state.lock();
        let missed = if state.in_flight.as_deref() == Some(uid) {
            state.in_flight = None;
            std::mem::take(&mut state.missed)
        } else {
            Vec::new()
        };
        let Some(waiting) = state.pods.get_mut(uid) else { return };
        waiting.tried = Some(Instant::now());
        waiting.rejected_by = plugins;
        waiting.errored = errored;
        let place =
            if errored { self.retry_place(waiting) } else { Place::Unschedulable(Instant::now() + LONGEST_WAIT) };
        state.set_place(uid, place);
        if !errored {
            let _ = missed.iter().any(|event| self.consider(&mut state, uid, event));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The pod has a node and is being bound; it stays known until the binding is seen.
    pub fn settle(&self, uid: &str) {
        let mut state = self.state.lock();
        if state.in_flight.as_deref() == Some(uid) {
            state.in_flight = None;
            state.missed.clear();
        }
    }

    /// The pod as it is known now.
    pub fn pod(&self, uid: &str) -> Option<Arc<PodInfo>> {
        self.state.lock().pods.get(uid).map(|waiting| Arc::clone(&waiting.pod))
    }

    /// How many pods there are where.
    pub fn counts(&self) -> Counts {
        let state = self.state.lock();
        let gated = state.pods.values().filter(|waiting| waiting.place == Place::Gated).count();
        Counts {
            active: state.active.len(),
            backoff: state.backoff.len(),
            unschedulable: state.unschedulable.len(),
            gated,
        }
    }

    /// Puts the pods in flight back, for a new term after a lost lease.
    pub fn recover(&self) {
        let mut state = self.state.lock();
        state.in_flight = None;
        let in_flight = |waiting: &&Waiting| waiting.place == Place::InFlight;
        let uids: Vec<String> =
            state.pods.values().filter(in_flight).map(|waiting| waiting.pod.uid().to_owned()).collect();
        for uid in uids {
            let place = state.pods.get(&uid).map(|waiting| self.admitted(waiting));
            place.into_iter().for_each(|place| state.set_place(&uid, place));
        }
    }

    /// Ends the waiting.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_waiters();
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    /// Higher priority first; gated by a scheduling gate; only deleted pods help.
    struct Simple;

    impl Judge for Simple {
        fn rank(&self, pod: &PodInfo, since: i128) -> Rank {
            Rank(-i64::from(pod.priority()), since)
        }

        fn is_gated(&self, pod: &PodInfo) -> bool {
            pod.spec().is_some_and(|spec| spec.scheduling_gates.is_some())
        }

        fn hint(&self, _: &str, _: &PodInfo, event: &ClusterEvent) -> bool {
            matches!(event, ClusterEvent::AssignedPodDeleted(_))
        }
    }

    fn pod(name: &str, priority: i32, gated: bool) -> Arc<PodInfo> {
        let mut object =
            json!({"metadata": {"name": name, "uid": name}, "spec": {"priority": priority, "containers": []}});
        if gated {
            object["spec"]["schedulingGates"] = json!([{"name": "g"}]);
        }
        Arc::new(PodInfo::new(Arc::new(serde_json::from_value(object).unwrap())))
    }

    fn queue() -> Queue {
        Queue::new(Arc::new(Simple), Duration::from_millis(50), Duration::from_secs(1))
    }

    async fn next(queue: &Queue) -> String {
        let attempt = tokio::time::timeout(Duration::from_secs(5), queue.next()).await.unwrap().unwrap();
        attempt.pod.name().to_owned()
    }

    fn deleted() -> ClusterEvent {
        ClusterEvent::AssignedPodDeleted(Arc::default())
    }

    #[tokio::test]
    async fn order_and_gates() {
        let queue = queue();
        queue.set(pod("low", 0, false), None, 1);
        queue.set(pod("late", 0, false), None, 2);
        queue.set(pod("high", 5, false), None, 3);
        queue.set(pod("held", 9, true), None, 0);
        for want in ["high", "low", "late"] {
            assert_eq!(next(&queue).await, want);
            queue.settle(want);
        }
        assert_eq!(queue.counts().gated, 1);
        queue.set(pod("held", 9, false), None, 4);
        assert_eq!(next(&queue).await, "held");
    }

    #[tokio::test]
    async fn rejected_pods_wait_for_a_change_that_helps() {
        let queue = queue();
        queue.set(pod("p", 0, false), None, 1);
        assert_eq!(next(&queue).await, "p");
        queue.reject("p", ["Fit"].into(), false);
        queue.event(ClusterEvent::NamespaceChanged);
        assert_eq!(queue.counts().unschedulable, 1);
        queue.event(deleted());
        assert_eq!(queue.counts().unschedulable, 0);
        assert_eq!(next(&queue).await, "p");
        // A change during the attempt is not lost.
        queue.event(deleted());
        queue.reject("p", ["Fit"].into(), false);
        assert_eq!(next(&queue).await, "p");
        queue.remove("p");
        queue.reject("p", ["Fit"].into(), false);
        assert_eq!(queue.counts(), Counts::default());
    }

    #[tokio::test]
    async fn errors_back_off() {
        let queue = queue();
        queue.set(pod("p", 0, false), None, 1);
        assert_eq!(next(&queue).await, "p");
        queue.reject("p", HashSet::new(), true);
        let before = Instant::now();
        assert_eq!(next(&queue).await, "p");
        assert!(before.elapsed() >= Duration::from_millis(45));
    }
}
