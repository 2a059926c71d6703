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
        // A single slow call must not extend the election timeout much.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn directory(ids: &[u64]) -> Arc<Directory> {
        let directory = Directory::new();
        let address = |id: &u64| (*id, vec![format!("http://m{id}:2380")]);
        directory.replace_addresses(ids.iter().map(address).collect());
        directory
    }

    #[test]
    fn removed_member_is_forgotten_with_its_health_and_traffic() {
        let directory = directory(&[1, 2]);
        for id in [1, 2] {
            directory.record_success(id, Duration::from_millis(1));
        }
        directory.replace_addresses([(2, vec!["http://new:2380".to_owned()])].into());
        assert!(!directory.is_known(1) && directory.is_known(2));
        assert!(directory.health(1).is_none() && directory.health(2).is_some());
        assert_eq!(directory.all_traffic().into_keys().collect::<Vec<_>>(), [2]);
        assert_eq!(directory.peer_urls(2).unwrap(), ["http://new:2380"]);
    }

    #[test]
    fn unknown_member_has_no_traffic() {
        let directory = directory(&[1]);
        assert!(directory.traffic(2).is_none());
        directory.record_failure(2);
        assert!(directory.all_traffic().is_empty() && directory.health(2).is_none());
    }

    #[test]
    fn peer_is_active_from_its_first_success_after_a_failure() {
        let directory = directory(&[1]);
        directory.record_failure(1);
        assert!(directory.health(1).is_none(), "no call has ever succeeded");
        directory.record_success(1, Duration::from_millis(8));
        let since = directory.health(1).unwrap().active_since.unwrap();
        directory.record_success(1, Duration::from_millis(8));
        assert_eq!(directory.health(1).unwrap().active_since, Some(since));
        directory.record_failure(1);
        assert_eq!(directory.health(1).unwrap().active_since, None);
        let traffic = directory.traffic(1).unwrap();
        assert_eq!(traffic.failures.load(Ordering::Relaxed), 2);
        assert_eq!(traffic.round_trips.count(), 2);
    }

    #[test]
    fn round_trip_is_a_moving_average() {
        let directory = directory(&[1]);
        for (millis, average) in [(8, 8), (16, 9), (1, 8)] {
            directory.record_success(1, Duration::from_millis(millis));
            let found = directory.health(1).unwrap().round_trip;
            assert_eq!(found, Duration::from_millis(average), "after {millis} ms");
        }
    }
}
