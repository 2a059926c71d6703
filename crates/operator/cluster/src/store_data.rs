//! A guard against an empty store in the place of one whose data are missing, for example because
//! their disk is not mounted: its API server would be ready, and the kubelets would delete all
//! pods.

use crate::error::{Error, Result};
use crate::files;
use crate::layout::Layout;

const MARKER_TEXT: &str = "The store of this machine has had data. If this file is removed, `ironclad up` begins an empty store \
    where the data are missing.\n";

/// The file by which the store claims its directory, before anything else is in it.
const IDENTITY: &str = "identity";

/// Returns whether the store on this machine has data, or at least the IDs of a member.
pub(crate) fn has_store_data(layout: &Layout) -> bool {
    layout.store().join(IDENTITY).exists()
}

/// Records that the store has data.
pub(crate) fn record_store_data(layout: &Layout) -> Result<()> {
    files::write_if_changed(&layout.store_marker(), MARKER_TEXT.as_bytes()).map(drop)
}

/// Rejects the start of the store if it had data and they are missing. Records them if they are
/// there: after an upgrade from a release without the record, the first start of any kind writes
/// it.
pub(crate) fn check_store_data(layout: &Layout) -> Result<()> {
    if has_store_data(layout) {
        if let Err(error) = record_store_data(layout) {
            tracing::warn!(%error, "the record that the store has data can't be written");
        }
        return Ok(());
    }
    let marker = layout.store_marker();
    if !marker.exists() {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "the data of the store are not in {}: mount their disk, or run `ironclad restore`, or `ironclad reset` if other machines \
         have the control plane, too; without {} the next start begins an empty cluster",
        layout.store().display(),
        marker.display()
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn store_that_had_data_does_not_start_without_them() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        check_store_data(&layout).unwrap();
        assert!(!layout.store_marker().exists());
        let data = layout.store().join("identity");
        files::write_file(&data, b"{}").unwrap();
        assert!(has_store_data(&layout), "claimed, without a log yet");
        // No `up` has recorded them.
        check_store_data(&layout).unwrap();
        // The directory in which the disk is mounted stays.
        std::fs::remove_file(&data).unwrap();
        let error = check_store_data(&layout).unwrap_err().to_string();
        assert!(error.contains("mount their disk"), "{error}");
        std::fs::remove_file(layout.store_marker()).unwrap();
        check_store_data(&layout).unwrap();
    }
}
