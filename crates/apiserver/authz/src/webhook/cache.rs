//! Decisions of a webhook that are reused for some time.
//!
//! An entry has a fixed size: its key is a digest, so that a client can't fill the memory by large
//! requests. If the cache is full, the client with the most entries loses its oldest one, so that
//! no client can remove those of all others.

use apiserver_request::Decision;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Entries at most, as upstream.
const MAX_ENTRIES: usize = 8192;
/// Longest reason of an entry in bytes.
const MAX_REASON: usize = 1024;

/// SHA-256 of a review.
pub type Key = [u8; 32];

/// Decisions by review.
pub struct DecisionCache {
    authorized_ttl: Duration,
    unauthorized_ttl: Duration,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<Key, Entry>,
    /// Keys of each client, in the order of their insertion.
    queues: HashMap<Arc<str>, VecDeque<Key>>,
    /// Clients by the number of their entries.
    sizes: BTreeSet<(usize, Arc<str>)>,
}

struct Entry {
    decision: Decision,
    expires: Instant,
}

impl DecisionCache {
    /// Creates a cache. Decisions with a time of zero are not kept.
    pub fn new(authorized_ttl: Duration, unauthorized_ttl: Duration) -> Self {
        DecisionCache {
            authorized_ttl,
            unauthorized_ttl,
            entries: Mutex::default(),
        }
    }

    /// Returns whether any decision is kept.
    pub fn is_used(&self) -> bool {
        !self.authorized_ttl.is_zero() || !self.unauthorized_ttl.is_zero()
    }

    /// Returns the decision about a review, unless it is too old.
    pub fn find(&self, key: &Key, now: Instant) -> Option<Decision> {
        let entries = self.entries.lock();
        let entry = entries.by_key.get(key)?;
        (now < entry.expires).then(|| entry.decision.clone())
    }

    /// Keeps a decision about a review of this client.
    pub fn insert(&self, key: Key, client: &str, decision: &Decision, now: Instant) {
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
        let entry = Entry {
            decision: decision.clone(),
            expires,
        };
        self.entries.lock().insert(key, client, entry);
    }
}

impl Entries {
    fn insert(&mut self, key: Key, client: &str, entry: Entry) {
        if let Some(known) = self.by_key.get_mut(&key) {
            *known = entry;
            return;
        }
        if self.by_key.len() >= MAX_ENTRIES {
            self.evict_of_largest();
        }
        self.by_key.insert(key, entry);
        let client = match self.queues.get_key_value(client) {
            Some((known, _)) => known.clone(),
            None => Arc::from(client),
        };
        let queue = self.queues.entry(client.clone()).or_default();
        self.sizes.remove(&(queue.len(), client.clone()));
        queue.push_back(key);
        self.sizes.insert((queue.len(), client));
    }

    /// Removes the oldest entry of the client with the most.
    fn evict_of_largest(&mut self) {
        let Some((_, client)) = self.sizes.pop_last() else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&client) else {
            return;
        };
        if let Some(key) = queue.pop_front() {
            self.by_key.remove(&key);
        }
        let left = queue.len();
        if left == 0 {
            self.queues.remove(&client);
        } else {
            self.sizes.insert((left, client));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn key(client: u8, number: usize) -> Key {
        let mut key = [client; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        key
    }

    fn allow() -> Decision {
        Decision::Allow("r".to_owned())
    }

    #[test]
    fn decision_is_reused_for_the_time_of_its_kind() {
        let cache = DecisionCache::new(MINUTE, Duration::ZERO);
        let now = Instant::now();
        cache.insert(key(1, 1), "a", &allow(), now);
        cache.insert(key(1, 2), "a", &Decision::Deny(String::new()), now);
        cache.insert(key(1, 3), "a", &Decision::NoOpinion(String::new()), now);
        assert_eq!(cache.find(&key(1, 1), now), Some(allow()));
        assert_eq!(cache.find(&key(1, 1), now + MINUTE), None);
        assert_eq!(cache.find(&key(1, 2), now), None);
        assert_eq!(cache.find(&key(1, 3), now), None);
        cache.insert(key(1, 1), "a", &allow(), now + MINUTE);
        assert_eq!(cache.find(&key(1, 1), now + MINUTE), Some(allow()));
    }

    #[test]
    fn long_reason_is_not_kept() {
        let cache = DecisionCache::new(MINUTE, MINUTE);
        let now = Instant::now();
        let long = Decision::Allow("r".repeat(MAX_REASON + 1));
        cache.insert(key(1, 1), "a", &long, now);
        assert_eq!(cache.find(&key(1, 1), now), None);
    }

    #[test]
    fn client_with_many_entries_removes_its_own_only() {
        let cache = DecisionCache::new(MINUTE, MINUTE);
        let now = Instant::now();
        for number in 0..100 {
            cache.insert(key(1, number), "small", &allow(), now);
        }
        for number in 0..2 * MAX_ENTRIES {
            cache.insert(key(2, number), "large", &allow(), now);
        }
        let kept = |client, count| {
            (0..count)
                .filter(|number| cache.find(&key(client, *number), now).is_some())
                .count()
        };
        assert_eq!(kept(1, 100), 100);
        assert_eq!(kept(2, 2 * MAX_ENTRIES), MAX_ENTRIES - 100);
        assert_eq!(cache.entries.lock().by_key.len(), MAX_ENTRIES);
        assert_eq!(cache.entries.lock().sizes.len(), 2);
    }
}
