//! Cluster events, which may make an unschedulable pod schedulable.

use std::sync::Arc;

use crate::node::NodeInfo;
use crate::pod::PodInfo;

/// A cluster event. Nodes come without their pods and images ([`NodeInfo::without_pods`]).
#[derive(Clone, Debug)]
pub enum ClusterEvent {
    /// A node was added.
    NodeAdded(Arc<NodeInfo>),
    /// A node changed in labels, taints, allocatable or images.
    NodeUpdated {
        /// The state before.
        old: Arc<NodeInfo>,
        /// The state after.
        new: Arc<NodeInfo>,
    },
    /// A node was deleted; its last known state.
    NodeDeleted(Arc<NodeInfo>),
    /// A pod was bound to a node.
    AssignedPodAdded(Arc<PodInfo>),
    /// A pod on a node changed.
    AssignedPodUpdated {
        /// The state before.
        old: Arc<PodInfo>,
        /// The state after.
        new: Arc<PodInfo>,
    },
    /// A pod on a node terminated or was deleted, or room reserved for a pod was released.
    AssignedPodDeleted(Arc<PodInfo>),
    /// The unschedulable pod itself changed.
    PodUpdated {
        /// The state before.
        old: Arc<PodInfo>,
        /// The state after.
        new: Arc<PodInfo>,
    },
    /// Labels of a namespace changed.
    NamespaceChanged,
    /// A claim, volume or storage class was added or changed.
    StorageChanged,
}

/// A kind of event. A plugin lists the kinds that may help the pods it rejected.
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
    /// A pod on a node terminated or was deleted.
    AssignedPodDeleted,
    /// The unschedulable pod itself changed.
    PodUpdated,
    /// Labels of a namespace changed.
    NamespaceChanged,
    /// A claim, volume or storage class was added or changed.
    StorageChanged,
}

impl EventKind {
    /// All kinds.
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
    /// Returns whether the event is of a kind; a node update may be of several.
    pub fn is_of_kind(&self, kind: EventKind) -> bool {
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
