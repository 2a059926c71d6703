//! The cgroups of the pods.

use std::fs;
use std::path::{Path, PathBuf};

use crate::node::ClusterNode;

/// Removes the (empty) cgroups of a node's pods in every hierarchy.
pub fn remove_cgroups(node: &ClusterNode) {
    let root = Path::new("/sys/fs/cgroup");
    // In cgroup v1 each controller has a hierarchy below this directory; in v2 it is the only one.
    let hierarchies = fs::read_dir(root).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = hierarchies.map(|entry| entry.path()).collect();
    folders.push(root.to_owned());
    // The machine's own cgroup is the parent of the first node's.
    let own = node.cgroup_root.as_deref().unwrap_or("kubepods");
    folders
        .iter()
        .for_each(|folder| remove_tree(&folder.join(own)));
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
