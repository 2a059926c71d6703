//! State that the lock of the store protects.

use crate::error::MvccError;
use crate::history::History;
use crate::index::Index;

/// Keys of the `Meta` table that this crate uses.
pub(crate) const META_COMPACTED: &[u8] = b"compacted";

pub(crate) const META_REVISION: &[u8] = b"revision";

/// State that the lock protects.
pub(crate) struct State {
    pub index: Index,
    pub history: History,
    pub current: i64,
    pub compacted: i64,
    /// Revision up to which compacted records are deleted from index and engine.
    pub reclaimed: i64,
    /// Revision of a physical compaction and the compacted revision before it, to be hashed before
    /// records are deleted.
    pub to_hash: Option<(i64, i64)>,
}

/// Returns the revision to read at.
pub(crate) fn readable_revision(state: &State, requested: i64) -> Result<i64, MvccError> {
    if requested <= 0 {
        return Ok(state.current);
    }
    if requested > state.current {
        return Err(MvccError::Future);
    }
    if requested < state.compacted {
        return Err(MvccError::Compacted);
    }
    Ok(requested)
}
