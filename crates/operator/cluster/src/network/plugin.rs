//! The directory with the cluster's own plugins, from which containerd starts them.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::settings::Settings;

/// The program, which is both plugins. containerd before 2.0 needs the second one.
const PROGRAM: &str = "ironclad-cni";
const PLUGINS: [&str; 2] = [PROGRAM, "loopback"];

/// Returns the program of the cluster's own plugin; None if the pod network has another one.
#[must_use]
pub fn plugin_program(settings: &Settings) -> Option<PathBuf> {
    settings
        .has_network_agent()
        .then(|| settings.bin_dir.join(PROGRAM))
}

/// Links the plugins of all nodes to the program in the directory of the binaries.
pub fn link_plugins(settings: &Settings, layout: &Layout) -> Result<()> {
    let Some(program) = plugin_program(settings) else {
        return Ok(());
    };
    for node in settings.nodes() {
        let folder = layout.for_node(node.number).cni_bin();
        crate::files::create_dir(&folder, 0o755)?;
        for name in PLUGINS {
            let link = folder.join(name);
            if fs::read_link(&link).is_ok_and(|present| present == program) {
                continue;
            }
            // Renamed: a pod that starts meanwhile finds the old one or the new one.
            let temporary = folder.join(format!(".{name}.new"));
            match fs::remove_file(&temporary) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::io(&temporary)(error));
                }
                _ => {}
            }
            symlink(&program, &temporary).map_err(Error::io(&temporary))?;
            fs::rename(&temporary, &link).map_err(Error::io(&link))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cni_plugin::CniPlugin;

    #[test]
    fn plugins_follow_the_directory_of_the_binaries() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        for bin_dir in ["/a", "/b", "/b"] {
            let settings = Settings {
                cni: CniPlugin::Ironclad,
                bin_dir: bin_dir.into(),
                ..Settings::example()
            };
            link_plugins(&settings, &layout).unwrap();
            for name in PLUGINS {
                let target = fs::read_link(layout.cni_bin().join(name)).unwrap();
                assert_eq!(target, settings.bin_dir.join(PROGRAM));
            }
        }
        let other = tempfile::tempdir().unwrap();
        let layout = Layout::new(other.path(), false);
        link_plugins(&Settings::example(), &layout).unwrap();
        assert!(!layout.cni_bin().exists());
    }
}
