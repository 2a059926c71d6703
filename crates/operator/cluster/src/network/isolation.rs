//! The namespaces of a node: what a process sees in them that differs from the machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::mount::MsFlags;

use crate::command::run_command;
use crate::configs;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::mounts::{list_outermost, read_mount_points, unmount_below};
use crate::namespaces::{Namespaces, bind, detach, mount_sysfs, set_propagation};
use crate::node::ClusterNode;
use crate::process::Record;
use crate::settings::Settings;
use crate::shims::{end_shims, kill_process};

/// Directories with fixed names in which the runtime and the CNI plugins keep state of a node.
const PRIVATE_FOLDERS: [&str; 2] = ["/run/containerd", "/var/lib/cni"];
/// The components of a node that run in its namespaces.
const COMPONENTS: [&str; 3] = ["containerd", "kubelet", "kube-proxy"];

/// Locks the creation of nodes until the file is closed.
pub(super) fn lock_nodes(layout: &Layout) -> Result<File> {
    crate::files::create_dir(layout.run(), 0o711)?;
    let path = layout.run().join("nodes.lock");
    let file = File::create(&path).map_err(Error::io(&path))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|error| Error::io(&path)(error.into()))?;
    Ok(file)
}

/// Returns the node's namespaces, which are created if they do not exist; None for a node without
/// its own.
pub(super) fn ensure_namespaces(
    settings: &Settings,
    layout: &Layout,
    node: &ClusterNode,
) -> Result<Option<Namespaces>> {
    if !node.is_isolated {
        return Ok(None);
    }
    let namespaces = Namespaces::new(&layout.namespaces(node.number));
    if !namespaces.exist() {
        // Processes in namespaces that nothing pins any longer would be unreachable for ever.
        end_node_processes(layout, node);
        let _ = run_command("ip", &["link", "delete", &node.link(settings)]);
        namespaces.create(|| prepare_mounts(layout, node))?;
    }
    Ok(Some(namespaces))
}

/// Kills the processes of a node: its components, its containers with their shims, and whatever
/// else is in its namespaces.
pub fn end_node_processes(layout: &Layout, node: &ClusterNode) {
    if !node.is_isolated {
        end_shims(&layout.for_node(node.number).containerd_socket());
        return;
    }
    let records = COMPONENTS
        .iter()
        .filter_map(|name| Record::load(&layout.record(&node.process_name(name))))
        .filter(Record::is_alive);
    records.for_each(|record| kill_process(record.pid));
    end_shims(&layout.for_node(node.number).containerd_socket());
    let left = Namespaces::new(&layout.namespaces(node.number)).processes();
    left.into_iter().for_each(kill_process);
}

/// Prepares the mounts of a node; runs in its new namespaces.
fn prepare_mounts(layout: &Layout, node: &ClusterNode) -> Result<()> {
    let root = Path::new("/");
    // Nothing that is mounted for this node may appear on the machine, and the reverse.
    set_propagation(root, MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
    let own = layout.for_node(node.number);
    // Copies of the first node's mounts would keep its volumes and images busy.
    for folder in [
        layout.run().to_owned(),
        layout.data().join("kubelet"),
        layout.data().join("containerd"),
    ] {
        unmount_below(&folder);
    }
    let scratch = own.run().join("sys");
    crate::files::create_dir(&scratch, 0o700)?;
    replace_sysfs(&scratch)?;
    for folder in PRIVATE_FOLDERS.map(Path::new) {
        let private = own
            .run()
            .join("private")
            .join(folder.to_string_lossy().trim_start_matches('/'));
        crate::files::create_dir(&private, 0o711)?;
        crate::files::create_dir(folder, 0o711)?;
        bind(&private, folder, MsFlags::MS_BIND)?;
    }
    // A stub resolver on the machine's loopback address is not reachable from the node.
    let (resolver, usual) = (configs::resolv_conf(), "/etc/resolv.conf");
    if resolver != usual {
        let usual = fs::canonicalize(usual).unwrap_or_else(|_| PathBuf::from(usual));
        bind(Path::new(resolver), &usual, MsFlags::MS_BIND)?;
    }
    // Volumes and images are mounted by the kubelet and the runtime, and must reach containers.
    set_propagation(root, MsFlags::MS_REC | MsFlags::MS_SHARED)?;
    run_command("ip", &["link", "set", "lo", "up"])?;
    tracing::debug!(node = node.name, "namespaces prepared");
    Ok(())
}

/// Replaces `/sys` with one of the node's network namespace. What is mounted below it, such as the
/// cgroups, stays.
fn replace_sysfs(scratch: &Path) -> Result<()> {
    let sys = Path::new("/sys");
    let below = list_outermost(read_mount_points(sys));
    bind(sys, scratch, MsFlags::MS_BIND | MsFlags::MS_REC)?;
    // Lazily: processes of the machine use it, in their own mount namespace.
    detach(sys)?;
    mount_sysfs(sys)?;
    for point in below {
        let Ok(inner) = point.strip_prefix(sys) else {
            continue;
        };
        // A directory of a kernel module's may exist in one network namespace only.
        if point.is_dir() {
            bind(
                &scratch.join(inner),
                &point,
                MsFlags::MS_BIND | MsFlags::MS_REC,
            )?;
        }
    }
    detach(scratch)
}
