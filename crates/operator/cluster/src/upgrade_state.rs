//! The state of an upgrade that has begun. Until it has ended, the plan has programs of two
//! releases.
//!
//! Commands that write a plan of a single release remove the state.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config_file::ConfigFile;
use crate::error::{Error, Result};
use crate::files;
use crate::layout::Layout;
use crate::plan::Plan;
use crate::settings::Settings;

/// The format of the file. A release that changes a field, or one of a type within, increments it.
pub(crate) const FORMAT: u64 = 1;

/// The direction of an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    /// Components get the new programs.
    Forward,
    /// Components get the former programs.
    Back,
}

/// An upgrade that has begun. One file, replaced atomically, so that any interruption leaves a
/// complete state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpgradeState {
    /// [`FORMAT`].
    pub(crate) format: u64,
    /// Directory of the former programs.
    pub(crate) from: PathBuf,
    /// Directory of the new programs.
    pub(crate) to: PathBuf,
    /// The plan before the upgrade.
    pub(crate) before: Plan,
    /// The settings before the upgrade.
    pub(crate) settings: Settings,
    /// The configurations before the upgrade that the new release changes.
    pub(crate) configs: Vec<ConfigFile>,
    /// Configurations that only the new release has.
    pub(crate) added: Vec<PathBuf>,
    /// The direction.
    pub(crate) phase: Phase,
    /// Names of the components that may run the new programs, in the order of their replacement.
    pub(crate) replaced: Vec<String>,
    /// Number of the replaced components that became healthy.
    pub(crate) healthy: usize,
}

#[cfg(test)]
impl UpgradeState {
    /// Returns an upgrade that has replaced nothing.
    pub(crate) fn example() -> Self {
        Self {
            format: FORMAT,
            from: "/old".into(),
            to: "/new".into(),
            before: Plan::default(),
            settings: Settings::example(),
            configs: Vec::new(),
            added: Vec::new(),
            phase: Phase::Forward,
            replaced: Vec::new(),
            healthy: 0,
        }
    }
}

impl UpgradeState {
    /// Loads the state; None if no upgrade has begun, or the last one has ended.
    ///
    /// # Errors
    /// The file is damaged, or another release wrote it: what this one does not know would be lost.
    pub(crate) fn load(layout: &Layout) -> Result<Option<Self>> {
        let path = layout.upgrade();
        match std::fs::read(&path) {
            Ok(text) => parse_state(&text, &path).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(path)(error)),
        }
    }

    pub(crate) fn save(&self, layout: &Layout) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        files::write_private(&layout.upgrade(), &text)
    }
}

fn parse_state(text: &[u8], path: &Path) -> Result<UpgradeState> {
    let failed = |cause| Error::Settings {
        path: path.to_owned(),
        cause,
    };
    let tree: Value = serde_json::from_slice(text).map_err(failed)?;
    let foreign = || {
        let remedy = match find_target(&tree) {
            Some(to) => format!("run `{} upgrade --rollback`", to.join("ironclad").display()),
            None => "run the `ironclad` of that release".to_owned(),
        };
        let path = path.display();
        Error::Refused(format!("another release wrote {path}; {remedy}"))
    };
    if tree.get("format").and_then(Value::as_u64) != Some(FORMAT) {
        return Err(foreign());
    }
    let state: UpgradeState = UpgradeState::deserialize(&tree).map_err(failed)?;
    // Also a field of a process in the plan: the attribute for unknown fields covers one level.
    match serde_json::to_value(&state) {
        Ok(known) if known == tree => Ok(state),
        _ => Err(foreign()),
    }
}

fn find_target(tree: &Value) -> Option<PathBuf> {
    tree.get("to").and_then(Value::as_str).map(PathBuf::from)
}

/// Returns the directory of the new programs, also from a state of another release.
pub(crate) fn read_target(layout: &Layout) -> Option<PathBuf> {
    let text = std::fs::read(layout.upgrade()).ok()?;
    find_target(&serde_json::from_slice(&text).ok()?)
}

/// Removes the state: the plan has the programs of one release.
pub(crate) fn end_upgrade(layout: &Layout) -> Result<()> {
    files::remove_file(&layout.upgrade())
}

/// Returns whether the plan may have programs of two releases.
pub(crate) fn is_unfinished(layout: &Layout) -> bool {
    layout.upgrade().exists()
}

/// Rejects a change of the plan as long as it has programs of two releases.
pub(crate) fn reject_unfinished_upgrade(layout: &Layout) -> Result<()> {
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
            phase: Phase::Back,
            replaced: vec!["kvstore".into()],
            healthy: 1,
            ..UpgradeState::example()
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
    fn state_of_another_release_is_refused_with_the_program_that_knows_it() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let state = UpgradeState {
            before: crate::plan::make_plan(&Settings::example(), &layout),
            ..UpgradeState::example()
        };
        let tree = serde_json::to_value(&state).unwrap();
        for (pointer, key, value, is_known) in [
            ("", "format", serde_json::json!(FORMAT), true),
            ("", "format", serde_json::json!(FORMAT + 1), false),
            ("", "format", Value::Null, false),
            ("", "other", serde_json::json!(1), false),
            ("/settings", "other", serde_json::json!(1), false),
            ("/before/processes/0", "other", serde_json::json!(1), false),
        ] {
            let mut changed = tree.clone();
            changed.pointer_mut(pointer).unwrap()[key] = value;
            std::fs::write(layout.upgrade(), changed.to_string()).unwrap();
            assert_eq!(read_target(&layout), Some("/new".into()));
            match UpgradeState::load(&layout) {
                Ok(found) => assert!(
                    is_known && found.as_ref() == Some(&state),
                    "{pointer} {key}"
                ),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!is_known, "{error}");
                    assert!(
                        error.contains("/new/ironclad upgrade --rollback"),
                        "{error}"
                    );
                }
            }
        }
    }
}
