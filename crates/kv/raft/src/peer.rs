//! Who the others are, where they are, and when they were last heard.

use crate::traffic::Traffic;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// A member's peer URLs.
pub type PeerAddress = Vec<String>;

/// How well a peer is reached.
#[derive(Clone, Copy, Debug)]
pub struct PeerHealth {
    /// Since when it has answered without a failure in between.
    pub active_since: Option<Instant>,
    /// How long a call to it took lately.
    pub round_trip: Duration,
}

/// Addresses and health of all members; shared with the services, which keep the addresses up to date.
#[derive(Default)]
pub struct Directory {
    addresses: RwLock<HashMap<u64, PeerAddress>>,
    health: RwLock<HashMap<u64, PeerHealth>>,
    traffic: RwLock<BTreeMap<u64, Arc<Traffic>>>,
}

impl Directory {
    /// An empty one.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Replaces all addresses.
    pub fn replace(&self, addresses: HashMap<u64, PeerAddress>) {
        self.health.write().retain(|id, _| addresses.contains_key(id));
        self.traffic.write().retain(|id, _| addresses.contains_key(id));
        *self.addresses.write() = addresses;
    }

    /// A member's peer URLs.
    pub fn address(&self, id: u64) -> Option<PeerAddress> {
        self.addresses.read().get(&id).cloned()
    }

    /// All members.
    pub(crate) fn ids(&self) -> std::collections::BTreeSet<u64> {
        self.addresses.read().keys().copied().collect()
    }

    /// Whether a member is known.
    pub fn knows(&self, id: u64) -> bool {
        self.addresses.read().contains_key(&id)
    }

    /// How well a peer is reached; none: it never was.
    pub fn health(&self, id: u64) -> Option<PeerHealth> {
        self.health.read().get(&id).copied()
    }

    /// What goes to a known member and comes from it.
    pub fn traffic(&self, id: u64) -> Option<Arc<Traffic>> {
        if let Some(traffic) = self.traffic.read().get(&id) {
            return Some(traffic.clone());
        }
        self.knows(id).then(|| self.traffic.write().entry(id).or_default().clone())
    }

    /// All of it, by member.
    pub fn all_traffic(&self) -> BTreeMap<u64, Arc<Traffic>> {
        self.traffic.read().clone()
    }

    pub(crate) fn answered(&self, id: u64, round_trip: Duration) {
        if let Some(traffic) = self.traffic(id) {
            traffic.round_trips.observe(round_trip);
        }
        let mut health = self.health.write();
        let entry = health.entry(id).or_insert(PeerHealth { active_since: None, round_trip });
        entry.active_since.get_or_insert_with(Instant::now);
        entry.round_trip = (entry.round_trip * 7 + round_trip) / 8;
    }

    pub(crate) fn failed(&self, id: u64) {
        if let Some(traffic) = self.traffic(id) {
            traffic.failures.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(entry) = self.health.write().get_mut(&id) {
            entry.active_since = None;
        }
    }
}

/// Answers what other members ask the services of this one.
#[async_trait]
pub trait Answerer: Send + Sync + 'static {
    /// The answer; none: not here (not the leader, for one).
    async fn answer(&self, from: u64, kind: u32, body: Bytes) -> Option<Bytes>;

    /// Whether a member that is about to join may ask this too.
    fn for_joining(&self, kind: u32) -> bool;

    /// Another member says that this one has been removed for good.
    fn removed(&self);

    /// Whether a member was removed for good.
    fn was_removed(&self, id: u64) -> bool;
}
