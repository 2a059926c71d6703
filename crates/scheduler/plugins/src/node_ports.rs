//! NodePorts: a host port can be used by one pod of a node only.

use std::sync::Arc;

use scheduler_framework::{
    Cluster, ClusterEvent, CycleState, EventKind, ExtensionPoints, Filter, NodeInfo, Plugin,
    PodInfo, PreFilter, PreFilterResult, Rejection, Snapshot,
};
use serde_json::Value;

pub(crate) struct NodePorts;

impl Plugin for NodePorts {
    const NAME: &'static str = "NodePorts";

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self)
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.pre_filter(&self);
        points.filter(&self);
    }

    fn events_to_register(&self) -> &'static [EventKind] {
        &[EventKind::AssignedPodDeleted, EventKind::NodeAdded]
    }

    fn queueing_hint(&self, _pod: &PodInfo, event: &ClusterEvent) -> bool {
        match event {
            ClusterEvent::AssignedPodDeleted(gone) => !gone.host_ports.is_empty(),
            ClusterEvent::NodeAdded(_) => true,
            _ => false,
        }
    }
}

impl PreFilter for NodePorts {
    fn pre_filter(&self, _: &mut CycleState, pod: &PodInfo, _: &Snapshot) -> PreFilterResult {
        if pod.host_ports.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::All
        }
    }
}

impl Filter for NodePorts {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        if pod
            .host_ports
            .iter()
            .any(|port| node.ports.has_conflict(port))
        {
            let reason = "node(s) didn't have free ports for the requested pod ports";
            return Err(Rejection::unschedulable(Self::NAME, reason));
        }
        Ok(())
    }
}
