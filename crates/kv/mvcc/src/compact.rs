//! Deletes compacted records in small steps, concurrently with reads and writes.

use crate::error::MvccError;
use crate::store::Store;
use kv_engine::{Batch, Table};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Maximum number of keys visited and revisions removed per step. A step holds the write lock for
/// that long.
const STEP: usize = 1_000;
/// Duration after which a step ends early.
const STEP_TIME: Duration = Duration::from_millis(5);

/// Result of a step.
enum Step {
    Next(Box<[u8]>),
    Last,
    Held,
}

/// Holds off the deletion of compacted records.
pub struct Pin {
    store: Arc<Store>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.store.pins.fetch_sub(1, Ordering::AcqRel);
        self.store.reclaim.notify_one();
    }
}

impl Store {
    /// Waits for compactions and deletes their records, in a loop. Returns only on an error of the
    /// engine.
    pub async fn run_compactor(&self) -> Result<(), MvccError> {
        loop {
            self.reclaim.notified().await;
            // Another compaction may have been applied during the last one. Its wake-up is stored
            // only once.
            while let Some(revision) = self.revision_to_reclaim() {
                // Without the records that are deleted next, the hash of this revision can't be
                // computed.
                self.hash_compacted(revision);
                self.reclaim_upto(revision).await?;
            }
        }
    }

    /// Holds off deletion until the pin is dropped: everything that is readable now remains
    /// readable.
    pub fn pin_history(self: &Arc<Self>) -> Pin {
        // Steps take this lock, so none is running when this function returns.
        let _state = self.state.write();
        self.pins.fetch_add(1, Ordering::AcqRel);
        Pin {
            store: self.clone(),
        }
    }

    fn revision_to_reclaim(&self) -> Option<i64> {
        let state = self.state.read();
        (state.reclaimed < state.compacted).then_some(state.compacted)
    }

    async fn reclaim_upto(&self, revision: i64) -> Result<(), MvccError> {
        // Each step waits for a permit, which bounds the deletions in the engine's queue. Changes
        // that are applied later wait behind them.
        let mut from = Some(Box::<[u8]>::default());
        while let Some(key) = from {
            // The semaphore is never closed.
            let Ok(turn) = self.steps.clone().acquire_owned().await else {
                return Ok(());
            };
            from = match self.reclaim_step(revision, &key, turn)? {
                Step::Next(key) => Some(key),
                Step::Last => None,
                Step::Held => {
                    self.reclaim.notified().await;
                    Some(key)
                }
            };
            tokio::task::yield_now().await;
        }
        self.state.write().reclaimed = revision;
        self.reclaimed.send_replace(revision);
        Ok(())
    }

    /// Executes one step from `key` on. Returns the start of the next one.
    fn reclaim_step(
        &self,
        revision: i64,
        key: &[u8],
        turn: OwnedSemaphorePermit,
    ) -> Result<Step, MvccError> {
        let (removed, next) = {
            let mut state = self.state.write();
            // `pin_history` takes this lock too. So no step removes anything after it has returned.
            if self.pins.load(Ordering::Acquire) > 0 {
                return Ok(Step::Held);
            }
            let began = Instant::now();
            state
                .index
                .compact_step(revision, key, STEP, || began.elapsed() > STEP_TIME)
        };
        // Index first, engine later: a crash in between leaves records that the next start finds
        // and that its compaction deletes.
        let mut batch = Batch::default();
        for mark in removed {
            self.bytes.fetch_sub(mark.stored_size(), Ordering::Relaxed);
            batch.delete(Table::Revisions, mark.engine_key());
        }
        if !batch.is_empty() {
            self.delete_records(batch, turn)?;
        }
        Ok(next.map_or(Step::Last, Step::Next))
    }

    /// Waits until all records compacted up to `revision` are deleted.
    pub async fn wait_for_compaction(&self, revision: i64) {
        let mut reclaimed = self.subscribe_reclaimed();
        // The sender lives as long as the store.
        let _ = reclaimed.wait_for(|reclaimed| *reclaimed >= revision).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::NoLeases;
    use crate::store::WAITING_STEPS;
    use bytes::Bytes;
    use kv_engine::{Engine, MemoryEngine};
    use parking_lot::Mutex;
    use proto_etcd::etcdserverpb::{PutRequest, RangeRequest};

    const REVISIONS: i64 = 200_000;

    /// Returns a store with a key that was put many times.
    fn hot() -> Arc<Store> {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let store = Arc::new(Store::open(engine.clone(), 0).unwrap());
        let request = PutRequest {
            key: Bytes::from_static(b"hot"),
            ..PutRequest::default()
        };
        let mut batch = Batch::default();
        let mut writer = store.writer();
        for _ in 0..REVISIONS {
            writer.put(&request, &mut NoLeases).unwrap();
            writer.commit(&mut batch);
        }
        writer.compact(REVISIONS, &mut batch).unwrap();
        drop(writer);
        engine.write_batch(batch).unwrap();
        store.mark_stored(store.current_revision());
        store
    }

    #[tokio::test]
    async fn compaction_step_is_bounded_for_a_hot_key() {
        let store = hot();
        let steps = Arc::new(Mutex::new(Vec::new()));
        let (seen, engine) = (steps.clone(), store.engine.clone());
        store.defer_removals(Box::new(move |batch, _turn| {
            seen.lock().push(batch.len());
            engine.write_batch(batch).unwrap();
        }));
        tokio::select! {
            _ = store.run_compactor() => {}
            () = store.wait_for_compaction(REVISIONS) => {}
        }
        let steps = steps.lock().clone();
        assert!(
            steps.iter().all(|removed| *removed <= STEP),
            "{:?}",
            steps.iter().max()
        );
        // Two revisions remain: the current one and the one that is read at the compacted revision.
        assert_eq!(steps.iter().sum::<usize>() as i64, REVISIONS - 2);
        let request = RangeRequest {
            key: Bytes::from_static(b"hot"),
            revision: REVISIONS,
            ..RangeRequest::default()
        };
        assert_eq!(
            store.range(&request).unwrap().0.kvs[0].mod_revision,
            REVISIONS
        );
    }

    #[tokio::test]
    async fn queued_deletions_are_bounded() {
        let store = hot();
        let waiting = Arc::new(Mutex::new(Vec::new()));
        let removed = waiting.clone();
        store.defer_removals(Box::new(move |_, turn| removed.lock().push(turn)));
        let engine_is_slow = async {
            for round in 1..=5 {
                for _ in 0..1_000 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(waiting.lock().len(), WAITING_STEPS, "round {round}");
                waiting.lock().clear();
            }
        };
        tokio::select! {
            biased;
            () = engine_is_slow => {}
            ended = store.run_compactor() => panic!("{ended:?}"),
        }
    }
}
