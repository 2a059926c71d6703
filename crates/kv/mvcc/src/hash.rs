//! Hash of the history, equal on all members that have applied the same entries.

use crate::error::MvccError;
use crate::history::RevisionEvents;
use crate::revision::Mark;
use crate::state::readable_revision;
use crate::store::Store;
use kv_engine::Table;

/// Maximum number of compactions during the computation.
// Compactions are rare, so that more attempts would only hide a fault.
const ATTEMPTS: usize = 5;

impl Store {
    /// Returns the hash up to a revision (0: the current one), that revision, and the compacted
    /// revision.
    ///
    /// Records that a compaction made unreachable are not included, whether they were deleted
    /// already or not. The revision of a physical compaction keeps the hash that it had before.
    pub fn hash_history(&self, revision: i64) -> Result<(u32, i64, i64), MvccError> {
        for _ in 0..ATTEMPTS {
            let (upto, compacted, recent) = {
                let state = self.state.read();
                let upto = readable_revision(&state, revision)?;
                let known = *self.compacted_hash.lock();
                if let Some(known) =
                    known.filter(|(_, hashed, _)| *hashed == upto && *hashed == state.compacted)
                {
                    return Ok(known);
                }
                // The engine may lack the newest records. They are taken from the history, at the
                // moment of the revision.
                let recent = state
                    .history
                    .revisions_since(state.history.first_revision(), usize::MAX);
                (upto, state.compacted, recent.unwrap_or_default())
            };
            let hash = self.hash_records(upto, compacted, &recent)?;
            // A later compaction changes which records are reachable.
            if self.compacted_revision() == compacted {
                return Ok((hash, upto, compacted));
            }
        }
        Err(MvccError::Compacted)
    }

    /// Hashes the records that a physical compaction is about to delete. If that fails, the
    /// compaction continues without a hash.
    pub(crate) fn hash_compacted(&self, revision: i64) {
        let (upto, before, recent) = {
            let mut state = self.state.write();
            let Some((upto, before)) = state.to_hash.take().filter(|(upto, _)| *upto == revision)
            else {
                return;
            };
            let recent = state
                .history
                .revisions_since(state.history.first_revision(), usize::MAX);
            (upto, before, recent.unwrap_or_default())
        };
        match base_task::blocking(|| self.hash_records(upto, before, &recent)) {
            Ok(hash) => *self.compacted_hash.lock() = Some((hash, upto, before)),
            Err(error) => tracing::warn!(%error, revision, "the compacted history can't be hashed"),
        }
    }

    /// Hashes the engine's records, and later ones that the engine may not have yet.
    fn hash_records(
        &self,
        upto: i64,
        compacted: i64,
        recent: &[RevisionEvents],
    ) -> Result<u32, MvccError> {
        // Members with different compacted revisions must not seem equal by chance.
        let mut hash = crc32c::crc32c(&compacted.to_be_bytes());
        let mut damaged = false;
        let mut add = |key: &[u8], record: &[u8]| {
            let Some(mark) = Mark::from_key(key) else {
                damaged = true;
                return false;
            };
            if mark.main() > upto {
                return false;
            }
            if mark.main() > compacted || self.is_reachable(mark, record, compacted) {
                hash = crc32c::crc32c_append(crc32c::crc32c_append(hash, key), record);
            }
            true
        };
        let first_recent = recent.iter().flat_map(|events| events.first()).next();
        let end = first_recent.map(|event| Mark::first_key(event.mark.main()));
        self.engine.scan_rows(
            Table::Revisions,
            b"",
            end.as_ref().map(<[u8; 8]>::as_slice),
            &mut add,
        )?;
        // The scan ended before these revisions, so that none is hashed twice.
        for event in recent.iter().flat_map(|events| events.iter()) {
            if !add(&event.mark.engine_key(), &event.record) {
                break;
            }
        }
        if damaged {
            Err(MvccError::Damaged(upto))
        } else {
            Ok(hash)
        }
    }

    /// Returns whether a compacted record is still the newest of its key at the compacted revision.
    fn is_reachable(&self, mark: Mark, record: &[u8], compacted: i64) -> bool {
        // Compaction deletes tombstones sooner or later, at another time on each member.
        if mark.is_tombstone() {
            return false;
        }
        let Some(key) = crate::store::record_key(record) else {
            // An unreadable record must change the hash, since finding damage is its purpose.
            return true;
        };
        let state = self.state.read();
        state
            .index
            .get(key)
            .and_then(|item| item.mark_at(compacted))
            == Some(mark)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::NoLeases;
    use bytes::Bytes;
    use kv_engine::{Batch, Engine, EngineError, MemoryEngine, Visit};
    use parking_lot::Mutex;
    use proto_etcd::etcdserverpb::PutRequest;
    use std::sync::Arc;

    /// An engine that runs a function at the start of its first scan.
    #[derive(Default)]
    struct Interrupted {
        inner: MemoryEngine,
        first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    }

    impl Engine for Interrupted {
        fn write_batch(&self, batch: Batch) -> Result<(), EngineError> {
            self.inner.write_batch(batch)
        }
        fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
            self.inner.get(table, key)
        }
        fn scan_rows(
            &self,
            table: Table,
            from: &[u8],
            to: Option<&[u8]>,
            visit: &mut Visit<'_>,
        ) -> Result<(), EngineError> {
            let first = self.first.lock().take();
            if let Some(first) = first {
                first();
            }
            self.inner.scan_rows(table, from, to, visit)
        }
        fn flush(&self) -> Result<(), EngineError> {
            self.inner.flush()
        }
        fn clear(&self) -> Result<(), EngineError> {
            self.inner.clear()
        }
        fn disk_size(&self) -> u64 {
            self.inner.disk_size()
        }
    }

    fn compact(store: &Store, engine: &dyn Engine, revision: i64) {
        let mut batch = Batch::default();
        let mut writer = store.writer();
        writer.compact(revision, &mut batch).unwrap();
        writer.commit(&mut batch);
        drop(writer);
        engine.write_batch(batch).unwrap();
    }

    #[test]
    fn hash_is_repeated_after_a_concurrent_compaction() {
        let engine = Arc::new(Interrupted::default());
        let store = Arc::new(Store::open(engine.clone(), 100).unwrap());
        for number in 0..6 {
            let mut batch = Batch::default();
            let mut writer = store.writer();
            let request = PutRequest {
                key: "k".into(),
                value: format!("{number}").into(),
                ..PutRequest::default()
            };
            writer.put(&request, &mut NoLeases).unwrap();
            writer.commit(&mut batch);
            drop(writer);
            engine.write_batch(batch).unwrap();
            store.mark_stored(store.current_revision());
        }
        compact(&store, &*engine, 3);
        let (other, meddled) = (store.clone(), engine.clone());
        *engine.first.lock() = Some(Box::new(move || compact(&other, &*meddled, 6)));
        let during = store.hash_history(0).unwrap();
        assert_eq!(during.2, 6);
        assert_eq!(during, store.hash_history(0).unwrap());
    }

    #[tokio::test]
    async fn physical_compaction_does_not_change_the_hash_of_its_revision() {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let store = Store::open(engine.clone(), 100).unwrap();
        for number in 0..12 {
            let mut batch = Batch::default();
            let mut writer = store.writer();
            if number % 4 == 3 {
                writer.delete_key(&Bytes::from_static(b"k"), &mut NoLeases);
            } else {
                let request = PutRequest {
                    key: "k".into(),
                    value: format!("{number}").into(),
                    ..PutRequest::default()
                };
                writer.put(&request, &mut NoLeases).unwrap();
            }
            writer.commit(&mut batch);
            drop(writer);
            engine.write_batch(batch).unwrap();
            store.mark_stored(store.current_revision());
        }
        // A deletion, and another revision.
        for revision in [5, 7, store.current_revision()] {
            let before = store.hash_history(revision).unwrap();
            let mut batch = Batch::default();
            store
                .writer()
                .compact_physically(revision, &mut batch)
                .unwrap();
            tokio::select! {
                ended = store.run_compactor() => panic!("{ended:?}"),
                () = store.wait_for_compaction(revision) => {}
            }
            assert_eq!(store.hash_history(revision).unwrap(), before, "{revision}");
            let later = store.hash_history(0).unwrap();
            assert_eq!(later.1, store.current_revision());
        }
    }
}
