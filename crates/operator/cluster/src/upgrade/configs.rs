//! The configurations of the components before and after an upgrade. Other files are not among
//! them: certificates and kubeconfigs are renewed, and an older one may have expired; lists and
//! markers are no part of a release.

use std::path::{Path, PathBuf};

use operator_pki::Renewal;

use crate::cluster_files::write_files;
use crate::error::Result;
use crate::files;
use crate::join::write_worker_files;
use crate::layout::Layout;
use crate::settings::Settings;
use crate::upgrade_state::SavedFile;

/// Reads the configurations of all nodes of this machine.
pub(super) fn read_configs(settings: &Settings, layout: &Layout) -> Vec<SavedFile> {
    let mut saved = Vec::new();
    for node in settings.nodes() {
        let layout = layout.for_node(node.number);
        let mut paths = list_files(&layout.data().join("config"));
        paths.push(layout.cni_config());
        for path in paths {
            // A file that can't be read as text is none that this program writes.
            if let Ok(content) = std::fs::read_to_string(&path) {
                saved.push(SavedFile { path, content });
            }
        }
    }
    saved
}

fn list_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml" || e == "toml"))
        .collect();
    paths.sort();
    paths
}

/// Writes the configurations of this release.
pub(super) fn write_configs(settings: &Settings, layout: &Layout) -> Result<()> {
    match settings.membership {
        None => write_files(settings, layout, Renewal::Due).map(drop),
        Some(_) => write_worker_files(settings, layout),
    }
}

/// Writes the configurations that were read before. Files of the newer release remain; nothing
/// reads them.
pub(super) fn restore_configs(saved: &[SavedFile]) -> Result<()> {
    for file in saved {
        files::write_if_changed(&file.path, file.content.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::Runtime;

    #[test]
    fn configurations_are_restored_and_kubeconfigs_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            data_dir: dir.path().into(),
            runtime: Runtime::Simulated,
            ..Settings::with_nodes(2)
        };
        let layout = Layout::new(dir.path(), false);
        write_configs(&settings, &layout).unwrap();
        let saved = read_configs(&settings, &layout);
        let second = layout.for_node(2).config("kubelet.yaml");
        let kubeconfig = layout.kubeconfig("scheduler");
        let original = std::fs::read_to_string(&second).unwrap();
        assert!(saved.iter().any(|file| file.path == second));
        assert!(
            saved
                .iter()
                .all(|file| !file.content.contains("PRIVATE KEY"))
        );
        for path in [&second, &kubeconfig] {
            std::fs::write(path, "changed").unwrap();
        }
        restore_configs(&saved).unwrap();
        assert_eq!(std::fs::read_to_string(&second).unwrap(), original);
        assert_eq!(std::fs::read_to_string(&kubeconfig).unwrap(), "changed");
    }
}
