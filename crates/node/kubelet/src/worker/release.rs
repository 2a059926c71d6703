//! Releases what a pod holds on the node.

use crate::context::KubeletContext;
use crate::volumes::pod_dir;
use node_volumes::{Mounter, VolumeError};
use std::path::Path;

/// Unmounts and removes a pod's files and its cgroup.
pub(crate) fn release_resources(kubelet: &KubeletContext, uid: &str) {
    base_task::assert_may_block();
    if let Err(e) = remove_files(kubelet.settings.mounter, &pod_dir(kubelet, uid)) {
        tracing::warn!(pod = uid, error = %e, "the pod's files can't be removed");
    }
    kubelet.cgroups.remove_pod_cgroup(uid);
}

/// Removes a pod's directory; fails while anything is still mounted there, because it may hold user
/// data.
pub(crate) fn remove_files(mounter: Mounter, dir: &Path) -> Result<(), VolumeError> {
    if !dir.exists() {
        return Ok(());
    }
    // An error keeps the directory: removing it would remove the files of what is still mounted.
    mounter.unmount_beneath(dir)?;
    std::fs::remove_dir_all(dir).map_err(|source| VolumeError::Io {
        action: "remove",
        path: dir.to_owned(),
        source,
    })
}
