//! The interface between state machine and engine.

use bytes::Bytes;
use std::path::{Path, PathBuf};

/// A name space of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Table {
    /// State of the state machine itself: applied index, compaction, identity.
    Meta = 1,
    /// One record per revision.
    Revisions = 2,
    /// Leases.
    Leases = 3,
    /// Users, roles and the auth status.
    Auth = 4,
    /// Current and removed members.
    Members = 5,
    /// Raised alarms.
    Alarms = 6,
}

/// Writes that become visible together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) ops: Vec<(Table, Vec<u8>, Option<Bytes>)>,
    bytes: usize,
}

impl Batch {
    /// Sets a key.
    pub fn put(&mut self, table: Table, key: Vec<u8>, value: impl Into<Bytes>) {
        let value = value.into();
        self.bytes += key.len() + value.len();
        self.ops.push((table, key, Some(value)));
    }

    /// Deletes a key, which need not exist.
    pub fn delete(&mut self, table: Table, key: Vec<u8>) {
        self.bytes += key.len();
        self.ops.push((table, key, None));
    }

    /// Returns whether there are no writes.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Returns the number of writes.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns the size of keys and values in bytes.
    pub fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Appends the writes of another batch.
    pub fn append(&mut self, mut other: Batch) {
        self.bytes += other.bytes;
        self.ops.append(&mut other.ops);
    }
}

/// Errors of an engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Opening the files failed.
    #[error("the state in {path} can't be opened: {reason}")]
    Open {
        /// The directory.
        path: PathBuf,
        /// The engine's message.
        reason: String,
    },
    /// The files are damaged.
    #[error("the state in {path} is damaged: {reason}")]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// The engine's message.
        reason: String,
    },
    /// Reading or writing failed.
    #[error("the state can't be {doing}: {reason}")]
    Io {
        /// `read`, `written` or `flushed`.
        doing: &'static str,
        /// The engine's message.
        reason: String,
    },
}

impl EngineError {
    /// Classifies an error on opening: damage, unless the operating system returned the error.
    pub(crate) fn open_error(
        path: &Path,
        said: &dyn std::error::Error,
        refused: bool,
    ) -> EngineError {
        let (path, reason) = (path.to_path_buf(), said.to_string());
        if refused {
            EngineError::Open { path, reason }
        } else {
            EngineError::Damaged { path, reason }
        }
    }

    /// Returns the error for an engine that panicked while opening its files.
    pub(crate) fn panic_error(path: &Path) -> EngineError {
        EngineError::Damaged {
            path: path.to_path_buf(),
            reason: "its files make no sense".to_owned(),
        }
    }
}

/// Returns whether the operating system returned an error other than a missing file.
pub(crate) fn is_permission_error(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    // Engines wrap errors of the file system in their own, several levels deep.
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.raw_os_error().is_some() && error.kind() != std::io::ErrorKind::NotFound;
        }
        next = error.source();
    }
    false
}

/// Called for each pair of a scan; `false` ends it.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

/// An ordered map with tables.
pub trait Engine: Send + Sync + 'static {
    /// Applies a batch atomically. Every read that starts afterwards sees it.
    fn write_batch(&self, batch: Batch) -> Result<(), EngineError>;

    /// Returns the value of a key.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// Visits the keys from `from` (inclusive) to `to` (exclusive; `None`: the end of the table) in
    /// order.
    fn scan_rows(
        &self,
        table: Table,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError>;

    /// Waits until everything written so far is durable.
    fn flush(&self) -> Result<(), EngineError>;

    /// Defragments: returns the space of deleted data to the file system, if that needs a separate
    /// step. Reads and writes continue. It may take minutes, so it must not run on an async thread.
    fn release_space(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Deletes everything.
    fn clear(&self) -> Result<(), EngineError>;

    /// Returns the size on disk in bytes, or in memory for an engine without files.
    fn disk_size(&self) -> u64;
}
