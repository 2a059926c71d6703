//! Membership changes, on the leader.
//!
//! The list is part of the state and changes by one command. Raft's membership follows it (see
//! `tasks` in `kv-service`). So a member that was added but not started does not count for the quorum, and becomes
//! a voter only when it has caught up.

use crate::context::ServerContext;
use crate::peer_rpc::{self, Change, MembershipResult};
use kv_config::{ServerUrl, member_id, parse_urls};
use kv_machine::{Caller, Command, EtcdError, Outcome};
use kv_raft::NodeError;
use proto_etcd::etcdserverpb::{Member, MemberAddRequest};
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum number of entries by which a learner may lag behind when it is promoted.
const IN_SYNC: u64 = 10;
/// Time since the leader's start for which a member must have been reached to count as healthy.
const SETTLED: Duration = Duration::from_millis(500);
/// Time after its start during which a leader trusts a voter's answer alone: etcd's health
/// interval.
const LIVED: Duration = Duration::from_secs(5);
/// For a member to answer that it is there.
const ANSWERS: Duration = Duration::from_secs(1);

/// Changes the membership; only valid on the leader.
pub(crate) async fn change_membership(
    core: &ServerContext,
    change: Change,
) -> Result<MembershipResult, EtcdError> {
    let (command, added) = match change {
        Change::Add(request) => {
            let member = new_member(core, &request)?;
            core.machine
                .with_members(|members| members.check_add(&member, core.bounds.max_learners))?;
            // A learner does not count for the quorum, so adding one can't lose it.
            if !member.is_learner {
                check_quorum(core, None).await?;
            }
            (Command::MemberAdd(member.clone()), Some(member))
        }
        Change::Remove(request) => {
            check_member_known(core, request.id)?;
            check_quorum(core, Some(request.id)).await?;
            (Command::MemberRemove(request), None)
        }
        Change::Update(request) => {
            check_member_known(core, request.id)?;
            check_urls(core, &request.peer_ur_ls)?;
            (Command::MemberUpdate(request), None)
        }
        Change::Promote(request) => {
            check_promotion(core, request.id).await?;
            (Command::MemberPromote(request), None)
        }
    };
    // The leader never removes itself from Raft's membership (`tasks` in `kv-service`), so another
    // member must lead first.
    if let Command::MemberRemove(request) = &command
        && request.id == core.identity.member
    {
        return leave_cluster(core).await;
    }
    match core.submit_raw(&Caller::internal(), command).await? {
        (Outcome::Members(members), _) => Ok((members, added)),
        _ => Err(EtcdError::TimedOut),
    }
}

/// Transfers leadership before the leader is removed. The next leader executes the removal.
async fn leave_cluster(core: &ServerContext) -> Result<MembershipResult, EtcdError> {
    let status = core.node.status();
    let others = status
        .voters
        .iter()
        .filter(|id| **id != core.identity.member);
    // The voter with most of the log has least to catch up with while proposals are blocked.
    let best = others
        .max_by_key(|id| status.matched.get(id).copied().unwrap_or_default())
        .copied();
    let Some(best) = best else {
        return Err(EtcdError::NotEnoughMembers);
    };
    let moved = core
        .node
        .transfer_leadership(best, Duration::from_secs(5))
        .await;
    match moved {
        // The caller sends the request to the new leader.
        Ok(()) | Err(NodeError::NotLeader) => Err(EtcdError::LeaderChanged),
        Err(error) => {
            tracing::warn!(%error, "transferring leadership before the removal of this member failed");
            Err(EtcdError::TimedOut)
        }
    }
}

fn check_member_known(core: &ServerContext, id: u64) -> Result<(), EtcdError> {
    core.machine
        .with_members(|members| members.get(id).map(drop))
        .ok_or(EtcdError::MemberNotFound)
}

fn check_urls(core: &ServerContext, peer_urls: &[String]) -> Result<(), EtcdError> {
    // Without TLS a peer can't prove its membership.
    let safe = |url: &ServerUrl| url.secure || core.bounds.insecure_members;
    let fine =
        |url: &String| matches!(parse_urls("peer-urls", url).as_deref(), Ok([url]) if safe(url));
    let fine = !peer_urls.is_empty() && peer_urls.iter().all(fine);
    if fine {
        Ok(())
    } else {
        Err(EtcdError::BadMemberUrls)
    }
}

fn new_member(core: &ServerContext, request: &MemberAddRequest) -> Result<Member, EtcdError> {
    check_urls(core, &request.peer_ur_ls)?;
    let mut peer_ur_ls = request.peer_ur_ls.clone();
    peer_ur_ls.sort();
    // A removed member's URLs may be used again for a new member, so the ID contains a random
    // number.
    let salt = format!("{:x}{:x}", core.identity.cluster, rand::random::<u64>());
    let id = member_id(&peer_ur_ls, &salt);
    Ok(Member {
        id,
        peer_ur_ls,
        is_learner: request.is_learner,
        ..Member::default()
    })
}

/// Returns whether a voter has been reached for long enough. Only a leader calls the others all the
/// time, so one that was just elected has not reached any voter for long. Unless it has just
/// started itself, an answer is enough.
fn is_healthy(core: &ServerContext, id: u64) -> bool {
    let reached = || {
        core.directory
            .health(id)
            .and_then(|health| health.active_since)
    };
    id == core.identity.member
        || core.started.elapsed() >= LIVED
        || reached().is_some_and(|since| since.elapsed() >= SETTLED)
}

/// Returns the healthy voters that answer now. One that stopped a moment ago may still count as
/// reached.
async fn live_members(core: &ServerContext, voters: &[Member]) -> BTreeSet<u64> {
    let reached = voters
        .iter()
        .map(|member| member.id)
        .filter(|id| is_healthy(core, *id));
    let asked = reached.map(|id| async move {
        peer_rpc::is_responding(core, id, ANSWERS)
            .await
            .then_some(id)
    });
    futures::future::join_all(asked)
        .await
        .into_iter()
        .flatten()
        .collect()
}

/// Rejects a change that would leave too few live voters.
async fn check_quorum(core: &ServerContext, leaving: Option<u64>) -> Result<(), EtcdError> {
    let voters: Vec<Member> = core.machine.with_members(|members| members.list());
    let voters: Vec<Member> = voters
        .into_iter()
        .filter(|member| !member.is_learner)
        .collect();
    if !core.bounds.strict_reconfig {
        // The last voter can't be removed: no member would be left to commit it.
        let last = leaving.is_some() && voters.iter().all(|member| Some(member.id) == leaving);
        return if last {
            Err(EtcdError::NotEnoughMembers)
        } else {
            Ok(())
        };
    }
    // etcd's strict reconfiguration check: the change must leave a quorum of voters that respond.
    let live = live_members(core, &voters).await;
    match leaving {
        None => {
            // A member that was added and has never started counts as not there.
            let all = voters
                .iter()
                .all(|member| !member.name.is_empty() && live.contains(&member.id));
            if voters.len() > 1 && !all {
                Err(EtcdError::Unhealthy)
            } else {
                Ok(())
            }
        }
        Some(id) => {
            let rest: Vec<&Member> = voters.iter().filter(|member| member.id != id).collect();
            let was_voter = rest.len() < voters.len();
            let live = rest
                .iter()
                .filter(|member| live.contains(&member.id))
                .count();
            if was_voter && (rest.is_empty() || live < rest.len() / 2 + 1) {
                return Err(if rest.is_empty() {
                    EtcdError::NotEnoughMembers
                } else {
                    EtcdError::Unhealthy
                });
            }
            Ok(())
        }
    }
}

async fn check_promotion(core: &ServerContext, id: u64) -> Result<(), EtcdError> {
    let member = core
        .machine
        .with_members(|members| members.get(id).cloned())
        .ok_or(EtcdError::MemberNotFound)?;
    if !member.is_learner {
        return Err(EtcdError::NotLearner);
    }
    let status = core.node.status();
    let matched = status.matched.get(&id).copied().unwrap_or_default();
    let in_sync = matched > 0 && matched + IN_SYNC >= status.last_index && !member.name.is_empty();
    if in_sync && peer_rpc::is_responding(core, id, ANSWERS).await {
        Ok(())
    } else {
        Err(EtcdError::LearnerNotReady)
    }
}
