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
// One entry is written while the next one gathers commands; more would make entries smaller and
// syncs more frequent.
const IN_FLIGHT: usize = 2;
/// Size in bytes at which an entry is closed.
// A larger entry would block heartbeats on a slow connection.
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
    /// A peer, which is notified of the index at which the commands were committed, or of `None`.
    Elsewhere(oneshot::Sender<Option<u64>>),
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
    let mut in_flight = FuturesUnordered::new();
    let mut left: Option<Proposal> = None;
    loop {
        if in_flight.len() >= IN_FLIGHT {
            in_flight.next().await;
            continue;
        }
        let until = *held.borrow_and_update();
        // During a leadership transfer: a new entry would leave the transferee behind again.
        if let Some(until) = until.filter(|until| Instant::now() < *until) {
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                Some(()) = in_flight.next(), if !in_flight.is_empty() => {}
                changed = held.changed() => if changed.is_err() {
                    return;
                },
            }
            continue;
        }
        let first = match left.take() {
            Some(first) => first,
            None => tokio::select! {
                // A finished entry makes room, so it comes before new proposals.
                biased;
                Some(()) = in_flight.next(), if !in_flight.is_empty() => continue,
                Ok(()) = held.changed() => continue,
                first = inbox.recv() => match first {
                    Some(first) => first,
                    None => return,
                },
            },
        };
        let (batch, origins, rest) = collect_batch(first, &mut inbox);
        left = rest;
        let (raft, machine, counters) = (raft.clone(), machine.clone(), counters.clone());
        in_flight.push(commit_batch(raft, machine, counters, batch, origins));
    }
}

/// Writes one entry, and notifies the proposers of its commands of the outcome.
async fn commit_batch(
    raft: Raft,
    machine: Arc<dyn StateMachine>,
    counters: Arc<Counters>,
    batch: Bytes,
    origins: Vec<Origin>,
) {
    let count = origins.len() as u64;
    counters.pending.fetch_add(count, Ordering::Relaxed);
    // `None` means unknown: a later leader may still commit the entry.
    let committed = match raft.client_write_ff(Commands(batch)).await {
        Ok(receiver) => match receiver.await {
            Ok(Ok(written)) => Some(written.log_id.index),
            _ => None,
        },
        Err(_) => None,
    };
    counters.pending.fetch_sub(count, Ordering::Relaxed);
    if committed.is_none() {
        counters.failed.fetch_add(count, Ordering::Relaxed);
    }
    notify_origins(origins, committed, &*machine);
}

type ProposalBatch = (Bytes, Vec<Origin>, Option<Proposal>);

fn collect_batch(first: Proposal, inbox: &mut mpsc::UnboundedReceiver<Proposal>) -> ProposalBatch {
    // The usual case at low load, without a copy.
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

fn notify_origins(origins: Vec<Origin>, committed: Option<u64>, machine: &dyn StateMachine) {
    let mut lost = Vec::new();
    for origin in origins {
        match origin {
            // A committed command is answered when it is applied; only a lost one has to be
            // reported here.
            Origin::Here(request) if committed.is_none() => lost.push(request),
            Origin::Elsewhere(sender) => drop(sender.send(committed)),
            Origin::Here(_) => {}
        }
    }
    if !lost.is_empty() {
        machine.report_lost(&lost);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::state::tests::RecordingMachine;

    fn proposals(sizes: &[usize]) -> mpsc::UnboundedReceiver<Proposal> {
        let (sender, inbox) = mpsc::unbounded_channel();
        for (request, size) in (1..).zip(sizes) {
            let sent = sender.send(Proposal {
                commands: vec![request as u8; *size].into(),
                origin: Origin::Here(request),
            });
            assert!(sent.is_ok());
        }
        inbox
    }

    fn request_of(origin: &Origin) -> u64 {
        match origin {
            Origin::Here(request) => *request,
            Origin::Elsewhere(_) => 0,
        }
    }

    #[test]
    fn waiting_proposals_are_combined_up_to_the_size_of_an_entry() {
        for (sizes, expect) in [
            (vec![1], vec![vec![1]]),
            (vec![1, 2, 3], vec![vec![1, 2, 3]]),
            (vec![ENTRY_BYTES, 1], vec![vec![1], vec![2]]),
            (vec![ENTRY_BYTES - 1, 1, 1], vec![vec![1, 2], vec![3]]),
            (vec![1, 2 * ENTRY_BYTES, 1], vec![vec![1], vec![2], vec![3]]),
        ] {
            let mut inbox = proposals(&sizes);
            let (mut entries, mut left) = (Vec::new(), None);
            while let Some(first) = left.take().or_else(|| inbox.try_recv().ok()) {
                let (batch, origins, rest) = collect_batch(first, &mut inbox);
                let requests: Vec<u64> = origins.iter().map(request_of).collect();
                let bytes: usize = requests
                    .iter()
                    .map(|request| sizes[*request as usize - 1])
                    .sum();
                assert_eq!(batch.len(), bytes, "{sizes:?}");
                entries.push(requests);
                left = rest;
            }
            assert_eq!(entries, expect, "{sizes:?}");
        }
    }

    #[test]
    fn lost_commands_are_reported_and_peers_learn_the_outcome() {
        for committed in [Some(7), None] {
            let machine = RecordingMachine::default();
            let (sender, mut outcome) = oneshot::channel();
            let origins = vec![Origin::Here(1), Origin::Elsewhere(sender), Origin::Here(2)];
            notify_origins(origins, committed, &machine);
            assert_eq!(outcome.try_recv(), Ok(committed));
            let lost: &[u64] = if committed.is_some() { &[] } else { &[1, 2] };
            assert_eq!(*machine.lost.lock(), lost);
        }
    }

    #[test]
    fn proposals_are_blocked_until_the_guard_is_dropped() {
        let block = ProposalBlock::new(None);
        let until = Instant::now() + std::time::Duration::from_secs(60);
        let guard = ProposalBlockGuard::new(&block, until);
        assert_eq!(*block.borrow(), Some(until));
        assert!(!guard.has_expired());
        drop(guard);
        assert_eq!(*block.borrow(), None);
        assert!(ProposalBlockGuard::new(&block, Instant::now()).has_expired());
    }
}
