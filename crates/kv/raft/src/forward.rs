//! Carrying commands and questions of this member to the leader, many at a time.

use crate::pb;
use crate::shared::Shared;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// A command for the leader.
pub(crate) struct Forwarded {
    pub command: Bytes,
    pub request: u64,
}

const BATCH: usize = 512;
const TIMEOUT: Duration = Duration::from_secs(7);

/// Sends commands on. What can't be sent is reported as lost.
pub(crate) async fn commands(shared: Arc<Shared>, mut inbox: mpsc::UnboundedReceiver<Forwarded>) {
    let mut waiting = Vec::new();
    while inbox.recv_many(&mut waiting, BATCH).await > 0 {
        let batch = std::mem::take(&mut waiting);
        let shared = shared.clone();
        // Each batch waits for its commit by itself; the next one need not.
        tokio::spawn(async move {
            let requests: Vec<u64> = batch.iter().map(|forwarded| forwarded.request).collect();
            let commands: Vec<Bytes> = batch.into_iter().map(|forwarded| forwarded.command).collect();
            if !forward(&shared, commands).await {
                shared.machine.lost(&requests);
            }
        });
    }
}

/// False: it was not taken, or leadership was lost on the way.
async fn forward(shared: &Shared, commands: Vec<Bytes>) -> bool {
    let Some(leader) = shared.leader() else { return false };
    if leader == shared.member {
        // Elected meanwhile.
        let (sender, receiver) = oneshot::channel();
        shared.propose_batch(commands, sender);
        return receiver.await.unwrap_or(false);
    }
    let Ok(mut client) = shared.transport.client(leader) else { return false };
    let message = pb::ForwardRequest { commands };
    let request = shared.transport.request(leader, message, Some(TIMEOUT));
    match client.forward(request).await {
        Ok(answer) => {
            let answer = answer.into_inner();
            answer.accepted && answer.committed
        }
        Err(status) => {
            tracing::debug!(%status, "commands can't be forwarded");
            false
        }
    }
}

/// Asks the leader how far a reader must have applied: one call for everybody who waits when it is sent.
pub(crate) async fn read_indexes(
    shared: Arc<Shared>,
    mut inbox: mpsc::UnboundedReceiver<oneshot::Sender<Option<u64>>>,
) {
    let mut waiting: Vec<oneshot::Sender<Option<u64>>> = Vec::new();
    while inbox.recv_many(&mut waiting, usize::MAX >> 1).await > 0 {
        let index = read_index(&shared).await;
        for waiter in waiting.drain(..) {
            // Whoever waited may have gone.
            let _ = waiter.send(index);
        }
    }
}

async fn read_index(shared: &Shared) -> Option<u64> {
    let leader = shared.leader()?;
    if leader == shared.member {
        return shared.confirm(Duration::from_secs(2)).await;
    }
    let mut client = shared.transport.client(leader).ok()?;
    let request = shared.transport.request(leader, pb::Nothing {}, Some(Duration::from_secs(3)));
    let answer = client.read_index(request).await.ok()?.into_inner();
    answer.certain.then_some(answer.index)
}
