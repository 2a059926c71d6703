//! The state of leases.

use bytes::Bytes;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Maximum TTL of a request, in seconds.
pub const MAX_TTL: i64 = 9_000_000_000;

/// Maximum number of leases that may expire per step after a leader change: three quarters of those
/// that are revoked in it.
const TOGETHER: usize = 75;
const STEP: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct Lease {
    ttl: i64,
    /// Remaining TTL at the last checkpoint; 0: none.
    remaining: i64,
    /// A checkpoint may have been proposed and not applied yet.
    checkpoint_pending: bool,
    keys: BTreeSet<Bytes>,
    deadline: Option<Instant>,
    /// Time in the queue: the deadline, or the next attempt to revoke the lease.
    queued: Option<Instant>,
}

/// Times of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// TTL in seconds, as granted.
    pub granted: i64,
    /// Remaining TTL in seconds, if this member is the leader.
    pub left: Option<i64>,
}

/// All leases of a member.
#[derive(Debug, Default)]
pub struct Leases {
    leases: HashMap<i64, Lease>,
    deadlines: BTreeSet<(Instant, i64)>,
    leading: bool,
}

fn ttl_to_duration(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0).min(MAX_TTL.cast_unsigned()))
}

/// Rounds a duration up to seconds.
fn whole_seconds(span: Duration) -> i64 {
    i64::try_from(span.as_secs_f64().ceil() as u64).unwrap_or(i64::MAX)
}

/// Spreads deadlines like etcd, so that leases don't expire faster than they can be revoked. No
/// deadline becomes earlier.
fn spread_deadlines(mut deadlines: Vec<(Instant, i64)>) -> Vec<(Instant, i64)> {
    deadlines.sort_unstable();
    for at in TOGETHER..deadlines.len() {
        let soonest = deadlines[at - TOGETHER].0 + STEP;
        deadlines[at].0 = deadlines[at].0.max(soonest);
    }
    deadlines
}

impl Lease {
    /// Returns the minimum remaining TTL in seconds that all members know.
    fn known_ttl(&self) -> i64 {
        if self.remaining > 0 {
            self.remaining
        } else {
            self.ttl
        }
    }
}

impl Leases {
    /// Grants a lease. Returns false if the ID exists.
    pub fn grant(&mut self, id: i64, ttl: i64, now: Instant) -> bool {
        // Every member decides this alike, because grants and revocations come from the log.
        if self.leases.contains_key(&id) {
            return false;
        }
        self.leases.insert(
            id,
            Lease {
                ttl,
                ..Lease::default()
            },
        );
        if self.leading {
            self.set_deadline(id, now + ttl_to_duration(ttl));
        }
        true
    }

    /// Restores a lease from the engine.
    pub fn restore(&mut self, id: i64, ttl: i64, remaining: i64) {
        self.leases.insert(
            id,
            Lease {
                ttl,
                remaining,
                ..Lease::default()
            },
        );
    }

    /// Revokes a lease. Returns its keys, which the caller must delete, or `None` if it does not
    /// exist.
    pub fn revoke(&mut self, id: i64) -> Option<Vec<Bytes>> {
        let lease = self.leases.remove(&id)?;
        if let Some(queued) = lease.queued {
            self.deadlines.remove(&(queued, id));
        }
        Some(lease.keys.into_iter().collect())
    }

    /// Returns whether a lease exists.
    pub fn contains(&self, id: i64) -> bool {
        self.leases.contains_key(&id)
    }

    /// Attaches a key to a lease.
    pub fn attach_key(&mut self, id: i64, key: &[u8]) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.insert(Bytes::copy_from_slice(key));
        }
    }

    /// Detaches a key from a lease.
    pub fn detach_key(&mut self, id: i64, key: &[u8]) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.remove(key);
        }
    }

    /// Returns the keys of a lease, in order.
    pub fn attached_keys(&self, id: i64) -> Vec<Bytes> {
        self.leases
            .get(&id)
            .map(|lease| lease.keys.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Returns the IDs of all leases, in order.
    pub fn lease_ids(&self) -> Vec<i64> {
        let mut ids: Vec<i64> = self.leases.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the times of a lease.
    pub fn lease_info(&self, id: i64, now: Instant) -> Option<LeaseInfo> {
        let lease = self.leases.get(&id)?;
        let left = lease
            .deadline
            .map(|deadline| whole_seconds(deadline.saturating_duration_since(now)));
        Some(LeaseInfo {
            granted: lease.ttl,
            left,
        })
    }

    /// Renews a lease. Returns its TTL, and whether a checkpoint must be cleared. Returns `None` if
    /// the lease does not exist or has expired.
    pub fn renew(&mut self, id: i64, now: Instant) -> Option<(i64, bool)> {
        let lease = self.leases.get_mut(&id)?;
        // The revocation of an expired lease may be in the log already, and its keys are about to
        // be deleted.
        if lease.deadline.is_none_or(|deadline| deadline <= now) {
            return None;
        }
        let (ttl, checkpointed) = (lease.ttl, lease.remaining != 0 || lease.checkpoint_pending);
        self.set_deadline(id, now + ttl_to_duration(ttl));
        Some((ttl, checkpointed))
    }

    /// Sets the remaining TTL of a lease; 0 clears it.
    pub fn apply_checkpoint(&mut self, id: i64, remaining: i64) -> Option<i64> {
        let lease = self.leases.get_mut(&id)?;
        // The deadline stays: only a new leader counts from the checkpoint.
        (lease.remaining, lease.checkpoint_pending) = (remaining, false);
        Some(lease.ttl)
    }

    /// Sets deadlines when this member becomes leader. `grace` is added to every lease, because its
    /// holder could not renew it in the meantime. If too many would expire together, some get more
    /// time.
    pub fn become_leader(&mut self, now: Instant, grace: Duration) {
        self.leading = true;
        let deadlines = self
            .leases
            .iter()
            .map(|(id, lease)| (now + ttl_to_duration(lease.known_ttl()) + grace, *id));
        for (deadline, id) in spread_deadlines(deadlines.collect()) {
            self.set_deadline(id, deadline);
        }
    }

    /// Clears deadlines when this member is no longer the leader.
    pub fn become_follower(&mut self) {
        self.leading = false;
        self.deadlines.clear();
        for lease in self.leases.values_mut() {
            (lease.deadline, lease.queued) = (None, None);
        }
    }

    /// Returns the earliest deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Returns expired leases, at most `limit`. Each is returned again after `again`, unless it was
    /// revoked.
    pub fn take_expired(&mut self, now: Instant, limit: usize, again: Duration) -> Vec<i64> {
        let over: Vec<(Instant, i64)> = self
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .take(limit)
            .copied()
            .collect();
        // They are queued again, because a proposed revocation is lost if leadership changes before
        // its commit.
        for entry in &over {
            self.deadlines.remove(entry);
            if let Some(lease) = self.leases.get_mut(&entry.1) {
                lease.queued = Some(now + again);
                self.deadlines.insert((now + again, entry.1));
            }
        }
        over.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the leases whose last checkpoint is older than `interval`, with their remaining TTL
    /// in seconds, rounded up. From now on, renewing them requires clearing the checkpoint.
    pub fn due_checkpoints(&mut self, now: Instant, interval: Duration) -> Vec<(i64, i64)> {
        let due = |lease: &Lease| {
            let left = lease.deadline?.checked_duration_since(now)?;
            let rounded = whole_seconds(left);
            // The grace time of a new leader makes `left` exceed the TTL; such a lease needs no
            // checkpoint.
            let gone = ttl_to_duration(lease.known_ttl()).checked_sub(left)?;
            // 0 would clear the checkpoint, and a larger value would extend the lease.
            (gone >= interval && rounded > 0 && rounded < lease.known_ttl()).then_some(rounded)
        };
        let mut all = Vec::new();
        for (id, lease) in &mut self.leases {
            if let Some(left) = due(lease) {
                lease.checkpoint_pending = true;
                all.push((*id, left));
            }
        }
        all
    }

    /// Removes all leases, because the engine's content is being replaced.
    pub fn clear(&mut self) {
        self.leases.clear();
        self.deadlines.clear();
    }

    /// Returns the number of leases.
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Returns whether there are no leases.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    fn set_deadline(&mut self, id: i64, deadline: Instant) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        lease.deadline = Some(deadline);
        if let Some(old) = lease.queued.replace(deadline) {
            self.deadlines.remove(&(old, id));
        }
        self.deadlines.insert((deadline, id));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_the_leader_has_deadlines() {
        let start = Instant::now();
        let mut leases = Leases::default();
        assert!(leases.grant(1, 10, start));
        assert!(!leases.grant(1, 20, start));
        assert_eq!(
            leases.lease_info(1, start),
            Some(LeaseInfo {
                granted: 10,
                left: None
            })
        );
        assert_eq!(leases.renew(1, start), None);
        leases.become_leader(start, SECOND);
        assert_eq!(leases.lease_info(1, start).unwrap().left, Some(11));
        assert_eq!(leases.renew(1, start + 5 * SECOND), Some((10, false)));
        assert_eq!(leases.next_deadline(), Some(start + 15 * SECOND));
        assert!(
            leases
                .take_expired(start + 14 * SECOND, 9, SECOND)
                .is_empty()
        );
        assert_eq!(leases.take_expired(start + 15 * SECOND, 9, SECOND), [1]);
        assert!(
            leases
                .take_expired(start + 15 * SECOND, 9, SECOND)
                .is_empty()
        );
        assert_eq!(leases.renew(1, start + 15 * SECOND), None);
        leases.become_follower();
        assert_eq!(leases.next_deadline(), None);
    }

    #[test]
    fn new_leader_starts_from_the_checkpoint() {
        let start = Instant::now();
        let mut leases = Leases::default();
        leases.restore(1, 1000, 0);
        leases.become_leader(start, Duration::ZERO);
        assert!(
            leases
                .due_checkpoints(start + 100 * SECOND, 300 * SECOND)
                .is_empty()
        );
        assert_eq!(
            leases.due_checkpoints(start + 300 * SECOND, 300 * SECOND),
            [(1, 700)]
        );
        leases.apply_checkpoint(1, 700);
        leases.become_follower();
        leases.become_leader(start, Duration::ZERO);
        assert_eq!(leases.lease_info(1, start).unwrap().left, Some(700));
        assert_eq!(leases.renew(1, start), Some((1000, true)));
    }

    #[test]
    fn checkpoint_is_rounded_up_to_seconds() {
        let start = Instant::now();
        let mut leases = Leases::default();
        leases.restore(1, 10, 0);
        leases.become_leader(start, Duration::ZERO);
        assert_eq!(leases.due_checkpoints(start + SECOND / 2, SECOND / 4), []);
        assert_eq!(
            leases.due_checkpoints(start + 5 * SECOND / 2, SECOND),
            [(1, 8)]
        );
        assert_eq!(leases.due_checkpoints(start + 11 * SECOND, SECOND), []);
    }

    #[test]
    fn renewal_clears_a_checkpoint_that_is_in_flight() {
        let start = Instant::now();
        let mut leases = Leases::default();
        leases.restore(1, 10, 0);
        leases.become_leader(start, Duration::ZERO);
        leases.due_checkpoints(start + 3 * SECOND, SECOND);
        assert_eq!(leases.renew(1, start + 3 * SECOND), Some((10, true)));
        leases.apply_checkpoint(1, 7);
        leases.apply_checkpoint(1, 0);
        assert_eq!(leases.renew(1, start + 3 * SECOND), Some((10, false)));
    }

    #[test]
    fn new_leader_spreads_deadlines_and_makes_none_earlier() {
        let start = Instant::now();
        let mut leases = Leases::default();
        for id in 0..1_000 {
            leases.restore(id, 10, 0);
        }
        leases.restore(1_000, 60, 0);
        leases.become_leader(start, Duration::ZERO);
        assert!(
            leases
                .take_expired(start + 10 * SECOND - SECOND / 1_000, 9_999, SECOND)
                .is_empty()
        );
        let mut ended = Vec::new();
        for step in 0..20 {
            let now = leases.take_expired(start + 10 * SECOND + STEP * step, 9_999, 900 * SECOND);
            assert!(now.len() <= TOGETHER, "{} in step {step}", now.len());
            ended.extend(now);
        }
        assert_eq!(ended.len(), 1_000);
        assert_eq!(leases.lease_info(1_000, start).unwrap().left, Some(60));
    }

    #[test]
    fn revocation_returns_the_attached_keys() {
        let mut leases = Leases::default();
        leases.restore(1, 10, 0);
        leases.attach_key(1, b"b");
        leases.attach_key(1, b"a");
        leases.attach_key(1, b"c");
        leases.detach_key(1, b"c");
        assert_eq!(leases.attached_keys(1), ["a", "b"]);
        assert_eq!(leases.revoke(1).unwrap(), ["a", "b"]);
        assert_eq!(leases.revoke(1), None);
    }

    #[test]
    fn grant_of_an_existing_id_changes_nothing() {
        let start = Instant::now();
        let mut leases = Leases::default();
        leases.become_leader(start, Duration::ZERO);
        assert!(leases.grant(1, 10, start));
        assert!(!leases.grant(1, 99, start));
        let info = leases.lease_info(1, start).unwrap();
        assert_eq!((info.granted, info.left), (10, Some(10)));
    }

    #[test]
    fn revoked_lease_never_expires() {
        let start = Instant::now();
        let mut leases = Leases::default();
        leases.become_leader(start, Duration::ZERO);
        leases.grant(1, 10, start);
        leases.grant(2, 20, start);
        leases.revoke(1);
        assert_eq!(leases.next_deadline(), Some(start + 20 * SECOND));
        assert_eq!(leases.take_expired(start + 60 * SECOND, 9, SECOND), [2]);
        assert_eq!((leases.contains(1), leases.len()), (false, 1));
    }

    #[test]
    fn expired_lease_is_returned_again_until_it_is_revoked() {
        let start = Instant::now();
        let mut leases = Leases::default();
        leases.become_leader(start, Duration::ZERO);
        for id in [1, 2, 3] {
            leases.grant(id, id, start);
        }
        let now = start + 5 * SECOND;
        assert_eq!(leases.take_expired(now, 2, 10 * SECOND), [1, 2], "limit");
        assert_eq!(leases.take_expired(now, 2, 10 * SECOND), [3]);
        leases.revoke(2);
        assert_eq!(
            leases.take_expired(now + 10 * SECOND, 9, 10 * SECOND),
            [1, 3]
        );
    }

    #[test]
    fn keep_alive_of_an_absent_or_expired_lease_is_rejected() {
        let start = Instant::now();
        let mut leases = Leases::default();
        leases.become_leader(start, Duration::ZERO);
        leases.grant(1, 10, start);
        for (id, seconds, renewed) in [(1, 9, true), (1, 19, false), (2, 0, false)] {
            assert_eq!(
                leases.renew(id, start + seconds * SECOND).is_some(),
                renewed,
                "lease {id} after {seconds} s"
            );
        }
    }

    #[test]
    fn lease_that_was_restored_waits_for_a_leader() {
        let start = Instant::now();
        let mut leases = Leases::default();
        leases.restore(1, 10, 0);
        leases.restore(2, 100, 40);
        assert_eq!(leases.next_deadline(), None);
        leases.become_leader(start, 3 * SECOND);
        for (id, left) in [(1, 13), (2, 43)] {
            let info = leases.lease_info(id, start).unwrap();
            assert_eq!(info.left, Some(left), "lease {id}");
        }
    }

    #[test]
    fn key_of_an_unknown_lease_is_ignored() {
        let mut leases = Leases::default();
        leases.attach_key(1, b"k");
        leases.detach_key(1, b"k");
        assert!(leases.attached_keys(1).is_empty());
        assert!(leases.is_empty());
    }
}
