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
    /// A ResourceClaim was added, changed or deleted.
    ResourceClaimChanged {
        /// Its namespace.
        namespace: Arc<str>,
        /// Its name.
        name: Arc<str>,
        /// It no longer has the devices that it had.
        freed: bool,
    },
    /// A ResourceSlice or DeviceClass was added, changed or deleted.
    DevicesChanged,
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
    /// A ResourceClaim was added, changed or deleted.
    ResourceClaimChanged,
    /// A ResourceSlice or DeviceClass was added, changed or deleted.
    DevicesChanged,
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
        Self::ResourceClaimChanged,
        Self::DevicesChanged,
    ];
}

impl ClusterEvent {
    /// Returns whether the event is of a kind; a node update may be of several.
    pub fn is_of_kind(&self, kind: EventKind) -> bool {
        match self {
            Self::NodeAdded(_) => kind == EventKind::NodeAdded,
            // One update of a node can be of several kinds, and is compared only for the kinds that
            // a plugin asks for.
            Self::NodeUpdated { old, new } => match kind {
                EventKind::NodeLabels => old.labels() != new.labels(),
                EventKind::NodeTaints => {
                    // Cordoning sets a field of the spec, and soon after a taint. Either change may
                    // come first.
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
            Self::ResourceClaimChanged { .. } => kind == EventKind::ResourceClaimChanged,
            Self::DevicesChanged => kind == EventKind::DevicesChanged,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn node(labels: Value, spec: Value, allocatable: Value) -> Arc<NodeInfo> {
        let object = json!({"metadata": {"name": "n", "labels": labels}, "spec": spec,
            "status": {"allocatable": allocatable}});
        Arc::new(NodeInfo::without_pods(Arc::new(
            serde_json::from_value(object).unwrap(),
        )))
    }

    #[test]
    fn node_update_is_of_the_kinds_of_the_fields_that_changed() {
        let taint = || json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        let plain = || node(json!({}), json!({}), json!({"cpu": "1"}));
        let cases = [
            (plain(), vec![]),
            (
                node(json!({"a": "b"}), json!({}), json!({"cpu": "1"})),
                vec![EventKind::NodeLabels],
            ),
            (
                node(json!({}), taint(), json!({"cpu": "1"})),
                vec![EventKind::NodeTaints],
            ),
            (
                node(
                    json!({}),
                    json!({"unschedulable": true}),
                    json!({"cpu": "1"}),
                ),
                vec![EventKind::NodeTaints],
            ),
            (
                node(json!({}), json!({}), json!({"cpu": "2"})),
                vec![EventKind::NodeAllocatable],
            ),
            (
                node(json!({"a": "b"}), taint(), json!({"cpu": "2"})),
                vec![
                    EventKind::NodeLabels,
                    EventKind::NodeTaints,
                    EventKind::NodeAllocatable,
                ],
            ),
        ];
        for (new, want) in cases {
            let event = ClusterEvent::NodeUpdated { old: plain(), new };
            let kinds: Vec<_> = EventKind::ALL
                .iter()
                .filter(|kind| event.is_of_kind(**kind))
                .copied()
                .collect();
            assert_eq!(kinds, want, "{event:?}");
        }
    }
}
