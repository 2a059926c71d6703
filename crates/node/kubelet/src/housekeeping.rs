//! What nobody asks for by name: pods of an earlier life that are no longer wanted, log files that grow, volumes that
//! outgrow their limit.

use crate::context::Node;
use crate::make::resources;
use crate::pod::spec;
use crate::volumes::pod_dir;
use crate::worker::{Message, Shown};
use k8s_openapi::api::core::v1::Container;
use node_runtime::labels;
use node_runtime::v1::ContainerStats;
use node_volumes::disk_usage;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(10);
/// Orphans are looked for less often than logs.
const ORPHANS: u32 = 6;

/// Keeps house until shutdown. Pods are all known when this starts.
pub(crate) async fn keep(node: Arc<Node>) {
    let mut turn = 0u32;
    loop {
        if turn.is_multiple_of(ORPHANS) {
            orphans(&node).await;
        }
        turn = turn.wrapping_add(1);
        for shown in node.workers.all().into_iter().filter(|s| s.active) {
            rotate(&node, &shown).await;
            limits(&node, &shown).await;
        }
        tokio::select! {
            () = node.tasks.shutdown().cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Ends and removes sandboxes, files and cgroups of pods that nobody wants here.
async fn orphans(node: &Node) {
    let Ok(sandboxes) = node.runtime.sandboxes(None).await else { return };
    let mut gone = BTreeSet::new();
    for sandbox in sandboxes {
        let uid = labels::get(&sandbox.labels, labels::POD_UID);
        if uid.is_empty() || node.workers.knows(uid) {
            continue;
        }
        tracing::info!(
            pod = labels::get(&sandbox.labels, labels::POD_NAME),
            uid,
            "removing a pod that is not wanted here"
        );
        for container in node.runtime.containers(Some(uid)).await.unwrap_or_default() {
            let _ = node.runtime.stop_container(&container.id, Duration::from_secs(2)).await;
        }
        let stopped = node.runtime.stop_sandbox(&sandbox.id).await;
        if let Err(e) = stopped.and(node.runtime.remove_sandbox(&sandbox.id).await) {
            tracing::warn!(sandbox = sandbox.id, error = %e, "sandbox can't be removed");
        }
        gone.insert(uid.to_owned());
    }
    let folders = std::fs::read_dir(node.settings.root_dir.join("pods")).into_iter().flatten().flatten();
    let folders = folders.map(|e| e.file_name().to_string_lossy().into_owned());
    let left = gone.into_iter().chain(folders).filter(|uid| !node.workers.knows(uid));
    left.collect::<BTreeSet<_>>().iter().for_each(|uid| crate::worker::free(node, uid));
}

/// Moves logs away that have grown too large; of one container only so many files stay.
async fn rotate(node: &Node, shown: &Shown) {
    for running in shown.observed.all().filter(|i| i.running() && !i.log_path.is_empty()) {
        let path = Path::new(&running.log_path);
        let large = std::fs::metadata(path).is_ok_and(|m| m.len() > node.settings.log_size);
        if !large {
            continue;
        }
        let moved = path.with_extension(format!("log.{}", crate::context::now() / 1_000_000_000));
        if std::fs::rename(path, &moved).is_err() {
            continue;
        }
        if let Err(e) = node.runtime.reopen_log(&running.id).await {
            tracing::warn!(container = running.name, error = %e, "the log can't be reopened");
            let _ = std::fs::rename(&moved, path);
            continue;
        }
        drop_old(path, node.settings.log_files);
    }
}

fn drop_old(path: &Path, keep: usize) {
    let (Some(folder), Some(stem)) = (path.parent(), path.file_name()) else { return };
    let prefix = format!("{}.", stem.to_string_lossy());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut old: Vec<_> = entries
        .map(|e| e.path())
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&prefix)))
        .collect();
    old.sort();
    let excess = (old.len() + 1).saturating_sub(keep);
    old.iter().take(excess).for_each(|p| drop(std::fs::remove_file(p)));
}

/// Evicts a pod that wrote more than it may: emptyDir size limits and ephemeral-storage limits.
async fn limits(node: &Node, shown: &Shown) {
    let uid = shown.pod.metadata.uid.as_deref().unwrap_or_default();
    let folder = pod_dir(node, uid).join("volumes").join("kubernetes.io~empty-dir");
    let mut written = 0;
    for volume in spec::spec(&shown.pod).volumes.iter().flatten() {
        let Some(source) = volume.empty_dir.as_ref().filter(|e| e.medium.as_deref() != Some("Memory")) else {
            continue;
        };
        let limit =
            source.size_limit.as_ref().and_then(|q| spec::parse(&q.0)).and_then(|q| u64::try_from(q.value()).ok());
        if limit.is_none() && !has_storage_limit(shown) {
            continue;
        }
        let used = disk_usage(&folder.join(&volume.name));
        written += used;
        if let Some(limit) = limit.filter(|l| *l > 0 && used > *l) {
            let size = source.size_limit.as_ref().map(|q| q.0.clone()).unwrap_or_default();
            tracing::info!(pod = spec::full_name(&shown.pod), used, limit, "emptyDir over its limit");
            let message = format!("Usage of EmptyDir volume {:?} exceeds the limit {size:?}. ", volume.name);
            return evict(node, uid, message);
        }
    }
    storage(node, shown, uid, written).await;
}

fn has_storage_limit(shown: &Shown) -> bool {
    spec::app_containers(&shown.pod).any(|c| resources::limit_of(c, "ephemeral-storage").is_some())
}

/// Logs, emptyDirs and writable layers against the containers' limits, each alone and all together.
async fn storage(node: &Node, shown: &Shown, uid: &str, written: u64) {
    if !has_storage_limit(shown) {
        return;
    }
    let limit = |c: &Container| resources::limit_of(c, "ephemeral-storage").and_then(|l| u64::try_from(l).ok());
    let layers = layers(node).await;
    let logs = crate::make::sandbox::log_dir(&node.settings, &shown.pod);
    let mut total = written;
    for container in spec::app_containers(&shown.pod) {
        let id = shown.observed.latest(&container.name).map(|i| i.id.clone()).unwrap_or_default();
        let used = layers.get(&id).copied().unwrap_or_default() + disk_usage(&logs.join(&container.name));
        total += used;
        if let Some(limit) = limit(container).filter(|limit| used > *limit) {
            let message =
                format!("Container {} exceeded its local ephemeral storage limit {limit:?}. ", container.name);
            return evict(node, uid, message);
        }
    }
    let sum = spec::app_containers(&shown.pod).try_fold(0, |sum, c| limit(c).map(|l| sum + l));
    if let Some(limit) = sum.filter(|limit| total > *limit) {
        evict(node, uid, format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "));
    }
}

fn evict(node: &Node, uid: &str, message: String) {
    node.workers.send(uid, Message::Evict("Evicted".into(), message));
}

/// Bytes of writable layers by container.
async fn layers(node: &Node) -> HashMap<String, u64> {
    let all = node.runtime.container_stats().await.unwrap_or_default();
    let of = |s: ContainerStats| Some((s.attributes?.id, s.writable_layer?.used_bytes?.value));
    all.into_iter().filter_map(of).collect()
}
