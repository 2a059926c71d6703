//! The configurations of the components before and after an upgrade. Other files are not among
//! them: certificates and kubeconfigs are renewed, and an older one may have expired; lists and
//! markers are no part of a release.

use std::path::{Path, PathBuf};

use operator_pki::Renewal;

use super::steps::Step;
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
    for path in list_configs(settings, layout) {
        // A file that can't be read as text is none that this program writes.
        if let Ok(content) = std::fs::read_to_string(&path) {
            saved.push(SavedFile { path, content });
        }
    }
    saved
}

/// Lists the configurations of all nodes. Containerd reads the first file of the directory for
/// CNI by name, so a file that only one release has matters there.
fn list_configs(settings: &Settings, layout: &Layout) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for node in settings.nodes() {
        let layout = layout.for_node(node.number);
        paths.extend(list_files(&layout.data().join("config"), &["yaml", "toml"]));
        paths.extend(list_files(
            &layout.cni_conf(),
            &["conf", "conflist", "json"],
        ));
    }
    paths
}

fn list_files(directory: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .filter(|path| {
            path.extension()
                .is_some_and(|e| endings.iter().any(|end| e == *end))
        })
        .collect();
    paths.sort();
    paths
}

/// The configurations of the new release.
pub(super) struct NewConfigs {
    files: Vec<SavedFile>,
    /// Files that did not exist before.
    pub(super) added: Vec<PathBuf>,
}

/// Writes the configurations of this release, and returns them. Missing and due certificates are
/// written as well.
pub(super) fn write_new_configs(settings: &Settings, layout: &Layout) -> Result<NewConfigs> {
    let present = list_configs(settings, layout);
    match settings.membership {
        None => write_files(settings, layout, Renewal::Due).map(drop)?,
        Some(_) => write_worker_files(settings, layout)?,
    }
    let files = read_configs(settings, layout);
    let paths = files.iter().map(|file| &file.path);
    let added = paths.filter(|path| !present.contains(path)).cloned();
    Ok(NewConfigs {
        added: added.collect(),
        files,
    })
}

impl NewConfigs {
    /// Restores the former files of components that are not replaced yet: one that ends by itself
    /// starts again with the former program.
    pub(super) fn hold_back(&self, saved: &[SavedFile], open: &[Step]) -> Result<()> {
        let former = open.iter().filter_map(|step| step.before.as_ref());
        let inputs: Vec<&PathBuf> = former.flat_map(|process| &process.inputs).collect();
        restore(saved.iter().filter(|file| inputs.contains(&&file.path)))
    }

    /// Writes the new files of the component of a step.
    pub(super) fn write_inputs(&self, step: &Step) -> Result<()> {
        let inputs = step.after.as_ref().map(|process| &process.inputs);
        let is_input = |file: &&SavedFile| inputs.is_some_and(|inputs| inputs.contains(&file.path));
        restore(self.files.iter().filter(is_input))
    }

    /// Writes all new files.
    pub(super) fn write_all(&self) -> Result<()> {
        restore(&self.files)
    }
}

/// Writes the configurations that were read before.
pub(super) fn restore_configs(saved: &[SavedFile]) -> Result<()> {
    restore(saved)
}

fn restore<'a>(files: impl IntoIterator<Item = &'a SavedFile>) -> Result<()> {
    for file in files {
        files::write_if_changed(&file.path, file.content.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::plan::make_plan;
    use crate::settings::Runtime;
    use crate::upgrade::steps::order_steps;

    #[test]
    fn configurations_are_restored_and_kubeconfigs_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            data_dir: dir.path().into(),
            runtime: Runtime::Simulated,
            ..Settings::with_nodes(2)
        };
        let layout = Layout::new(dir.path(), false);
        write_new_configs(&settings, &layout).unwrap();
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

    /// One that crashes before its turn starts the former program again.
    #[test]
    fn component_has_its_former_configuration_until_its_step() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            data_dir: dir.path().into(),
            runtime: Runtime::Simulated,
            ..Settings::example()
        };
        let layout = Layout::new(dir.path(), false);
        let first = write_new_configs(&settings, &layout).unwrap();
        let config = layout.config("kubelet.yaml");
        assert!(first.added.contains(&config));
        let new = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, "former").unwrap();
        let saved = read_configs(&settings, &layout);
        let configs = write_new_configs(&settings, &layout).unwrap();
        assert_eq!(configs.added, [] as [PathBuf; 0]);
        let plan = |bin_dir: &str| {
            let bin_dir = bin_dir.into();
            make_plan(
                &Settings {
                    bin_dir,
                    ..settings.clone()
                },
                &layout,
            )
        };
        let (before, after) = (plan("/old"), plan("/new"));
        let steps = order_steps(&before, &after, &before);
        configs.hold_back(&saved, &steps).unwrap();
        for step in &steps {
            let is_former = std::fs::read_to_string(&config).unwrap() == "former";
            configs.write_inputs(step).unwrap();
            let is_new = std::fs::read_to_string(&config).unwrap() == new;
            match step.name.as_str() {
                "kubelet" => assert!(is_former && is_new),
                _ => assert!(is_former != is_new, "{}", step.name),
            }
        }
        configs.write_all().unwrap();
        assert_eq!(std::fs::read_to_string(&config).unwrap(), new);
    }
}
