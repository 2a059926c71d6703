//! The configurations of the components before and after an upgrade. Other files are not among
//! them: certificates and kubeconfigs are renewed, and an older one may have expired; lists and
//! markers are no part of a release.

use operator_pki::Renewal;

use super::steps::Step;
use crate::cluster_files::{self, make_configs};
use crate::config_file::{ConfigFile, write_configs};
use crate::error::{Error, Result};
use crate::join::{make_worker_configs, write_worker_credentials};
use crate::layout::Layout;
use crate::settings::Settings;
use crate::upgrade_state::UpgradeState;

/// The configurations of the new release, which are written at the steps of their components.
pub(super) struct NewConfigs {
    files: Vec<ConfigFile>,
}

/// Writes missing and due certificates, and the kubeconfigs.
pub(super) fn write_credentials(settings: &Settings, layout: &Layout) -> Result<()> {
    match settings.membership {
        None => cluster_files::write_credentials(settings, layout, Renewal::Due).map(drop),
        Some(_) => write_worker_credentials(settings, layout),
    }
}

impl NewConfigs {
    /// Returns the configurations of all nodes of this machine. Writes nothing.
    pub(super) fn new(settings: &Settings, layout: &Layout) -> Result<Self> {
        let files = match settings.membership {
            None => make_configs(settings, layout),
            Some(_) => make_worker_configs(settings, layout)?,
        };
        Ok(Self { files })
    }

    /// Returns the files.
    pub(super) fn files(&self) -> &[ConfigFile] {
        &self.files
    }

    /// Writes the files of the component of a step. One that crashes before its step starts with
    /// the former files and the former program.
    pub(super) fn write_inputs(&self, step: &Step) -> Result<()> {
        let inputs = step.after.as_ref().map(|process| &process.inputs);
        let is_input =
            |file: &&ConfigFile| inputs.is_some_and(|inputs| inputs.contains(&file.path));
        write_configs(self.files.iter().filter(is_input))
    }

    /// Writes all files.
    pub(super) fn write_all(&self) -> Result<()> {
        write_configs(&self.files)
    }
}

impl UpgradeState {
    /// Records what a rollback restores and removes, before the files are written: the former
    /// content of each, and those that do not exist. Other files may be an administrator's.
    ///
    /// # Errors
    /// A file can't be read, or is no text, so a rollback could not restore it.
    pub(super) fn note_configs(&mut self, new: &NewConfigs) -> Result<()> {
        for ConfigFile { path, .. } in &new.files {
            let is_noted = self.configs.iter().any(|file| file.path == *path);
            if is_noted || self.added.contains(path) {
                continue;
            }
            match std::fs::read_to_string(path) {
                Ok(content) => self.configs.push(ConfigFile {
                    path: path.clone(),
                    content,
                }),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    self.added.push(path.clone());
                }
                Err(error) => return Err(Error::io(path)(error)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::plan::{Plan, make_plan};
    use crate::settings::Runtime;
    use crate::upgrade::steps::order_steps;

    fn simulated(data_dir: &Path, nodes: u8) -> (Settings, Layout) {
        let settings = Settings {
            data_dir: data_dir.into(),
            runtime: Runtime::Simulated,
            ..Settings::with_nodes(nodes)
        };
        (settings, Layout::new(data_dir, false))
    }

    fn read(path: &Path) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }

    /// A command that was killed leaves a state that names each file that it may have written.
    #[test]
    fn files_of_a_release_are_noted_before_they_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let (settings, layout) = simulated(dir.path(), 2);
        let (first, second) = [1, 2]
            .map(|node| layout.for_node(node).config("kubelet.yaml"))
            .into();
        let added = ["authentication.yaml", "audit-policy.yaml"].map(|name| layout.config(name));
        let foreign = layout.config("a.yaml");
        write_credentials(&settings, &layout).unwrap();
        for path in [&first, &second, &foreign] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "former").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let new = NewConfigs::new(&settings, &layout).unwrap();
        let mut state = UpgradeState::example();
        state.note_configs(&new).unwrap();
        assert_eq!(state.added, added);
        let noted: Vec<_> = state.configs.iter().map(|file| &file.path).collect();
        assert_eq!(noted, [&first, &second], "no file of others, no kubeconfig");
        assert_eq!(
            (read(&first).as_deref(), read(&added[0])),
            (Some("former"), None)
        );
        new.write_all().unwrap();
        assert!(read(&second).is_some_and(|text| text != "former"));
        assert!(added.iter().all(|path| path.exists()));
        let before = state.clone();
        state.note_configs(&new).unwrap();
        assert_eq!(state, before, "the repeated command");
        std::fs::write(&foreign, "changed meanwhile").unwrap();
        write_configs(&state.configs).unwrap();
        assert_eq!(read(&foreign).as_deref(), Some("changed meanwhile"));
        for path in [&first, &second] {
            let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((read(path).as_deref(), mode), (Some("former"), 0o600));
        }
        std::fs::write(layout.config("authentication.yaml"), [0xff]).unwrap();
        assert!(
            UpgradeState::example().note_configs(&new).is_err(),
            "no text"
        );
    }

    /// One that crashes before its turn starts the former program again.
    #[test]
    fn component_has_its_former_configuration_until_its_step() {
        let dir = tempfile::tempdir().unwrap();
        let (settings, layout) = simulated(dir.path(), 1);
        write_credentials(&settings, &layout).unwrap();
        let (config, added) = (
            layout.config("kubelet.yaml"),
            layout.config("authentication.yaml"),
        );
        std::fs::write(&config, "former").unwrap();
        let new = NewConfigs::new(&settings, &layout).unwrap();
        let plan = |bin_dir: &str, pending: &[ConfigFile]| {
            let settings = Settings {
                bin_dir: bin_dir.into(),
                ..settings.clone()
            };
            let mut plan: Plan = make_plan(&settings, &layout);
            plan.set_future_stamps(pending);
            plan
        };
        let (before, after) = (plan("/old", &[]), plan("/new", new.files()));
        let steps = order_steps(&before, &after, &before);
        for step in &steps {
            let find = || (read(&config).as_deref() == Some("former"), added.exists());
            let found = find();
            new.write_inputs(step).unwrap();
            let expected = match step.name.as_str() {
                "kvstore" => [(true, false), (true, false)],
                "kube-apiserver" => [(true, false), (true, true)],
                "kubelet" => [(true, true), (false, true)],
                "cluster-dns" => [(false, true), (false, true)],
                _ => [(true, true), (true, true)],
            };
            assert_eq!([found, find()], expected, "{}", step.name);
        }
        new.write_all().unwrap();
        assert_eq!(
            plan("/new", &[]),
            after,
            "the stamps are those of the files"
        );
    }
}
