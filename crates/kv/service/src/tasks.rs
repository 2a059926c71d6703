//! Background tasks of a member: compaction, membership, publishing, and those with a module of
//! their own.

use crate::corruption;
use anyhow::{Context, Result};
use base_task::Tasks;
use kv_config::{CorruptionChecks, Retention};
use kv_machine::{Caller, Command, Machine, Outcome};
use kv_raft::Directory;
use kv_rpc::ServerContext;
use proto_etcd::etcdserverpb::{CompactionRequest, Member, MemberListResponse};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Time that a removed member waits for the others to commit its removal.
const LEAVING: Duration = Duration::from_secs(10);
/// Time from its removal on for which a member serves, so that the client gets the response: the
/// same as etcd's.
const RESPONDING: Duration = Duration::from_secs(1);
/// Time for the other member of two to learn that the exclusion of this one is committed.
const COMMITTING: Duration = Duration::from_millis(500);

macro_rules! task {
    ($core:expr, $tasks:expr, $name:literal, $future:expr) => {
        task!($core, $tasks, spawn, $name, $future)
    };
    ($core:expr, $tasks:expr, $spawn:ident, $name:literal, $future:expr) => {{
        let running = $core.shutdown.clone().run_until_cancelled_owned($future);
        $tasks.$spawn($name, async move {
            let _ = running.await;
        });
    }};
}

/// Starts the tasks of a member.
pub(crate) fn spawn_jobs(
    core: &Arc<ServerContext>,
    retention: Retention,
    tasks: &Tasks,
) -> Result<()> {
    let store = core.store().clone();
    let reclaim = async move {
        if let Err(error) = store.run_compactor().await {
            tracing::error!(%error, "deleting compacted records failed");
        }
    };
    task!(core, tasks, "reclaim", reclaim);
    let hub = core.hub.clone();
    task!(core, tasks, spawn_critical, "watch hub", async move {
        hub.run().await
    });
    spawn_raft_followers(core, tasks);
    task!(
        core,
        tasks,
        "quota",
        crate::quota::watch_quota(core.clone())
    );
    spawn_compaction(core, retention, tasks);
    Ok(())
}

/// Starts the tasks that follow replication, leadership and members.
fn spawn_raft_followers(core: &Arc<ServerContext>, tasks: &Tasks) {
    task!(
        core,
        tasks,
        spawn_critical,
        "replication",
        watch_replication(core.clone())
    );
    task!(
        core,
        tasks,
        spawn_critical,
        "leadership",
        watch_leadership(core.clone())
    );
    task!(core, tasks, "leader contact", watch_contact(core.clone()));
    task!(
        core,
        tasks,
        spawn_critical,
        "leases",
        crate::expiry::run_expiry(core.clone())
    );
    task!(core, tasks, "members", follow_members(core.clone()));
    task!(
        core,
        tasks,
        "durable members",
        durable_members(core.clone())
    );
}

fn spawn_compaction(core: &Arc<ServerContext>, retention: Retention, tasks: &Tasks) {
    match retention {
        Retention::All => {}
        Retention::For(kept) => task!(
            core,
            tasks,
            "compaction",
            compact_by_time(core.clone(), kept)
        ),
        Retention::Revisions(count) => task!(
            core,
            tasks,
            "compaction",
            compact_by_count(core.clone(), count)
        ),
    }
}

/// Starts maintenance of all data: defragmentation, and the corruption checks that are enabled.
pub(crate) fn spawn_upkeep(core: &Arc<ServerContext>, checks: CorruptionChecks, tasks: &Tasks) {
    task!(
        core,
        tasks,
        "space",
        crate::auto_defrag::watch_free_space(core.clone())
    );
    if let Some(every) = checks.every {
        task!(
            core,
            tasks,
            "comparison",
            corruption::compare_periodically(core.clone(), every)
        );
    }
    if let Some(every) = checks.compacted_every {
        task!(
            core,
            tasks,
            "comparison of compacted data",
            corruption::compare_compacted(core.clone(), every)
        );
    }
}

/// Stops the member when replication has stopped, because it could not serve any more.
async fn watch_replication(core: Arc<ServerContext>) {
    let reason = core.node.wait_until_stopped().await;
    tracing::error!(reason, "replication has stopped");
    core.shutdown.cancel();
}

/// Follows changes of leadership: only the leader knows the deadlines of leases.
async fn watch_leadership(core: Arc<ServerContext>) {
    let mut led = false;
    let mut leader = None;
    loop {
        let status = core.node.status();
        if status.leading != led {
            led = status.leading;
            if led {
                // All entries of earlier terms must be applied before leases are read.
                let _ = core.node.read_index(Duration::from_secs(10)).await;
                core.machine.with_leases(|leases| {
                    leases.become_leader(Instant::now().into_std(), Duration::ZERO)
                });
            } else {
                // A follower knows no deadlines; those of its own time as a leader are void.
                core.machine
                    .with_leases(kv_machine::Leases::become_follower);
            }
        }
        if status.leader.is_some() && status.leader != leader {
            leader = status.leader;
            core.metrics.leader_changes.fetch_add(1, Ordering::Relaxed);
            tracing::info!(
                leader = format!("{:x}", leader.unwrap_or_default()),
                term = status.term,
                "leader elected"
            );
        }
        core.node
            .wait_for_leader_change((status.term, status.leader))
            .await;
    }
}

/// Number of election timeouts without a leader after which streams that require one end, as in
/// etcd.
const MAX_LEADERLESS_TIMEOUTS: u32 = 3;

/// Ends the streams that require a leader when this member has had none for some time.
async fn watch_contact(core: Arc<ServerContext>) {
    let mut leaderless = 0;
    loop {
        sleep(core.node.election_timeout()).await;
        leaderless = if core.node.has_leader() {
            0
        } else {
            leaderless + 1
        };
        if leaderless >= MAX_LEADERLESS_TIMEOUTS {
            core.leader_losses.send_replace(());
        }
    }
}

/// Sets the addresses of all members: the committed ones, or before that those of the flags. Keeps
/// the address of a removed member until Raft's membership no longer contains it, because it votes
/// on its removal.
pub(crate) fn fill_directory(
    directory: &Directory,
    machine: &Machine,
    initial: &[Member],
    status: &kv_raft::Status,
) {
    let committed = machine.with_members(|members| members.list());
    // The flags may be outdated on a restart, so that they count only before the first command.
    let known = if committed.is_empty() {
        initial
    } else {
        &committed
    };
    let addresses: HashMap<u64, Vec<String>> = known
        .iter()
        .map(|member| (member.id, member.peer_ur_ls.clone()))
        .collect();
    let leaving = status
        .voters
        .iter()
        .chain(&status.learners)
        .filter(|id| !addresses.contains_key(id));
    let leaving: Vec<_> = leaving
        .filter_map(|id| Some((*id, directory.peer_urls(*id)?)))
        .collect();
    let addresses = addresses.into_iter().chain(leaving).collect();
    directory.replace_addresses(addresses);
}

/// Returns whether the last call to a member succeeded.
pub(crate) fn is_reached(core: &ServerContext, id: u64) -> bool {
    core.directory
        .health(id)
        .is_some_and(|health| health.active_since.is_some())
}

/// Flushes the engine when the members change, because a start reads them from the engine before
/// the log is replayed.
async fn durable_members(core: Arc<ServerContext>) {
    let mut changed = core.machine.members_changed();
    // Once at the start: the process may have ended between a change and its flush.
    changed.mark_changed();
    while changed.changed().await.is_ok() {
        if let Err(error) = core.machine.flush().await {
            tracing::warn!(%error, "flushing the members failed; the log contains them");
        }
    }
}

/// Updates addresses and, on the leader, Raft's membership to match the committed members.
async fn follow_members(core: Arc<ServerContext>) {
    let mut changed = core.machine.members_changed();
    loop {
        changed.borrow_and_update();
        let status = core.node.status();
        fill_directory(&core.directory, &core.machine, &core.initial, &status);
        let removed = core
            .machine
            .with_members(|members| members.was_removed(core.identity.member));
        if removed && !status.leading {
            leave_cluster(&core).await;
            return;
        }
        // One step at a time, because Raft changes its membership one by one, and each step needs a
        // quorum of the former membership.
        let settled = !status.leading || bring_in_line(&core, &status).await;
        let term = (status.term, status.leader);
        tokio::select! {
            _ = changed.changed() => {}
            () = core.node.wait_for_leader_change(term) => {}
            // A learner that catches up causes neither event.
            () = sleep(Duration::from_millis(200)), if !settled => {}
        }
    }
}

/// Stops a removed member, after the response to its removal was sent and after the membership
/// change was committed: of two members, the other one needs this vote.
async fn leave_cluster(core: &Arc<ServerContext>) {
    let removed = Instant::now();
    while core
        .node
        .status()
        .coming_voters
        .contains(&core.identity.member)
        && removed.elapsed() < LEAVING
    {
        sleep(Duration::from_millis(50)).await;
    }
    sleep_until(stop_time(removed, Instant::now())).await;
    core.on_removed();
}

/// Returns when a member stops that was removed and later excluded from Raft's voters.
fn stop_time(removed: Instant, excluded: Instant) -> Instant {
    (removed + RESPONDING).max(excluded + COMMITTING)
}

/// Executes one step towards the committed members. Returns whether nothing is left to do.
async fn bring_in_line(core: &ServerContext, status: &kv_raft::Status) -> bool {
    let members = core.machine.with_members(|members| members.list());
    if members.is_empty() {
        return true;
    }
    let committed: BTreeSet<u64> = members.iter().map(|member| member.id).collect();
    let present: BTreeSet<u64> = status.voters.union(&status.learners).copied().collect();
    // Additions before removals: a replacement must not lower the number of members in between.
    let step = if let Some(id) = committed.difference(&present).next() {
        core.node.add_learner(*id).await
    } else if let Some(id) = present
        .difference(&committed)
        .find(|id| **id != core.identity.member)
    {
        core.node.remove_member(*id).await
    } else {
        let to_promote = members.iter().find(|member| {
            let matched = status.matched.get(&member.id).copied().unwrap_or_default();
            !member.is_learner
                && status.learners.contains(&member.id)
                // Promoted earlier, it would count for the quorum while it can't acknowledge new
                // entries.
                && matched + 10 >= status.last_index
                && matched > 0
        });
        match to_promote {
            Some(member) => core.node.promote_learner(member.id).await,
            None => {
                return members
                    .iter()
                    .all(|member| member.is_learner || status.voters.contains(&member.id));
            }
        }
    };
    if let Err(error) = step {
        tracing::debug!(%error, "changing the membership failed; it is retried");
    }
    false
}

/// Publishes name and client URLs of this member and waits until that is applied.
pub(crate) async fn publish_member(
    core: &Arc<ServerContext>,
    name: &str,
    client_urls: &[String],
) -> Result<()> {
    let me = core.identity.member;
    let mut urls = client_urls.to_vec();
    // Members publish the same list in the same order, so that a restart without a change proposes
    // nothing.
    urls.sort();
    loop {
        let known = core.machine.with_members(|members| members.list());
        // The first command of a cluster names its members. Until then nothing can be published.
        if known.is_empty() {
            init_members(core).await;
        }
        let command = Command::MemberPublish(Member {
            id: me,
            name: name.to_owned(),
            client_ur_ls: urls.clone(),
            ..Member::default()
        });
        let same = known
            .iter()
            .any(|m| m.id == me && m.name == name && m.client_ur_ls == urls);
        let done = if same {
            core.is_learner() || core.node.read_index(Duration::from_secs(2)).await.is_ok()
        } else {
            matches!(
                core.submit_raw(&Caller::internal(), command).await,
                Ok((Outcome::Members(_), _))
            )
        };
        if done {
            return Ok(());
        }
        if let Some(reason) = core.node.status().stopped {
            return Err(anyhow::Error::msg(reason)).context("replication has stopped");
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Proposes the initial members as the first command of a cluster.
async fn init_members(core: &Arc<ServerContext>) {
    if !core.node.status().leading {
        return;
    }
    let members = MemberListResponse {
        header: None,
        members: core.initial.clone(),
    };
    if let Err(refusal) = core
        .submit_raw(&Caller::internal(), Command::MembersInit(members))
        .await
    {
        tracing::debug!(%refusal, "proposing the initial members failed");
    }
}

async fn compact_to(core: &ServerContext, revision: i64) {
    // Only the leader compacts, or each member would propose the same.
    if revision <= core.store().compacted_revision() || !core.node.status().leading {
        return;
    }
    let command = Command::Compact(CompactionRequest {
        revision,
        // Waiting for the engine would delay the next sample, and nothing reads the result.
        physical: false,
    });
    match core.submit_raw(&Caller::internal(), command).await {
        Ok(_) => tracing::info!(revision, "history compacted"),
        Err(refusal) => tracing::debug!(%refusal, revision, "compaction failed"),
    }
}

/// Keeps the history of a time span.
async fn compact_by_time(core: Arc<ServerContext>, kept: Duration) {
    // A tenth of the span, at most 360 s: enough samples for the required precision.
    let step = (kept / 10)
        .min(Duration::from_secs(360))
        .max(Duration::from_millis(100));
    let mut samples = std::collections::VecDeque::new();
    loop {
        samples.push_back((Instant::now(), core.store().current_revision()));
        sleep(step).await;
        let mut target = None;
        // The newest sample that is old enough: everything before it is older than the span.
        while samples
            .front()
            .is_some_and(|(taken, _)| taken.elapsed() >= kept)
        {
            target = samples.pop_front().map(|(_, revision)| revision);
        }
        if let Some(revision) = target {
            compact_to(&core, revision).await;
        }
    }
}

/// Keeps a number of revisions.
async fn compact_by_count(core: Arc<ServerContext>, count: i64) {
    loop {
        // etcd's interval: compaction costs disk throughput on every member.
        sleep(Duration::from_secs(300)).await;
        compact_to(&core, core.store().current_revision() - count).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_member_stops_a_second_later_unless_its_vote_is_still_needed() {
        let removed = Instant::now();
        for (excluded_ms, stop_ms) in [(0, 1_000), (400, 1_000), (700, 1_200), (10_000, 10_500)] {
            let at = |ms| removed + Duration::from_millis(ms);
            assert_eq!(
                stop_time(removed, at(excluded_ms)),
                at(stop_ms),
                "{excluded_ms} ms"
            );
        }
    }
}
