//! Leader stickiness (Raft thesis 6.2): after it has acknowledged an AppendEntries, a member
//! neither grants votes nor campaigns for one election timeout.
//!
//! Acknowledgements and votes share one lock, because openraft decides a vote some time after it
//! was admitted. An acknowledgement sent in between does not renew the lease, and a vote is
//! admitted only after earlier acknowledgements were checked.

use crate::pb::Transfer;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Guard of this member's acknowledgements and votes.
pub(crate) struct VoteGuard(Mutex<State>);

struct State {
    /// Time of the last contact from a leader.
    last_contact: Instant,
    /// The last transfer that the leader has declared ended.
    ended_transfer: Option<Transfer>,
    /// Number of admitted votes that openraft has not decided yet.
    admitted: u32,
    /// The latest term in which this member may have voted, for itself or another.
    voted: u64,
}

/// Reasons for which a vote may be admitted.
pub(crate) enum Reason<'a> {
    /// No leader has made contact for this long.
    Silence(Duration),
    /// The leader started a leadership transfer.
    Transfer(&'a Transfer),
    /// Independent of leader contact.
    Always,
}

/// An admitted vote. Unless it is known to have been rejected, it counts as granted.
pub(crate) struct AdmittedVote {
    vote_guard: Arc<VoteGuard>,
    term: u64,
    /// The vote belongs to a leadership transfer.
    pub for_transfer: bool,
}

impl AdmittedVote {
    /// Records that the vote was rejected.
    pub fn record_rejection(mut self) {
        self.term = 0;
    }

    /// Records that the vote was granted in this term.
    pub fn record_grant(mut self, term: u64) {
        self.term = term;
    }
}

impl Drop for AdmittedVote {
    fn drop(&mut self) {
        let mut state = self.vote_guard.0.lock();
        state.admitted -= 1;
        // Without a recorded rejection the vote counts as granted, also if its task was cancelled.
        state.voted = state.voted.max(self.term);
    }
}

impl State {
    /// Records the last ended transfer. A restarted leader may keep its term, so a newer session
    /// ends all transfers of the former process. Returns false if `ended` comes from such a former
    /// process.
    fn record_ended(&mut self, ended: Transfer) -> bool {
        // Below every real transfer, so that the first contact sets it.
        let unheard = Transfer {
            term: 0,
            session: 0,
            number: 0,
        };
        let known = self.ended_transfer.get_or_insert(unheard);
        let current = (ended.term, ended.session) >= (known.term, known.session);
        if (ended.term, ended.session) > (known.term, known.session) {
            *known = ended;
        } else if current {
            known.number = known.number.max(ended.number);
        }
        current
    }

    fn is_open(&self, transfer: &Transfer) -> bool {
        self.ended_transfer.is_some_and(|ended| {
            (ended.term, ended.session) == (transfer.term, transfer.session)
                && ended.number < transfer.number
        })
    }
}

impl VoteGuard {
    pub fn new() -> Arc<Self> {
        Arc::new(VoteGuard(Mutex::new(State {
            last_contact: Instant::now(),
            ended_transfer: None,
            admitted: 0,
            voted: 0,
        })))
    }

    /// Returns the time since the last contact from a leader.
    pub fn time_since_contact(&self) -> Duration {
        self.0.lock().last_contact.elapsed()
    }

    /// Records, on the leader, which of its own transfers have ended.
    pub fn record_ended_transfer(&self, ended: Transfer) -> bool {
        self.0.lock().record_ended(ended)
    }

    /// Records contact from a leader that does not renew its lease by it.
    pub fn record_contact(&self) {
        self.0.lock().last_contact = Instant::now();
    }

    /// Acknowledges an AppendEntries. Returns whether the leader may rely on no vote being granted
    /// for one election timeout.
    pub fn acknowledge_append(&self, ended: Transfer) -> bool {
        let mut state = self.0.lock();
        // Contact counts in any case: the caller leads, even if its lease can't rely on this
        // member.
        state.last_contact = Instant::now();
        state.record_ended(ended) && state.admitted == 0 && state.voted <= ended.term
    }

    /// Admits a vote in a term, if no earlier acknowledgement forbids it.
    pub fn admit_vote(self: &Arc<Self>, term: u64, reason: &Reason<'_>) -> Option<AdmittedVote> {
        let mut state = self.0.lock();
        let may = match reason {
            Reason::Silence(timeout) => state.last_contact.elapsed() >= *timeout,
            Reason::Transfer(transfer) => state.is_open(transfer),
            Reason::Always => true,
        };
        if !may {
            return None;
        }
        state.admitted += 1;
        Some(AdmittedVote {
            vote_guard: self.clone(),
            term,
            for_transfer: matches!(reason, Reason::Transfer(_)),
        })
    }

    /// Returns whether no vote of this member can conflict with its own leadership in this term.
    pub fn has_no_conflicting_vote(&self, term: u64) -> bool {
        let state = self.0.lock();
        state.admitted == 0 && state.voted <= term
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;

    const NEVER: Duration = Duration::from_secs(3_600);
    const AT_ONCE: Duration = Duration::ZERO;

    fn transfer(term: u64, session: u64, number: u64) -> Transfer {
        Transfer {
            term,
            session,
            number,
        }
    }

    #[test]
    fn acknowledgement_does_not_renew_the_lease_beside_a_vote() {
        let vote_guard = VoteGuard::new();
        assert!(vote_guard.acknowledge_append(transfer(1, 7, 0)));
        assert!(vote_guard.admit_vote(2, &Reason::Silence(NEVER)).is_none());
        let admitted = vote_guard.admit_vote(2, &Reason::Silence(AT_ONCE)).unwrap();
        assert!(!vote_guard.acknowledge_append(transfer(1, 7, 0)));
        admitted.record_rejection();
        assert!(vote_guard.acknowledge_append(transfer(1, 7, 0)));
        drop(vote_guard.admit_vote(2, &Reason::Silence(AT_ONCE)));
        assert!(
            !vote_guard.acknowledge_append(transfer(1, 7, 0)),
            "perhaps it was given"
        );
        assert!(vote_guard.acknowledge_append(transfer(2, 8, 0)));
        assert!(vote_guard.has_no_conflicting_vote(2) && !vote_guard.has_no_conflicting_vote(1));
    }

    #[test]
    fn votes_of_a_transfer_are_admitted_until_it_has_ended() {
        let vote_guard = VoteGuard::new();
        let pass = |term, session, number| {
            let admitted = vote_guard.admit_vote(
                term + 1,
                &Reason::Transfer(&transfer(term, session, number)),
            );
            admitted.map(AdmittedVote::record_rejection).is_some()
        };
        assert!(!pass(1, 7, 1), "its leader was never heard");
        vote_guard.acknowledge_append(transfer(1, 7, 0));
        assert!(pass(1, 7, 1));
        vote_guard.acknowledge_append(transfer(1, 7, 1));
        vote_guard.acknowledge_append(transfer(1, 7, 0));
        assert!(!pass(1, 7, 1));
        assert!(pass(1, 7, 2));
        assert!(vote_guard.acknowledge_append(transfer(1, 9, 0)));
        assert!(
            !pass(1, 7, 2) && pass(1, 9, 1),
            "the leader was started anew"
        );
        assert!(
            !vote_guard.acknowledge_append(transfer(1, 7, 9)),
            "a late call, or a clock that was set back: it counts on nothing"
        );
        assert!(!pass(1, 7, 10) && pass(1, 9, 1));
        vote_guard.acknowledge_append(transfer(2, 3, 0));
        assert!(pass(2, 3, 1) && !pass(1, 7, 2));
    }

    #[test]
    fn contact_with_a_leader_rejects_votes_for_an_election_timeout() {
        let vote_guard = VoteGuard::new();
        std::thread::sleep(Duration::from_millis(20));
        assert!(vote_guard.time_since_contact() >= Duration::from_millis(20));
        let timeout = Reason::Silence(Duration::from_millis(20));
        vote_guard
            .admit_vote(2, &timeout)
            .unwrap()
            .record_rejection();
        vote_guard.record_contact();
        assert!(vote_guard.admit_vote(2, &Reason::Silence(NEVER)).is_none());
        let admitted = vote_guard.admit_vote(2, &Reason::Always);
        assert!(admitted.is_some(), "the caller decided on other grounds");
    }

    #[test]
    fn granted_vote_conflicts_with_leadership_in_earlier_terms() {
        let vote_guard = VoteGuard::new();
        let admitted = vote_guard.admit_vote(3, &Reason::Always).unwrap();
        assert!(
            !vote_guard.has_no_conflicting_vote(3),
            "it is not decided yet"
        );
        admitted.record_grant(4);
        for (term, expect) in [(3, false), (4, true), (5, true)] {
            assert_eq!(
                vote_guard.has_no_conflicting_vote(term),
                expect,
                "term {term}"
            );
        }
    }
}
