//! Requests about leases that only the leader can serve, because only it knows their deadlines.

use crate::context::ServerContext;
use kv_machine::{Command, EtcdError};
use proto_etcd::etcdserverpb::{LeaseCheckpoint, LeaseCheckpointRequest};

/// A request that only the leader can serve.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaderRequest {
    /// Renews a lease. The response is its TTL, 0 if it does not exist.
    Renew(i64),
    /// Requests the remaining TTL of a lease in seconds. The response is -1 if it does not exist.
    Left(i64),
}

/// Handles a request that only the leader can serve.
pub(crate) async fn handle_leader_request(
    core: &ServerContext,
    question: LeaderRequest,
) -> Option<Result<i64, EtcdError>> {
    // A deposed leader may not renew: its successor may have revoked the lease already.
    if !core.node.has_confirmed_leadership() {
        return None;
    }
    let now = tokio::time::Instant::now().into_std();
    match question {
        LeaderRequest::Renew(id) => {
            let renewed = core.machine.with_leases(|leases| leases.renew(id, now));
            // True: a checkpoint of the lease exists or is being proposed. It would shorten the
            // lease on the next leader.
            if let Some((_, true)) = renewed
                && let Err(refusal) = forget_checkpoint(core, id).await
            {
                return Some(Err(refusal));
            }
            Some(Ok(renewed.map_or(0, |(ttl, _)| ttl)))
        }
        LeaderRequest::Left(id) => {
            let info = core
                .machine
                .with_leases(|leases| leases.lease_info(id, now));
            Some(Ok(info.map_or(-1, |info| info.left.unwrap_or(info.granted))))
        }
    }
}

/// Clears the checkpoint of a renewed lease. Until that is committed, the next leader would use the
/// checkpoint, so the client's response waits for it.
async fn forget_checkpoint(core: &ServerContext, id: i64) -> Result<(), EtcdError> {
    // Behind checkpoints that are being proposed now: proposed in between, this one could be
    // overtaken by a checkpoint with the TTL from before the renewal.
    let _behind = core.checkpoints.read().await;
    let checkpoint = LeaseCheckpoint {
        id,
        remaining_ttl: 0,
    };
    let command = Command::LeaseCheckpoint(LeaseCheckpointRequest {
        checkpoints: vec![checkpoint],
    });
    core.submit_leading(command).await.map(drop)
}
