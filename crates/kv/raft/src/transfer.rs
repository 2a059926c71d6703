//! Leadership transfer (Raft thesis 3.10).
//!
//! Once the transferee has nearly caught up, proposals are blocked until it leads or the transfer
//! is aborted, because voters reject a candidate whose log is behind. TimeoutNow is sent only while
//! this member is the leader. Sending it again after a lost election was tried and rejected: it
//! deposed the elected leader, term after term.
//!
//! openraft grants no vote for an election timeout after it was elected or heard from a leader,
//! without exception. `server` works around that for the transferee.

use crate::node::{NodeError, RaftNode, Status};
use crate::pb;
use crate::propose::ProposalBlockGuard;
use std::time::Duration;
use tokio::time::Instant;

/// Number of missing entries on the transferee at which proposals are blocked.
const NEAR: u64 = 100;
const STEP: Duration = Duration::from_millis(20);
/// Timeout of the TimeoutNow request.
const TIMEOUT_NOW_DEADLINE: Duration = Duration::from_secs(2);

/// Next step of a transfer.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Done,
    /// Another member was elected, or this member was elected again in a later term.
    LostLeadership,
    /// The transferee has all entries: send TimeoutNow.
    SendTimeoutNow,
    /// The transferee has nearly all entries: block proposals.
    BlockProposals,
    Wait,
}

/// Decides the next step. `term` is the term in which the transfer started, `held` whether
/// proposals are blocked.
fn decide_step(status: &Status, term: u64, to: u64, held: bool) -> Step {
    if status.leader == Some(to) {
        return Step::Done;
    }
    // This member may be deposed before it knows the next leader.
    if !status.leading {
        return if status.leader.is_some() {
            Step::LostLeadership
        } else {
            Step::Wait
        };
    }
    if status.term != term {
        return Step::LostLeadership;
    }
    match status.matched.get(&to) {
        // Pending proposals are not in `last_index` yet, so the log is not complete while there are
        // any.
        Some(matched) if *matched >= status.last_index && !(held && status.pending > 0) => {
            Step::SendTimeoutNow
        }
        Some(matched) if matched + NEAR >= status.last_index => Step::BlockProposals,
        _ => Step::Wait,
    }
}

impl RaftNode {
    /// Transfers leadership to another voter. Proposals are blocked for one election timeout at
    /// most.
    pub async fn transfer_leadership(&self, to: u64, timeout: Duration) -> Result<(), NodeError> {
        // One transfer or membership change at a time: two candidates would split the vote, and the
        // transferee must have every entry.
        let Ok(_turn) = tokio::time::timeout(timeout, self.shared.changes.lock()).await else {
            return Err(NodeError::TimedOut);
        };
        if !self.shared.is_leader() {
            return Err(NodeError::NotLeader);
        }
        // The transfer ends when this guard is dropped, on every path.
        let transferring = self
            .shared
            .lease
            .start_transfer(self.current_term(), &self.shared.vote_guard);
        match tokio::time::timeout(timeout, self.run_transfer(to, transferring.transfer)).await {
            Ok(done) => done,
            Err(_) => Err(NodeError::TimedOut),
        }
    }

    async fn run_transfer(&self, to: u64, transfer: pb::Transfer) -> Result<(), NodeError> {
        let mut hold = None;
        loop {
            let status = self.status();
            let held = hold
                .as_ref()
                .is_some_and(|hold: &ProposalBlockGuard<'_>| !hold.has_expired());
            let next = decide_step(&status, transfer.term, to, held);
            // The status is read again afterwards: proposals accepted until now must reach the
            // transferee too.
            if matches!(next, Step::SendTimeoutNow | Step::BlockProposals) && hold.is_none() {
                hold = Some(ProposalBlockGuard::new(
                    &self.shared.proposal_block,
                    Instant::now() + self.shared.election_timeout(),
                ));
                continue;
            }
            if !status.leading {
                // Blocked proposals are forwarded to the next leader.
                hold = None;
            }
            match next {
                Step::Done => return Ok(()),
                Step::LostLeadership => return Err(NodeError::NotLeader),
                Step::SendTimeoutNow if self.shared.is_acknowledged_by_quorum(transfer.term) => {
                    self.send_timeout_now(to, transfer).await?
                }
                Step::SendTimeoutNow | Step::BlockProposals | Step::Wait => {}
            }
            tokio::time::sleep(STEP).await;
        }
    }

    async fn send_timeout_now(&self, to: u64, transfer: pb::Transfer) -> Result<(), NodeError> {
        let mut client = self
            .shared
            .transport
            .peer_client(to)
            .map_err(|e| NodeError::Raft(e.to_string()))?;
        if let Err(status) = client
            .timeout_now(self.shared.transport.build_request(
                to,
                transfer,
                Some(TIMEOUT_NOW_DEADLINE),
            ))
            .await
        {
            tracing::debug!(%status, "the transferee rejected TimeoutNow");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Step, decide_step};
    use crate::node::Status;

    fn status(leading: bool, leader: Option<u64>, matched: u64) -> Status {
        Status {
            term: 5,
            leading,
            leader,
            last_index: 1_000,
            matched: [(2, matched)].into(),
            ..Status::default()
        }
    }

    #[test]
    fn timeout_now_is_sent_only_by_the_leader_of_the_transfer() {
        assert_eq!(
            decide_step(&status(true, Some(1), 1_000), 5, 2, true),
            Step::SendTimeoutNow
        );
        assert_eq!(
            decide_step(&status(false, Some(2), 1_000), 5, 2, true),
            Step::Done
        );
        assert_eq!(
            decide_step(&status(false, Some(3), 1_000), 5, 2, true),
            Step::LostLeadership
        );
        assert_eq!(
            decide_step(&status(false, None, 1_000), 5, 2, true),
            Step::Wait,
            "an election is under way"
        );
        assert_eq!(
            decide_step(&status(true, Some(1), 1_000), 4, 2, true),
            Step::LostLeadership,
            "it came back"
        );
    }

    #[test]
    fn timeout_now_waits_until_the_transferee_has_caught_up() {
        assert_eq!(
            decide_step(&status(true, Some(1), 10), 5, 2, false),
            Step::Wait
        );
        assert_eq!(
            decide_step(&status(true, Some(1), 950), 5, 2, false),
            Step::BlockProposals
        );
        let proposing = Status {
            pending: 1,
            ..status(true, Some(1), 1_000)
        };
        assert_eq!(decide_step(&proposing, 5, 2, true), Step::BlockProposals);
        assert_eq!(
            decide_step(&proposing, 5, 2, false),
            Step::SendTimeoutNow,
            "it was held long enough: chance must do"
        );
    }

    #[test]
    fn proposals_are_blocked_once_the_transferee_has_nearly_caught_up() {
        for (matched, expect) in [
            (899, Step::Wait),
            (900, Step::BlockProposals),
            (999, Step::BlockProposals),
            (1_000, Step::SendTimeoutNow),
        ] {
            let status = status(true, Some(1), matched);
            assert_eq!(decide_step(&status, 5, 2, true), expect, "{matched}");
        }
    }

    #[test]
    fn unknown_transferee_gets_no_timeout_now() {
        let status = status(true, Some(1), 1_000);
        assert_eq!(decide_step(&status, 5, 9, true), Step::Wait);
    }
}
