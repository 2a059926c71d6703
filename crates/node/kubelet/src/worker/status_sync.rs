//! The status of one pod: computes it, queues it for the status writer, and publishes a snapshot of
//! the pod for the other parts of the kubelet.

use super::registry::{PodSnapshot, ResizeRequest};
use super::status_writer::StatusWriter;
use crate::context::{KubeletContext, now};
use crate::pod::state::PodState;
use crate::pod::status::compute_status;
use crate::pod::status_context::StatusContext;
use api_semantics::pods::is_terminal_status;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;

/// The last status of a pod, its writer and its snapshot.
pub(crate) struct StatusSync {
    writer: StatusWriter,
    last: PodStatus,
    snapshot: Arc<RwLock<PodSnapshot>>,
}

impl StatusSync {
    /// Starts the status writer of a pod.
    pub(crate) fn spawn(kubelet: &Arc<KubeletContext>, pod: &Arc<Pod>, is_static: bool) -> Self {
        let last = pod.status.clone().unwrap_or_default();
        let snapshot = PodSnapshot {
            pod: pod.clone(),
            resize: None,
            status: Arc::new(last.clone()),
            observed: Arc::default(),
            // A pod of an earlier life of the kubelet was admitted then; a new one counts from its
            // admission on.
            active: last.start_time.is_some() && !is_terminal_status(&last),
            is_static,
            is_desired: true,
        };
        StatusSync {
            writer: StatusWriter::spawn(kubelet, pod, is_static),
            last,
            snapshot: Arc::new(RwLock::new(snapshot)),
        }
    }

    pub(crate) fn snapshot(&self) -> Arc<RwLock<PodSnapshot>> {
        self.snapshot.clone()
    }

    /// Returns the last computed status; at first that of the API server.
    pub(crate) fn last(&self) -> &PodStatus {
        &self.last
    }

    /// Returns whether the phase is Succeeded or Failed.
    pub(crate) fn is_finished(&self) -> bool {
        is_terminal_status(&self.last)
    }

    /// Returns whether a kubelet has reported a status of the pod.
    pub(crate) fn is_reported(&self) -> bool {
        self.last.start_time.is_some()
    }

    /// Publishes whether the pod counts for the node's resources.
    pub(crate) fn set_active(&self, active: bool) {
        self.snapshot.write().active = active;
    }

    /// Publishes the pod with its allocation, and the resize that waits for another one.
    pub(crate) fn set_allocation(&self, pod: Arc<Pod>, resize: Option<ResizeRequest>) {
        let mut snapshot = self.snapshot.write();
        (snapshot.pod, snapshot.resize) = (pod, resize);
    }

    /// Computes the status, queues it for writing if it changed, and publishes the pod's state.
    pub(crate) fn sync(&mut self, kubelet: &KubeletContext, state: &PodState) {
        let lifecycle = &state.memory.lifecycle;
        if !lifecycle.is_status_final() {
            let context = StatusContext {
                node_ips: &kubelet.ips,
                runtime: &kubelet.runtime_name,
                before: &self.last,
                first_seen: state.first_seen,
            };
            let new = compute_status(state.facts(now()), context);
            // Compared with the last computed status and not with the written one: the writer
            // merges what it has not written yet.
            if new != self.last {
                self.writer.queue(new.clone());
                self.last = new;
            }
        }
        let mut snapshot = self.snapshot.write();
        snapshot.pod = state.pod.clone();
        snapshot.status = Arc::new(self.last.clone());
        snapshot.observed = Arc::new(state.observed.clone());
        let was_active = snapshot.active;
        snapshot.active = !lifecycle.is_terminated() && !is_terminal_status(&self.last);
        snapshot.is_desired = !lifecycle.is_deletion_requested();
        let releases = was_active && !snapshot.active;
        // Released first: the workers read all snapshots.
        drop(snapshot);
        if releases {
            kubelet.workers.retry_resizes();
        }
    }

    /// Queues the last status again, for a new mirror pod.
    pub(crate) fn rewrite(&self) {
        self.writer.queue(self.last.clone());
    }

    /// Compares the pod in the API server with the written status.
    pub(crate) fn compare(&self, pod: Arc<Pod>) {
        self.writer.compare(pod);
    }

    /// Waits up to `limit` until the last status is written.
    pub(crate) async fn flush(&mut self, limit: Duration) {
        self.writer.flush(limit).await;
    }
}
