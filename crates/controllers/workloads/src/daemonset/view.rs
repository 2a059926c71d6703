//! Inputs of a reconcile of a DaemonSet, and the pods that it creates and deletes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};

use controllers_runtime::{Action, Meta, pods};

use super::nodes::Fit;
use crate::history;

/// Inputs of one reconcile.
pub struct View<'a> {
    /// The set.
    pub set: &'a DaemonSet,
    /// Every node, and whether it should and may run the pod.
    pub nodes: Vec<(Arc<Node>, Fit)>,
    /// Number of nodes that should run the pod; counted once, because limits are computed from it
    /// for each node.
    pub desired: usize,
    /// The set's pods by node, oldest first.
    pub pods: BTreeMap<String, Vec<Arc<Pod>>>,
    /// Hash of the current template.
    pub hash: String,
    /// Current time.
    pub now: Timestamp,
}

impl View<'_> {
    /// Returns whether the pod has the current template.
    pub fn is_updated(&self, pod: &Pod) -> bool {
        pod.label(history::POD_LABEL) == Some(&self.hash)
    }

    /// Returns whether the pod has been ready for `minReadySeconds`.
    pub fn is_pod_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.min_ready(), self.now) && !pod.is_deleting()
    }

    /// Returns `minReadySeconds`.
    pub fn min_ready(&self) -> i32 {
        self.set
            .spec
            .as_ref()
            .and_then(|s| s.min_ready_seconds)
            .unwrap_or(0)
    }

    /// Returns the pods of one node.
    pub fn pods_on(&self, node: &str) -> &[Arc<Pod>] {
        self.pods.get(node).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Pods to create (by node) and to delete.
#[derive(Default)]
pub struct Plan {
    /// Nodes that need a pod.
    pub create: Vec<String>,
    /// Pods to delete.
    pub delete: Vec<Arc<Pod>>,
    /// Requeue delay.
    pub requeue: Option<Duration>,
    /// Events about terminated pods.
    pub events: Vec<Action>,
}
