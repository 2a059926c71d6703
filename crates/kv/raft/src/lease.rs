//! Leader lease (Raft thesis 6.4.1): the time during which no other member can have been elected.
//!
//! A follower that acknowledges an AppendEntries grants no vote for one election timeout (see
//! `vote_guard`). A leader whose calls a quorum has acknowledged is therefore the only leader for
//! that long after it sent them. Clocks are compared only as intervals on one host.
//!
//! Votes for a leadership transfer are exempt and may be delayed by the network for any time. So
//! every AppendEntries names the last transfer that has ended, and a member that has acknowledged
//! it rejects votes for that transfer. The leader holds no lease during a transfer. Afterwards,
//! only calls that announced its end renew the lease.

use crate::clock::Clock;
use crate::pb::Transfer;
use crate::vote_guard::VoteGuard;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// For each follower, the send time of its last acknowledged call in the current term.
pub(crate) struct Lease {
    clock: Clock,
    /// Start time of this process in nanoseconds. A restarted process of the same member numbers
    /// transfers from 1 again.
    session: u64,
    state: Mutex<State>,
    pub renewed: Notify,
}

#[derive(Default)]
struct State {
    term: u64,
    /// Time of the first call of this term.
    entered: Duration,
    /// Send times of all acknowledged calls: they confirm leadership at that time.
    sent: BTreeMap<u64, Duration>,
    /// Send times of the calls that renew the lease.
    counted: BTreeMap<u64, Duration>,
    /// Numbers of the last transfer that was started and the last that ended, in this term.
    begun: u64,
    ended: u64,
}

impl State {
    /// Switches to a newer term. Returns false if `term` has already ended.
    fn enter_term(&mut self, term: u64, now: Duration) -> bool {
        if term > self.term {
            *self = State {
                term,
                entered: now,
                ..State::default()
            };
        }
        term == self.term
    }
}

/// An AppendEntries in flight to a follower.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentCall {
    pub ended_transfer: Transfer,
    at: Duration,
}

/// A leadership transfer in progress. Dropping it ends the transfer, and with it the exemption of
/// its votes.
pub(crate) struct ActiveTransfer {
    lease: Arc<Lease>,
    vote_guard: Arc<VoteGuard>,
    pub transfer: Transfer,
}

impl Drop for ActiveTransfer {
    fn drop(&mut self) {
        let mut state = self.lease.state.lock();
        if state.term == self.transfer.term {
            state.ended = state.ended.max(self.transfer.number);
            self.vote_guard.record_ended_transfer(Transfer {
                number: state.ended,
                ..self.transfer
            });
        }
    }
}

/// Returns the time since which a quorum of every configuration has recognised this leader.
fn quorum_since(
    times: &BTreeMap<u64, Duration>,
    me: u64,
    configs: &[BTreeSet<u64>],
    now: Duration,
) -> Option<Duration> {
    let mut oldest = now;
    for voters in configs {
        let sent = |voter: &u64| {
            // The leader itself needs no response.
            if *voter == me {
                Some(now)
            } else {
                times.get(voter).copied()
            }
        };
        let mut times: Vec<Duration> = voters.iter().filter_map(sent).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        oldest = oldest.min(*times.get(voters.len() / 2)?);
    }
    Some(oldest)
}

impl Lease {
    pub fn new(clock: Clock) -> Self {
        let session = u64::try_from(clock.now().as_nanos()).unwrap_or(u64::MAX);
        Lease {
            clock,
            session,
            state: Mutex::default(),
            renewed: Notify::new(),
        }
    }

    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Records that an AppendEntries of this term is about to be sent.
    pub fn record_send(&self, term: u64) -> SentCall {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let number = if state.enter_term(term, now) {
            state.ended
        } else {
            0
        };
        SentCall {
            ended_transfer: Transfer {
                term,
                session: self.session,
                number,
            },
            at: now,
        }
    }

    /// Records an acknowledged call. `vote_withheld` means that the follower grants no vote for an
    /// election timeout.
    pub fn record_response(&self, follower: u64, call: SentCall, vote_withheld: bool) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if !state.enter_term(call.ended_transfer.term, call.at) {
            return;
        }
        // A call that was sent before the last transfer ended proves nothing: a vote of that
        // transfer may still be granted.
        let counts = vote_withheld && call.ended_transfer.number == state.begun;
        for times in [Some(&mut state.sent), counts.then_some(&mut state.counted)]
            .into_iter()
            .flatten()
        {
            let last = times.entry(follower).or_insert(call.at);
            // Responses may arrive in another order than the calls were sent.
            *last = (*last).max(call.at);
        }
        drop(guard);
        self.renewed.notify_waiters();
    }

    /// Starts a leadership transfer. The lease does not hold until the transfer has ended and a
    /// quorum has acknowledged calls that announce its end. The exemption covers this member's own
    /// vote too, which `vote_guard` guards.
    pub fn start_transfer(
        self: &Arc<Self>,
        term: u64,
        vote_guard: &Arc<VoteGuard>,
    ) -> ActiveTransfer {
        let mut state = self.state.lock();
        if state.enter_term(term, self.clock.now()) {
            state.begun += 1;
            state.counted.clear();
            vote_guard.record_ended_transfer(Transfer {
                term,
                session: self.session,
                number: state.ended,
            });
        }
        let transfer = Transfer {
            term,
            session: self.session,
            number: state.begun,
        };
        ActiveTransfer {
            lease: self.clone(),
            vote_guard: vote_guard.clone(),
            transfer,
        }
    }

    /// Returns whether a quorum of every configuration has acknowledged calls of this term sent at
    /// `asked` or later.
    pub fn is_confirmed(
        &self,
        term: u64,
        me: u64,
        configs: &[BTreeSet<u64>],
        asked: Duration,
    ) -> bool {
        let state = self.state.lock();
        let nobody = BTreeMap::new();
        let times = if state.term == term {
            &state.sent
        } else {
            &nobody
        };
        quorum_since(times, me, configs, self.clock.now()).is_some_and(|since| since >= asked)
    }

    /// Returns whether a quorum of every configuration has elected or acknowledged this leader
    /// within the last `length`.
    pub fn has_quorum_within(
        &self,
        (term, me): (u64, u64),
        configs: &[BTreeSet<u64>],
        length: Duration,
    ) -> bool {
        let state = self.state.lock();
        let now = self.clock.now();
        let is_recent = |since: Duration| now.saturating_sub(since) < length;
        // Before its first call, a leader has just been elected.
        state.term < term
            || state.term == term
                && (is_recent(state.entered)
                    || quorum_since(&state.sent, me, configs, now).is_some_and(is_recent))
    }

    /// Returns whether a lease of this length holds.
    pub fn holds(&self, term: u64, me: u64, configs: &[BTreeSet<u64>], length: Duration) -> bool {
        let state = self.state.lock();
        let nobody = BTreeMap::new();
        let (times, ended) = if state.term == term {
            (&state.counted, state.ended == state.begun)
        } else {
            (&nobody, true)
        };
        let now = self.clock.now();
        ended
            && quorum_since(times, me, configs, now)
                .is_some_and(|since| now.saturating_sub(since) < length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    const SECOND: Duration = Duration::from_secs(1);

    fn lease() -> (Arc<Lease>, Arc<AtomicU64>) {
        let millis = Arc::new(AtomicU64::new(0));
        let now = millis.clone();
        (
            Arc::new(Lease::new(Clock::new(move || {
                Duration::from_millis(now.load(Ordering::Relaxed))
            }))),
            millis,
        )
    }

    #[test]
    fn lease_needs_a_quorum_of_every_configuration() {
        let (lease, _) = lease();
        let three = [BTreeSet::from([1, 2, 3])];
        let joint = [BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 4, 5])];
        assert!(lease.holds(5, 1, &[BTreeSet::from([1])], SECOND));
        assert!(!lease.holds(5, 1, &three, SECOND));
        lease.record_response(2, lease.record_send(5), true);
        assert!(lease.holds(5, 1, &three, SECOND));
        assert!(!lease.holds(6, 1, &three, SECOND));
        assert!(!lease.holds(5, 1, &joint, SECOND));
        lease.record_response(4, lease.record_send(5), true);
        assert!(lease.holds(5, 1, &joint, SECOND));
        assert!(!lease.holds(5, 1, &joint, Duration::ZERO));
        lease.record_response(2, lease.record_send(4), true);
        assert!(!lease.holds(4, 1, &three, SECOND));
    }

    #[test]
    fn leader_has_a_quorum_if_it_was_elected_or_acknowledged_lately() {
        let (lease, millis) = lease();
        let set = |time: u64| millis.store(time, Ordering::Relaxed);
        let three = [BTreeSet::from([1, 2, 3])];
        let joint = [BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 4, 5])];
        let has = |configs: &[BTreeSet<u64>]| lease.has_quorum_within((5, 1), configs, SECOND);
        assert!(has(&three), "before its first call");
        let call = lease.record_send(5);
        assert!(has(&three), "just elected");
        set(1_000);
        assert!(!has(&three), "elected, and never acknowledged");
        assert!(has(&[BTreeSet::from([1])]), "alone");
        set(1_500);
        lease.record_response(2, call, true);
        assert!(!has(&three), "the acknowledged call is old");
        lease.record_response(2, lease.record_send(5), false);
        assert!(has(&three) && !has(&joint));
        set(2_500);
        assert!(!has(&three), "the quorum is lost");
        lease.record_send(6);
        assert!(!has(&three), "the term has ended");
    }

    #[test]
    fn lease_starts_when_the_acknowledged_call_was_sent() {
        let (lease, millis) = lease();
        let three = [BTreeSet::from([1, 2, 3])];
        let call = lease.record_send(5);
        millis.store(900, Ordering::Relaxed);
        lease.record_response(2, call, true);
        assert!(lease.holds(5, 1, &three, SECOND));
        // The host was suspended: tokio's clock would not have advanced.
        millis.store(1_000, Ordering::Relaxed);
        assert!(!lease.holds(5, 1, &three, SECOND));
    }

    #[test]
    fn lease_is_renewed_only_by_calls_that_announced_the_end_of_a_transfer() {
        let (lease, _) = lease();
        let three = [BTreeSet::from([1, 2, 3])];
        lease.record_response(2, lease.record_send(5), true);
        let transferring = lease.start_transfer(5, &VoteGuard::new());
        assert!(!lease.holds(5, 1, &three, SECOND));
        let during = lease.record_send(5);
        lease.record_response(2, during, true);
        assert!(
            !lease.holds(5, 1, &three, SECOND),
            "a vote may be under way"
        );
        assert!(
            lease.is_confirmed(5, 1, &three, Duration::ZERO),
            "a quorum answers nevertheless"
        );
        drop(transferring);
        assert!(
            !lease.holds(5, 1, &three, SECOND),
            "a vote may still be under way"
        );
        lease.record_response(2, during, true);
        assert!(!lease.holds(5, 1, &three, SECOND));
        lease.record_response(2, lease.record_send(5), false);
        assert!(!lease.holds(5, 1, &three, SECOND), "it has let a vote pass");
        lease.record_response(2, lease.record_send(5), true);
        assert!(lease.holds(5, 1, &three, SECOND));
    }

    #[test]
    fn quorum_is_recognised_since_its_oldest_needed_response() {
        let at = Duration::from_secs;
        let times = BTreeMap::from([(2, at(7)), (3, at(5)), (4, at(3))]);
        for (configs, expect) in [
            (vec![vec![1]], Some(10)),
            (vec![vec![1, 2, 3]], Some(7)),
            (vec![vec![1, 3, 4]], Some(5)),
            (vec![vec![1, 2]], Some(7)),
            (vec![vec![1, 2, 3, 4, 5]], Some(5)),
            (vec![vec![1, 5, 6]], None),
            (vec![vec![2, 3, 4]], Some(5)),
            (vec![vec![1, 2, 3], vec![1, 4]], Some(3)),
        ] {
            let sets: Vec<BTreeSet<u64>> = configs
                .iter()
                .map(|ids| ids.iter().copied().collect())
                .collect();
            let since = quorum_since(&times, 1, &sets, at(10));
            assert_eq!(since, expect.map(at), "{configs:?}");
        }
    }

    #[test]
    fn late_response_does_not_shorten_the_lease() {
        let (lease, millis) = lease();
        let three = [BTreeSet::from([1, 2, 3])];
        let early = lease.record_send(5);
        millis.store(500, Ordering::Relaxed);
        lease.record_response(2, lease.record_send(5), true);
        lease.record_response(2, early, true);
        millis.store(1_200, Ordering::Relaxed);
        assert!(lease.holds(5, 1, &three, SECOND));
    }

    #[test]
    fn new_term_starts_without_a_lease() {
        let (lease, _) = lease();
        let three = [BTreeSet::from([1, 2, 3])];
        lease.record_response(2, lease.record_send(5), true);
        lease.record_send(6);
        assert!(!lease.holds(5, 1, &three, SECOND) && !lease.holds(6, 1, &three, SECOND));
    }

    #[test]
    fn restarted_process_numbers_transfers_in_a_later_session() {
        let (first, millis) = lease();
        millis.store(1, Ordering::Relaxed);
        let now = millis.clone();
        let second = Lease::new(Clock::new(move || {
            Duration::from_millis(now.load(Ordering::Relaxed))
        }));
        let sessions = [&*first, &second].map(|lease| lease.record_send(5).ended_transfer.session);
        assert!(sessions[0] < sessions[1], "{sessions:?}");
    }

    #[test]
    fn calls_announce_the_last_ended_transfer() {
        let (lease, _) = lease();
        let guard = VoteGuard::new();
        let number = |lease: &Lease| lease.record_send(5).ended_transfer.number;
        assert_eq!(number(&lease), 0);
        let first = lease.start_transfer(5, &guard);
        assert_eq!((first.transfer.number, number(&lease)), (1, 0));
        drop(first);
        let second = lease.start_transfer(5, &guard);
        assert_eq!((second.transfer.number, number(&lease)), (2, 1));
        drop(second);
        assert_eq!(number(&lease), 2);
    }
}
