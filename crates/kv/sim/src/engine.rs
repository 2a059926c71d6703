//! An engine that may lose its newest batches in a loss of power, as the trait allows.

use crate::entropy::Rng;
use bytes::Bytes;
use kv_engine::{Batch, Engine, EngineError, MemoryEngine, Table, Visit};
use parking_lot::Mutex;
use std::sync::Arc;

const TABLES: [Table; 6] = [
    Table::Meta,
    Table::Revisions,
    Table::Leases,
    Table::Auth,
    Table::Members,
    Table::Alarms,
];

struct Parts {
    live: MemoryEngine,
    durable: MemoryEngine,
    unsynced: Vec<Batch>,
    rng: Rng,
}

/// A member's engine. Its durable part outlives the member's process.
#[derive(Clone)]
pub(crate) struct SimEngine(Arc<Mutex<Parts>>);

fn copy_engine(from: &MemoryEngine) -> Result<MemoryEngine, EngineError> {
    let mut batch = Batch::default();
    for table in TABLES {
        from.scan_rows(table, b"", None, &mut |key, value| {
            batch.put(table, key.to_vec(), Bytes::copy_from_slice(value));
            true
        })?;
    }
    let to = MemoryEngine::default();
    to.write_batch(batch)?;
    Ok(to)
}

impl SimEngine {
    pub fn new(rng: Rng) -> Self {
        let (live, durable, unsynced) = Default::default();
        SimEngine(Arc::new(Mutex::new(Parts {
            live,
            durable,
            unsynced,
            rng,
        })))
    }

    /// Simulates a loss of power: a random number of the batches since the last flush survives.
    pub fn lose_power(&self) -> Result<(), EngineError> {
        let mut guard = self.0.lock();
        let parts = &mut *guard;
        let keep = usize::try_from(parts.rng.below(parts.unsynced.len() as u64 + 1)).unwrap_or(0);
        for batch in parts.unsynced.drain(..).take(keep) {
            parts.durable.write_batch(batch)?;
        }
        parts.live = copy_engine(&parts.durable)?;
        Ok(())
    }
}

impl Engine for SimEngine {
    fn write_batch(&self, batch: Batch) -> Result<(), EngineError> {
        let mut parts = self.0.lock();
        parts.unsynced.push(batch.clone());
        parts.live.write_batch(batch)
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.0.lock().live.get(table, key)
    }

    fn scan_rows(
        &self,
        table: Table,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        let mut rows = Vec::new();
        self.0
            .lock()
            .live
            .scan_rows(table, from, to, &mut |key, value| {
                rows.push((key.to_vec(), value.to_vec()));
                true
            })?;
        for (key, value) in rows {
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), EngineError> {
        let mut guard = self.0.lock();
        let parts = &mut *guard;
        for batch in parts.unsynced.drain(..) {
            parts.durable.write_batch(batch)?;
        }
        Ok(())
    }

    /// Deletes row by row, like sled, so that a crash may interrupt it.
    fn clear(&self) -> Result<(), EngineError> {
        for table in TABLES {
            let mut keys = Vec::new();
            self.scan_rows(table, b"", None, &mut |key, _| {
                keys.push(key.to_vec());
                true
            })?;
            for key in keys {
                let mut batch = Batch::default();
                batch.delete(table, key);
                self.write_batch(batch)?;
            }
        }
        Ok(())
    }

    fn disk_size(&self) -> u64 {
        self.0.lock().live.disk_size()
    }
}
