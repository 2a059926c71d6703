//! What a member promises a leader whose call it acknowledges: to let no vote pass for an election timeout, its own neither.
//!
//! Promises and votes meet here, under one lock, because openraft decides a vote some time after it was let pass: what is
//! acknowledged in between is no promise, and what has been promised is looked at before a vote passes.

use crate::pb::Transfer;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A member's promises.
pub(crate) struct Promise(Mutex<State>);

struct State {
    /// When a leader was last heard.
    heard: Instant,
    /// The transfers of leadership that its leader has declared over.
    over: Option<Transfer>,
    /// Votes that were let pass and are not decided yet.
    passing: u32,
    /// The latest term in which somebody may have this member's vote, itself included.
    voted: u64,
}

/// Why a vote may pass.
pub(crate) enum Reason<'a> {
    /// No leader was heard for so long.
    Silence(Duration),
    /// The leader gives way.
    Transfer(&'a Transfer),
    /// Whatever was heard.
    Always,
}

/// A vote that was let pass. Unless it is known to have been refused, it counts as given.
pub(crate) struct Passing {
    promise: Arc<Promise>,
    term: u64,
    /// It passes because the leader gives way.
    pub given_way: bool,
}

impl Passing {
    /// It was not given.
    pub fn refused(mut self) {
        self.term = 0;
    }

    /// It was given in this term.
    pub fn given(mut self, term: u64) {
        self.term = term;
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let mut state = self.promise.0.lock();
        state.passing -= 1;
        state.voted = state.voted.max(self.term);
    }
}

impl State {
    /// A leader that is started anew may go on in its term: what an earlier process of it had begun is over with that. False:
    /// this is from such an earlier process.
    fn note(&mut self, over: Transfer) -> bool {
        let unheard = Transfer { term: 0, session: 0, number: 0 };
        let known = self.over.get_or_insert(unheard);
        let current = (over.term, over.session) >= (known.term, known.session);
        if (over.term, over.session) > (known.term, known.session) {
            *known = over;
        } else if current {
            known.number = known.number.max(over.number);
        }
        current
    }

    fn open(&self, transfer: &Transfer) -> bool {
        self.over.is_some_and(|over| {
            (over.term, over.session) == (transfer.term, transfer.session) && over.number < transfer.number
        })
    }
}

impl Promise {
    pub fn new() -> Arc<Self> {
        Arc::new(Promise(Mutex::new(State { heard: Instant::now(), over: None, passing: 0, voted: 0 })))
    }

    /// Since when no leader was heard.
    pub fn silence(&self) -> Duration {
        self.0.lock().heard.elapsed()
    }

    /// The leader itself: which of its transfers are over.
    pub fn note(&self, over: Transfer) -> bool {
        self.0.lock().note(over)
    }

    /// A leader was heard that does not count on it.
    pub fn heard(&self) {
        self.0.lock().heard = Instant::now();
    }

    /// A leader's call was taken. Whether it may count on no vote passing for an election timeout.
    pub fn acknowledge(&self, over: Transfer) -> bool {
        let mut state = self.0.lock();
        state.heard = Instant::now();
        state.note(over) && state.passing == 0 && state.voted <= over.term
    }

    /// Lets a vote in a term pass, if nothing was promised to the contrary.
    pub fn pass(self: &Arc<Self>, term: u64, reason: &Reason<'_>) -> Option<Passing> {
        let mut state = self.0.lock();
        let may = match reason {
            Reason::Silence(timeout) => state.heard.elapsed() >= *timeout,
            Reason::Transfer(transfer) => state.open(transfer),
            Reason::Always => true,
        };
        if !may {
            return None;
        }
        state.passing += 1;
        Some(Passing { promise: self.clone(), term, given_way: matches!(reason, Reason::Transfer(_)) })
    }

    /// Whether no vote of this member can be in the way of its own leadership in this term.
    pub fn free(&self, term: u64) -> bool {
        let state = self.0.lock();
        state.passing == 0 && state.voted <= term
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NEVER: Duration = Duration::from_secs(3_600);
    const AT_ONCE: Duration = Duration::ZERO;

    fn transfer(term: u64, session: u64, number: u64) -> Transfer {
        Transfer { term, session, number }
    }

    #[test]
    fn nothing_is_promised_while_a_vote_is_under_way_or_after_it_was_given() {
        let promise = Promise::new();
        assert!(promise.acknowledge(transfer(1, 7, 0)));
        assert!(promise.pass(2, &Reason::Silence(NEVER)).is_none());
        let passing = promise.pass(2, &Reason::Silence(AT_ONCE)).unwrap();
        assert!(!promise.acknowledge(transfer(1, 7, 0)));
        passing.refused();
        assert!(promise.acknowledge(transfer(1, 7, 0)));
        drop(promise.pass(2, &Reason::Silence(AT_ONCE)));
        assert!(!promise.acknowledge(transfer(1, 7, 0)), "perhaps it was given");
        assert!(promise.acknowledge(transfer(2, 8, 0)));
        assert!(promise.free(2) && !promise.free(1));
    }

    #[test]
    fn votes_of_a_transfer_pass_until_it_is_over() {
        let promise = Promise::new();
        let pass = |term, session, number| {
            let passing = promise.pass(term + 1, &Reason::Transfer(&transfer(term, session, number)));
            passing.map(Passing::refused).is_some()
        };
        assert!(!pass(1, 7, 1), "its leader was never heard");
        promise.acknowledge(transfer(1, 7, 0));
        assert!(pass(1, 7, 1));
        promise.acknowledge(transfer(1, 7, 1));
        promise.acknowledge(transfer(1, 7, 0));
        assert!(!pass(1, 7, 1));
        assert!(pass(1, 7, 2));
        assert!(promise.acknowledge(transfer(1, 9, 0)));
        assert!(!pass(1, 7, 2) && pass(1, 9, 1), "the leader was started anew");
        assert!(
            !promise.acknowledge(transfer(1, 7, 9)),
            "a late call, or a clock that was set back: it counts on nothing"
        );
        assert!(!pass(1, 7, 10) && pass(1, 9, 1));
        promise.acknowledge(transfer(2, 3, 0));
        assert!(pass(2, 3, 1) && !pass(1, 7, 2));
    }
}
