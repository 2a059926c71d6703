//! Snapshots: reads the whole state as rows while commands are applied, and restores it from rows.
//!
//! Records of revisions never change. A consistent snapshot therefore consists of the small tables
//! and the revision at one moment, and of the records up to that revision. The records are read
//! later, while compaction is held off.

use crate::error::MachineError;
use crate::machine::Machine;
use crate::persist;
use crate::persist::SMALL;
use crate::replicated_state::AppliedPosition;
use bytes::Bytes;
use kv_engine::{Batch, Engine, EngineError, Table};
use kv_mvcc::{Mark, Pin};
use std::sync::Arc;

// Bounds the memory of sender and receiver, whatever the size of the state.
const CHUNK_BYTES: usize = 1 << 20;

/// A row: table number, key and value.
pub type SnapshotItem = (u8, Bytes, Bytes);

/// Reads a snapshot chunk by chunk.
pub struct SnapshotReader {
    engine: Arc<dyn Engine>,
    place: AppliedPosition,
    revision: i64,
    small: Option<Vec<SnapshotItem>>,
    next: Option<Vec<u8>>,
    _pin: Pin,
}

fn table_from_number(number: u8) -> Option<Table> {
    SMALL
        .into_iter()
        .chain([Table::Revisions])
        .find(|table| *table as u8 == number)
}

impl Machine {
    /// Starts a snapshot of the current state.
    pub async fn start_snapshot(self: &Arc<Self>) -> Result<SnapshotReader, MachineError> {
        // Before the revision is read: from here on compaction keeps every record of the snapshot.
        let pin = self.store.pin_history();
        // On the engine's thread, between two batches. So the small tables, the revision and the
        // log position belong together.
        let taken = self.engine_writer.run_job(read_small_tables).await;
        let (small, place, revision) = taken.ok_or(MachineError::Damaged("rows"))??;
        Ok(SnapshotReader {
            engine: self.engine.clone(),
            place,
            revision,
            small: Some(small),
            next: Some(Vec::new()),
            _pin: pin,
        })
    }

    /// Replaces the state by the given rows. If this is interrupted, a restart finds an empty
    /// state, never a partial one.
    pub async fn install_snapshot(
        &self,
        mut rows: impl FnMut() -> Result<Option<Vec<SnapshotItem>>, MachineError> + Send,
    ) -> Result<AppliedPosition, MachineError> {
        self.store.begin_replacing();
        self.run_on_engine(|engine| {
            // The marker is durable before the first row is deleted and until all new rows are.
            engine.write_batch(persist::installing_marker(true))?;
            engine.flush()?;
            persist::wipe_engine(engine)
        })
        .await?;
        while let Some(rows) = rows()? {
            let mut batch = Batch::default();
            for (number, key, value) in rows {
                let table = table_from_number(number).ok_or(MachineError::Damaged("rows"))?;
                batch.put(table, key.to_vec(), value);
            }
            self.run_on_engine(move |engine| engine.write_batch(batch))
                .await?;
        }
        self.run_on_engine(|engine| {
            // The rows are durable before the marker is deleted. A crash in between repeats the
            // installation.
            engine.flush()?;
            engine.write_batch(persist::installing_marker(false))?;
            engine.flush()
        })
        .await?;
        self.reload_state()
    }

    async fn run_on_engine(
        &self,
        work: impl FnOnce(&dyn Engine) -> Result<(), EngineError> + Send + 'static,
    ) -> Result<(), MachineError> {
        self.engine_writer
            .run_job(work)
            .await
            .ok_or(MachineError::Damaged("rows"))??;
        Ok(())
    }

    fn reload_state(&self) -> Result<AppliedPosition, MachineError> {
        // Held until everything is replaced: a request must not be checked against users of one
        // state and read keys of another.
        let mut replicated = self.replicated.write();
        self.store.reload_state()?;
        let loaded = persist::load_state(&*self.engine, &self.store)?;
        *replicated = loaded.replicated;
        // The skipped log entries may have revoked some tokens.
        self.tokens.lock().clear();
        *self.leases.lock() = loaded.leases;
        *self.place.lock() = loaded.place.clone();
        drop(replicated);
        self.applied.send_replace(loaded.index);
        self.members_changed.send_modify(|count| *count += 1);
        self.rights_changed.send_modify(|count| *count += 1);
        Ok(loaded.place)
    }
}

type SmallTables = (Vec<SnapshotItem>, AppliedPosition, i64);

fn read_small_tables(engine: &dyn Engine) -> Result<SmallTables, MachineError> {
    let mut rows = Vec::new();
    for table in SMALL {
        engine.scan_rows(table, b"", None, &mut |key, value| {
            rows.push((
                table as u8,
                Bytes::copy_from_slice(key),
                Bytes::copy_from_slice(value),
            ));
            true
        })?;
    }
    let (place, revision) = persist::read_applied_position(engine)?;
    Ok((rows, place, revision))
}

impl SnapshotReader {
    /// Returns the log position of the snapshot.
    pub fn applied_position(&self) -> &AppliedPosition {
        &self.place
    }

    /// Returns the store's revision in the snapshot.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns the next rows, or `None` after the last.
    pub fn next_rows(&mut self) -> Result<Option<Vec<SnapshotItem>>, EngineError> {
        if let Some(small) = self.small.take() {
            return Ok(Some(small));
        }
        let Some(from) = self.next.take() else {
            return Ok(None);
        };
        let mut rows = Vec::new();
        let mut bytes = 0;
        // Records that were written since the start belong to later log entries, which the receiver
        // applies again.
        let end = Mark::first_key(self.revision + 1);
        let mut next = None;
        self.engine
            .scan_rows(Table::Revisions, &from, Some(&end), &mut |key, value| {
                if bytes >= CHUNK_BYTES {
                    next = Some(key.to_vec());
                    return false;
                }
                bytes += key.len() + value.len();
                rows.push((
                    Table::Revisions as u8,
                    Bytes::copy_from_slice(key),
                    Bytes::copy_from_slice(value),
                ));
                true
            })?;
        self.next = next;
        Ok(if rows.is_empty() { None } else { Some(rows) })
    }
}
