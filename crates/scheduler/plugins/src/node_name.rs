//! NodeName: a pod that names its node fits only there.

use std::sync::Arc;

use scheduler_framework::{
    Cluster, ClusterEvent, CycleState, EventKind, ExtensionPoints, Filter, NodeInfo, Plugin,
    PodInfo, Rejection,
};
use serde_json::Value;

pub(crate) struct NodeName;

impl Plugin for NodeName {
    const NAME: &'static str = "NodeName";

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self)
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.filter(&self);
    }

    fn events_to_register(&self) -> &'static [EventKind] {
        &[EventKind::NodeAdded]
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> bool {
        matches!(event, ClusterEvent::NodeAdded(node) if &*node.name == pod.node_name())
    }
}

impl Filter for NodeName {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        match pod.node_name() {
            "" => Ok(()),
            name if name == &*node.name => Ok(()),
            _ => Err(Rejection::unresolvable(
                Self::NAME,
                "node(s) didn't match the requested node name",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{build_pod, labelled_node};
    use serde_json::json;

    #[test]
    fn pod_with_a_node_name_fits_only_on_that_node() {
        for (spec, want) in [
            (json!({}), true),
            (json!({"nodeName": "n"}), true),
            (json!({"nodeName": "other"}), false),
        ] {
            let (pod, node) = (build_pod(spec.clone()), labelled_node("n", json!({})));
            assert_eq!(
                NodeName.filter(&CycleState::default(), &pod, &node).is_ok(),
                want,
                "{spec}"
            );
            let added = ClusterEvent::NodeAdded(Arc::new(node));
            let named = spec.get("nodeName").is_some();
            assert_eq!(
                NodeName.queueing_hint(&pod, &added),
                want && named,
                "{spec}"
            );
        }
    }
}
