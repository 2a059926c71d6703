//! Static pods: manifests in a directory, watched with inotify.
//!
//! A pod's uid is a hash of node, file and content, so that a restarted kubelet finds its own
//! containers, and a changed manifest is a new pod.

use super::{apply_pod, manifest, mirror, remove_pod};
use crate::context::KubeletContext;
use k8s_openapi::api::core::v1::Pod;
use node_runtime::FolderWatch;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Follows the directory until shutdown.
pub(crate) async fn follow_manifests(kubelet: Arc<KubeletContext>, folder: PathBuf) {
    // The uid is a hash of the content, so a changed file is a removed and an added pod.
    let mut known: BTreeMap<String, Arc<Pod>> = BTreeMap::new();
    let mut watch = base_task::blocking(|| watch_folder(&folder));
    loop {
        reconcile_folder(&kubelet, &folder, &mut known);
        tokio::select! {
            () = kubelet.tasks.shutdown().cancelled() => return,
            () = wait_for_change(&mut watch) => {}
            // A changed manifest waits until its predecessor is cleaned up.
            () = kubelet.static_pod_removed.notified() => {}
        }
    }
}

fn watch_folder(folder: &Path) -> Option<FolderWatch> {
    let made = std::fs::create_dir_all(folder).and_then(|()| FolderWatch::new(folder));
    if let Err(e) = &made {
        tracing::warn!(folder = %folder.display(), error = %e, "changes of static pods' manifests are not noticed");
    }
    made.ok()
}

async fn wait_for_change(watch: &mut Option<FolderWatch>) {
    let Some(watch) = watch else {
        return std::future::pending().await;
    };
    watch.changed().await;
    // Batches changes: writers often touch several files, or one several times.
    tokio::time::sleep(Duration::from_millis(50)).await;
}

fn reconcile_folder(
    kubelet: &Arc<KubeletContext>,
    folder: &Path,
    known: &mut BTreeMap<String, Arc<Pod>>,
) {
    let found = base_task::blocking(|| read_folder(kubelet, folder));
    let old: Vec<String> = known
        .keys()
        .filter(|uid| !found.contains_key(*uid))
        .cloned()
        .collect();
    for uid in old {
        if let Some(pod) = known.remove(&uid) {
            remove_pod(kubelet, &pod);
            mirror::delete_mirror_of(kubelet, &pod);
        }
    }
    for (uid, pod) in found {
        // Two pods of one name would use the same host ports and host paths at the same time.
        if !known.contains_key(&uid) && kubelet.workers.has_namesake(&pod) {
            tracing::info!(
                pod = crate::pod::spec::full_name(&pod),
                "waiting for the pod of the earlier manifest to terminate"
            );
            continue;
        }
        if known.insert(uid, pod.clone()).is_none() {
            apply_pod(kubelet, pod.clone(), true);
            mirror::ensure_mirror(kubelet, &pod);
        }
    }
}

fn read_folder(kubelet: &KubeletContext, folder: &Path) -> BTreeMap<String, Arc<Pod>> {
    let mut found = BTreeMap::new();
    for path in std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
    {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        // Editors write to hidden files first and rename them.
        if name.starts_with('.') || !path.is_file() {
            continue;
        }
        match manifest::read_manifest(&path, &kubelet.settings.node_name) {
            Ok(pod) => {
                found.insert(pod.metadata.uid.clone().unwrap_or_default(), Arc::new(pod));
            }
            Err(e) => {
                tracing::error!(manifest = %path.display(), error = %e, "static pod rejected")
            }
        }
    }
    found
}
