//! fjall, a log-structured merge tree, as the engine.
//!
//! Revisions are written in order and rarely again: they are appended to a memtable that is written
//! out when it is full, without merging. Therefore they have a keyspace of their own. All other
//! tables share a second one, with the table as the first byte of the key. The engine's journal is
//! written to the operating system without syncs. The store's log replays what a crash loses;
//! `flush` makes the journal durable. Nothing runs while nothing is written.

use crate::traits::{Batch, Engine, EngineError, Table, Visit, is_permission_error};
use bytes::Bytes;
use fjall::config::{CompressionPolicy, FilterPolicy};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::collections::HashSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Size in bytes at which a memtable is written out.
const MEMTABLE_BYTES: u64 = 8 << 20;
/// Size in bytes of journals at which memtables are written out to free them: the minimum that
/// fjall allows.
const JOURNAL_BYTES: u64 = 64 << 20;
/// Maximum time for a memtable to be written out. After that only existing tables are merged.
const WRITTEN_OUT: Duration = Duration::from_secs(30);

/// fjall in a directory of its own.
pub struct FjallEngine {
    db: Database,
    revisions: Keyspace,
    others: Keyspace,
    folder: PathBuf,
}

fn keyspace_options() -> KeyspaceCreateOptions {
    // Point reads of revisions are rare and hit existing keys: filters would only cost memory.
    KeyspaceCreateOptions::default()
        .max_memtable_size(MEMTABLE_BYTES)
        .manual_journal_persist(true)
        .expect_point_read_hits(true)
        .filter_policy(FilterPolicy::disabled())
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
}

impl FjallEngine {
    /// Opens or creates the engine. `cache` is the size in bytes of the block cache.
    pub fn open_in(folder: &Path, cache: u64) -> Result<Self, EngineError> {
        // A damaged file can make the engine panic instead of returning an error.
        let opened = std::panic::catch_unwind(|| {
            let db = Database::builder(folder)
                .cache_size(cache)
                .worker_threads(1)
                .max_journaling_size(JOURNAL_BYTES)
                .manual_journal_persist(true)
                .open()?;
            let (revisions, others) = (
                db.keyspace("revisions", keyspace_options)?,
                db.keyspace("others", keyspace_options)?,
            );
            Ok::<_, fjall::Error>((db, revisions, others))
        });
        match opened {
            Ok(Ok((db, revisions, others))) => Ok(FjallEngine {
                db,
                revisions,
                others,
                folder: folder.to_path_buf(),
            }),
            Ok(Err(e)) => Err(EngineError::open_error(
                folder,
                &e,
                is_permission_error(&e) || matches!(e, fjall::Error::Locked),
            )),
            Err(_) => Err(EngineError::panic_error(folder)),
        }
    }

    fn table_keyspace(&self, table: Table) -> &Keyspace {
        if table == Table::Revisions {
            &self.revisions
        } else {
            &self.others
        }
    }

    fn engine_error(&self, doing: &'static str, e: &fjall::Error) -> EngineError {
        EngineError::Io {
            doing,
            reason: format!("{}: {e}", self.folder.display()),
        }
    }
}

fn prefixed_key(table: Table, key: &[u8]) -> Vec<u8> {
    let mut placed = Vec::with_capacity(key.len() + 1);
    placed.push(table as u8);
    placed.extend_from_slice(key);
    placed
}

/// Returns the last write of each key in a batch. fjall gives all writes of a batch the same
/// sequence number, so it can't tell which of two came last.
fn last_writes(batch: Batch) -> Vec<(Table, Vec<u8>, Option<Bytes>)> {
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    // A revision is put only once, so only its deletion can repeat the key in a batch.
    let removes = batch
        .ops
        .iter()
        .any(|(table, _, value)| *table == Table::Revisions && value.is_none());
    let mut writes = Vec::with_capacity(batch.ops.len());
    for (table, key, value) in batch.ops.into_iter().rev() {
        let key = prefixed_key(table, &key);
        if (removes || table != Table::Revisions) && !seen.insert(key.clone()) {
            continue;
        }
        writes.push((table, key, value));
    }
    writes
}

impl Engine for FjallEngine {
    fn write_batch(&self, batch: Batch) -> Result<(), EngineError> {
        // One batch covers both keyspaces, so a revision and the applied position become visible
        // together.
        let mut writes = self.db.batch();
        for (table, key, value) in last_writes(batch) {
            match value {
                Some(value) => writes.insert(self.table_keyspace(table), key, value),
                None => writes.remove(self.table_keyspace(table), key),
            }
        }
        writes
            .commit()
            .map_err(|e| self.engine_error("written", &e))
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let found = self
            .table_keyspace(table)
            .get(prefixed_key(table, key))
            .map_err(|e| self.engine_error("read", &e))?;
        Ok(found.map(Bytes::from))
    }

    fn scan_rows(
        &self,
        table: Table,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        if to.is_some_and(|to| to <= from) {
            return Ok(());
        }
        // The next prefix ends the table: in the shared keyspace another table follows.
        let end = to.map_or_else(|| vec![table as u8 + 1], |to| prefixed_key(table, to));
        let span = (
            Bound::Included(prefixed_key(table, from)),
            Bound::Excluded(end),
        );
        for row in self.table_keyspace(table).range::<Vec<u8>, _>(span) {
            let (key, value) = row
                .into_inner()
                .map_err(|e| self.engine_error("read", &e))?;
            if !visit(key.get(1..).unwrap_or_default(), &value) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), EngineError> {
        self.db
            // The journal alone is enough: memtables are rebuilt from it when the engine is opened.
            .persist(PersistMode::SyncData)
            .map_err(|e| self.engine_error("flushed", &e))
    }

    /// fjall merges tables only after enough new ones were written. After deletions without writes,
    /// that never happens.
    #[expect(
        clippy::disallowed_methods,
        reason = "callers of the engine expect it to block"
    )]
    fn release_space(&self) -> Result<(), EngineError> {
        let failed = |e| self.engine_error("written", &e);
        self.revisions.rotate_memtable().map_err(failed)?;
        let begin = Instant::now();
        // fjall writes memtables out in a thread of its own and offers nothing to wait for.
        // Deletions that are still in one free no table.
        while self.revisions.sealed_memtable_count() > 0 && begin.elapsed() < WRITTEN_OUT {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.revisions.major_compact().map_err(failed)
    }

    fn clear(&self) -> Result<(), EngineError> {
        // A marker that the content must not be used is in the second keyspace, so that one is
        // cleared last.
        self.revisions
            .clear()
            .map_err(|e| self.engine_error("written", &e))?;
        self.others
            .clear()
            .map_err(|e| self.engine_error("written", &e))
    }

    fn disk_size(&self) -> u64 {
        self.db.disk_space().unwrap_or_default()
    }
}
