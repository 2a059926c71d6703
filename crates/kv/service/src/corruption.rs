//! Corruption check: compares the members' data, on a member before it serves and on the leader at
//! intervals.
//!
//! Members are compared at the same revision and only if they have the same compacted revision. A
//! member that differs from a majority is corrupt. Without a majority the corrupt member can't be
//! determined, and the alarm is raised for the cluster (member 0). The alarm is raised only if a
//! second round, at a later revision, confirms the difference.

use anyhow::{Result, bail};
use kv_machine::{Caller, Command, EtcdError};
use kv_rpc::{HashResult, ServerContext, hash_locally, request_hash};
use proto_etcd::etcdserverpb::alarm_request::AlarmAction;
use proto_etcd::etcdserverpb::{AlarmRequest, AlarmType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Timeout of one member's response. The hash requires a scan of all records.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Member ID that stands for the whole cluster.
const WHOLE_CLUSTER: u64 = 0;

/// Returns the members whose data differ from those of a majority of all `members`, or
/// `WHOLE_CLUSTER` if there is no majority.
fn find_corrupt_members(
    mine: (u64, HashResult),
    others: &[(u64, HashResult)],
    members: usize,
) -> BTreeSet<u64> {
    let mut having: BTreeMap<u32, BTreeSet<u64>> =
        BTreeMap::from([(mine.1.hash, BTreeSet::from([mine.0]))]);
    for (member, theirs) in others
        .iter()
        // A member that has compacted to another revision has other records and the same data.
        .filter(|(_, theirs)| theirs.comparable(&mine.1))
    {
        having.entry(theirs.hash).or_default().insert(*member);
    }
    if having.len() == 1 {
        return BTreeSet::new();
    }
    // A majority of all members, not of those that responded: two of five that agree prove nothing.
    let majority = having
        .iter()
        .find(|(_, members_having)| members_having.len() > members / 2)
        .map(|(hash, _)| *hash);
    match majority {
        Some(right) => having
            .into_iter()
            .filter(|(hash, _)| *hash != right)
            .flat_map(|(_, who)| who)
            .collect(),
        None => BTreeSet::from([WHOLE_CLUSTER]),
    }
}

/// Requests the hash at a revision from the other members. Returns the responses and the number of
/// members.
async fn request_hashes(
    core: &Arc<ServerContext>,
    revision: i64,
) -> (Vec<(u64, HashResult)>, usize) {
    let mine = core.identity.member;
    let committed = core.machine.with_members(|members| members.list());
    let known = if committed.is_empty() {
        &core.initial
    } else {
        &committed
    };
    let others = known
        .iter()
        .map(|member| member.id)
        .filter(|id| *id != mine);
    let asked = others.map(|id| async move {
        match request_hash(core, id, revision, RESPONSE_TIMEOUT).await {
            Some(theirs) => Some((id, theirs)),
            None => {
                tracing::warn!(
                    member = format!("{id:x}"),
                    revision,
                    "this member's data can't be compared just now"
                );
                None
            }
        }
    });
    (
        futures::future::join_all(asked)
            .await
            .into_iter()
            .flatten()
            .collect(),
        known.len(),
    )
}

/// Returns an error if another member has different data at this member's revision.
pub(crate) async fn check_first(core: &Arc<ServerContext>) -> Result<()> {
    let mine = hash_locally(core, 0).await?;
    let (others, _) = request_hashes(core, mine.revision).await;
    let differs = |theirs: &HashResult| theirs.comparable(&mine) && theirs.hash != mine.hash;
    let who: Vec<String> = others
        .iter()
        .filter(|(_, theirs)| differs(theirs))
        .map(|(id, _)| format!("{id:x}"))
        .collect();
    if who.is_empty() {
        tracing::info!(
            revision = mine.revision,
            compared = others.len(),
            "the other members have the same data"
        );
        return Ok(());
    }
    bail!(
        "{:x} found data inconsistency with peers: at revision {} it has other data than {}; compare them with `etcdctl endpoint \
         hashkv --cluster`, remove the member that is wrong with `member remove`, empty its data folder and add it again",
        core.identity.member,
        mine.revision,
        who.join(" and ")
    );
}

/// Compares all members at the current revision, at intervals while this member is the leader.
pub(crate) async fn compare_periodically(core: Arc<ServerContext>, every: Duration) {
    loop {
        sleep(every).await;
        if core.node.status().leading {
            check_revision(&core, 0).await;
        }
    }
}

/// Compares all members at the compacted revision whenever that has changed.
pub(crate) async fn compare_compacted(core: Arc<ServerContext>, every: Duration) {
    let mut checked = 0;
    loop {
        sleep(every).await;
        let compacted = core.store().compacted_revision();
        if compacted > checked
            && core.node.status().leading
            && check_revision(&core, compacted).await
        {
            checked = compacted;
        }
    }
}

/// Compares once, and again if there is a difference. Returns whether every member was compared.
async fn check_revision(core: &Arc<ServerContext>, revision: i64) -> bool {
    let found = async {
        let (first, all) = compare_once(core, revision).await?;
        if first.is_empty() {
            return Ok((first, all));
        }
        // A member that applies entries during the first round may differ for a moment only.
        let (second, all) = compare_once(core, revision).await?;
        Ok::<_, EtcdError>((first.intersection(&second).copied().collect(), all))
    };
    match found.await {
        Ok((corrupt, all)) => {
            for member in corrupt {
                raise_corrupt_alarm(core, member).await;
            }
            all
        }
        Err(refusal) => {
            tracing::warn!(%refusal, "the members' data can't be compared");
            false
        }
    }
}

async fn compare_once(
    core: &Arc<ServerContext>,
    revision: i64,
) -> Result<(BTreeSet<u64>, bool), EtcdError> {
    let mine = hash_locally(core, revision).await?;
    let (others, members) = request_hashes(core, mine.revision).await;
    let compared = others
        .iter()
        .filter(|(_, theirs)| theirs.comparable(&mine))
        .count();
    tracing::debug!(
        revision = mine.revision,
        compared,
        members,
        "the members' data are compared"
    );
    Ok((
        find_corrupt_members((core.identity.member, mine), &others, members),
        compared + 1 == members,
    ))
}

async fn raise_corrupt_alarm(core: &ServerContext, member: u64) {
    let corrupt =
        |alarm: &proto_etcd::etcdserverpb::AlarmMember| alarm.alarm() == AlarmType::Corrupt;
    if core
        .machine
        .list_alarms()
        .iter()
        .any(|alarm| alarm.member_id == member && corrupt(alarm))
    {
        return;
    }
    let request = AlarmRequest {
        action: AlarmAction::Activate.into(),
        member_id: member,
        alarm: AlarmType::Corrupt.into(),
    };
    let member = format!("{member:x}");
    match core
        .submit_raw(&Caller::internal(), Command::Alarm(request))
        .await
    {
        Ok(_) => tracing::error!(
            member,
            "this member has other data than a majority (0: no majority has the same): writes are refused until it is replaced and \
             the alarm is disarmed"
        ),
        Err(refusal) => {
            tracing::error!(member, %refusal, "the data differ, and the alarm can't be raised")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hash: u32, revision: i64, compacted: i64) -> HashResult {
        HashResult {
            hash,
            revision,
            compacted,
        }
    }

    fn check(mine: u32, others: &[(u64, HashResult)], members: usize, expect: &[u64]) {
        let found = find_corrupt_members((1, at(mine, 9, 3)), others, members);
        assert_eq!(
            found,
            expect.iter().copied().collect(),
            "{mine} with {others:?} of {members}"
        );
    }

    #[test]
    fn member_that_differs_from_the_majority_is_corrupt() {
        check(7, &[], 1, &[]);
        check(7, &[(2, at(7, 9, 3)), (3, at(7, 9, 3))], 3, &[]);
        check(7, &[(2, at(7, 9, 3)), (3, at(8, 9, 3))], 3, &[3]);
        // The leader is the corrupt member.
        check(8, &[(2, at(7, 9, 3)), (3, at(7, 9, 3))], 3, &[1]);
        check(
            7,
            &[
                (2, at(7, 9, 3)),
                (3, at(7, 9, 3)),
                (4, at(8, 9, 3)),
                (5, at(6, 9, 3)),
            ],
            5,
            &[4, 5],
        );
    }

    #[test]
    fn difference_without_a_majority_concerns_the_whole_cluster() {
        check(7, &[(2, at(8, 9, 3))], 2, &[WHOLE_CLUSTER]);
        // The third member does not respond.
        check(7, &[(2, at(8, 9, 3))], 3, &[WHOLE_CLUSTER]);
        check(
            7,
            &[(2, at(8, 9, 3)), (3, at(6, 9, 3))],
            3,
            &[WHOLE_CLUSTER],
        );
    }

    #[test]
    fn hashes_after_different_compactions_are_not_compared() {
        check(7, &[(2, at(7, 9, 3)), (3, at(8, 9, 4))], 3, &[]);
        check(7, &[(2, at(7, 9, 3)), (3, at(8, 8, 3))], 3, &[]);
    }
}
