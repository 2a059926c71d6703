//! Forwards proposals and ReadIndex requests of this member to the leader, in batches.

use crate::pb;
use crate::shared::Shared;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// A command to forward to the leader.
pub(crate) struct ForwardedCommand {
    pub command: Bytes,
    pub request: u64,
}

const BATCH: usize = 512;
/// Size in bytes at which a message is closed.
const BATCH_BYTES: usize = 4 << 20;
const TIMEOUT: Duration = Duration::from_secs(7);

/// Forwards commands to the leader. Commands whose results can't arrive are reported as lost.
pub(crate) async fn run_forwarder(
    shared: Arc<Shared>,
    mut inbox: mpsc::UnboundedReceiver<ForwardedCommand>,
) {
    let mut waiting = Vec::new();
    while inbox.recv_many(&mut waiting, BATCH).await > 0 {
        for batch in split_batches(std::mem::take(&mut waiting)) {
            // Each batch waits for its commit by itself; the next one need not.
            shared
                .loops
                .spawn("forwarded batch", send_batch(shared.clone(), batch));
        }
    }
}

/// Sends a batch. Reports its commands as lost if they can't be sent, replication stops, or a
/// snapshot took the place of their entry.
async fn send_batch(shared: Arc<Shared>, batch: Vec<ForwardedCommand>) {
    let requests: Vec<u64> = batch.iter().map(|forwarded| forwarded.request).collect();
    let commands: Vec<Bytes> = batch
        .into_iter()
        .map(|forwarded| forwarded.command)
        .collect();
    let committed = shared
        .loops
        .shutdown()
        .run_until_cancelled(forward_commands(&shared, commands))
        .await;
    // The results themselves come from this member's own state machine, when it applies the entry.
    let is_lost = match committed.flatten() {
        Some(index) => {
            let skipped = is_skipped(index, shared.applied.clone(), &shared.installed);
            let skipped = shared.loops.shutdown().run_until_cancelled(skipped).await;
            skipped.unwrap_or(true)
        }
        None => true,
    };
    if is_lost {
        shared.machine.report_lost(&requests);
    }
}

/// Waits until the state contains this entry. Returns whether it came with a snapshot: then it was
/// never applied here, and its requests would wait for their results until their timeout.
async fn is_skipped(index: u64, mut applied: watch::Receiver<u64>, installed: &AtomicU64) -> bool {
    let reached = applied.wait_for(|applied| *applied >= index).await;
    // An entry that was applied before a later snapshot has been answered; reporting it changes
    // nothing. A leader of an earlier version names no index.
    let is_installed = index > 0 && installed.load(Ordering::Acquire) >= index;
    is_installed || reached.is_err()
}

/// Splits commands into messages that the leader reads.
fn split_batches(waiting: Vec<ForwardedCommand>) -> Vec<Vec<ForwardedCommand>> {
    let (mut batches, mut bytes) = (Vec::<Vec<ForwardedCommand>>::new(), 0);
    for forwarded in waiting {
        let length = forwarded.command.len();
        match batches.last_mut().filter(|_| bytes + length <= BATCH_BYTES) {
            Some(batch) => batch.push(forwarded),
            None => {
                bytes = 0;
                batches.push(vec![forwarded]);
            }
        }
        bytes += length;
    }
    batches
}

/// Forwards commands. Returns the index at which they were committed, or `None` if the leader
/// rejected them or lost its leadership before.
async fn forward_commands(shared: &Shared, commands: Vec<Bytes>) -> Option<u64> {
    let leader = shared.current_leader()?;
    if leader == shared.member {
        // This member was elected in the meantime.
        let (sender, receiver) = oneshot::channel();
        shared.propose_batch(commands, sender);
        return receiver.await.unwrap_or(None);
    }
    let mut client = shared.transport.peer_client(leader).ok()?;
    let message = pb::ForwardRequest { commands };
    let request = shared
        .transport
        .build_request(leader, message, Some(TIMEOUT));
    match client.forward_proposals(request).await {
        Ok(response) => {
            let response = response.into_inner();
            (response.accepted && response.committed).then_some(response.index)
        }
        Err(status) => {
            tracing::debug!(%status, "forwarding commands to the leader failed");
            None
        }
    }
}

/// Requests the read index from the leader: one call for all readers that wait when it is sent.
pub(crate) async fn run_read_index_requests(
    shared: Arc<Shared>,
    mut inbox: mpsc::UnboundedReceiver<oneshot::Sender<Option<u64>>>,
) {
    let mut waiting: Vec<oneshot::Sender<Option<u64>>> = Vec::new();
    while inbox.recv_many(&mut waiting, usize::MAX >> 1).await > 0 {
        // Readers that arrive during this call need the next one: this index may be older than a
        // write that they know of.
        let index = request_read_index(&shared).await;
        for waiter in waiting.drain(..) {
            // The reader may have been cancelled.
            let _ = waiter.send(index);
        }
    }
}

async fn request_read_index(shared: &Shared) -> Option<u64> {
    let leader = shared.current_leader()?;
    if leader == shared.member {
        return shared.confirm_read_index(Duration::from_secs(2)).await;
    }
    let mut client = shared.transport.peer_client(leader).ok()?;
    let request =
        shared
            .transport
            .build_request(leader, pb::Empty {}, Some(Duration::from_secs(3)));
    let response = client.read_index(request).await.ok()?.into_inner();
    response.confirmed.then_some(response.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn commands_are_lost_if_a_snapshot_took_the_place_of_their_entry() {
        for (index, installed, expect) in [
            (7, 0, false),
            (7, 6, false),
            (7, 7, true),
            (7, 9, true),
            (0, 9, false),
        ] {
            let (applied, receiver) = watch::channel(0);
            let installed = AtomicU64::new(installed);
            let skipped = is_skipped(index, receiver, &installed);
            let apply = async {
                applied.send_replace(6);
                tokio::task::yield_now().await;
                applied.send_replace(9);
            };
            let (skipped, ()) = tokio::join!(skipped, apply);
            assert_eq!(skipped, expect, "{index} {installed:?}");
        }
        let (_, receiver) = watch::channel(0);
        assert!(
            is_skipped(7, receiver, &AtomicU64::new(0)).await,
            "the member stops"
        );
    }

    #[test]
    fn forwarded_batches_are_bounded_and_keep_the_order() {
        let sizes = [BATCH_BYTES, 1, BATCH_BYTES - 1, 1, 2 * BATCH_BYTES, 3];
        let forwarded = |(at, size): (usize, &usize)| ForwardedCommand {
            command: vec![0; *size].into(),
            request: at as u64,
        };
        let batches = split_batches(sizes.iter().enumerate().map(forwarded).collect());
        let requests: Vec<Vec<u64>> = batches
            .iter()
            .map(|batch| batch.iter().map(|one| one.request).collect())
            .collect();
        assert_eq!(requests, [vec![0], vec![1, 2], vec![3], vec![4], vec![5]]);
    }
}
