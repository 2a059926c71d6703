//! Giving back what was compacted, in small steps while others read and write.

use crate::error::MvccError;
use crate::store::Store;
use kv_engine::{Batch, Table};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Keys per step: the write lock is held for as long as these take.
const STEP: usize = 1_000;

/// Where a step ended.
enum Step {
    Next(Box<[u8]>),
    Last,
    Held,
}

/// Holds the giving back of space.
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
    /// Waits for a compaction and carries it out, again and again. Ends with an error of the engine only.
    pub async fn reclaim_forever(&self) -> Result<(), MvccError> {
        loop {
            self.reclaim.notified().await;
            while let Some(revision) = self.to_reclaim() {
                self.reclaim_upto(revision).await?;
            }
        }
    }

    /// Holds the giving back until the pin is dropped: what can be read now can be read until then.
    pub fn pin(self: &Arc<Self>) -> Pin {
        // Steps take this lock: none is in the middle of its work when this returns.
        let _state = self.state.write();
        self.pins.fetch_add(1, Ordering::AcqRel);
        Pin { store: self.clone() }
    }

    fn to_reclaim(&self) -> Option<i64> {
        let state = self.state.read();
        (state.reclaimed < state.compacted).then_some(state.compacted)
    }

    async fn reclaim_upto(&self, revision: i64) -> Result<(), MvccError> {
        let mut from = Some(Box::<[u8]>::default());
        while let Some(key) = from {
            from = match self.reclaim_step(revision, &key)? {
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

    /// One step from `key` on; returns where the next one begins.
    fn reclaim_step(&self, revision: i64, key: &[u8]) -> Result<Step, MvccError> {
        let (taken, next) = {
            let mut state = self.state.write();
            if self.pins.load(Ordering::Acquire) > 0 {
                return Ok(Step::Held);
            }
            state.index.compact(revision, key, STEP)
        };
        let mut batch = Batch::default();
        for mark in taken {
            self.bytes.fetch_sub(mark.bytes(), Ordering::Relaxed);
            batch.delete(Table::Revisions, mark.key());
        }
        if !batch.is_empty() {
            self.reclaimed_records(batch)?;
        }
        Ok(next.map_or(Step::Last, Step::Next))
    }

    /// Returns when the space of everything up to `revision` has been given back.
    pub async fn reclaimed_upto(&self, revision: i64) {
        let mut reclaimed = self.reclaimed.subscribe();
        // The sender lives as long as the store.
        let _ = reclaimed.wait_for(|reclaimed| *reclaimed >= revision).await;
    }
}
