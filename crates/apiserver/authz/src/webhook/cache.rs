//! Decisions of a webhook that are reused for some time.
//!
//! An entry has a bounded size: its keys are digests, and a long reason is not cached. If the cache
//! is full, expired entries are removed, then the oldest entry of the client with the most. So one
//! client can't evict the entries of others; many clients with few entries each can. Nodes and the
//! control plane have a part of their own, which other clients can't fill.

use super::digest::Key;
use apiserver_request::Decision;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Maximum number of entries of each part. Upstream's single cache has as many.
const MAX_ENTRIES: usize = 8192;
/// Longest reason of an entry in bytes.
const MAX_REASON: usize = 1024;

/// Decisions by review.
pub struct DecisionCache {
    authorized_ttl: Duration,
    unauthorized_ttl: Duration,
    /// Entries of nodes and the control plane.
    system: Mutex<Entries>,
    others: Mutex<Entries>,
}

/// The client for which an entry counts.
#[derive(Clone, Copy)]
pub struct CacheClient {
    /// Digest of its name.
    pub key: Key,
    /// The client is a node or a part of the control plane.
    pub is_system: bool,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<Key, Entry>,
    /// Keys of each client, by the number of their insertion.
    queues: HashMap<Key, BTreeMap<u64, Key>>,
    /// Clients by the number of their entries.
    sizes: BTreeSet<(usize, Key)>,
    expiries: BTreeSet<(Instant, Key)>,
    inserted: u64,
}

struct Entry {
    decision: Decision,
    expires: Instant,
    client: Key,
    number: u64,
}

impl DecisionCache {
    /// Creates a cache. Decisions with a time of zero are not cached.
    pub fn new(authorized_ttl: Duration, unauthorized_ttl: Duration) -> Self {
        DecisionCache {
            authorized_ttl,
            unauthorized_ttl,
            system: Mutex::default(),
            others: Mutex::default(),
        }
    }

    /// Returns whether any decision is cached.
    pub fn is_used(&self) -> bool {
        !self.authorized_ttl.is_zero() || !self.unauthorized_ttl.is_zero()
    }

    /// Returns the decision about a review, unless it is too old.
    pub fn find(&self, key: &Key, now: Instant) -> Option<Decision> {
        // A decision does not depend on the client for which it counts, so both parts are searched.
        let mut parts = [&self.system, &self.others].into_iter();
        parts.find_map(|part| part.lock().find(key, now))
    }

    /// Caches a decision about a review for this client.
    pub fn insert(&self, key: Key, client: CacheClient, decision: &Decision, now: Instant) {
        let (ttl, reason) = match decision {
            Decision::Allow(reason) => (self.authorized_ttl, reason),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => (self.unauthorized_ttl, reason),
            Decision::Failed(_) => return,
        };
        if ttl.is_zero() || reason.len() > MAX_REASON {
            return;
        }
        let Some(expires) = now.checked_add(ttl) else {
            return;
        };
        let part = if client.is_system {
            &self.system
        } else {
            &self.others
        };
        let mut entries = part.lock();
        entries.remove_expired(now);
        entries.insert(key, client.key, decision.clone(), expires);
    }
}

impl Entries {
    fn find(&self, key: &Key, now: Instant) -> Option<Decision> {
        let entry = self.by_key.get(key)?;
        (now < entry.expires).then(|| entry.decision.clone())
    }

    fn insert(&mut self, key: Key, client: Key, decision: Decision, expires: Instant) {
        self.remove(&key);
        if self.by_key.len() >= MAX_ENTRIES {
            self.evict_of_largest();
        }
        self.inserted += 1;
        let number = self.inserted;
        let entry = Entry {
            decision,
            expires,
            client,
            number,
        };
        self.by_key.insert(key, entry);
        self.expiries.insert((expires, key));
        let queue = self.queues.entry(client).or_default();
        self.sizes.remove(&(queue.len(), client));
        queue.insert(number, key);
        self.sizes.insert((queue.len(), client));
    }

    fn remove(&mut self, key: &Key) {
        let Some(entry) = self.by_key.remove(key) else {
            return;
        };
        self.expiries.remove(&(entry.expires, *key));
        let Some(queue) = self.queues.get_mut(&entry.client) else {
            return;
        };
        self.sizes.remove(&(queue.len(), entry.client));
        queue.remove(&entry.number);
        match queue.len() {
            0 => drop(self.queues.remove(&entry.client)),
            left => drop(self.sizes.insert((left, entry.client))),
        }
    }

    fn remove_expired(&mut self, now: Instant) {
        while let Some((expires, key)) = self.expiries.first().copied()
            && expires <= now
        {
            self.remove(&key);
            self.expiries.remove(&(expires, key));
        }
    }

    /// Removes the oldest entry of the client with the most.
    fn evict_of_largest(&mut self) {
        let largest = self.sizes.last().and_then(|(_, client)| {
            let (_, key) = self.queues.get(client)?.first_key_value()?;
            Some(*key)
        });
        if let Some(key) = largest {
            self.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    const MINUTE: Duration = Duration::from_secs(60);

    fn key(client: u8, number: usize) -> Key {
        let mut key = [client; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        key
    }

    fn tenant(number: u8) -> CacheClient {
        CacheClient {
            key: [number; 32],
            is_system: false,
        }
    }

    fn numbered(number: usize) -> CacheClient {
        CacheClient {
            key: Sha256::digest(number.to_be_bytes()).into(),
            is_system: false,
        }
    }

    fn allow() -> Decision {
        Decision::Allow("r".to_owned())
    }

    #[test]
    fn decision_is_reused_for_the_time_of_its_kind() {
        let cache = DecisionCache::new(MINUTE, Duration::ZERO);
        let now = Instant::now();
        cache.insert(key(1, 1), tenant(1), &allow(), now);
        cache.insert(key(1, 2), tenant(1), &Decision::Deny(String::new()), now);
        cache.insert(
            key(1, 3),
            tenant(1),
            &Decision::NoOpinion(String::new()),
            now,
        );
        assert_eq!(cache.find(&key(1, 1), now), Some(allow()));
        assert_eq!(cache.find(&key(1, 1), now + MINUTE), None);
        assert_eq!(cache.find(&key(1, 2), now), None);
        assert_eq!(cache.find(&key(1, 3), now), None);
        cache.insert(key(1, 1), tenant(1), &allow(), now + MINUTE);
        assert_eq!(cache.find(&key(1, 1), now + MINUTE), Some(allow()));
    }

    #[test]
    fn long_reason_is_not_cached() {
        let cache = DecisionCache::new(MINUTE, MINUTE);
        let now = Instant::now();
        let long = Decision::Allow("r".repeat(MAX_REASON + 1));
        cache.insert(key(1, 1), tenant(1), &long, now);
        assert_eq!(cache.find(&key(1, 1), now), None);
    }

    #[test]
    fn client_with_many_entries_removes_its_own_only() {
        let cache = DecisionCache::new(MINUTE, MINUTE);
        let now = Instant::now();
        for number in 0..100 {
            cache.insert(key(1, number), tenant(1), &allow(), now);
        }
        for number in 0..2 * MAX_ENTRIES {
            cache.insert(key(2, number), tenant(2), &allow(), now);
        }
        let kept = |client, count| {
            (0..count)
                .filter(|number| cache.find(&key(client, *number), now).is_some())
                .count()
        };
        assert_eq!(kept(1, 100), 100);
        assert_eq!(kept(2, 2 * MAX_ENTRIES), MAX_ENTRIES - 100);
        assert_eq!(cache.others.lock().by_key.len(), MAX_ENTRIES);
        assert_eq!(cache.others.lock().sizes.len(), 2);
    }

    #[test]
    fn expired_entries_are_removed_before_those_of_others() {
        let cache = DecisionCache::new(2 * MINUTE, MINUTE);
        let now = Instant::now();
        for number in 0..100 {
            cache.insert(key(1, number), tenant(1), &allow(), now);
        }
        let short = Decision::NoOpinion(String::new());
        for number in 0..MAX_ENTRIES - 100 {
            cache.insert(key(2, number), numbered(number), &short, now);
        }
        assert_eq!(cache.others.lock().by_key.len(), MAX_ENTRIES);
        cache.insert(key(3, 0), tenant(3), &allow(), now + MINUTE);
        let entries = cache.others.lock();
        assert_eq!(entries.by_key.len(), 101);
        assert_eq!(entries.expiries.len(), 101);
        assert_eq!((entries.queues.len(), entries.sizes.len()), (2, 2));
    }

    #[test]
    fn many_clients_remove_no_entries_of_the_system() {
        let cache = DecisionCache::new(MINUTE, MINUTE);
        let now = Instant::now();
        let node = CacheClient {
            key: [1; 32],
            is_system: true,
        };
        for number in 0..100 {
            cache.insert(key(1, number), node, &allow(), now);
        }
        for number in 0..2 * MAX_ENTRIES {
            cache.insert(key(2, number), numbered(number), &allow(), now);
        }
        for number in 0..100 {
            let found = cache.find(&key(1, number), now);
            assert_eq!(found, Some(allow()), "{number}");
        }
        assert_eq!(cache.others.lock().by_key.len(), MAX_ENTRIES);
    }
}
