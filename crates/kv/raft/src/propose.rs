//! Group commit: combines waiting proposals into one entry.

use crate::state::StateMachine;
use crate::types::{Commands, Raft};
use bytes::{Bytes, BytesMut};
use futures::stream::{FuturesUnordered, StreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// Entries in flight: one being synced and one queued behind it. Further proposals are batched
/// meanwhile.
const IN_FLIGHT: usize = 2;
/// Size in bytes at which an entry is closed.
const ENTRY_BYTES: usize = 1 << 20;

/// Encoded commands, and the receiver of their outcome.
pub(crate) struct Proposal {
    pub commands: Bytes,
    pub origin: Origin,
}

/// Origin of commands.
pub(crate) enum Origin {
    /// A request of this member. The state machine delivers its result.
    Here(u64),
    /// A peer, which is notified whether the commands were committed.
    Elsewhere(oneshot::Sender<bool>),
}

/// Deadline until which proposals are blocked.
pub(crate) type ProposalBlock = watch::Sender<Option<Instant>>;

/// Blocks proposals until it is dropped or its deadline passes. At most one exists at a time.
pub(crate) struct ProposalBlockGuard<'a> {
    held: &'a ProposalBlock,
    until: Instant,
}

impl<'a> ProposalBlockGuard<'a> {
    pub fn new(held: &'a ProposalBlock, until: Instant) -> Self {
        held.send_replace(Some(until));
        ProposalBlockGuard { held, until }
    }

    pub fn has_expired(&self) -> bool {
        Instant::now() >= self.until
    }
}

impl Drop for ProposalBlockGuard<'_> {
    fn drop(&mut self) {
        self.held.send_replace(None);
    }
}

/// Counters behind the metrics of proposals and heartbeats.
#[derive(Default)]
pub(crate) struct Counters {
    pub pending: AtomicU64,
    pub failed: AtomicU64,
    /// Heartbeats that were sent after more than twice the interval.
    pub late_heartbeats: AtomicU64,
}

pub(crate) async fn run_proposals(
    raft: Raft,
    machine: Arc<dyn StateMachine>,
    mut inbox: mpsc::UnboundedReceiver<Proposal>,
    mut held: watch::Receiver<Option<Instant>>,
    counters: Arc<Counters>,
) {
    let mut flying = FuturesUnordered::new();
    let mut left: Option<Proposal> = None;
    loop {
        if flying.len() >= IN_FLIGHT {
            flying.next().await;
            continue;
        }
        let until = *held.borrow_and_update();
        if let Some(until) = until.filter(|until| Instant::now() < *until) {
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                Some(()) = flying.next(), if !flying.is_empty() => {}
                changed = held.changed() => if changed.is_err() {
                    return;
                },
            }
            continue;
        }
        let first = match left.take() {
            Some(first) => first,
            None => tokio::select! {
                biased;
                Some(()) = flying.next(), if !flying.is_empty() => continue,
                Ok(()) = held.changed() => continue,
                first = inbox.recv() => match first {
                    Some(first) => first,
                    None => return,
                },
            },
        };
        let (batch, origins, rest) = collect_batch(first, &mut inbox);
        left = rest;
        let count = origins.len() as u64;
        counters.pending.fetch_add(count, Ordering::Relaxed);
        let (raft, machine, counters) = (raft.clone(), machine.clone(), counters.clone());
        flying.push(async move {
            let committed = match raft.client_write_ff(Commands(batch)).await {
                Ok(receiver) => matches!(receiver.await, Ok(Ok(_))),
                Err(_) => false,
            };
            counters.pending.fetch_sub(count, Ordering::Relaxed);
            if !committed {
                counters.failed.fetch_add(count, Ordering::Relaxed);
            }
            notify_origins(origins, committed, &*machine);
        });
    }
}

type ProposalBatch = (Bytes, Vec<Origin>, Option<Proposal>);

fn collect_batch(first: Proposal, inbox: &mut mpsc::UnboundedReceiver<Proposal>) -> ProposalBatch {
    let Ok(second) = inbox.try_recv() else {
        return (first.commands, vec![first.origin], None);
    };
    let mut batch = BytesMut::with_capacity(first.commands.len() + second.commands.len());
    batch.extend_from_slice(&first.commands);
    let mut origins = vec![first.origin];
    let mut next = Some(second);
    while let Some(proposal) = next {
        if batch.len() + proposal.commands.len() > ENTRY_BYTES {
            return (batch.freeze(), origins, Some(proposal));
        }
        batch.extend_from_slice(&proposal.commands);
        origins.push(proposal.origin);
        next = inbox.try_recv().ok();
    }
    (batch.freeze(), origins, None)
}

fn notify_origins(origins: Vec<Origin>, committed: bool, machine: &dyn StateMachine) {
    let mut lost = Vec::new();
    for origin in origins {
        match origin {
            Origin::Here(request) if !committed => lost.push(request),
            Origin::Elsewhere(sender) => drop(sender.send(committed)),
            Origin::Here(_) => {}
        }
    }
    if !lost.is_empty() {
        machine.report_lost(&lost);
    }
}
