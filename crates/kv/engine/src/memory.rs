//! In-memory engine: the reference of the conformance suite, and the engine of simulations.

use crate::traits::{Batch, Engine, EngineError, Table, Visit};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;

type Rows = BTreeMap<(Table, Vec<u8>), Bytes>;

/// All tables in one map; lost when the process exits.
#[derive(Default)]
pub struct MemoryEngine {
    rows: RwLock<Rows>,
}

impl Engine for MemoryEngine {
    fn write_batch(&self, batch: Batch) -> Result<(), EngineError> {
        // One lock for the whole batch makes it atomic.
        let mut rows = self.rows.write();
        for (table, key, value) in batch.ops {
            match value {
                Some(value) => rows.insert((table, key), value),
                None => rows.remove(&(table, key)),
            };
        }
        Ok(())
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Ok(self.rows.read().get(&(table, key.to_vec())).cloned())
    }

    fn scan_rows(
        &self,
        table: Table,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        // Libraries differ on inverted ranges. The conformance suite requires them to be empty.
        if to.is_some_and(|to| to <= from) {
            return Ok(());
        }
        let rows = self.rows.read();
        let range = rows.range((Bound::Included((table, from.to_vec())), Bound::Unbounded));
        for ((found, key), value) in range {
            if *found != table || to.is_some_and(|to| key.as_slice() >= to) || !visit(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn clear(&self) -> Result<(), EngineError> {
        self.rows.write().clear();
        Ok(())
    }

    fn disk_size(&self) -> u64 {
        self.rows
            .read()
            .iter()
            .map(|((_, key), value)| (key.len() + value.len()) as u64)
            .sum()
    }
}
