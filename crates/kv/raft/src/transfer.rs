//! Giving leadership to another voter.
//!
//! Once that one is nearly there, nothing more is proposed until it leads or the transfer is over: whoever stands must have
//! everything, or nobody votes for it. It is asked to stand only as long as this member leads. Asking again after a lost
//! election was tried: it deposed whoever was elected meanwhile, term after term.
//!
//! openraft itself votes for nobody for an election timeout after it was elected or has heard a leader, and knows of no
//! exceptions: `server` makes one for whom the leader gives way to.

use crate::node::{Node, NodeError, Status};
use crate::pb;
use crate::propose::Hold;
use std::time::Duration;
use tokio::time::Instant;

/// Entries that the next leader may be behind when proposals begin to wait for it.
const NEAR: u64 = 100;
const STEP: Duration = Duration::from_millis(20);
/// For the next leader to answer that it stands.
const STAND: Duration = Duration::from_secs(2);

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Done,
    /// Somebody else leads, or this member again.
    Lost,
    /// It has everything: it is asked to stand.
    Ask,
    /// It has nearly everything: no more is proposed.
    Hold,
    Wait,
}

/// `term` is that in which the transfer began, `held` whether proposals wait.
fn step(status: &Status, term: u64, to: u64, held: bool) -> Step {
    if status.leader == Some(to) {
        return Step::Done;
    }
    if !status.leading {
        return if status.leader.is_some() { Step::Lost } else { Step::Wait };
    }
    if status.term != term {
        return Step::Lost;
    }
    match status.matched.get(&to) {
        // What is on its way to the log does not count as its end yet.
        Some(matched) if *matched >= status.last_index && !(held && status.pending > 0) => Step::Ask,
        Some(matched) if matched + NEAR >= status.last_index => Step::Hold,
        _ => Step::Wait,
    }
}

impl Node {
    /// Gives leadership to another voter. Proposals wait meanwhile, an election timeout at most.
    pub async fn transfer(&self, to: u64, timeout: Duration) -> Result<(), NodeError> {
        // Two candidates would be in each other's way, and whoever stands must have every entry.
        let Ok(_turn) = tokio::time::timeout(timeout, self.shared.changes.lock()).await else {
            return Err(NodeError::TimedOut);
        };
        if !self.shared.leading() {
            return Err(NodeError::NotLeader);
        }
        // Over when this ends, however it does.
        let transferring = self.shared.lease.begin_transfer(self.term(), &self.shared.promise);
        match tokio::time::timeout(timeout, self.hand_over(to, transferring.transfer)).await {
            Ok(done) => done,
            Err(_) => Err(NodeError::TimedOut),
        }
    }

    async fn hand_over(&self, to: u64, transfer: pb::Transfer) -> Result<(), NodeError> {
        let mut hold = None;
        loop {
            let status = self.status();
            let held = hold.as_ref().is_some_and(|hold: &Hold<'_>| !hold.is_over());
            let next = step(&status, transfer.term, to, held);
            if matches!(next, Step::Ask | Step::Hold) && hold.is_none() {
                hold = Some(Hold::new(&self.shared.held, Instant::now() + self.shared.election_timeout()));
                continue;
            }
            if !status.leading {
                // What waits is for the next leader.
                hold = None;
            }
            match next {
                Step::Done => return Ok(()),
                Step::Lost => return Err(NodeError::NotLeader),
                Step::Ask if self.shared.known(transfer.term) => self.ask_to_stand(to, transfer).await?,
                Step::Ask | Step::Hold | Step::Wait => {}
            }
            tokio::time::sleep(STEP).await;
        }
    }

    async fn ask_to_stand(&self, to: u64, transfer: pb::Transfer) -> Result<(), NodeError> {
        let mut client = self.shared.transport.client(to).map_err(|e| NodeError::Raft(e.to_string()))?;
        if let Err(status) = client.stand(self.shared.transport.request(to, transfer, Some(STAND))).await {
            tracing::debug!(%status, "the member does not stand yet");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Step, step};
    use crate::node::Status;

    fn status(leading: bool, leader: Option<u64>, matched: u64) -> Status {
        Status { term: 5, leading, leader, last_index: 1_000, matched: [(2, matched)].into(), ..Status::default() }
    }

    #[test]
    fn who_gave_leadership_away_asks_nobody_to_stand_against_the_next_leader() {
        assert_eq!(step(&status(true, Some(1), 1_000), 5, 2, true), Step::Ask);
        assert_eq!(step(&status(false, Some(2), 1_000), 5, 2, true), Step::Done);
        assert_eq!(step(&status(false, Some(3), 1_000), 5, 2, true), Step::Lost);
        assert_eq!(step(&status(false, None, 1_000), 5, 2, true), Step::Wait, "an election is under way");
        assert_eq!(step(&status(true, Some(1), 1_000), 4, 2, true), Step::Lost, "it came back");
    }

    #[test]
    fn who_is_to_lead_gets_everything_first() {
        assert_eq!(step(&status(true, Some(1), 10), 5, 2, false), Step::Wait);
        assert_eq!(step(&status(true, Some(1), 950), 5, 2, false), Step::Hold);
        let proposing = Status { pending: 1, ..status(true, Some(1), 1_000) };
        assert_eq!(step(&proposing, 5, 2, true), Step::Hold);
        assert_eq!(step(&proposing, 5, 2, false), Step::Ask, "it was held long enough: chance must do");
    }
}
