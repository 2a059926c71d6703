//! Static pods: manifests in a folder, watched with inotify.
//!
//! A pod's uid follows from node, file and content, so that a kubelet started again finds its own containers, and a
//! changed manifest is a new pod.

use super::{HASH, SEEN, SOURCE, applied, mirror, removed};
use crate::context::Node;
use k8s_openapi::api::core::v1::Pod;
use node_runtime::FolderWatch;
use sha2::Digest;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Follows the folder until shutdown.
pub(crate) async fn follow(node: Arc<Node>, folder: PathBuf) {
    let mut known: BTreeMap<String, Arc<Pod>> = BTreeMap::new();
    let mut watch = watch(&folder);
    loop {
        reconcile(&node, &folder, &mut known);
        tokio::select! {
            () = node.tasks.shutdown().cancelled() => return,
            () = changed(&mut watch) => {}
        }
    }
}

fn watch(folder: &Path) -> Option<FolderWatch> {
    let made = std::fs::create_dir_all(folder).and_then(|()| FolderWatch::new(folder));
    if let Err(e) = &made {
        tracing::warn!(folder = %folder.display(), error = %e, "changes of static pods' manifests are not noticed");
    }
    made.ok()
}

async fn changed(watch: &mut Option<FolderWatch>) {
    let Some(watch) = watch else { return std::future::pending().await };
    watch.changed().await;
    // Writers often touch several files, or one several times.
    tokio::time::sleep(Duration::from_millis(50)).await;
}

fn reconcile(node: &Arc<Node>, folder: &Path, known: &mut BTreeMap<String, Arc<Pod>>) {
    let found = read_folder(node, folder);
    let old: Vec<String> = known.keys().filter(|uid| !found.contains_key(*uid)).cloned().collect();
    for uid in old {
        if let Some(pod) = known.remove(&uid) {
            removed(node, &pod);
            mirror::unwanted(node, &pod);
        }
    }
    for (uid, pod) in found {
        if known.insert(uid, pod.clone()).is_none() {
            applied(node, pod.clone(), true);
            mirror::wanted(node, &pod);
        }
    }
}

fn read_folder(node: &Node, folder: &Path) -> BTreeMap<String, Arc<Pod>> {
    let mut found = BTreeMap::new();
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || !path.is_file() {
            continue;
        }
        match read(node, &path) {
            Ok(pod) => {
                found.insert(pod.metadata.uid.clone().unwrap_or_default(), Arc::new(pod));
            }
            Err(e) => tracing::error!(manifest = %path.display(), error = e, "static pod can't be read"),
        }
    }
    found
}

fn read(node: &Node, path: &Path) -> Result<Pod, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let mut pod: Pod = serde_yaml::from_str(&text).map_err(|e| e.to_string())?;
    let node_name = &node.settings.node_name;
    let name = pod.metadata.name.clone().filter(|n| !n.is_empty()).ok_or("the manifest has no metadata.name")?;
    let digest = sha2::Sha256::digest(format!("{node_name}\n{}\n{text}", path.display()));
    let uid: String = digest.iter().take(16).map(|b| format!("{b:02x}")).collect();
    let meta = &mut pod.metadata;
    meta.name = Some(format!("{name}-{node_name}"));
    meta.namespace.get_or_insert_with(|| "default".into());
    meta.uid = Some(meta.uid.clone().filter(|u| !u.is_empty()).unwrap_or_else(|| uid.clone()));
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(HASH.into(), uid);
    annotations.insert(SOURCE.into(), "file".into());
    annotations.insert(SEEN.into(), jiff::Timestamp::now().to_string());
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node_name.clone());
    spec.tolerations.get_or_insert_default().push(k8s_openapi::api::core::v1::Toleration {
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        ..Default::default()
    });
    pod.status = None;
    Ok(pod)
}
