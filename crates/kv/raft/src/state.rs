//! Adapter from the store's state machine to openraft's.

use crate::codec;
use crate::types::{
    Applied, Entry, LogId, Membership, Snapshot, SnapshotMeta, SnapshotPayload, StorageError, Types,
};
use async_trait::async_trait;
use bytes::Bytes;
use openraft::storage::RaftStateMachine;
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder, StorageIOError};
use std::path::Path;
use std::sync::Arc;

/// The state machine that applies entries. Positions and memberships are opaque bytes, stored with
/// the state and returned unchanged.
#[async_trait]
pub trait StateMachine: Send + Sync + 'static {
    /// Returns the position of the last applied entry and the membership at that point, or empty
    /// bytes if nothing was applied.
    fn applied_position(&self) -> (Bytes, Bytes);

    /// Applies an entry. The position is stored with the state, and so is the membership if it
    /// changed.
    fn apply(
        &self,
        index: u64,
        position: Bytes,
        membership: Option<Bytes>,
        commands: Option<Bytes>,
    );

    /// Returns whether a peer may have this command proposed.
    fn may_forward(&self, from: u64, command: &Bytes) -> bool;

    /// Notifies about commands of this member that will not be applied because leadership was lost.
    fn report_lost(&self, requests: &[u64]);

    /// Waits until all applied entries are durable in the engine.
    async fn flush(&self) -> Result<(), String>;

    /// Starts a snapshot of the current state.
    async fn start_snapshot(&self) -> Result<Box<dyn SnapshotRows>, String>;

    /// Replaces the state by the one in a file of received rows.
    async fn install_state(&self, rows: &Path) -> Result<(), String>;
}

/// The rows of a snapshot.
pub trait SnapshotRows: Send {
    /// Returns position and membership of the snapshot.
    fn applied_position(&self) -> (Bytes, Bytes);
    /// Returns the next encoded rows, or `None` after the last.
    fn next_rows(&mut self) -> Result<Option<Bytes>, String>;
}

/// Passes openraft's entries to the state machine.
#[derive(Clone)]
pub(crate) struct StateMachineAdapter {
    pub machine: Arc<dyn StateMachine>,
}

fn read_applied_position(machine: &dyn StateMachine) -> (Option<LogId>, Membership) {
    let (position, membership) = machine.applied_position();
    (
        codec::position_from_bytes(&position),
        codec::membership_from_bytes(&membership),
    )
}

impl StateMachineAdapter {
    fn snapshot_meta(&self) -> Option<SnapshotMeta> {
        let (last_log_id, last_membership) = read_applied_position(&*self.machine);
        let id = last_log_id?;
        Some(SnapshotMeta {
            last_log_id,
            last_membership,
            snapshot_id: id.to_string(),
        })
    }
}

impl RaftSnapshotBuilder<Types> for StateMachineAdapter {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        let meta = self.snapshot_meta().unwrap_or_default();
        let flushed = self.machine.flush().await;
        flushed.map_err(|reason| {
            StorageIOError::write_snapshot(None, openraft::AnyError::error(reason))
        })?;
        Ok(Snapshot {
            meta,
            snapshot: Box::new(SnapshotPayload::Live),
        })
    }
}

impl RaftStateMachine<Types> for StateMachineAdapter {
    type SnapshotBuilder = StateMachineAdapter;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        Ok(read_applied_position(&*self.machine))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Applied>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut answers = Vec::new();
        for entry in entries {
            let position = codec::position_to_bytes(&entry.log_id);
            let (membership, commands) = match entry.payload {
                EntryPayload::Blank => (None, None),
                EntryPayload::Normal(commands) => (None, Some(commands.0)),
                EntryPayload::Membership(membership) => {
                    let stored = Membership::new(Some(entry.log_id), membership);
                    (Some(codec::membership_to_bytes(&stored)), None)
                }
            };
            self.machine
                .apply(entry.log_id.index, position, membership, commands);
            answers.push(Applied);
        }
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotPayload>, StorageError> {
        Ok(Box::new(SnapshotPayload::Live))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<SnapshotPayload>,
    ) -> Result<(), StorageError> {
        let failed = |reason: String| {
            StorageIOError::read_snapshot(Some(meta.signature()), openraft::AnyError::error(reason))
        };
        match *snapshot {
            SnapshotPayload::Received(path) => {
                Ok(self.machine.install_state(&path).await.map_err(failed)?)
            }
            SnapshotPayload::Live => Ok(()),
        }
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        Ok(self.snapshot_meta().map(|meta| Snapshot {
            meta,
            snapshot: Box::new(SnapshotPayload::Live),
        }))
    }
}
