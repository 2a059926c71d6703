//! Removes a membership from this machine.

use std::path::Path;

use super::leave::leave_control_plane;
use crate::down::{DownOptions, stop_cluster};
use crate::error::{Error, Result};
use crate::settings::Settings;

/// A machine that was removed from its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedMachine {
    /// The name of its node.
    pub node: String,
    /// The Node object was deleted, too.
    pub is_node_deleted: bool,
}

/// Stops everything that `join` started, and removes its files, mounts, devices, routes and tables. The member
/// of the store on a machine with a shared control plane is removed from the cluster first. Returns None if the
/// machine has joined no cluster.
///
/// # Errors
/// The directory holds a cluster, or files of other programs, or the other members of the store would have no
/// quorum.
pub async fn reset_machine(
    data_dir: &Path,
    report_progress: &dyn Fn(&str),
) -> Result<Option<RemovedMachine>> {
    let settings = Settings::load(data_dir)?;
    if settings
        .as_ref()
        .is_some_and(|settings| settings.membership.is_none() && settings.control_plane.is_none())
    {
        return Err(Error::Refused(format!(
            "{} holds a cluster that `ironclad up` started; `ironclad down --purge` removes it with all its data",
            data_dir.display()
        )));
    }
    if let Some(settings) = &settings {
        check_place(data_dir, settings)?;
    }
    let is_shared = settings
        .as_ref()
        .is_some_and(|found| found.control_plane.is_some());
    let is_node_deleted = match &settings {
        Some(settings) if is_shared => leave_control_plane(settings, report_progress).await?,
        _ => false,
    };
    let options = DownOptions {
        data_dir: data_dir.to_owned(),
        purge: true,
        is_removed: true,
    };
    let stopped = stop_cluster(&options, report_progress).await?;
    Ok(settings.filter(|_| stopped).map(|settings| RemovedMachine {
        node: settings.node_name,
        is_node_deleted,
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
