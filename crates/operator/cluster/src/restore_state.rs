//! The state of a restore, in the directory in which it is prepared.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files;
use crate::layout::Layout;

/// Name of the file.
pub(crate) const STATE: &str = "state.json";

/// State of a restore that has begun.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RestoreState {
    /// Set when the first file is about to be replaced: the directory that keeps the former ones.
    /// From then on the data directory is a mixture until the restore has ended.
    pub(crate) kept: Option<PathBuf>,
}

impl RestoreState {
    /// Loads the state; None if no restore has begun.
    pub(crate) fn load(layout: &Layout) -> Result<Option<Self>> {
        let directory = layout.restore();
        // Empty: a restore ended before it wrote the file.
        if std::fs::read_dir(&directory).map_or(true, |mut entries| entries.next().is_none()) {
            return Ok(None);
        }
        let text = std::fs::read(directory.join(STATE)).unwrap_or_default();
        let state = serde_json::from_slice(&text).map_err(|_| {
            Error::Refused(format!(
                "{} was not made by `ironclad restore`; move it elsewhere",
                directory.display()
            ))
        })?;
        Ok(Some(state))
    }

    pub(crate) fn save(&self, layout: &Layout) -> Result<()> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        files::write_private(&layout.restore().join(STATE), &text)
    }
}

/// Rejects the start of components from a data directory whose files were replaced in part only.
pub(crate) fn reject_unfinished_restore(layout: &Layout) -> Result<()> {
    let is_mixed = |state: RestoreState| state.kept.is_some();
    if !RestoreState::load(layout)?.is_some_and(is_mixed) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "a restore of {} was interrupted; run `ironclad restore` again",
        layout.data().display()
    )))
}
