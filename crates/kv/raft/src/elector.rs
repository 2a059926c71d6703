//! When to stand for election, and whether to vote for somebody who asks whether one would.
//!
//! openraft's own timer is off. A member that has heard of no leader for a while first asks the others (pre-vote), who say
//! yes only if they have heard of none either and the asker's log is not behind theirs; only then does it raise the term.

use crate::pb;
use crate::promise::{Passing, Reason};
use crate::shared::Shared;
use crate::types::{LogId, Server};
use futures::stream::{FuturesUnordered, StreamExt};
use rand::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Slowest sync and round trip that the timeout adapts to.
const LONGEST: Duration = Duration::from_secs(10);

/// For how long the outcome of an election is waited for that the leader asked for.
const GIVEN_WAY: Duration = Duration::from_millis(300);

/// The election timeout, stretched where disk and network are slow: ten of their operations must fit in.
pub(crate) fn adapted(configured: Duration, sync: Duration, round_trip: Duration) -> Duration {
    configured.max(((sync + round_trip) * 10).min(LONGEST))
}

/// Whether to tell a candidate that one would vote for it.
pub(crate) fn would_vote(
    heard: Duration,
    timeout: Duration,
    leading: bool,
    mine: Option<LogId>,
    theirs: Option<LogId>,
) -> bool {
    !leading && heard >= timeout && theirs >= mine
}

/// Whether the ones in favour are a majority of every configuration.
pub(crate) fn majority(configs: &[BTreeSet<u64>], in_favour: &BTreeSet<u64>) -> bool {
    configs.iter().all(|voters| voters.intersection(in_favour).count() > voters.len() / 2)
}

/// Stands for election whenever it is time to.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut metrics = shared.raft.server_metrics();
    loop {
        let timeout = shared.election_timeout();
        let patience = timeout + timeout.mul_f64(rand::rng().random_range(0.0..1.0));
        // A copy: to look again while it is held could wait for itself.
        let server = metrics.borrow_and_update().clone();
        let wait = wait_for(&shared, &server, patience);
        let Some(wait) = wait else {
            // Leading: until that changes there is nothing to do.
            if metrics.changed().await.is_err() {
                return;
            }
            continue;
        };
        tokio::time::sleep(wait).await;
        let server = metrics.borrow_and_update().clone();
        let still = wait_for(&shared, &server, patience).is_some();
        let silence = shared.promise.silence();
        if still && silence >= wait.min(patience) && silence >= timeout || still && shared.alone() {
            if !is_voter(&shared, &server) {
                knock(&shared).await;
                tokio::time::sleep(patience).await;
                continue;
            }
            let Some(passing) = campaign(&shared, timeout).await else {
                // Not at once again: the others have been asked.
                tokio::time::sleep(patience.mul_f64(0.1)).await;
                continue;
            };
            if !elect(&shared, passing, patience.mul_f64(0.6)).await {
                return;
            }
        }
    }
}

/// Raises the term, and waits for what comes of it. False: replication has stopped.
async fn elect(shared: &Shared, passing: Passing, patience: Duration) -> bool {
    let mut metrics = shared.raft.server_metrics();
    let before = metrics.borrow_and_update().vote.leader_id.term;
    tracing::info!("standing for election");
    if let Err(e) = shared.raft.trigger().elect().await {
        tracing::warn!(error = %e, "an election can't be started");
    }
    // openraft saves the new vote in its own time. Until then it still tells of the leader that is gone, and every
    // further election would wait behind this one, and end it.
    let noted = metrics.wait_for(|server| server.vote.leader_id.term > before);
    match tokio::time::timeout(LONGEST, noted).await {
        Ok(Ok(server)) => passing.given(server.vote.leader_id.term),
        Ok(Err(_)) => return false,
        Err(_) => {}
    }
    // The votes take their time; whoever asks again at once takes them back.
    let outcome = metrics.wait_for(|server| server.current_leader.is_some());
    let _ = tokio::time::timeout(patience, outcome).await;
    true
}

/// Stands for election because the leader asked.
pub(crate) async fn stand(shared: &Shared, transfer: pb::Transfer) -> Result<(), &'static str> {
    let passing = shared.promise.pass(shared.term() + 1, &Reason::Transfer(&transfer));
    let Some(passing) = passing else { return Err("the leader is not known to be giving way") };
    *shared.standing.lock() = Some(transfer);
    if elect(shared, passing, GIVEN_WAY).await { Ok(()) } else { Err("replication has stopped") }
}

/// Calls everybody, to be told in case this member has been removed: without a vote it has no other reason to.
async fn knock(shared: &Shared) {
    let (_, last) = shared.vote_and_last();
    let others = shared.transport.directory.ids().into_iter().filter(|id| *id != shared.member);
    futures::future::join_all(others.map(|id| ask(shared, id, last))).await;
}

fn is_voter(shared: &Shared, server: &Server) -> bool {
    server.membership_config.membership().voter_ids().any(|id| id == shared.member)
}

/// How long to wait before doing something; none: leading, so there is nothing to do.
fn wait_for(shared: &Shared, metrics: &Server, patience: Duration) -> Option<Duration> {
    if metrics.state.is_leader() {
        return None;
    }
    if shared.alone() {
        return Some(Duration::from_millis(1));
    }
    Some(patience.saturating_sub(shared.promise.silence()).max(Duration::from_millis(10)))
}

/// Asks the others. None: a majority would not vote for this member, or it has heard of a leader meanwhile.
async fn campaign(shared: &Shared, timeout: Duration) -> Option<Passing> {
    let (configs, last) = shared.configs_and_last();
    let mut in_favour = BTreeSet::from([shared.member]);
    if !majority(&configs, &in_favour) {
        let others: BTreeSet<u64> = configs.iter().flatten().copied().filter(|id| *id != shared.member).collect();
        let mut calls: FuturesUnordered<_> = others.into_iter().map(|id| ask(shared, id, last)).collect();
        while let Some((id, granted)) = calls.next().await {
            if granted {
                in_favour.insert(id);
            }
            if majority(&configs, &in_favour) {
                break;
            }
        }
    }
    if !majority(&configs, &in_favour) {
        tracing::debug!("no majority would vote for this member");
        return None;
    }
    let reason = if shared.alone() { Reason::Always } else { Reason::Silence(timeout) };
    shared.promise.pass(shared.term() + 1, &reason)
}

async fn ask(shared: &Shared, id: u64, last: Option<LogId>) -> (u64, bool) {
    let Ok(mut client) = shared.transport.client(id) else { return (id, false) };
    let message = pb::PreVoteRequest { last: last.as_ref().map(Into::into) };
    let timeout = shared.election_timeout();
    let request = shared.transport.request(id, message, Some(timeout));
    let sent = Instant::now();
    match tokio::time::timeout(timeout, client.pre_vote(request)).await {
        Ok(Ok(answer)) => {
            shared.transport.directory.answered(id, sent.elapsed());
            (id, answer.into_inner().granted)
        }
        Ok(Err(status)) => {
            shared.refused(id, &status);
            (id, false)
        }
        Err(_) => (id, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::log_id;

    #[test]
    fn nobody_votes_against_a_leader_or_for_one_behind() {
        let second = Duration::from_secs(1);
        let (old, new) = (Some(log_id(1, 1, 5)), Some(log_id(2, 1, 3)));
        assert!(would_vote(second, second, false, old, new));
        assert!(would_vote(second, second, false, new, new));
        assert!(!would_vote(second, second, false, new, old));
        assert!(!would_vote(second / 2, second, false, old, new));
        assert!(!would_vote(second, second, true, old, new));
    }

    #[test]
    fn the_timeout_follows_a_slow_disk() {
        let (ms, configured) = (Duration::from_millis(1), Duration::from_secs(1));
        assert_eq!(adapted(configured, ms, ms), configured);
        assert_eq!(adapted(configured, ms * 200, ms * 10), ms * 2_100);
        assert_eq!(adapted(configured, ms * 9_000, ms), LONGEST);
    }
}
