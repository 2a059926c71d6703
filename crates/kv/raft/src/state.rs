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
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Index of the last snapshot whose installation began.
    pub installed: Arc<AtomicU64>,
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
        // Before the flush, which covers at least everything applied until now.
        let meta = self.snapshot_meta().unwrap_or_default();
        // openraft purges the log up to this snapshot next. Entries that the engine has not made
        // durable would then be lost in a crash.
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
        let mut results = Vec::new();
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
            results.push(Applied);
        }
        Ok(results)
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        self.clone()
    }

    // Only openraft's own transfer needs this. Snapshots arrive through the peer service instead.
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
                // Before the applied index moves: a request that waits for it must see that its
                // entry was skipped.
                let index = meta.last_log_id.map_or(0, |id| id.index);
                self.installed.fetch_max(index, Ordering::AcqRel);
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

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::codec::log_id;
    use crate::types::Commands;
    use openraft::EmptyNode;
    use parking_lot::Mutex;
    use std::collections::{BTreeMap, BTreeSet};

    /// Index, position, membership and commands of an applied entry.
    type AppliedEntry = (u64, Bytes, Option<Bytes>, Option<Bytes>);

    /// A state machine that records its calls.
    #[derive(Default)]
    pub(crate) struct RecordingMachine {
        pub applied: Mutex<Vec<AppliedEntry>>,
        pub lost: Mutex<Vec<u64>>,
        pub flush_fails: bool,
    }

    #[async_trait]
    impl StateMachine for RecordingMachine {
        fn applied_position(&self) -> (Bytes, Bytes) {
            let applied = self.applied.lock();
            let membership = applied.iter().rev().find_map(|entry| entry.2.clone());
            let position = applied.last().map(|entry| entry.1.clone());
            (position.unwrap_or_default(), membership.unwrap_or_default())
        }
        fn apply(
            &self,
            index: u64,
            position: Bytes,
            membership: Option<Bytes>,
            commands: Option<Bytes>,
        ) {
            self.applied
                .lock()
                .push((index, position, membership, commands));
        }
        fn may_forward(&self, _: u64, _: &Bytes) -> bool {
            true
        }
        fn report_lost(&self, requests: &[u64]) {
            self.lost.lock().extend(requests);
        }
        async fn flush(&self) -> Result<(), String> {
            match self.flush_fails {
                true => Err("the disk failed".to_owned()),
                false => Ok(()),
            }
        }
        async fn start_snapshot(&self) -> Result<Box<dyn SnapshotRows>, String> {
            Err("no snapshots".to_owned())
        }
        async fn install_state(&self, _: &Path) -> Result<(), String> {
            Ok(())
        }
    }

    fn entry(index: u64, payload: EntryPayload<Types>) -> Entry {
        Entry {
            log_id: log_id(2, 1, index),
            payload,
        }
    }

    #[tokio::test]
    async fn entries_are_applied_with_position_and_membership() {
        let machine = Arc::new(RecordingMachine::default());
        let mut adapter = StateMachineAdapter {
            machine: machine.clone(),
            installed: Arc::default(),
        };
        let nodes = BTreeMap::from([(1, EmptyNode {})]);
        let membership = openraft::Membership::new(vec![BTreeSet::from([1])], nodes);
        let commands = Bytes::from_static(b"commands");
        let entries = [
            EntryPayload::Blank,
            EntryPayload::Membership(membership.clone()),
            EntryPayload::Normal(Commands(commands.clone())),
        ];
        let entries = (7..)
            .zip(entries)
            .map(|(index, payload)| entry(index, payload));
        let results = adapter.apply(entries.collect::<Vec<_>>()).await.unwrap();
        assert_eq!(results.len(), 3);
        let applied = machine.applied.lock().clone();
        let shapes: Vec<_> = applied
            .iter()
            .map(|(index, _, membership, commands)| {
                (*index, membership.is_some(), commands.clone())
            })
            .collect();
        assert_eq!(
            shapes,
            [
                (7, false, None),
                (8, true, None),
                (9, false, Some(commands))
            ]
        );
        let (last, stored) = adapter.applied_state().await.unwrap();
        assert_eq!(last, Some(log_id(2, 1, 9)));
        assert_eq!(stored, Membership::new(Some(log_id(2, 1, 8)), membership));
    }

    #[tokio::test]
    async fn nothing_applied_means_no_snapshot() {
        let mut adapter = StateMachineAdapter {
            machine: Arc::new(RecordingMachine::default()),
            installed: Arc::default(),
        };
        assert!(adapter.get_current_snapshot().await.unwrap().is_none());
        assert_eq!(adapter.applied_state().await.unwrap().0, None);
        adapter
            .apply([entry(1, EntryPayload::Blank)])
            .await
            .unwrap();
        let snapshot = adapter.get_current_snapshot().await.unwrap().unwrap();
        assert_eq!(snapshot.meta.last_log_id, Some(log_id(2, 1, 1)));
    }

    #[tokio::test]
    async fn snapshot_is_built_only_from_a_durable_state() {
        for flush_fails in [false, true] {
            let mut adapter = StateMachineAdapter {
                machine: Arc::new(RecordingMachine {
                    flush_fails,
                    ..RecordingMachine::default()
                }),
                installed: Arc::default(),
            };
            let built = adapter.build_snapshot().await;
            assert_eq!(built.is_err(), flush_fails);
        }
    }
}
