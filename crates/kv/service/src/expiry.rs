//! Lease expiry and checkpoints, on the leader.
//!
//! The leader's decisions about a lease are proposed only by that leader: the next one may have
//! renewed the lease.

use kv_machine::{Command, EtcdError};
use kv_rpc::ServerContext;
use proto_etcd::etcdserverpb::{LeaseCheckpoint, LeaseCheckpointRequest, LeaseRevokeRequest};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

/// Interval of revocations: at most 1000 leases a second expire, as in etcd, so that other requests
/// are served in between.
const STEP: Duration = Duration::from_millis(100);
const ENDED_IN_A_STEP: usize = 100;
/// Delay after which a failed revocation is retried.
const AGAIN: Duration = Duration::from_secs(3);

/// Revokes expired leases and checkpoints the remaining TTL of long ones.
pub(crate) async fn run_expiry(core: Arc<ServerContext>) {
    let every = core.bounds.checkpoint_every;
    let mut checkpoint = Instant::now() + every;
    let mut revocations = JoinSet::new();
    loop {
        let deadline = core.machine.with_leases(|leases| leases.next_deadline());
        tokio::select! {
            Some(deadline) = wait_for_deadline(deadline) => {
                // It may have been renewed meanwhile.
                if core.machine.with_leases(|leases| leases.next_deadline()).is_some_and(|next| next <= deadline) {
                    revoke_expired(&core, &mut revocations).await;
                    // Bounds the rate; at most ENDED_IN_A_STEP leases expire in a step.
                    sleep(STEP).await;
                }
            }
            () = core.machine.lease_changed() => {}
            () = sleep_until(checkpoint), if deadline.is_some() => {
                checkpoint = Instant::now() + every;
                note_times(&core).await;
            }
            Some(ended) = revocations.join_next() => pass_on(ended),
        }
    }
}

/// Waits for a deadline and returns it; None at once where there is none.
async fn wait_for_deadline(deadline: Option<std::time::Instant>) -> Option<std::time::Instant> {
    sleep_until(deadline?.into()).await;
    deadline
}

/// Passes a panic on to the loop, whose end stops the member.
fn pass_on(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

async fn revoke_expired(core: &Arc<ServerContext>, revocations: &mut JoinSet<()>) {
    if !core.node.has_confirmed_leadership() {
        // Another member may be the leader by now and have renewed them.
        let _ = core.node.read_index(Duration::from_secs(1)).await;
        if !core.node.has_confirmed_leadership() {
            return;
        }
    }
    let over = core.machine.with_leases(|leases| {
        leases.take_expired(Instant::now().into_std(), ENDED_IN_A_STEP, AGAIN)
    });
    let core = core.clone();
    // Proposed together, they are one entry.
    // Not awaited here: while a proposal waits for its quorum, other leases expire.
    revocations.spawn(async move {
        let ends = over.into_iter().map(|id| revoke_lease(&core, id));
        futures::future::join_all(ends).await;
    });
}

async fn revoke_lease(core: &ServerContext, id: i64) {
    match core
        .submit_leading(Command::LeaseRevoke(LeaseRevokeRequest { id }))
        .await
    {
        Ok(_) => drop(core.metrics.expired_leases.fetch_add(1, Ordering::Relaxed)),
        Err(EtcdError::LeaseNotFound) => {}
        Err(refusal) => tracing::debug!(%refusal, "revoking an expired lease failed"),
    }
}

async fn note_times(core: &ServerContext) {
    // Commands that clear a checkpoint are proposed after these.
    let _alone = core.checkpoints.write().await;
    let every = core.bounds.checkpoint_every;
    let due = core
        .machine
        .with_leases(|leases| leases.due_checkpoints(Instant::now().into_std(), every));
    if due.is_empty() {
        return;
    }
    let checkpoints = due
        .into_iter()
        .map(|(id, remaining_ttl)| LeaseCheckpoint { id, remaining_ttl })
        .collect();
    let command = Command::LeaseCheckpoint(LeaseCheckpointRequest { checkpoints });
    if let Err(refusal) = core.submit_leading(command).await {
        tracing::debug!(%refusal, "proposing lease checkpoints failed");
    }
}
