//! Removes a membership from this machine.

use std::path::Path;

use super::leave::{NodeObject, delete_objects, leave_store};
use crate::down::{DownOptions, purge_data, stop_cluster, stop_components};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::settings::Settings;

/// A machine that was removed from its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedMachine {
    /// The name of its node.
    pub node: String,
    /// Its Node object.
    pub object: NodeObject,
}

/// Stops everything that `join` started, and removes its files, mounts, devices, routes and tables.
/// The member of the store on a machine with a shared control plane is removed from the cluster
/// first. Returns None if the machine has joined no cluster.
///
/// If it is interrupted, it continues when it is repeated: the settings have what is done, and are
/// removed last.
///
/// # Errors
/// The directory holds a cluster, or files of other programs, or the other members of the store
/// would have no quorum.
pub async fn reset_machine(
    data_dir: &Path,
    report_progress: &dyn Fn(&str),
) -> Result<Option<RemovedMachine>> {
    let Some(mut settings) = Settings::load(data_dir)? else {
        let options = DownOptions {
            data_dir: data_dir.to_owned(),
            purge: true,
        };
        // Without settings there is nothing to stop; this rejects a directory with files of others.
        stop_cluster(&options, report_progress).await?;
        return Ok(None);
    };
    if settings.membership.is_none() && settings.control_plane.is_none() {
        return Err(Error::Refused(format!(
            "{} holds a cluster that `ironclad up` started; `ironclad down --purge` removes it with all its data",
            data_dir.display()
        )));
    }
    check_place(data_dir, &settings)?;
    leave_store(&mut settings, report_progress).await?;
    let layout = Layout::for_settings(&settings);
    stop_components(&settings, &layout, report_progress).await?;
    let object = delete_objects(&settings, &layout, report_progress).await;
    purge_data(&settings, report_progress)?;
    Ok(Some(RemovedMachine {
        node: settings.node_name,
        object,
    }))
}

/// Rejects a copy of a data directory: its settings name the original, which would be removed.
fn check_place(data_dir: &Path, settings: &Settings) -> Result<()> {
    let real = |path: &Path| path.canonicalize().map_err(Error::io(path));
    if real(data_dir)? == real(&settings.data_dir)? {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "{} is a copy of {}, and nothing was touched; name the original with --data-dir, or remove the copy by hand",
        data_dir.display(),
        settings.data_dir.display()
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::control_plane::StoreMember;
    use crate::settings::Runtime;

    #[tokio::test]
    async fn directory_of_a_cluster_or_of_others_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(reset_machine(dir.path(), &|_| {}).await.unwrap(), None);
        std::fs::write(dir.path().join("photos"), "").unwrap();
        let error = reset_machine(dir.path(), &|_| {}).await.unwrap_err();
        assert!(error.to_string().contains("nothing was touched"), "{error}");
        let cluster = tempfile::tempdir().unwrap();
        let settings = Settings {
            data_dir: cluster.path().into(),
            ..Settings::example()
        };
        settings.save().unwrap();
        let error = reset_machine(cluster.path(), &|_| {}).await.unwrap_err();
        assert!(error.to_string().contains("down --purge"), "{error}");
        assert!(cluster.path().join("settings.json").exists());
    }

    /// Its disk could not be unmounted, for example: the store does not list it any more, and is
    /// not asked again.
    #[tokio::test]
    async fn first_machine_whose_member_was_removed_is_reset_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let mut settings = Settings {
            data_dir: path.clone(),
            runtime: Runtime::Simulated,
            ..Settings::example_shared()
        };
        let shared = settings.control_plane.as_mut().unwrap();
        shared.joined = None;
        std::fs::create_dir_all(path.join("store")).unwrap();
        // No store responds.
        settings.save().unwrap();
        let error = reset_machine(&path, &|_| {}).await.unwrap_err().to_string();
        assert!(
            error.contains("apiserver-etcd-client") || error.contains("etcd/ca.crt"),
            "{error}"
        );
        assert!(path.join("store").exists());
        let shared = settings.control_plane.as_mut().unwrap();
        shared.member = StoreMember::Removed {
            servers: Vec::new(),
        };
        settings.save().unwrap();
        let removed = reset_machine(&path, &|_| {}).await.unwrap().unwrap();
        assert_eq!(removed.node, settings.node_name);
        assert_eq!(removed.object, NodeObject::Absent);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn copy_of_a_directory_does_not_remove_the_original() {
        let (original, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let settings = Settings {
            data_dir: original.path().into(),
            ..Settings::example_joined()
        };
        settings.save().unwrap();
        let file = "settings.json";
        std::fs::copy(original.path().join(file), copy.path().join(file)).unwrap();
        let error = reset_machine(copy.path(), &|_| {}).await.unwrap_err();
        assert!(error.to_string().contains("is a copy of"), "{error}");
        assert!(original.path().join(file).exists() && copy.path().join(file).exists());
    }
}
