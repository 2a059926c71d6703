//! Stops a cluster, and with `--purge` removes everything of it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;

use crate::control_plane::StoreMember;
use crate::error::{Error, Result};
use crate::layout::{COMMAND_LOCK, Layout};
use crate::mounts::{read_mount_points, unmount_below};
use crate::plan::{Plan, Process, format_member_url, make_plan};
use crate::process::Running;
use crate::settings::{FILE as SETTINGS, Runtime, Settings};
use crate::store_members::{
    LeavingMember, Member, describe_leaving_member, find_leaving, find_members,
};
use crate::supervisor::is_ready;
use crate::{cgroups, checks, containers, files, network, systemd};

/// Options of `stop_cluster`.
#[derive(Debug, Clone)]
pub struct DownOptions {
    /// Data directory.
    pub data_dir: PathBuf,
    /// Remove the data directory too.
    pub purge: bool,
}

/// Stops the cluster; returns false if there was none. A missing or empty directory is no error,
/// because the cluster is already down; a directory with foreign files is one, because another was
/// probably meant.
pub async fn stop_cluster(options: &DownOptions, report_progress: &dyn Fn(&str)) -> Result<bool> {
    let Some(settings) = Settings::load(&options.data_dir)? else {
        let folder = options.data_dir.display();
        if let Some(name) = checks::find_foreign_file(&options.data_dir)? {
            return Err(Error::Refused(format!(
                "{folder} holds no cluster: {name:?} is in it, and nothing was touched; name the cluster's folder with --data-dir"
            )));
        }
        report_progress(&format!("{folder} holds no cluster; nothing to stop"));
        return Ok(false);
    };
    let layout = Layout::for_settings(&settings);
    if options.purge {
        reject_member(&settings, &layout).await?;
    }
    stop_components(&settings, &layout, report_progress).await?;
    if options.purge {
        purge_data(&settings, report_progress)?;
    }
    Ok(true)
}

/// Stops the components, and removes the containers and everything that is not in the data
/// directory.
pub(crate) async fn stop_components(
    settings: &Settings,
    layout: &Layout,
    report_progress: &dyn Fn(&str),
) -> Result<()> {
    let processes = make_plan(settings, layout).processes;
    let names = list_names(&processes, layout);
    report_progress("stopping the components");
    // First: it would start every process again that ends.
    systemd::stop_supervisor(settings, layout, &names).await?;
    if settings.runs_pods() {
        report_progress("removing the containers");
        for node in settings.nodes() {
            let layout_of_node = layout.for_node(node.number);
            let own = processes
                .iter()
                .find(|process| process.name == node.process_name("containerd"));
            remove_containers(settings, (layout, &layout_of_node), own).await;
            // The shims of another containerd belong to its own cluster.
            if settings.runtime == Runtime::Own {
                network::end_node_processes(layout, &node);
            }
        }
        // After the shims: a mount that a process uses can only be detached lazily.
        unmount_below(layout.run());
        unmount_below(&settings.data_dir);
        // After the containers: CNI needs the bridge to release their addresses.
        network::remove_network(settings)?;
        for node in settings.nodes() {
            cgroups::remove_cgroups(&node);
            let own = layout.for_node(node.number);
            files::remove_dir(&own.cni_state())?;
            if settings.has_network_agent() {
                // Pods of the next start wait until the agent has made the network again.
                files::remove_file(&own.cni_config())?;
            }
        }
    }
    files::remove_dir(layout.run())
}

/// Returns the names of the processes, also of those that the stored plan has alone: an unfinished
/// upgrade may have added components.
fn list_names(processes: &[Process], layout: &Layout) -> Vec<String> {
    // A plan that can't be read is none of this release.
    let stored = Plan::load(layout).unwrap_or_default();
    let mut names: Vec<String> = Vec::new();
    for process in processes.iter().chain(&stored.processes) {
        if !names.contains(&process.name) {
            names.push(process.name.clone());
        }
    }
    names
}

/// Removes the data directory. The settings are the last but the lock: an interrupted removal is
/// continued with them.
pub(crate) fn purge_data(settings: &Settings, report_progress: &dyn Fn(&str)) -> Result<()> {
    let folder = &settings.data_dir;
    report_progress(&format!("removing {}", folder.display()));
    // The kubelet may have been killed before it unmounted the volumes of its pods.
    check_unmounted(folder)?;
    let (settings, lock) = (folder.join(SETTINGS), folder.join(COMMAND_LOCK));
    remove_content(folder, &[&settings, &lock])?;
    files::remove_file(&settings)?;
    // The next command can begin from here on, since nothing of the cluster is left.
    files::remove_file(&lock)?;
    match std::fs::remove_dir(folder) {
        // It has begun.
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(folder)(error)),
        _ => Ok(()),
    }
}

/// Removes what is in a directory but these files.
fn remove_content(folder: &Path, kept: &[&Path]) -> Result<()> {
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = entry.map_err(Error::io(folder))?.path();
        // Of a link to a directory only the link is removed.
        match path.is_dir() && !path.is_symlink() {
            true => files::remove_dir(&path)?,
            false if kept.contains(&path.as_path()) => {}
            false => files::remove_file(&path)?,
        }
    }
    Ok(())
}

/// Rejects the removal of a machine whose store has other members: they would count it for their
/// quorum. The members on other machines are asked, too, since that of this machine may be stopped.
async fn reject_member(settings: &Settings, layout: &Layout) -> Result<()> {
    match &settings.control_plane {
        None => return Ok(()),
        Some(shared) if matches!(shared.member, StoreMember::Removed { .. }) => return Ok(()),
        Some(_) => {}
    }
    // If no store responds, the machine may be what is left of a lost cluster.
    let Ok((list, _)) = find_members(settings, layout).await else {
        return Ok(());
    };
    let members = list.members;
    let peer_url = format_member_url(settings.node_address, settings.ports.store_peer);
    match has_other_members(&members, describe_leaving_member(settings, &peer_url)) {
        false => Ok(()),
        true => Err(Error::Refused(format!(
            "the store has {} members; `ironclad reset` removes that of this machine first, and then everything else here",
            members.len()
        ))),
    }
}

/// Returns whether the member of this machine is one of several.
fn has_other_members(members: &[Member], own: LeavingMember<'_>) -> bool {
    members.len() > 1 && find_leaving(members, own).is_some()
}

/// Removes the containers. The cluster's own containerd was stopped with the rest, so it is started
/// once more to remove its containers in order.
async fn remove_containers(
    settings: &Settings,
    (cluster, node): (&Layout, &Layout),
    own: Option<&Process>,
) {
    let Some(socket) = containers::runtime_socket(settings, node) else {
        return;
    };
    let mut running = match (own, &settings.runtime) {
        // Not by the supervisor, which has ended and would keep it running.
        (Some(process), Runtime::Own) => Running::start(process, cluster, 0, None).ok(),
        _ => None,
    };
    if let Some(process) = own {
        // The socket appears before containerd has recovered its containers; the removal below
        // retries.
        let up = async {
            while !is_ready(&process.ready).await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = timeout(Duration::from_secs(20), up).await;
    }
    let pods = containers::find_own_pods(settings, node);
    let removal = containers::remove_sandboxes(&socket, pods.as_ref());
    // A failure only warns, so that a broken runtime does not keep the rest from being removed.
    match timeout(Duration::from_secs(90), removal).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "containers are left"),
        Err(_) => tracing::warn!("containers are left: the runtime takes too long"),
    }
    if let Some(running) = &mut running {
        running.stop(Duration::from_secs(15)).await;
    }
}

/// Rejects the removal of a directory in which something is still mounted: a sub-path of a pod's
/// volume is a mount of another directory, whose files would be removed.
fn check_unmounted(folder: &Path) -> Result<()> {
    match read_mount_points(folder).first() {
        None => Ok(()),
        Some(point) => Err(Error::Refused(format!(
            "{} is still mounted; unmount it and run the command again",
            point.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    #[test]
    fn component_that_an_unfinished_upgrade_has_added_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let processes = make_plan(&Settings::example_joined(), &layout).processes;
        let expected: Vec<String> = processes.iter().map(|p| p.name.clone()).collect();
        assert_eq!(list_names(&processes, &layout), expected);
        let mut stored = Plan {
            processes: processes.clone(),
        };
        stored.processes[0].name = "added".to_owned();
        fs::write(layout.plan(), serde_json::to_vec(&stored).unwrap()).unwrap();
        let names = list_names(&processes, &layout);
        assert_eq!(names[..expected.len()], expected);
        assert_eq!(names[expected.len()..], ["added"]);
    }

    /// A command that waits for the lock would begin in a directory that is still being removed.
    #[test]
    fn settings_and_lock_are_removed_after_everything_else() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let settings = Settings {
            data_dir: data.clone(),
            ..Settings::example()
        };
        settings.save().unwrap();
        let lock = Layout::new(&data, false).command_lock();
        fs::write(&lock, "").unwrap();
        for name in ["command.lock.d", "store"] {
            fs::create_dir(data.join(name)).unwrap();
            fs::write(data.join(name).join(SETTINGS), "").unwrap();
        }
        std::os::unix::fs::symlink(dir.path(), data.join("link")).unwrap();
        remove_content(&data, &[&data.join(SETTINGS), &lock]).unwrap();
        let entries = fs::read_dir(&data).unwrap();
        let mut left: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["command.lock", SETTINGS]);
        purge_data(&settings, &|_| {}).unwrap();
        assert!(!data.exists());
    }

    #[test]
    fn member_of_several_is_not_purged() {
        let settings = Settings::example_shared();
        let peer_url = format_member_url(settings.node_address, settings.ports.store_peer);
        let own = describe_leaving_member(&settings, &peer_url);
        let member = |id, name: &str, url: &str| Member {
            id,
            name: name.into(),
            peer_urls: vec![url.into()],
            client_urls: Vec::new(),
            is_learner: false,
        };
        let first = member(1, "cp1", "https://192.0.2.2:2380");
        let second = member(2, "cp2", "https://192.0.2.3:2380");
        for (members, expected) in [
            (vec![first.clone(), second.clone()], true),
            (vec![second], false),
            // It was removed, or is not of this cluster.
            (vec![first.clone(), member(3, "cp3", "https://a:1")], false),
        ] {
            assert_eq!(has_other_members(&members, own), expected, "{members:?}");
        }
    }

    #[tokio::test]
    async fn directory_without_a_cluster_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let options = DownOptions {
            data_dir: dir.path().into(),
            purge: true,
        };
        assert!(!stop_cluster(&options, &|_| {}).await.unwrap());
        fs::write(dir.path().join("photos"), "").unwrap();
        let error = stop_cluster(&options, &|_| {}).await.unwrap_err();
        assert!(error.to_string().contains("nothing was touched"), "{error}");
        assert!(dir.path().join("photos").exists());
    }
}
