//! What the state machine asks of an engine.

use bytes::Bytes;
use std::path::{Path, PathBuf};

/// A name space of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Table {
    /// What the state machine knows of itself: applied index, compaction, identity.
    Meta = 1,
    /// One record a revision.
    Revisions = 2,
    /// Leases.
    Leases = 3,
    /// Users, roles and the switch.
    Auth = 4,
    /// Members, also removed ones.
    Members = 5,
    /// Raised alarms.
    Alarms = 6,
}

/// Writes that take effect together.
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

    /// Removes a key, present or not.
    pub fn delete(&mut self, table: Table, key: Vec<u8>) {
        self.bytes += key.len();
        self.ops.push((table, key, None));
    }

    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Number of writes.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the other batch's writes after this one's.
    pub fn append(&mut self, mut other: Batch) {
        self.bytes += other.bytes;
        self.ops.append(&mut other.ops);
    }
}

/// Why an engine could not do as it was told.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The files can't be opened.
    #[error("the state in {path} can't be opened: {reason}")]
    Open {
        /// Folder.
        path: PathBuf,
        /// What the engine said.
        reason: String,
    },
    /// The files are there, and make no sense.
    #[error("the state in {path} is damaged: {reason}")]
    Damaged {
        /// Folder.
        path: PathBuf,
        /// What the engine said.
        reason: String,
    },
    /// Reading or writing failed.
    #[error("the state can't be {doing}: {reason}")]
    Io {
        /// `read`, `written` or `flushed`.
        doing: &'static str,
        /// What the engine said.
        reason: String,
    },
}

impl EngineError {
    /// Why a folder can't be opened: it is damaged, unless the engine says that the operating system refused.
    pub(crate) fn opening(path: &Path, said: &dyn std::error::Error, refused: bool) -> EngineError {
        let (path, reason) = (path.to_path_buf(), said.to_string());
        if refused { EngineError::Open { path, reason } } else { EngineError::Damaged { path, reason } }
    }

    /// For an engine that panics over what it finds.
    pub(crate) fn panicked(path: &Path) -> EngineError {
        EngineError::Damaged { path: path.to_path_buf(), reason: "its files make no sense".to_owned() }
    }
}

/// Whether the operating system refused something, other than for want of a file that should be there.
pub(crate) fn refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
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

/// An ordered map in tables.
pub trait Engine: Send + Sync + 'static {
    /// Applies a batch atomically; visible to every read that starts afterwards.
    fn write(&self, batch: Batch) -> Result<(), EngineError>;

    /// One value.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// Visits the keys from `from` (inclusive) to `to` (exclusive; none: the table's end) in order.
    fn scan(&self, table: Table, from: &[u8], to: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), EngineError>;

    /// Returns when everything written so far would survive a loss of power.
    fn flush(&self) -> Result<(), EngineError>;

    /// Gives the space of what was removed back to the file system, where that needs more than removing it. Others read and
    /// write meanwhile; it takes its time, so it is nothing for a thread on which others wait.
    fn give_back(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Removes everything.
    fn clear(&self) -> Result<(), EngineError>;

    /// Bytes that the engine takes on disk (or in memory, for one without files).
    fn size(&self) -> u64;
}
