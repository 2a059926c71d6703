//! Addresses, health and traffic of peers.

use crate::traffic::Traffic;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Peer URLs of one member.
pub type PeerAddress = Vec<String>;

/// Reachability of a peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerHealth {
    /// Time of the first success since the last failure.
    pub active_since: Option<Instant>,
    /// Moving average of the round-trip time.
    pub round_trip: Duration,
}

/// Addresses and health of all members. The services above keep the addresses current.
#[derive(Default)]
pub struct Directory {
    addresses: RwLock<HashMap<u64, PeerAddress>>,
    health: RwLock<HashMap<u64, PeerHealth>>,
    traffic: RwLock<BTreeMap<u64, Arc<Traffic>>>,
}

impl Directory {
    /// Creates an empty directory.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Replaces all addresses and forgets members that are not among them.
    pub fn replace_addresses(&self, addresses: HashMap<u64, PeerAddress>) {
        self.health
            .write()
            .retain(|id, _| addresses.contains_key(id));
        self.traffic
            .write()
            .retain(|id, _| addresses.contains_key(id));
        *self.addresses.write() = addresses;
    }

    /// Returns the peer URLs of a member.
    pub fn peer_urls(&self, id: u64) -> Option<PeerAddress> {
        self.addresses.read().get(&id).cloned()
    }

    /// Returns the IDs of all members.
    pub(crate) fn member_ids(&self) -> std::collections::BTreeSet<u64> {
        self.addresses.read().keys().copied().collect()
    }

    /// Returns whether a member is known.
    pub fn is_known(&self, id: u64) -> bool {
        self.addresses.read().contains_key(&id)
    }

    /// Returns the reachability of a peer, or `None` if no call to it has ever succeeded.
    pub fn health(&self, id: u64) -> Option<PeerHealth> {
        self.health.read().get(&id).copied()
    }

    /// Returns the traffic counters of a known member.
    pub fn traffic(&self, id: u64) -> Option<Arc<Traffic>> {
        if let Some(traffic) = self.traffic.read().get(&id) {
            return Some(traffic.clone());
        }
        self.is_known(id)
            .then(|| self.traffic.write().entry(id).or_default().clone())
    }

    /// Returns the traffic counters of all members, by ID.
    pub fn all_traffic(&self) -> BTreeMap<u64, Arc<Traffic>> {
        self.traffic.read().clone()
    }

    pub(crate) fn record_success(&self, id: u64, round_trip: Duration) {
        if let Some(traffic) = self.traffic(id) {
            traffic.round_trips.observe_duration(round_trip);
        }
        let mut health = self.health.write();
        let entry = health.entry(id).or_insert(PeerHealth {
            active_since: None,
            round_trip,
        });
        entry.active_since.get_or_insert_with(Instant::now);
        entry.round_trip = (entry.round_trip * 7 + round_trip) / 8;
    }

    pub(crate) fn record_failure(&self, id: u64) {
        if let Some(traffic) = self.traffic(id) {
            traffic.failures.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(entry) = self.health.write().get_mut(&id) {
            entry.active_since = None;
        }
    }
}

/// Handles peer RPCs for the services of this member.
#[async_trait]
pub trait PeerHandler: Send + Sync + 'static {
    /// Returns the response, or `None` if this member can't handle the request, for instance
    /// because it is not the leader.
    async fn handle_peer_rpc(&self, from: u64, kind: u32, body: Bytes) -> Option<Bytes>;

    /// Returns whether a member that is not in the cluster yet may send this kind of request.
    fn allows_joining(&self, kind: u32) -> bool;

    /// Notifies the services that a peer reported this member as permanently removed.
    fn on_removed(&self);

    /// Returns whether a member was permanently removed.
    fn was_removed(&self, id: u64) -> bool;
}
