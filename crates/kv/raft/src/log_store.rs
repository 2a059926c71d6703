//! Adapter from the write-ahead log to openraft's log storage.

use crate::codec;
use crate::types::{Entry, LogId, StorageError, Types, Vote};
use bytes::Bytes;
use kv_wal::{Contents, Wal, WrittenBy};
use openraft::storage::{LogFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader, StorageIOError};
use parking_lot::Mutex;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// Maximum number of bytes of entries that are sent or applied at once.
const READ_BYTES: usize = 4 << 20;
/// Threshold in microseconds: a shorter sync blocks the caller for less time than a thread switch
/// takes.
pub const SHORT_SYNC: u64 = 1_000;
/// Maximum time for installing a snapshot.
const INSTALLATION: Duration = Duration::from_secs(600);

/// The log, and the vote and positions that openraft stores with it.
#[derive(Clone)]
pub(crate) struct LogStore {
    wal: Arc<Wal>,
    memory: Arc<Mutex<Memory>>,
    /// Commit index known to this member.
    pub committed: Arc<AtomicU64>,
    /// Applied index of the state machine.
    applied: watch::Receiver<u64>,
    sync_micros: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Memory {
    vote: Option<Vote>,
    purged: Option<LogId>,
    last: Option<LogId>,
}

fn damaged_log_error() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "an entry of the log can't be decoded",
    )
}

impl LogStore {
    pub fn new(
        wal: Wal,
        contents: &Contents,
        applied: watch::Receiver<u64>,
        sync_micros: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let purged = contents
            .purged
            .as_ref()
            .and_then(|(_, data)| codec::position_from_bytes(data));
        // After a purge of everything, the purged entry is the last one: openraft compares it with
        // other logs.
        let last = match contents.entries.back() {
            Some((index, data)) => Some(
                codec::entry_from_bytes(*index, data)
                    .ok_or_else(damaged_log_error)?
                    .log_id,
            ),
            None => purged,
        };
        let vote = contents
            .vote
            .as_ref()
            .and_then(|vote| codec::vote_from_bytes(vote));
        let memory = Memory { vote, purged, last };
        Ok(LogStore {
            wal: Arc::new(wal),
            memory: Arc::new(Mutex::new(memory)),
            committed: Arc::new(AtomicU64::new(0)),
            applied,
            sync_micros,
        })
    }

    fn read_entries(&self, range: impl RangeBounds<u64>, limit: usize) -> io::Result<Vec<Entry>> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let found = self.wal.read_entries(start..end, limit)?;
        let decode = |(index, data): (u64, Bytes)| {
            codec::entry_from_bytes(index, &data).ok_or_else(damaged_log_error)
        };
        found.into_iter().map(decode).collect()
    }
}

/// Waits until a write is on disk. The process exits if the log fails.
async fn wait_until_durable(receiver: oneshot::Receiver<()>) {
    let _ = receiver.await;
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        Ok(self
            .read_entries(range, usize::MAX)
            .map_err(|e| StorageIOError::read_logs(&e))?)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError> {
        Ok(self
            .read_entries(start..end, READ_BYTES)
            .map_err(|e| StorageIOError::read_logs(&e))?)
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let memory = self.memory.lock();
        Ok(LogState {
            last_purged_log_id: memory.purged,
            last_log_id: memory.last,
        })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let (sender, receiver) = oneshot::channel();
        self.wal.save_vote(
            codec::vote_to_bytes(vote),
            Box::new(move || {
                let _ = sender.send(());
            }),
        );
        // A vote that is lost in a crash could be given twice in one term (Raft thesis 3.8).
        wait_until_durable(receiver).await;
        self.memory.lock().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.memory.lock().vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        if let Some(id) = committed {
            // Kept in memory only. After a restart the leader sends it again, or this member is
            // elected and commits an entry of its term.
            self.committed.fetch_max(id.index, Ordering::AcqRel);
        }
        Ok(())
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<Types>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut last = None;
        let encoded = entries.into_iter().map(|entry| {
            last = Some(entry.log_id);
            (entry.log_id.index, codec::entry_to_bytes(&entry))
        });
        let encoded = encoded.collect();
        // Writing in the caller's task is safe: openraft runs nothing else in the meantime.
        let short = self.sync_micros.load(Ordering::Relaxed) < SHORT_SYNC;
        let by = if short {
            WrittenBy::Caller
        } else {
            WrittenBy::Thread
        };
        self.wal.append(
            encoded,
            by,
            Box::new(move || callback.log_io_completed(Ok(()))),
        );
        if last.is_some() {
            self.memory.lock().last = last;
        }
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let (sender, receiver) = oneshot::channel();
        self.wal.truncate(
            log_id.index,
            Box::new(move || {
                let _ = sender.send(());
            }),
        );
        wait_until_durable(receiver).await;
        let last = match log_id.index.checked_sub(1) {
            Some(before) => self
                .read_entries(before..log_id.index, 1)
                .map_err(|e| StorageIOError::read_logs(&e))?
                .pop(),
            None => None,
        };
        let last = last.map(|entry| entry.log_id);
        let mut memory = self.memory.lock();
        memory.last = last.or(memory.purged);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        // Entries covered by a received snapshot may be purged only after it is installed.
        // Otherwise a crash in between leaves a log that starts after the end of the state.
        let installed = self.applied.wait_for(|applied| *applied >= log_id.index);
        if !matches!(
            tokio::time::timeout(INSTALLATION, installed).await,
            Ok(Ok(_))
        ) {
            let late = io::Error::new(
                io::ErrorKind::TimedOut,
                "the state machine did not reach the purge index in time",
            );
            return Err(StorageIOError::write_logs(&late).into());
        }
        let (sender, receiver) = oneshot::channel();
        let position = codec::position_to_bytes(&log_id);
        self.wal.purge(
            log_id.index,
            position,
            Box::new(move || {
                let _ = sender.send(());
            }),
        );
        wait_until_durable(receiver).await;
        let mut memory = self.memory.lock();
        memory.purged = Some(log_id);
        memory.last = memory.last.max(Some(log_id));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use openraft::storage::RaftLogStorageExt;

    fn open(folder: &std::path::Path) -> (LogStore, watch::Sender<u64>) {
        let (wal, contents) = Wal::open(folder, Arc::new(|_| {})).unwrap();
        let (applied, receiver) = watch::channel(0);
        let store = LogStore::new(wal, &contents, receiver, Arc::default()).unwrap();
        (store, applied)
    }

    fn entries(range: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
        let entry = |index| Entry {
            log_id: codec::log_id(2, 1, index),
            payload: openraft::EntryPayload::Blank,
        };
        range.map(entry).collect()
    }

    async fn state(store: &mut LogStore) -> (Option<u64>, Option<u64>) {
        let state = store.get_log_state().await.unwrap();
        (
            state.last_purged_log_id.map(|id| id.index),
            state.last_log_id.map(|id| id.index),
        )
    }

    #[tokio::test]
    async fn log_state_follows_appends_truncations_and_purges() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, applied) = open(folder.path());
        assert_eq!(state(&mut store).await, (None, None));
        store.blocking_append(entries(1..=5)).await.unwrap();
        assert_eq!(state(&mut store).await, (None, Some(5)));
        store.truncate(codec::log_id(2, 1, 4)).await.unwrap();
        assert_eq!(state(&mut store).await, (None, Some(3)));
        applied.send_replace(3);
        store.purge(codec::log_id(2, 1, 2)).await.unwrap();
        assert_eq!(state(&mut store).await, (Some(2), Some(3)));
        store.truncate(codec::log_id(2, 1, 3)).await.unwrap();
        assert_eq!(
            state(&mut store).await,
            (Some(2), Some(2)),
            "the purged entry is the last"
        );
    }

    #[tokio::test]
    async fn log_state_and_vote_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, applied) = open(folder.path());
        store.blocking_append(entries(1..=5)).await.unwrap();
        store.save_vote(&Vote::new_committed(2, 1)).await.unwrap();
        applied.send_replace(5);
        store.purge(codec::log_id(2, 1, 5)).await.unwrap();
        drop(store);
        let (mut store, _applied) = open(folder.path());
        assert_eq!(state(&mut store).await, (Some(5), Some(5)));
        assert_eq!(
            store.read_vote().await.unwrap(),
            Some(Vote::new_committed(2, 1))
        );
    }

    #[tokio::test]
    async fn purge_waits_until_the_state_machine_has_applied_the_entries() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, applied) = open(folder.path());
        store.blocking_append(entries(1..=5)).await.unwrap();
        let mut other = store.clone();
        let purge = tokio::spawn(async move { other.purge(codec::log_id(2, 1, 3)).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!purge.is_finished());
        assert_eq!(state(&mut store).await, (None, Some(5)));
        applied.send_replace(3);
        purge.await.unwrap().unwrap();
        assert_eq!(state(&mut store).await, (Some(3), Some(5)));
    }

    #[tokio::test]
    async fn entries_are_read_by_range() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, _applied) = open(folder.path());
        store.blocking_append(entries(0..=5)).await.unwrap();
        assert_eq!(
            store.try_get_log_entries(2..4).await.unwrap(),
            entries(2..=3)
        );
        assert_eq!(
            store.try_get_log_entries(4..).await.unwrap(),
            entries(4..=5)
        );
        assert_eq!(
            store.try_get_log_entries(..=2).await.unwrap(),
            entries(0..=2)
        );
        assert_eq!(
            store.limited_get_log_entries(1, 9).await.unwrap(),
            entries(1..=5)
        );
    }

    #[tokio::test]
    async fn commit_index_never_decreases() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, _applied) = open(folder.path());
        for (committed, expect) in [(Some(5), 5), (Some(3), 5), (None, 5), (Some(6), 6)] {
            let id = committed.map(|index| codec::log_id(2, 1, index));
            store.save_committed(id).await.unwrap();
            assert_eq!(store.committed.load(Ordering::Acquire), expect);
        }
    }
}
