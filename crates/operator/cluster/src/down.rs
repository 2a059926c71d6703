//! Stops a cluster, and with `--purge` removes everything of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;

use crate::command::run_command;
use crate::containers;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::plan::{Process, make_plan};
use crate::process::Running;
use crate::settings::{Runtime, Settings};
use crate::supervisor::is_ready;
use crate::{checks, files, network, systemd};

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
pub async fn stop_cluster(options: &DownOptions, say: &dyn Fn(&str)) -> Result<bool> {
    let Some(settings) = Settings::load(&options.data_dir)? else {
        let folder = options.data_dir.display();
        if let Some(name) = checks::find_foreign_file(&options.data_dir)? {
            return Err(Error::Refused(format!(
                "{folder} holds no cluster: {name:?} is in it, and nothing was touched; name the cluster's folder with --data-dir"
            )));
        }
        say(&format!("{folder} holds no cluster; nothing to stop"));
        return Ok(false);
    };
    let layout = Layout::for_settings(&settings);
    let processes = make_plan(&settings, &layout).processes;
    let names: Vec<String> = processes
        .iter()
        .map(|process| process.name.clone())
        .collect();
    say("stopping the components");
    // First: it would start every process again that ends.
    systemd::stop_supervisor(&settings, &layout, &names).await?;
    if settings.runs_pods() {
        say("removing the containers");
        remove_containers(&settings, &layout, &processes).await;
        // The shims of another containerd belong to its own cluster.
        if settings.runtime == Runtime::Own {
            end_shims(&layout.containerd_socket());
        }
        // After the shims: a mount that a process uses can only be detached lazily.
        unmount_below(layout.run());
        unmount_below(&settings.data_dir);
        // After the containers: CNI needs the bridge to release their addresses.
        network::remove_network(&settings)?;
        remove_cgroups();
        files::remove_dir(&layout.cni_state())?;
    }
    files::remove_dir(layout.run())?;
    if options.purge {
        say(&format!("removing {}", settings.data_dir.display()));
        // The kubelet may have been killed before it unmounted the volumes of its pods.
        check_unmounted(&settings.data_dir)?;
        files::remove_dir(&settings.data_dir)?;
    }
    Ok(true)
}

/// Removes the containers. The cluster's own containerd was stopped with the rest, so it is started
/// once more to remove its containers in order.
async fn remove_containers(settings: &Settings, layout: &Layout, processes: &[Process]) {
    let Some(socket) = containers::runtime_socket(settings, layout) else {
        return;
    };
    let own = processes
        .iter()
        .find(|process| process.name == "containerd");
    let mut running = match (own, &settings.runtime) {
        (Some(process), Runtime::Own) => Running::start(process, layout, 0).ok(),
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
    match timeout(Duration::from_secs(90), containers::remove_all(&socket)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "containers are left"),
        Err(_) => tracing::warn!("containers are left: the runtime takes too long"),
    }
    if let Some(running) = &mut running {
        running.stop(Duration::from_secs(15)).await;
    }
}

/// Kills shims that the cluster's containerd started but no longer knows: a sandbox that was
/// interrupted during its creation has a shim and no entry. The shim's command line names the
/// socket of this cluster's containerd.
fn end_shims(socket: &Path) {
    let socket = socket.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        // The program first, so that an editor with the socket in its arguments is not killed.
        let shim = words
            .next()
            .is_some_and(|program| program.ends_with(b"/containerd-shim-runc-v2"));
        if shim && words.any(|word| word == socket) {
            end_tree(pid);
        }
    }
}

/// Kills a shim and its children, the containers' first processes.
fn end_tree(pid: i32) {
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|word| word.parse().ok());
    for pid in std::iter::once(pid)
        .chain(children)
        .filter_map(rustix::process::Pid::from_raw)
    {
        // The process may have ended since the list was read.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Unmounts everything below a directory, innermost first.
fn unmount_below(folder: &Path) {
    for point in read_mount_points(folder) {
        if run_command("umount", &[&point.to_string_lossy()]).is_err() {
            let _ = run_command("umount", &["--lazy", &point.to_string_lossy()]);
        }
    }
}

fn read_mount_points(folder: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    list_mount_points(&table, folder)
}

/// Returns the mount points of a mount table below `folder`, innermost first. The kernel escapes
/// blanks and backslashes of paths as octal.
fn list_mount_points(table: &str, folder: &Path) -> Vec<PathBuf> {
    let unescape = |text: &str| {
        let plain = text.replace("\\040", " ").replace("\\011", "\t");
        PathBuf::from(plain.replace("\\012", "\n").replace("\\134", "\\"))
    };
    let points = table.lines().filter_map(|line| line.split(' ').nth(1));
    let points = points.map(unescape).filter(|p| p.starts_with(folder));
    let mut points: Vec<PathBuf> = points.collect();
    // A later mount may cover an earlier one.
    points.reverse();
    points
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

/// Removes the (empty) cgroups of pods in every hierarchy.
fn remove_cgroups() {
    let root = Path::new("/sys/fs/cgroup");
    let mut folders = vec![root.join("kubepods")];
    folders.extend(
        fs::read_dir(root)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path().join("kubepods")),
    );
    for folder in folders {
        remove_tree(&folder);
    }
}

/// Removes a cgroup and its children, deepest first. Only directories are removed: the kernel owns
/// the files.
fn remove_tree(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A mount that is not found here stays, and its files would be removed with the directory.
    #[test]
    fn mount_points_below_a_directory_with_blanks_are_found() {
        let table = "tmpfs /run tmpfs rw 0 0\n\
                     /dev/sda1 /srv/my\\040data/pods/u/volume\\134x ext4 rw 0 0\n\
                     tmpfs /srv/my\\040data/pods/u/volume\\134x/inner tmpfs rw 0 0\n\
                     tmpfs /srv/my\\040database tmpfs rw 0 0\n";
        let found = list_mount_points(table, Path::new("/srv/my data"));
        let expected = [
            "/srv/my data/pods/u/volume\\x/inner",
            "/srv/my data/pods/u/volume\\x",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
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
