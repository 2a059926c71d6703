//! Garbage collection of orphaned pods, log rotation, and limits of local storage.

use crate::context::KubeletContext;
use crate::cri_config::resources;
use crate::pod::view::CriContainer;
use crate::pod::{SECOND, spec};
use crate::volumes::pod_dir;
use crate::worker::{Message, PodSnapshot};
use k8s_openapi::api::core::v1::Container;
use node_runtime::labels;
use node_runtime::v1::ContainerStats;
use node_volumes::disk_usage;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

// Short enough that a busy log or a full emptyDir does not fill the disk in between.
const INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two collections of orphaned pods.
// Listing all sandboxes is expensive for the runtime, and orphans appear only after failures.
const ORPHAN_INTERVAL: Duration = Duration::from_secs(60);

/// Removes orphaned pods until shutdown. Start it only after all pod sources have synced: an
/// unknown pod counts as orphaned.
pub(crate) async fn run_orphan_collection(kubelet: Arc<KubeletContext>) {
    loop {
        collect_orphans(&kubelet).await;
        tokio::select! {
            () = kubelet.tasks.shutdown().cancelled() => return,
            () = tokio::time::sleep(ORPHAN_INTERVAL) => {}
        }
    }
}

/// Rotates logs and enforces local storage limits until shutdown; works without an API server.
pub(crate) async fn run_housekeeping(kubelet: Arc<KubeletContext>) {
    loop {
        let active: Vec<PodSnapshot> = kubelet
            .workers
            .all()
            .into_iter()
            .filter(|s| s.active)
            .collect();
        for snapshot in &active {
            rotate_logs(&kubelet, snapshot).await;
        }
        enforce_storage_limits(&kubelet, active).await;
        tokio::select! {
            () = kubelet.tasks.shutdown().cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// Removes sandboxes, files and cgroups of pods that no source has.
async fn collect_orphans(kubelet: &KubeletContext) {
    // An unknown state is no reason to remove anything: the next round tries again.
    let Ok(sandboxes) = kubelet.runtime.list_sandboxes(None).await else {
        return;
    };
    let mut removed = BTreeSet::new();
    for sandbox in sandboxes {
        let uid = labels::read_label(&sandbox.labels, labels::POD_UID);
        // A sandbox without the label belongs to another client of the runtime.
        if uid.is_empty() || kubelet.workers.contains(uid) {
            continue;
        }
        tracing::info!(
            pod = labels::read_label(&sandbox.labels, labels::POD_NAME),
            uid,
            "removing orphaned pod"
        );
        for container in kubelet
            .runtime
            .list_containers(Some(uid))
            .await
            .unwrap_or_default()
        {
            let _ = kubelet
                .runtime
                .stop_container(&container.id, Duration::from_secs(2))
                .await;
        }
        // Stopped first: StopPodSandbox releases the network of the pod.
        let stopped = kubelet.runtime.stop_sandbox(&sandbox.id).await;
        if let Err(e) = stopped.and(kubelet.runtime.remove_sandbox(&sandbox.id).await) {
            tracing::warn!(sandbox = sandbox.id, error = %e, "sandbox can't be removed");
        }
        removed.insert(uid.to_owned());
    }
    remove_orphans(kubelet, removed.into_iter());
    crate::devices::release_orphans(kubelet).await;
}

/// Removes files and cgroups of the pods `gone` and of those that left files, unless a worker has
/// them.
pub(crate) fn remove_orphans(kubelet: &KubeletContext, removed: impl Iterator<Item = String>) {
    base_task::blocking(|| {
        // A pod whose sandbox was removed before the kubelet stopped has left files only.
        let folders = std::fs::read_dir(kubelet.settings.root_dir.join("pods"))
            .into_iter()
            .flatten()
            .flatten();
        let folders = folders.map(|e| e.file_name().to_string_lossy().into_owned());
        let left: BTreeSet<String> = removed
            .chain(folders)
            // Asked again here: a worker may have started since the list was read.
            .filter(|uid| !kubelet.workers.contains(uid))
            .collect();
        left.iter()
            .for_each(|uid| crate::worker::release_resources(kubelet, uid));
    });
}

/// Rotates logs that exceed the size limit, and removes the oldest above the number of files.
async fn rotate_logs(kubelet: &KubeletContext, snapshot: &PodSnapshot) {
    let large = base_task::blocking(|| find_large_logs(snapshot, kubelet.settings.log_size));
    for running in large {
        let path = Path::new(&running.log_path);
        let moved = path.with_extension(format!("log.{}", crate::context::now() / SECOND));
        // The runtime keeps writing to the renamed file until it reopens the log: no record is
        // lost.
        if base_task::blocking(|| std::fs::rename(path, &moved)).is_err() {
            continue;
        }
        if let Err(e) = kubelet.runtime.reopen_log(&running.id).await {
            tracing::warn!(container = running.name, error = %e, "the log can't be reopened");
            // Under its old name the file is found by readers and rotated again later.
            let _ = base_task::blocking(|| std::fs::rename(&moved, path));
            continue;
        }
        base_task::blocking(|| remove_oldest_logs(path, kubelet.settings.log_files));
    }
}

/// Returns the running containers whose log is larger than `limit` bytes.
fn find_large_logs(snapshot: &PodSnapshot, limit: u64) -> Vec<&CriContainer> {
    let running = snapshot.observed.iter_containers();
    running
        .filter(|c| c.is_running() && !c.log_path.is_empty())
        .filter(|c| std::fs::metadata(&c.log_path).is_ok_and(|m| m.len() > limit))
        .collect()
}

fn remove_oldest_logs(path: &Path, keep: usize) {
    let mut old = list_rotated_logs(path);
    old.sort();
    // The open file is one of them.
    let excess = (old.len() + 1).saturating_sub(keep);
    old.iter()
        .take(excess)
        .for_each(|p| drop(std::fs::remove_file(p)));
}

/// Lists the rotated files of a log.
fn list_rotated_logs(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(stem)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let prefix = format!("{}.", stem.to_string_lossy());
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path());
    entries
        .filter(|p| {
            p.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with(&prefix))
        })
        .collect()
}

/// Removes the log of a removed container with its rotated files.
pub(crate) fn remove_logs(path: &Path) {
    for file in list_rotated_logs(path)
        .iter()
        .map(PathBuf::as_path)
        .chain([path])
    {
        // A missing file is fine; anything else is removed with the pod's directory.
        let _ = std::fs::remove_file(file);
    }
}

/// Evicts pods that wrote more than they may.
async fn enforce_storage_limits(kubelet: &KubeletContext, active: Vec<PodSnapshot>) {
    // One list for all pods, and only if one of them needs it.
    let layers = if active.iter().any(has_storage_limit) {
        read_layer_sizes(kubelet).await
    } else {
        HashMap::new()
    };
    // Walks of large trees take long.
    let over: Vec<(String, String)> = base_task::blocking(|| {
        active
            .iter()
            .filter_map(|s| {
                Some((
                    uid_of(s).to_owned(),
                    find_exceeded_limit(kubelet, s, &layers)?,
                ))
            })
            .collect()
    });
    for (uid, message) in over {
        kubelet
            .workers
            // By message, because only the worker may change a pod's state.
            .send(&uid, Message::Evict("Evicted".into(), message));
    }
}

fn uid_of(snapshot: &PodSnapshot) -> &str {
    snapshot.pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Returns why a pod must be evicted: emptyDir size limits and ephemeral-storage limits.
fn find_exceeded_limit(
    kubelet: &KubeletContext,
    snapshot: &PodSnapshot,
    layers: &HashMap<String, u64>,
) -> Option<String> {
    base_task::assert_may_block();
    let folder = pod_dir(kubelet, uid_of(snapshot))
        .join("volumes")
        .join("kubernetes.io~empty-dir");
    let mut written = 0;
    for volume in spec::read_spec(&snapshot.pod).volumes.iter().flatten() {
        let Some(source) = volume
            .empty_dir
            .as_ref()
            // The kernel enforces the size of a tmpfs, and its pages count as memory.
            .filter(|e| e.medium.as_deref() != Some("Memory"))
        else {
            continue;
        };
        let limit = source
            .size_limit
            .as_ref()
            .and_then(|q| spec::parse_quantity(&q.0))
            .and_then(|q| u64::try_from(q.value()).ok());
        // Nothing would use the result of the walk.
        if limit.is_none() && !has_storage_limit(snapshot) {
            continue;
        }
        let used = disk_usage(&folder.join(&volume.name));
        // Usage of all volumes counts towards the pod's limit, even of those without a limit of
        // their own.
        written += used;
        if let Some(limit) = limit.filter(|l| *l > 0 && used > *l) {
            let size = source
                .size_limit
                .as_ref()
                .map(|q| q.0.clone())
                .unwrap_or_default();
            tracing::info!(
                pod = spec::full_name(&snapshot.pod),
                used,
                limit,
                "emptyDir over its limit"
            );
            return Some(format!(
                "Usage of EmptyDir volume {:?} exceeds the limit {size:?}. ",
                volume.name
            ));
        }
    }
    check_ephemeral_storage(kubelet, snapshot, layers, written)
}

fn has_storage_limit(snapshot: &PodSnapshot) -> bool {
    spec::app_containers(&snapshot.pod)
        .any(|c| resources::read_limit(c, "ephemeral-storage").is_some())
}

/// Compares logs, emptyDirs and writable layers with the containers' limits, each alone and as a
/// sum.
fn check_ephemeral_storage(
    kubelet: &KubeletContext,
    snapshot: &PodSnapshot,
    layers: &HashMap<String, u64>,
    written: u64,
) -> Option<String> {
    if !has_storage_limit(snapshot) {
        return None;
    }
    let limit = |c: &Container| {
        resources::read_limit(c, "ephemeral-storage").and_then(|l| u64::try_from(l).ok())
    };
    let logs = crate::cri_config::sandbox::log_dir(&kubelet.settings, &snapshot.pod);
    let mut total = written + measure_own_files(&pod_dir(kubelet, uid_of(snapshot)));
    for container in spec::app_containers(&snapshot.pod) {
        let id = snapshot
            .observed
            .latest(&container.name)
            .map(|i| i.id.clone())
            .unwrap_or_default();
        let used =
            layers.get(&id).copied().unwrap_or_default() + disk_usage(&logs.join(&container.name));
        total += used;
        if let Some(limit) = limit(container).filter(|limit| used > *limit) {
            return Some(format!(
                "Container {} exceeded its local ephemeral storage limit {limit:?}. ",
                container.name
            ));
        }
    }
    // A container without a limit may use the whole node, so the sum exists only if all have one.
    let sum = spec::app_containers(&snapshot.pod).try_fold(0, |sum, c| limit(c).map(|l| sum + l));
    let limit = sum.filter(|limit| total > *limit)?;
    Some(format!(
        "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
    ))
}

/// Returns the bytes of files that the kubelet created and containers can write to: /etc/hosts and
/// termination messages (CVE-2020-8557).
fn measure_own_files(pod: &Path) -> u64 {
    disk_usage(&pod.join("etc-hosts")) + disk_usage(&pod.join("containers"))
}

/// Returns the bytes of writable layers by container id.
async fn read_layer_sizes(kubelet: &KubeletContext) -> HashMap<String, u64> {
    let all = kubelet.runtime.container_stats().await.unwrap_or_default();
    let of = |s: ContainerStats| Some((s.attributes?.id, s.writable_layer?.used_bytes?.value));
    all.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing;
    use crate::worker::PodWorker;
    use serde_json::json;

    /// `excess` panics on a thread of the runtime.
    #[tokio::test]
    async fn volumes_are_measured_off_the_runtime() {
        let dir = tempfile::tempdir().unwrap();
        let kubelet = testing::context(testing::settings(dir.path()));
        let volume = json!({"name": "v", "emptyDir": {"sizeLimit": "4Ki"}});
        let mut worker = PodWorker::new(
            &kubelet,
            testing::pod(json!({"containers": [], "volumes": [volume]})),
            false,
        );
        let folder = pod_dir(&kubelet, "u").join("volumes/kubernetes.io~empty-dir/v");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file"), vec![1u8; 1 << 16]).unwrap();
        enforce_storage_limits(&kubelet, kubelet.workers.all()).await;
        assert_eq!(worker.received_eviction().as_deref(), Some("Evicted"));
    }

    #[test]
    fn rotated_logs_are_removed_with_their_container() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "0.log",
            "0.log.1700000000",
            "0.log.1700000001",
            "1.log",
            "1.log.1700000002",
        ] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        remove_logs(&dir.path().join("0.log"));
        let mut left: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["1.log", "1.log.1700000002"]);
    }

    #[test]
    fn hosts_file_and_termination_messages_count_as_storage() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(measure_own_files(dir.path()), 0);
        std::fs::create_dir_all(dir.path().join("containers/c")).unwrap();
        std::fs::write(dir.path().join("etc-hosts"), vec![1u8; 1 << 16]).unwrap();
        std::fs::write(dir.path().join("containers/c/00000000"), vec![1u8; 1 << 16]).unwrap();
        assert!(measure_own_files(dir.path()) >= 2 << 16);
    }

    #[test]
    fn oldest_rotated_logs_are_removed_above_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let rotated = |n: u32| log.with_extension(format!("log.170000000{n}"));
        std::fs::write(&log, "").unwrap();
        (0..5).for_each(|n| std::fs::write(rotated(n), "").unwrap());
        // The open file counts, so three files are two rotated ones.
        remove_oldest_logs(&log, 3);
        let left: Vec<u32> = (0..5).filter(|n| rotated(*n).exists()).collect();
        assert_eq!((left, log.exists()), (vec![3, 4], true));
    }

    /// Publishes a pod with these containers, running, with their logs of 64 KiB each.
    async fn find_excess(limits: &[Option<&str>]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let kubelet = testing::context(testing::settings(dir.path()));
        let container = |(n, limit): (usize, &Option<&str>)| {
            let limits = limit.map(|limit| json!({"ephemeral-storage": limit}));
            json!({"name": format!("c{n}"), "resources": {"limits": limits}})
        };
        let containers: Vec<_> = limits.iter().enumerate().map(container).collect();
        let pod = testing::pod(json!({"containers": containers}));
        let logs = crate::cri_config::sandbox::log_dir(&kubelet.settings, &pod);
        for n in 0..limits.len() {
            let folder = logs.join(format!("c{n}"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("0.log"), vec![1u8; 1 << 16]).unwrap();
        }
        let _worker = PodWorker::new(&kubelet, pod, false);
        let snapshot = kubelet.workers.all().remove(0);
        base_task::blocking(|| find_exceeded_limit(&kubelet, &snapshot, &HashMap::new()))
    }

    #[tokio::test]
    async fn ephemeral_storage_is_limited_for_each_container() {
        assert_eq!(find_excess(&[Some("1Mi"), Some("1Mi")]).await, None);
        let excess = find_excess(&[Some("1Mi"), Some("32Ki")]).await.unwrap();
        assert!(excess.starts_with("Container c1 exceeded its local ephemeral storage limit"));
    }

    #[tokio::test]
    async fn container_without_a_limit_has_as_much_storage_as_the_node() {
        assert_eq!(find_excess(&[None]).await, None);
        assert_eq!(find_excess(&[None, Some("1Mi")]).await, None);
    }
}
