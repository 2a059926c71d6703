//! The end of leases, and how much time they have left: on the leader.
//!
//! What a leader decides of a lease is proposed by it or not at all: the next leader may have renewed it.

use crate::core::Core;
use kv_machine::{Command, Refusal};
use proto_etcd::etcdserverpb::{LeaseCheckpoint, LeaseCheckpointRequest, LeaseRevokeRequest};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Leases are ended in steps, a thousand a second at most, as etcd does: what else is asked is answered in between.
const STEP: Duration = Duration::from_millis(100);
const ENDED_IN_A_STEP: usize = 100;
/// A lease that could not be revoked is tried again after this.
const AGAIN: Duration = Duration::from_secs(3);

/// Ends leases whose time is over, and notes how much time the long ones have left.
pub(crate) async fn run(core: Arc<Core>) {
    let every = core.bounds.checkpoint_every;
    let mut checkpoint = Instant::now() + every;
    loop {
        let deadline = core.machine.leases(|leases| leases.next_deadline());
        let Some(deadline) = deadline else {
            core.machine.lease_changed().await;
            continue;
        };
        tokio::select! {
            () = sleep_until(deadline.into()) => {
                // It may have been renewed meanwhile.
                if core.machine.leases(|leases| leases.next_deadline()).is_some_and(|next| next <= deadline) {
                    expire(&core).await;
                    sleep(STEP).await;
                }
            }
            () = core.machine.lease_changed() => {}
            () = sleep_until(checkpoint) => {
                checkpoint = Instant::now() + every;
                note_times(&core).await;
            }
        }
    }
}

async fn expire(core: &Arc<Core>) {
    if !core.node.leads_for_certain() {
        // Somebody else may lead by now, and have renewed them.
        let _ = core.node.read_barrier(Duration::from_secs(1)).await;
        if !core.node.leads_for_certain() {
            return;
        }
    }
    let over = core.machine.leases(|leases| leases.expired(Instant::now().into_std(), ENDED_IN_A_STEP, AGAIN));
    let core = core.clone();
    // Proposed together, they are one entry.
    tokio::spawn(async move {
        let ends = over.into_iter().map(|id| end(&core, id));
        futures::future::join_all(ends).await;
    });
}

async fn end(core: &Core, id: i64) {
    match core.submit_leading(Command::LeaseRevoke(LeaseRevokeRequest { id })).await {
        Ok(_) => drop(core.meters.expired_leases.fetch_add(1, Ordering::Relaxed)),
        Err(Refusal::LeaseNotFound) => {}
        Err(refusal) => tracing::debug!(%refusal, "a lease can't be ended yet"),
    }
}

async fn note_times(core: &Core) {
    // What takes a checkpoint back is proposed behind it.
    let _alone = core.checkpoints.write().await;
    let every = core.bounds.checkpoint_every;
    let due = core.machine.leases(|leases| leases.due_checkpoints(Instant::now().into_std(), every));
    if due.is_empty() {
        return;
    }
    let checkpoints = due.into_iter().map(|(id, remaining_ttl)| LeaseCheckpoint { id, remaining_ttl }).collect();
    let command = Command::LeaseCheckpoint(LeaseCheckpointRequest { checkpoints });
    if let Err(refusal) = core.submit_leading(command).await {
        tracing::debug!(%refusal, "lease checkpoints can't be noted");
    }
}

/// A lease with a checkpoint was renewed: it has all its time again. Until that is committed, the next leader would go by
/// the checkpoint, so its holder is answered afterwards.
pub(crate) async fn forget_checkpoint(core: &Core, id: i64) -> Result<(), Refusal> {
    let _behind = core.checkpoints.read().await;
    let checkpoint = LeaseCheckpoint { id, remaining_ttl: 0 };
    let command = Command::LeaseCheckpoint(LeaseCheckpointRequest { checkpoints: vec![checkpoint] });
    core.submit_leading(command).await.map(drop)
}
