//! The leader's lease: for how long nobody else can have been elected.
//!
//! A follower that has heard from a leader refuses to vote for an election timeout. So a leader whose calls a quorum has
//! answered is the only one until that long after it sent them. Clocks are only asked for spans.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// When each follower's last answered call was sent, in one leadership.
#[derive(Default)]
pub(crate) struct Lease {
    state: Mutex<State>,
    pub renewed: Notify,
}

#[derive(Default)]
struct State {
    term: u64,
    sent: BTreeMap<u64, Instant>,
    /// Leadership is being given away: no lease any more in this term.
    given_up: bool,
}

impl Lease {
    /// A follower has answered a call of this term.
    pub fn answered(&self, term: u64, follower: u64, sent: Instant) {
        let mut state = self.state.lock();
        if term < state.term {
            return;
        }
        if term > state.term {
            *state = State { term, ..State::default() };
        }
        let last = state.sent.entry(follower).or_insert(sent);
        *last = (*last).max(sent);
        drop(state);
        self.renewed.notify_waiters();
    }

    /// From now on the lease of this term does not hold.
    pub fn give_up(&self, term: u64) {
        let mut state = self.state.lock();
        if term >= state.term {
            *state = State { term, given_up: true, ..State::default() };
        }
    }

    /// Leadership stays here after all.
    pub fn take_back(&self) {
        self.state.lock().given_up = false;
    }

    /// Since when a quorum of every configuration has known this leader, if at all.
    pub fn quorum_since(&self, term: u64, me: u64, configs: &[BTreeSet<u64>]) -> Option<Instant> {
        let state = self.state.lock();
        if state.given_up && state.term == term {
            return None;
        }
        let now = Instant::now();
        let mut oldest = now;
        for voters in configs {
            let sent = |voter: &u64| {
                if *voter == me { Some(now) } else { state.sent.get(voter).copied().filter(|_| state.term == term) }
            };
            let mut times: Vec<Instant> = voters.iter().filter_map(sent).collect();
            times.sort_unstable_by(|a, b| b.cmp(a));
            oldest = oldest.min(*times.get(voters.len() / 2)?);
        }
        Some(oldest)
    }

    /// Whether the lease holds, being this long.
    pub fn holds(&self, term: u64, me: u64, configs: &[BTreeSet<u64>], length: Duration) -> bool {
        self.quorum_since(term, me, configs).is_some_and(|since| since.elapsed() < length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_of_every_configuration_is_needed() {
        let lease = Lease::default();
        let three = [BTreeSet::from([1, 2, 3])];
        let joint = [BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 4, 5])];
        let second = Duration::from_secs(1);
        assert!(lease.holds(5, 1, &[BTreeSet::from([1])], second));
        assert!(!lease.holds(5, 1, &three, second));
        lease.answered(5, 2, Instant::now());
        assert!(lease.holds(5, 1, &three, second));
        assert!(!lease.holds(6, 1, &three, second));
        assert!(!lease.holds(5, 1, &joint, second));
        lease.answered(5, 4, Instant::now());
        assert!(lease.holds(5, 1, &joint, second));
        assert!(!lease.holds(5, 1, &joint, Duration::ZERO));
        lease.give_up(5);
        assert!(!lease.holds(5, 1, &three, second));
        lease.answered(4, 2, Instant::now());
        assert!(!lease.holds(4, 1, &three, second));
    }
}
