//! The state of an upgrade that has begun, and the lock of a running one.
//!
//! Until the upgrade has ended, the plan has programs of two releases. A command that would replace
//! the plan by one of a single release waits for the lock's release, or removes the state.

use std::fs::File;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files;
use crate::layout::Layout;
use crate::plan::Plan;

/// The direction of an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    /// Components get the new programs.
    Forward,
    /// Components get the former programs.
    Back,
}

/// A configuration file as it was before the upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedFile {
    /// The file.
    pub(crate) path: PathBuf,
    /// The content.
    pub(crate) content: String,
}

/// An upgrade that has begun. One file, replaced atomically, so that any interruption leaves a
/// complete state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpgradeState {
    /// Directory of the former programs.
    pub(crate) from: PathBuf,
    /// Directory of the new programs.
    pub(crate) to: PathBuf,
    /// The plan before the upgrade.
    pub(crate) before: Plan,
    /// The configurations before the upgrade.
    pub(crate) configs: Vec<SavedFile>,
    /// The direction.
    pub(crate) phase: Phase,
    /// Names of the components that may run the new programs, in the order of their replacement.
    pub(crate) replaced: Vec<String>,
    /// Number of the replaced components that became healthy.
    pub(crate) healthy: usize,
}

impl UpgradeState {
    /// Loads the state; None if no upgrade has begun, or the last one has ended.
    pub(crate) fn load(layout: &Layout) -> Result<Option<Self>> {
        let path = layout.upgrade();
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|cause| Error::Settings { path, cause }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(path)(error)),
        }
    }

    pub(crate) fn save(&self, layout: &Layout) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        files::write_private(&layout.upgrade(), &text)
    }
}

/// Removes the state: the plan has the programs of one release.
pub(crate) fn end_upgrade(layout: &Layout) -> Result<()> {
    files::remove_file(&layout.upgrade())
}

/// Returns whether the plan may have programs of two releases.
pub(crate) fn is_unfinished(layout: &Layout) -> bool {
    layout.upgrade().exists()
}

/// Keeps other commands from changing the cluster. The kernel releases the lock when the process
/// exits.
pub(crate) fn lock_upgrade(layout: &Layout) -> Result<File> {
    files::create_dir(layout.run(), 0o711)?;
    let path = layout.run().join("upgrade.lock");
    let file = File::create(&path).map_err(Error::io(&path))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        Error::Refused(
            "`ironclad upgrade` runs on this machine; wait until it ends, or interrupt it".into(),
        )
    })?;
    Ok(file)
}

/// Rejects a change of the cluster while `ironclad upgrade` runs: each would undo what the other
/// does.
pub(crate) fn reject_running_upgrade(layout: &Layout) -> Result<()> {
    match layout.run().join("upgrade.lock").exists() {
        true => lock_upgrade(layout).map(drop),
        // No upgrade has run since the machine has booted.
        false => Ok(()),
    }
}

/// Rejects a change of the plan as long as it has programs of two releases.
pub(crate) fn reject_unfinished_upgrade(layout: &Layout) -> Result<()> {
    reject_running_upgrade(layout)?;
    match is_unfinished(layout) {
        false => Ok(()),
        true => Err(Error::Refused(
            "an upgrade was interrupted; run the same `ironclad upgrade` again, or `ironclad upgrade --rollback`".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn state_is_kept_until_the_upgrade_ends() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        assert_eq!(UpgradeState::load(&layout).unwrap(), None);
        reject_unfinished_upgrade(&layout).unwrap();
        let state = UpgradeState {
            from: "/old".into(),
            to: "/new".into(),
            before: Plan::default(),
            configs: Vec::new(),
            phase: Phase::Back,
            replaced: vec!["kvstore".into()],
            healthy: 1,
        };
        state.save(&layout).unwrap();
        assert_eq!(UpgradeState::load(&layout).unwrap(), Some(state));
        let error = reject_unfinished_upgrade(&layout).unwrap_err().to_string();
        assert!(error.contains("--rollback"), "{error}");
        end_upgrade(&layout).unwrap();
        assert_eq!(UpgradeState::load(&layout).unwrap(), None);
        reject_unfinished_upgrade(&layout).unwrap();
        std::fs::write(layout.upgrade(), "{").unwrap();
        assert!(UpgradeState::load(&layout).is_err(), "a damaged state");
    }

    #[test]
    fn running_upgrade_excludes_others_until_its_lock_is_released() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        reject_running_upgrade(&layout).unwrap();
        let lock = lock_upgrade(&layout).unwrap();
        for result in [
            reject_running_upgrade(&layout),
            reject_unfinished_upgrade(&layout),
            lock_upgrade(&layout).map(drop),
        ] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("runs on this machine"), "{error}");
        }
        drop(lock);
        reject_running_upgrade(&layout).unwrap();
        lock_upgrade(&layout).unwrap();
    }
}
