//! The pods of the queue. Invariant: a pod is in the lists of its place and in no other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use scheduler_framework::{ClusterEvent, PodInfo, Rank};
use tokio::time::Instant;

use super::in_flight::{InFlight, Uid};

/// Index entry of pods that no plugin rejected: any event may help them.
pub(super) const NO_PLUGIN: &str = "";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Active(Rank),
    Backoff(Instant),
    Unschedulable(Instant),
    /// Unschedulable while its preemption runs; `woken` records an event that helps once that ends.
    Held {
        woken: bool,
    },
    Gated,
    InFlight,
}

pub(super) struct Waiting {
    pub(super) pod: Arc<PodInfo>,
    pub(super) serial: u64,
    /// Time at which the pod entered the queue, in nanoseconds.
    pub(super) arrived: i128,
    /// Time at which the pod entered the queue or last failed, in nanoseconds; orders pods of equal
    /// priority.
    pub(super) since: i128,
    pub(super) attempts: u32,
    pub(super) rejected_by: HashSet<&'static str>,
    pub(super) errored: bool,
    pub(super) tried: Option<Instant>,
    pub(super) place: Place,
    /// Changes of the pod itself during the attempt.
    pub(super) updates: Vec<ClusterEvent>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) pods: HashMap<Uid, Waiting>,
    pub(super) active: BTreeMap<(Rank, u64), Uid>,
    pub(super) backoff: BTreeMap<(Instant, u64), Uid>,
    pub(super) unschedulable: BTreeMap<(Instant, u64), Uid>,
    /// Unschedulable and held pods by the plugins that rejected them.
    pub(super) rejected: HashMap<&'static str, HashSet<Uid>>,
    pub(super) in_flight: InFlight,
    pub(super) serial: u64,
    pub(super) closed: bool,
}

impl State {
    pub(super) fn set_place(&mut self, uid: &str, place: Place) {
        let Some((uid, waiting)) = self.pods.get_key_value(uid) else {
            return;
        };
        // The serial number makes keys unique: two pods can have the same rank or the same time.
        let (uid, serial, before) = (uid.clone(), waiting.serial, waiting.place);
        match before {
            Place::Active(rank) => drop(self.active.remove(&(rank, serial))),
            Place::Backoff(until) => drop(self.backoff.remove(&(until, serial))),
            Place::Unschedulable(until) => drop(self.unschedulable.remove(&(until, serial))),
            Place::Held { .. } | Place::Gated | Place::InFlight => {}
        }
        // The index is by rejecting plugin, so that an event touches only the pods that it can
        // help.
        if awaits_event(before) && !awaits_event(place) {
            self.unindex_pod(&uid);
        }
        match place {
            Place::Active(rank) => drop(self.active.insert((rank, serial), uid.clone())),
            Place::Backoff(until) => drop(self.backoff.insert((until, serial), uid.clone())),
            Place::Unschedulable(until) => {
                drop(self.unschedulable.insert((until, serial), uid.clone()))
            }
            Place::Held { .. } | Place::Gated | Place::InFlight => {}
        }
        if awaits_event(place) && !awaits_event(before) {
            self.index_pod(&uid);
        }
        if let Some(waiting) = self.pods.get_mut(&uid) {
            waiting.place = place;
        }
    }

    fn index_pod(&mut self, uid: &Uid) {
        let Some(waiting) = self.pods.get(uid) else {
            return;
        };
        for plugin in rejecting_plugins(waiting) {
            self.rejected.entry(plugin).or_default().insert(uid.clone());
        }
    }

    fn unindex_pod(&mut self, uid: &Uid) {
        let Some(waiting) = self.pods.get(uid) else {
            return;
        };
        for plugin in rejecting_plugins(waiting) {
            if let Some(uids) = self.rejected.get_mut(plugin) {
                uids.remove(uid);
            }
        }
    }
}

/// Returns whether pods at a place wait for an event.
fn awaits_event(place: Place) -> bool {
    matches!(place, Place::Unschedulable(_) | Place::Held { .. })
}

fn rejecting_plugins(waiting: &Waiting) -> impl Iterator<Item = &'static str> + '_ {
    let unrejected = waiting.rejected_by.is_empty().then_some(NO_PLUGIN);
    waiting.rejected_by.iter().copied().chain(unrejected)
}
