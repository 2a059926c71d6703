//! Sources of pods: the API server, and manifests in a directory of this node.

pub(crate) mod api;
pub(crate) mod files;
mod manifest;
pub(crate) mod mirror;

use crate::context::KubeletContext;
use crate::pod_source::is_static;
use crate::worker::{self, Message};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

/// Annotation of mirror pods.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
pub(crate) const HASH: &str = "kubernetes.io/config.hash";
pub(crate) const SEEN: &str = "kubernetes.io/config.seen";

/// Starts or updates the worker of a pod.
pub(crate) fn apply_pod(kubelet: &Arc<KubeletContext>, pod: Arc<Pod>, is_static: bool) {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    // No worker: the pod is new, or its worker ended because the earlier object was deleted.
    if !kubelet.workers.send(&uid, Message::Pod(pod.clone())) {
        worker::spawn_worker(kubelet, pod, is_static);
    }
}

/// Notifies the worker that its pod was removed from the source.
pub(crate) fn remove_pod(kubelet: &Arc<KubeletContext>, pod: &Arc<Pod>) {
    kubelet.workers.send(
        pod.metadata.uid.as_deref().unwrap_or_default(),
        Message::Removed(pod.clone()),
    );
}

/// Handles the end of a worker: its pod is cleaned up.
pub(crate) fn handle_cleaned_up(kubelet: &Arc<KubeletContext>, pod: &Pod) {
    tracing::debug!(pod = crate::pod::spec::full_name(pod), "pod cleaned up");
    if is_static(pod) {
        kubelet.static_pod_removed.notify_one();
    }
}
