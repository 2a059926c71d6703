//! The leader's lease: for how long nobody else can have been elected.
//!
//! A follower that acknowledges a leader's call lets no vote pass for an election timeout (`promise`). So a leader whose calls
//! a quorum has acknowledged is the only one until that long after it sent them. Clocks are only asked for spans.
//!
//! Votes of a transfer of leadership pass nevertheless, and may be under way for as long as the network likes. So every call
//! says which transfers are over: whoever has acknowledged that lets their votes pass no more. While a transfer is not over
//! there is no lease, and afterwards only calls count that said so.

use crate::clock::Clock;
use crate::pb::Transfer;
use crate::promise::Promise;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// When each follower's last acknowledged call was sent, in one leadership.
pub(crate) struct Lease {
    clock: Clock,
    /// When this process began, in nanoseconds: another one of the same member counts transfers from the beginning.
    session: u64,
    state: Mutex<State>,
    pub renewed: Notify,
}

#[derive(Default)]
struct State {
    term: u64,
    /// All calls: they confirm leadership as of then.
    sent: BTreeMap<u64, Duration>,
    /// Those that the lease goes by.
    counted: BTreeMap<u64, Duration>,
    /// Transfers of this term that were begun, and that are over.
    begun: u64,
    over: u64,
}

impl State {
    /// False: the term is over.
    fn reach(&mut self, term: u64) -> bool {
        if term > self.term {
            *self = State { term, ..State::default() };
        }
        term == self.term
    }
}

/// A call on its way to a follower.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub over: Transfer,
    at: Duration,
}

/// A transfer of leadership. Its end is the end of its votes.
pub(crate) struct Transferring {
    lease: Arc<Lease>,
    promise: Arc<Promise>,
    pub transfer: Transfer,
}

impl Drop for Transferring {
    fn drop(&mut self) {
        let mut state = self.lease.state.lock();
        if state.term == self.transfer.term {
            state.over = state.over.max(self.transfer.number);
            self.promise.note(Transfer { number: state.over, ..self.transfer });
        }
    }
}

/// Since when a quorum of every configuration has known this leader, if at all.
fn quorum_since(
    times: &BTreeMap<u64, Duration>,
    me: u64,
    configs: &[BTreeSet<u64>],
    now: Duration,
) -> Option<Duration> {
    let mut oldest = now;
    for voters in configs {
        let sent = |voter: &u64| if *voter == me { Some(now) } else { times.get(voter).copied() };
        let mut times: Vec<Duration> = voters.iter().filter_map(sent).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        oldest = oldest.min(*times.get(voters.len() / 2)?);
    }
    Some(oldest)
}

impl Lease {
    pub fn new(clock: Clock) -> Self {
        let session = u64::try_from(clock.now().as_nanos()).unwrap_or(u64::MAX);
        Lease { clock, session, state: Mutex::default(), renewed: Notify::new() }
    }

    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// A call of this term is about to be sent.
    pub fn sending(&self, term: u64) -> Sent {
        let mut state = self.state.lock();
        let number = if state.reach(term) { state.over } else { 0 };
        Sent { over: Transfer { term, session: self.session, number }, at: self.clock.now() }
    }

    /// A follower has acknowledged a call. `promised`: it lets no vote pass for a while.
    pub fn answered(&self, follower: u64, call: Sent, promised: bool) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if !state.reach(call.over.term) {
            return;
        }
        let counts = promised && call.over.number == state.begun;
        for times in [Some(&mut state.sent), counts.then_some(&mut state.counted)].into_iter().flatten() {
            let last = times.entry(follower).or_insert(call.at);
            *last = (*last).max(call.at);
        }
        drop(guard);
        self.renewed.notify_waiters();
    }

    /// Leadership of this term is being given away: until that is over, and calls that say so are acknowledged, the lease
    /// does not hold. This member's own vote, which `promise` keeps, passes too.
    pub fn begin_transfer(self: &Arc<Self>, term: u64, promise: &Arc<Promise>) -> Transferring {
        let mut state = self.state.lock();
        if state.reach(term) {
            state.begun += 1;
            state.counted.clear();
            promise.note(Transfer { term, session: self.session, number: state.over });
        }
        let transfer = Transfer { term, session: self.session, number: state.begun };
        Transferring { lease: self.clone(), promise: promise.clone(), transfer }
    }

    /// Whether a quorum of every configuration has acknowledged calls of this term that were sent at `asked` or later.
    pub fn confirmed(&self, term: u64, me: u64, configs: &[BTreeSet<u64>], asked: Duration) -> bool {
        let state = self.state.lock();
        let nobody = BTreeMap::new();
        let times = if state.term == term { &state.sent } else { &nobody };
        quorum_since(times, me, configs, self.clock.now()).is_some_and(|since| since >= asked)
    }

    /// Whether the lease holds, being this long.
    pub fn holds(&self, term: u64, me: u64, configs: &[BTreeSet<u64>], length: Duration) -> bool {
        let state = self.state.lock();
        let nobody = BTreeMap::new();
        let (times, over) =
            if state.term == term { (&state.counted, state.over == state.begun) } else { (&nobody, true) };
        let now = self.clock.now();
        over && quorum_since(times, me, configs, now).is_some_and(|since| now.saturating_sub(since) < length)
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
        (Arc::new(Lease::new(Clock::new(move || Duration::from_millis(now.load(Ordering::Relaxed))))), millis)
    }

    #[test]
    fn a_quorum_of_every_configuration_is_needed() {
        let (lease, _) = lease();
        let three = [BTreeSet::from([1, 2, 3])];
        let joint = [BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 4, 5])];
        assert!(lease.holds(5, 1, &[BTreeSet::from([1])], SECOND));
        assert!(!lease.holds(5, 1, &three, SECOND));
        lease.answered(2, lease.sending(5), true);
        assert!(lease.holds(5, 1, &three, SECOND));
        assert!(!lease.holds(6, 1, &three, SECOND));
        assert!(!lease.holds(5, 1, &joint, SECOND));
        lease.answered(4, lease.sending(5), true);
        assert!(lease.holds(5, 1, &joint, SECOND));
        assert!(!lease.holds(5, 1, &joint, Duration::ZERO));
        lease.answered(2, lease.sending(4), true);
        assert!(!lease.holds(4, 1, &three, SECOND));
    }

    #[test]
    fn it_counts_from_when_a_call_was_sent_on_the_clock_that_it_is_given() {
        let (lease, millis) = lease();
        let three = [BTreeSet::from([1, 2, 3])];
        let call = lease.sending(5);
        millis.store(900, Ordering::Relaxed);
        lease.answered(2, call, true);
        assert!(lease.holds(5, 1, &three, SECOND));
        // The machine is suspended: its own clock would not know.
        millis.store(1_000, Ordering::Relaxed);
        assert!(!lease.holds(5, 1, &three, SECOND));
    }

    #[test]
    fn after_a_transfer_only_calls_count_that_said_that_it_is_over() {
        let (lease, _) = lease();
        let three = [BTreeSet::from([1, 2, 3])];
        lease.answered(2, lease.sending(5), true);
        let transferring = lease.begin_transfer(5, &Promise::new());
        assert!(!lease.holds(5, 1, &three, SECOND));
        let during = lease.sending(5);
        lease.answered(2, during, true);
        assert!(!lease.holds(5, 1, &three, SECOND), "a vote may be under way");
        assert!(lease.confirmed(5, 1, &three, Duration::ZERO), "a quorum answers nevertheless");
        drop(transferring);
        assert!(!lease.holds(5, 1, &three, SECOND), "a vote may still be under way");
        lease.answered(2, during, true);
        assert!(!lease.holds(5, 1, &three, SECOND));
        lease.answered(2, lease.sending(5), false);
        assert!(!lease.holds(5, 1, &three, SECOND), "it has let a vote pass");
        lease.answered(2, lease.sending(5), true);
        assert!(lease.holds(5, 1, &three, SECOND));
    }
}
