//! Membership changes, on the leader.
//!
//! The list is part of the state and changes by one command. Raft's membership follows it (see
//! `tasks` in `kv-service`). So a member that was added but not started does not count for the
//! quorum, and becomes a voter only when it has caught up.

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
    if are_peer_urls(peer_urls, core.bounds.insecure_members) {
        Ok(())
    } else {
        Err(EtcdError::BadMemberUrls)
    }
}

/// Returns whether these can be the peer URLs of a member.
fn are_peer_urls(peer_urls: &[String], insecure: bool) -> bool {
    // Without TLS a peer can't prove its membership.
    let safe = |url: &ServerUrl| url.secure || insecure;
    let is_peer_url =
        |url: &String| matches!(parse_urls("peer-urls", url).as_deref(), Ok([url]) if safe(url));
    !peer_urls.is_empty() && peer_urls.iter().all(is_peer_url)
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
        return keep_one_voter(&voters, leaving);
    }
    let live = live_members(core, &voters).await;
    keep_live_quorum(&voters, &live, leaving)
}

/// Rejects the removal of the last voter: no member would be left to commit it.
fn keep_one_voter(voters: &[Member], leaving: Option<u64>) -> Result<(), EtcdError> {
    if leaving.is_some() && voters.iter().all(|member| Some(member.id) == leaving) {
        Err(EtcdError::NotEnoughMembers)
    } else {
        Ok(())
    }
}

/// Rejects a change after which the voters that respond are no quorum: etcd's strict
/// reconfiguration check.
fn keep_live_quorum(
    voters: &[Member],
    live: &BTreeSet<u64>,
    leaving: Option<u64>,
) -> Result<(), EtcdError> {
    let Some(leaving) = leaving else {
        // A member that was added and never started has no name, and does not count as live. The
        // only voter must be live, because it executes this.
        let all = voters
            .iter()
            .all(|member| !member.name.is_empty() && live.contains(&member.id));
        return if voters.len() > 1 && !all {
            Err(EtcdError::Unhealthy)
        } else {
            Ok(())
        };
    };
    let rest: Vec<&Member> = voters
        .iter()
        .filter(|member| member.id != leaving)
        .collect();
    // Removing a learner never changes the quorum.
    if rest.len() == voters.len() {
        return Ok(());
    }
    let live = rest
        .iter()
        .filter(|member| live.contains(&member.id))
        .count();
    if rest.is_empty() {
        Err(EtcdError::NotEnoughMembers)
    } else if live < rest.len() / 2 + 1 {
        Err(EtcdError::Unhealthy)
    } else {
        Ok(())
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
    // A learner that never started has no name and has acknowledged nothing. With a log of fewer
    // than IN_SYNC entries it would be close enough otherwise.
    let in_sync = matched > 0 && matched + IN_SYNC >= status.last_index && !member.name.is_empty();
    if in_sync && peer_rpc::is_responding(core, id, ANSWERS).await {
        Ok(())
    } else {
        Err(EtcdError::LearnerNotReady)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(ids: &[u64]) -> Vec<Member> {
        let voter = |id: &u64| Member {
            id: *id,
            name: format!("m{id}"),
            ..Member::default()
        };
        ids.iter().map(voter).collect()
    }

    fn text(result: Result<(), EtcdError>) -> String {
        result.map_or_else(|error| error.to_string(), |()| String::new())
    }

    fn check(voters: &[Member], live: &[u64], leaving: Option<u64>, expect: Result<(), EtcdError>) {
        let live = live.iter().copied().collect();
        let checked = keep_live_quorum(voters, &live, leaving);
        let case = format!(
            "{} voters, live {live:?}, leaving {leaving:?}",
            voters.len()
        );
        assert_eq!(text(checked), text(expect), "{case}");
    }

    #[test]
    fn voter_is_added_only_if_all_voters_are_live() {
        check(&voters(&[1]), &[1], None, Ok(()));
        check(&voters(&[1, 2, 3]), &[1, 2, 3], None, Ok(()));
        check(
            &voters(&[1, 2, 3]),
            &[1, 2],
            None,
            Err(EtcdError::Unhealthy),
        );
    }

    #[test]
    fn voter_is_not_added_while_another_one_has_never_started() {
        let mut two = voters(&[1, 2]);
        two[1].name.clear();
        check(&two, &[1, 2], None, Err(EtcdError::Unhealthy));
    }

    #[test]
    fn voter_is_removed_only_if_the_others_are_a_live_quorum() {
        check(&voters(&[1, 2, 3]), &[1, 2], Some(3), Ok(()));
        check(
            &voters(&[1, 2, 3]),
            &[1, 2],
            Some(2),
            Err(EtcdError::Unhealthy),
        );
        check(&voters(&[1, 2, 3, 4]), &[1, 2, 3], Some(3), Ok(()));
        check(
            &voters(&[1, 2, 3, 4]),
            &[1, 2],
            Some(2),
            Err(EtcdError::Unhealthy),
        );
        check(&voters(&[1, 2]), &[1], Some(2), Ok(()));
    }

    #[test]
    fn last_voter_is_never_removed() {
        check(
            &voters(&[1]),
            &[1],
            Some(1),
            Err(EtcdError::NotEnoughMembers),
        );
        let without_check = keep_one_voter(&voters(&[1]), Some(1));
        assert_eq!(text(without_check), text(Err(EtcdError::NotEnoughMembers)));
        assert!(keep_one_voter(&voters(&[1, 2]), Some(1)).is_ok());
        assert!(keep_one_voter(&voters(&[1]), None).is_ok());
    }

    #[test]
    fn learner_is_removed_whatever_is_live() {
        check(&voters(&[1, 2, 3]), &[1], Some(9), Ok(()));
    }

    #[test]
    fn peer_url_needs_tls_unless_members_may_be_insecure() {
        for (urls, secure, insecure) in [
            (&["https://h:1"][..], true, true),
            (&["http://h:1"], false, true),
            (&["https://h:1", "http://h:2"], false, true),
            (&[], false, false),
            (&["https://h:1,https://h:2"], false, false),
            (&["unix://s"], false, false),
            (&["h:1"], false, false),
        ] {
            let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
            let found = (are_peer_urls(&urls, false), are_peer_urls(&urls, true));
            assert_eq!(found, (secure, insecure), "{urls:?}");
        }
    }
}
