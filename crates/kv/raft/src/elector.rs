//! Election timer and PreVote handling (Raft thesis 9.6).
//!
//! openraft's own timer is disabled. After an election timeout without contact from a leader, a
//! member first sends PreVote requests. A peer grants one only if it has heard from no leader
//! either and the candidate's log is at least as up to date as its own. Only then does the member
//! raise its term.

use crate::election_timeout::MAX_TIMEOUT;
use crate::pb;
use crate::shared::Shared;
use crate::types::{LogId, RaftMetrics};
use crate::vote_guard::{AdmittedVote, Reason};
use futures::stream::{FuturesUnordered, StreamExt};
use rand::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time that a transferee waits for the result of its election.
const TRANSFER_ELECTION: Duration = Duration::from_millis(300);

/// Returns whether to grant a PreVote.
pub(crate) fn grants_pre_vote(
    heard: Duration,
    timeout: Duration,
    leading: bool,
    mine: Option<LogId>,
    theirs: Option<LogId>,
) -> bool {
    !leading && heard >= timeout && theirs >= mine
}

/// Returns whether `in_favour` is a majority of every configuration.
pub(crate) fn is_majority(configs: &[BTreeSet<u64>], in_favour: &BTreeSet<u64>) -> bool {
    configs
        .iter()
        .all(|voters| voters.intersection(in_favour).count() > voters.len() / 2)
}

/// Runs the election timer: campaigns after an election timeout without a leader.
pub(crate) async fn run_elector(shared: Arc<Shared>) {
    let mut metrics = shared.raft.server_metrics();
    loop {
        let timeout = shared.election_timeout();
        // Random, so that members rarely campaign at the same time and split the votes (Raft thesis
        // 3.4).
        let patience = timeout + timeout.mul_f64(rand::rng().random_range(0.0..1.0));
        // A clone, because `wait_for` borrows the channel again: borrowing it twice can deadlock.
        let server = metrics.borrow_and_update().clone();
        let wait = wait_for(&shared, &server, patience);
        let Some(wait) = wait else {
            // This member is the leader: it waits until that changes.
            if metrics.changed().await.is_err() {
                return;
            }
            continue;
        };
        tokio::time::sleep(wait).await;
        let server = metrics.borrow_and_update().clone();
        // A leader may have made contact, or this member may have won, while it slept.
        let still = wait_for(&shared, &server, patience).is_some();
        let silence = shared.vote_guard.time_since_contact();
        if still && silence >= wait.min(patience) && silence >= timeout
            || still && shared.is_only_voter()
        {
            if !is_voter(&shared, &server) {
                send_pre_votes(&shared).await;
                tokio::time::sleep(patience).await;
                continue;
            }
            let Some(admitted) = run_pre_vote(&shared, timeout).await else {
                // Waits before the next attempt: the peers have just rejected the PreVote.
                tokio::time::sleep(patience.mul_f64(0.1)).await;
                continue;
            };
            if !run_election(&shared, admitted, patience.mul_f64(0.6)).await {
                return;
            }
        }
    }
}

/// Starts an election and waits for its result. Returns false if replication has stopped.
async fn run_election(shared: &Shared, admitted: AdmittedVote, patience: Duration) -> bool {
    let mut metrics = shared.raft.server_metrics();
    let before = metrics.borrow_and_update().vote.leader_id.term;
    tracing::info!("starting an election");
    if let Err(e) = shared.raft.trigger().elect().await {
        tracing::warn!(error = %e, "starting an election failed");
    }
    // openraft persists the new vote asynchronously and publishes the former leader until then. A
    // further election during that time would queue behind this one and abort it.
    let noted = metrics.wait_for(|server| server.vote.leader_id.term > before);
    match tokio::time::timeout(MAX_TIMEOUT, noted).await {
        Ok(Ok(server)) => admitted.record_grant(server.vote.leader_id.term),
        Ok(Err(_)) => return false,
        Err(_) => {}
    }
    // Waits for the votes: a new campaign would discard them.
    let outcome = metrics.wait_for(|server| server.current_leader.is_some());
    let _ = tokio::time::timeout(patience, outcome).await;
    true
}

/// Campaigns on request of the leader (TimeoutNow, Raft thesis 3.10).
pub(crate) async fn campaign_for_transfer(
    shared: &Shared,
    transfer: pb::Transfer,
) -> Result<(), &'static str> {
    let admitted = shared
        .vote_guard
        .admit_vote(shared.current_term() + 1, &Reason::Transfer(&transfer));
    let Some(admitted) = admitted else {
        return Err("no leadership transfer to this member is in progress");
    };
    // The vote requests carry it, so that voters can tell an open transfer from an ended one.
    *shared.timeout_now_transfer.lock() = Some(transfer);
    if run_election(shared, admitted, TRANSFER_ELECTION).await {
        Ok(())
    } else {
        Err("replication has stopped")
    }
}

/// Sends a PreVote to every peer. A member without a vote has no other traffic by which it would
/// learn of its own removal.
async fn send_pre_votes(shared: &Shared) {
    let (_, last) = shared.vote_and_last();
    let others = shared
        .transport
        .directory
        .member_ids()
        .into_iter()
        .filter(|id| *id != shared.member);
    futures::future::join_all(others.map(|id| request_pre_vote(shared, id, last))).await;
}

fn is_voter(shared: &Shared, server: &RaftMetrics) -> bool {
    server
        .membership_config
        .membership()
        .voter_ids()
        .any(|id| id == shared.member)
}

/// Returns the time until the next step of the timer, or `None` on the leader.
fn wait_for(shared: &Shared, metrics: &RaftMetrics, patience: Duration) -> Option<Duration> {
    if metrics.state.is_leader() {
        return None;
    }
    if shared.is_only_voter() {
        return Some(Duration::from_millis(1));
    }
    Some(
        patience
            .saturating_sub(shared.vote_guard.time_since_contact())
            .max(Duration::from_millis(10)),
    )
}

/// Sends PreVote requests to the voters. Returns `None` without a majority, or if a leader made
/// contact in the meantime.
async fn run_pre_vote(shared: &Shared, timeout: Duration) -> Option<AdmittedVote> {
    let (configs, last) = shared.configs_and_last();
    let mut in_favour = BTreeSet::from([shared.member]);
    // A joint configuration needs a majority of both sets. A single voter is its own majority.
    if !is_majority(&configs, &in_favour) {
        let others: BTreeSet<u64> = configs
            .iter()
            .flatten()
            .copied()
            .filter(|id| *id != shared.member)
            .collect();
        let mut calls: FuturesUnordered<_> = others
            .into_iter()
            .map(|id| request_pre_vote(shared, id, last))
            .collect();
        while let Some((id, granted)) = calls.next().await {
            if granted {
                in_favour.insert(id);
            }
            // The others may be down; their timeouts must not delay the election.
            if is_majority(&configs, &in_favour) {
                break;
            }
        }
    }
    if !is_majority(&configs, &in_favour) {
        tracing::debug!("no majority granted the PreVote");
        return None;
    }
    let reason = if shared.is_only_voter() {
        Reason::Always
    } else {
        Reason::Silence(timeout)
    };
    shared
        .vote_guard
        .admit_vote(shared.current_term() + 1, &reason)
}

async fn request_pre_vote(shared: &Shared, id: u64, last: Option<LogId>) -> (u64, bool) {
    let Ok(mut client) = shared.transport.peer_client(id) else {
        return (id, false);
    };
    let message = pb::PreVoteRequest {
        last: last.as_ref().map(Into::into),
    };
    let timeout = shared.election_timeout();
    let request = shared.transport.build_request(id, message, Some(timeout));
    let sent = Instant::now();
    match tokio::time::timeout(timeout, client.pre_vote(request)).await {
        Ok(Ok(response)) => {
            shared
                .transport
                .directory
                .record_success(id, sent.elapsed());
            (id, response.into_inner().granted)
        }
        Ok(Err(status)) => {
            shared.record_peer_rejection(id, &status);
            (id, false)
        }
        Err(_) => (id, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::log_id;
    use crate::election_timeout::adapt_timeout;

    #[test]
    fn pre_vote_needs_a_silent_leader_and_an_up_to_date_log() {
        let second = Duration::from_secs(1);
        let (old, new) = (Some(log_id(1, 1, 5)), Some(log_id(2, 1, 3)));
        assert!(grants_pre_vote(second, second, false, old, new));
        assert!(grants_pre_vote(second, second, false, new, new));
        assert!(!grants_pre_vote(second, second, false, new, old));
        assert!(!grants_pre_vote(second / 2, second, false, old, new));
        assert!(!grants_pre_vote(second, second, true, old, new));
    }

    #[test]
    fn election_timeout_grows_with_a_slow_disk_or_network() {
        let (ms, configured) = (Duration::from_millis(1), Duration::from_secs(1));
        assert_eq!(adapt_timeout(configured, ms, ms), configured);
        assert_eq!(adapt_timeout(configured, ms * 200, ms * 10), ms * 2_100);
        assert_eq!(adapt_timeout(configured, ms * 9_000, ms), MAX_TIMEOUT);
    }

    #[test]
    fn majority_is_needed_in_every_configuration() {
        let set = |ids: &[u64]| -> BTreeSet<u64> { ids.iter().copied().collect() };
        for (configs, in_favour, expect) in [
            (vec![set(&[1])], set(&[1]), true),
            (vec![set(&[1, 2])], set(&[1]), false),
            (vec![set(&[1, 2, 3])], set(&[1, 3]), true),
            (vec![set(&[1, 2, 3])], set(&[1, 4, 5]), false),
            (vec![set(&[1, 2, 3, 4])], set(&[1, 2]), false),
            (vec![set(&[1, 2, 3]), set(&[1, 4, 5])], set(&[1, 2]), false),
            (
                vec![set(&[1, 2, 3]), set(&[1, 4, 5])],
                set(&[1, 2, 4]),
                true,
            ),
        ] {
            assert_eq!(
                is_majority(&configs, &in_favour),
                expect,
                "{configs:?} {in_favour:?}"
            );
        }
    }
}
