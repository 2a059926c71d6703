//! Releases a pod's resources when it has terminated, and removes the pod when its deletion was
//! requested.

use super::pod_worker::PodWorker;
use crate::context::KubeletContext;
use crate::cri_config::sandbox::log_dir;
use crate::pod::spec;
use crate::worker::release::release_resources;
use client::DeleteParams;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;

/// Maximum wait for the last status write.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

impl PodWorker {
    /// Removes the pod: writes its last status, removes everything it had, then deletes the object
    /// from the API server.
    pub(super) async fn clean_up(mut self) {
        self.sync_status();
        if !self.state.memory.lifecycle.is_removed() {
            // Before the object is deleted: controllers read the exit codes of the last status.
            self.status.flush(FLUSH_TIMEOUT).await;
        }
        // Before the object is deleted: then a successor of the same name may start here and use
        // the same host paths and devices.
        base_task::blocking(|| release_resources(&self.kubelet, &self.state.uid));
        if !self.state.memory.lifecycle.is_removed() && !self.state.is_static {
            delete_object(&self.kubelet, &self.state.pod).await;
        }
        // After the object, because it is the slowest step. If the kubelet stops here, the
        // collection of orphans removes them.
        for sandbox in &self.state.observed.sandboxes {
            if let Err(e) = self.kubelet.runtime.remove_sandbox(&sandbox.id).await {
                tracing::warn!(pod = spec::full_name(&self.state.pod), error = %e, "sandbox can't be removed");
            }
        }
        let logs = log_dir(&self.kubelet.settings, &self.state.pod);
        // Missing logs are fine: the pod may have had no container.
        let _ = base_task::blocking(|| std::fs::remove_dir_all(logs));
        self.kubelet.objects.unregister(&self.state.uid);
        self.kubelet.workers.remove(&self.state.uid);
        crate::sources::handle_cleaned_up(&self.kubelet, &self.state.pod);
    }
}

/// Deletes the pod object with a grace period of 0, now that nothing is left on the node.
async fn delete_object(kubelet: &Arc<KubeletContext>, pod: &Pod) {
    let Some(client) = &kubelet.client else {
        return;
    };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let params = DeleteParams::new()
        .grace_period(0)
        // A precondition: the name may belong to another pod that was force-deleted and created
        // again.
        .uid(pod.metadata.uid.as_deref().unwrap_or_default());
    let api = client.namespaced::<Pod>(namespace);
    let mut wait = Duration::from_millis(200);
    while let Err(e) = api.delete(name, &params).await {
        if e.is_not_found() || e.is_conflict() {
            return;
        }
        tracing::warn!(pod = spec::full_name(pod), error = %e, "the terminated pod can't be deleted; trying again");
        tokio::select! {
            () = kubelet.tasks.shutdown().cancelled() => return,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(10)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing;
    use crate::volumes::pod_dir;
    use serde_json::json;

    /// `release_resources` panics on a thread of the runtime.
    #[tokio::test]
    async fn files_of_a_pod_are_removed_off_the_runtime() {
        let dir = tempfile::tempdir().unwrap();
        let kubelet = testing::context(testing::settings(dir.path()));
        let pod = testing::pod(json!({"containers": []}));
        let file = pod_dir(&kubelet, "u").join("volumes/kubernetes.io~empty-dir/v/file");
        let write = || {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "x").unwrap();
        };
        let mut worker = PodWorker::new(&kubelet, pod, true);
        write();
        worker.executor.release_resources(worker.state.uid.clone());
        assert!(
            worker
                .executor
                .next_end()
                .await
                .is_some_and(|end| end.is_ok())
        );
        assert!(!file.exists(), "the pod has terminated");
        write();
        worker.clean_up().await;
        assert!(!file.exists(), "the pod is deleted");
        write();
        crate::housekeeping::remove_orphans(&kubelet, std::iter::empty());
        assert!(!file.exists(), "no pod owns it");
    }
}
