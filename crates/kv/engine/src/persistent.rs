//! sled as the engine.
//!
//! One tree, with the table as the first byte of the key: sled's batches are atomic only within a
//! tree, and its transactions across trees cost far more. sled 0.34's own flush ends in
//! `sync_file_range`, which guarantees nothing after a loss of power, so `flush` here syncs the
//! files itself. There are no background tasks: an idle store writes nothing.

use crate::traits::{Batch, Engine, EngineError, Table, Visit, is_permission_error};
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// sled in a directory of its own.
pub struct SledEngine {
    db: sled::Db,
    folder: PathBuf,
}

impl SledEngine {
    /// Opens or creates the engine. `cache` is the size in bytes of the page cache.
    pub fn open_in(folder: &Path, cache: u64) -> Result<Self, EngineError> {
        // A damaged file can make sled panic instead of returning an error.
        let opened = std::panic::catch_unwind(|| {
            sled::Config::new()
                .path(folder)
                .cache_capacity(cache)
                .flush_every_ms(None)
                .mode(sled::Mode::LowSpace)
                .open()
        });
        match opened {
            Ok(Ok(db)) => Ok(SledEngine {
                db,
                folder: folder.to_path_buf(),
            }),
            Ok(Err(e)) => {
                let refused = matches!(&e, sled::Error::Io(e) if is_permission_error(e));
                Err(EngineError::open_error(folder, &e, refused))
            }
            Err(_) => Err(EngineError::panic_error(folder)),
        }
    }

    fn engine_error(&self, doing: &'static str) -> impl Fn(sled::Error) -> EngineError {
        let folder = self.folder.display().to_string();
        move |e| EngineError::Io {
            doing,
            reason: format!("{folder}: {e}"),
        }
    }
}

fn prefixed_key(table: Table, key: &[u8]) -> Vec<u8> {
    let mut placed = Vec::with_capacity(key.len() + 1);
    placed.push(table as u8);
    placed.extend_from_slice(key);
    placed
}

impl Engine for SledEngine {
    fn write_batch(&self, batch: Batch) -> Result<(), EngineError> {
        let mut writes = sled::Batch::default();
        for (table, key, value) in batch.ops {
            match value {
                Some(value) => writes.insert(prefixed_key(table, &key), value.as_ref()),
                None => writes.remove(prefixed_key(table, &key)),
            }
        }
        self.db
            .apply_batch(writes)
            .map_err(self.engine_error("written"))
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let found = self
            .db
            .get(prefixed_key(table, key))
            .map_err(self.engine_error("read"))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
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
        let end = to.map_or_else(|| vec![table as u8 + 1], |to| prefixed_key(table, to));
        for row in self.db.range(prefixed_key(table, from)..end) {
            let (key, value) = row.map_err(self.engine_error("read"))?;
            if !visit(key.get(1..).unwrap_or_default(), &value) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), EngineError> {
        // sled's flush writes the files. The sync below is the part that survives a loss of power.
        self.db.flush().map_err(self.engine_error("flushed"))?;
        sync_files(&self.folder).map_err(|e| EngineError::Io {
            doing: "flushed",
            reason: e.to_string(),
        })
    }

    fn clear(&self) -> Result<(), EngineError> {
        self.db.clear().map_err(self.engine_error("written"))
    }

    fn disk_size(&self) -> u64 {
        self.db.size_on_disk().unwrap_or_default()
    }
}

fn sync_files(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            File::open(entry.path())?.sync_data()?;
        } else if entry.file_type()?.is_dir() {
            sync_files(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}
