//! Detects the engine of a directory.

use crate::lsm::FjallEngine;
use crate::persistent::SledEngine;
use crate::traits::{Engine, EngineError};
use std::path::Path;
use std::sync::Arc;

/// Engines with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A log-structured merge tree.
    Fjall,
    /// sled, which earlier versions used.
    Sled,
}

impl Kind {
    /// Returns the engine whose files are in a directory, or `None` if there are none.
    pub fn detect(folder: &Path) -> Option<Kind> {
        // Only sled has this file.
        if folder.join("conf").exists() {
            return Some(Kind::Sled);
        }
        let mut entries = std::fs::read_dir(folder).ok()?;
        entries.next().is_some().then_some(Kind::Fjall)
    }
}

/// Opens the requested engine. `None` requests the one whose files exist, or else fjall. `cache` is
/// the size in bytes of its cache.
pub fn open_engine(
    folder: &Path,
    requested: Option<Kind>,
    cache: u64,
) -> Result<Arc<dyn Engine>, EngineError> {
    let present = Kind::detect(folder);
    // Opening the other engine here would start an empty state beside the present one.
    if let (Some(requested), Some(present)) = (requested, present)
        && requested != present
    {
        let reason = format!(
            "it is kept by {present:?}, and {requested:?} was asked for; save a snapshot and restore it to change"
        );
        return Err(EngineError::Open {
            path: folder.to_path_buf(),
            reason,
        });
    }
    Ok(match requested.or(present).unwrap_or(Kind::Fjall) {
        Kind::Fjall => Arc::new(FjallEngine::open_in(folder, cache)?),
        Kind::Sled => Arc::new(SledEngine::open_in(folder, cache)?),
    })
}
