//! Changes in the cluster that may make room for a pod that found none.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};

/// A change.
#[derive(Clone, Debug)]
pub enum ClusterEvent {
    /// A node came.
    NodeAdded(Arc<Node>),
    /// A node changed in labels, taints, allocatable or conditions.
    NodeUpdated {
        /// Before.
        old: Arc<Node>,
        /// Now.
        new: Arc<Node>,
    },
    /// A pod came to be on a node.
    AssignedPodAdded(Arc<Pod>),
    /// A pod on a node changed.
    AssignedPodUpdated {
        /// Before.
        old: Arc<Pod>,
        /// Now.
        new: Arc<Pod>,
    },
    /// A pod on a node ended or is gone.
    AssignedPodDeleted(Arc<Pod>),
    /// The waiting pod itself changed.
    PodUpdated {
        /// Before.
        old: Arc<Pod>,
        /// Now.
        new: Arc<Pod>,
    },
    /// Labels of a namespace changed.
    NamespaceChanged,
    /// A claim, volume or storage class came or changed.
    StorageChanged,
}
