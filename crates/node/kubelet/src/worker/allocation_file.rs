//! The file with a pod's allocation, in the pod's directory: a kubelet that restarts must not take
//! the resources of a spec that was changed meanwhile for allocated.

use crate::context::KubeletContext;
use crate::pod::allocation::Allocation;
use crate::volumes::pod_dir;
use std::io;
use std::path::PathBuf;

fn locate_file(kubelet: &KubeletContext, uid: &str) -> PathBuf {
    pod_dir(kubelet, uid).join("allocated_resources.json")
}

/// Reads the allocation of a pod that an earlier kubelet admitted; None if it has none.
pub(super) fn read_allocation(kubelet: &KubeletContext, uid: &str) -> Option<Allocation> {
    base_task::assert_may_block();
    let path = locate_file(kubelet, uid);
    let read = std::fs::read(&path)
        .and_then(|text| serde_json::from_slice(&text).map_err(io::Error::other));
    match read {
        Ok(allocation) => Some(allocation),
        // A kubelet of an earlier release has written none.
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => {
            tracing::warn!(path = %path.display(), error = %e, "the pod's allocation can't be read; taking the resources of its spec");
            None
        }
    }
}

/// Writes the allocation of a pod, on disk before this returns.
///
/// # Errors
/// The disk fails; the old allocation remains.
pub(super) fn write_allocation(
    kubelet: &KubeletContext,
    uid: &str,
    allocation: &Allocation,
) -> io::Result<()> {
    base_task::assert_may_block();
    let text = serde_json::to_vec(allocation).map_err(io::Error::other)?;
    std::fs::create_dir_all(pod_dir(kubelet, uid))?;
    node_devices::replace_file(&locate_file(kubelet, uid), &text)
}
