//! Changes in the cluster that may make room for a pod that found none.

use std::sync::Arc;

use crate::node::NodeInfo;
use crate::pod::PodInfo;

/// A change. Nodes come without their pods and images ([`NodeInfo::bare`]).
#[derive(Clone, Debug)]
pub enum ClusterEvent {
    /// A node was added.
    NodeAdded(Arc<NodeInfo>),
    /// A node changed in labels, taints, allocatable or images.
    NodeUpdated {
        /// Before.
        old: Arc<NodeInfo>,
        /// Now.
        new: Arc<NodeInfo>,
    },
    /// A node was deleted. Its last known state.
    NodeDeleted(Arc<NodeInfo>),
    /// A pod was bound to a node.
    AssignedPodAdded(Arc<PodInfo>),
    /// A pod on a node changed.
    AssignedPodUpdated {
        /// Before.
        old: Arc<PodInfo>,
        /// Now.
        new: Arc<PodInfo>,
    },
    /// A pod on a node ended or was deleted, or room kept for a pod was released.
    AssignedPodDeleted(Arc<PodInfo>),
    /// The waiting pod itself changed.
    PodUpdated {
        /// Before.
        old: Arc<PodInfo>,
        /// Now.
        new: Arc<PodInfo>,
    },
    /// Labels of a namespace changed.
    NamespaceChanged,
    /// A claim, volume or storage class was added or changed.
    StorageChanged,
}

/// A kind of change. A plugin lists the kinds that may help the pods it rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A node was added.
    NodeAdded,
    /// Labels of a node changed.
    NodeLabels,
    /// Taints of a node changed, or it was cordoned or uncordoned.
    NodeTaints,
    /// Allocatable resources of a node changed.
    NodeAllocatable,
    /// A node was deleted.
    NodeDeleted,
    /// A pod was bound to a node.
    AssignedPodAdded,
    /// A pod on a node changed.
    AssignedPodUpdated,
    /// A pod on a node ended or was deleted.
    AssignedPodDeleted,
    /// The waiting pod itself changed.
    PodUpdated,
    /// Labels of a namespace changed.
    NamespaceChanged,
    /// A claim, volume or storage class was added or changed.
    StorageChanged,
}

impl EventKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::NodeAdded,
        Self::NodeLabels,
        Self::NodeTaints,
        Self::NodeAllocatable,
        Self::NodeDeleted,
        Self::AssignedPodAdded,
        Self::AssignedPodUpdated,
        Self::AssignedPodDeleted,
        Self::PodUpdated,
        Self::NamespaceChanged,
        Self::StorageChanged,
    ];
}

impl ClusterEvent {
    /// Returns true if the change is of a kind; the update of a node may be of several.
    pub fn is(&self, kind: EventKind) -> bool {
        match self {
            Self::NodeAdded(_) => kind == EventKind::NodeAdded,
            Self::NodeUpdated { old, new } => match kind {
                EventKind::NodeLabels => old.labels() != new.labels(),
                EventKind::NodeTaints => {
                    old.taints() != new.taints() || old.is_unschedulable() != new.is_unschedulable()
                }
                EventKind::NodeAllocatable => old.allocatable != new.allocatable,
                _ => false,
            },
            Self::NodeDeleted(_) => kind == EventKind::NodeDeleted,
            Self::AssignedPodAdded(_) => kind == EventKind::AssignedPodAdded,
            Self::AssignedPodUpdated { .. } => kind == EventKind::AssignedPodUpdated,
            Self::AssignedPodDeleted(_) => kind == EventKind::AssignedPodDeleted,
            Self::PodUpdated { .. } => kind == EventKind::PodUpdated,
            Self::NamespaceChanged => kind == EventKind::NamespaceChanged,
            Self::StorageChanged => kind == EventKind::StorageChanged,
        }
    }
}
