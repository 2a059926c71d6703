//! NodeUnschedulable: cordoned nodes accept only pods that tolerate the taint `unschedulable`.

use std::sync::Arc;

use api_semantics::tolerations::any_tolerates;
use k8s_openapi::api::core::v1::Taint;
use scheduler_framework::{
    Cluster, ClusterEvent, CycleState, EventKind, ExtensionPoints, Filter, NodeInfo, Plugin,
    PodInfo, Rejection,
};
use serde_json::Value;

pub(crate) struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    const NAME: &'static str = "NodeUnschedulable";

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self)
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.filter(&self);
    }

    fn events_to_register(&self) -> &'static [EventKind] {
        &[
            EventKind::NodeAdded,
            EventKind::NodeTaints,
            EventKind::PodUpdated,
        ]
    }

    fn queueing_hint(&self, _pod: &PodInfo, event: &ClusterEvent) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => !node.is_unschedulable(),
            ClusterEvent::NodeUpdated { old, new } => {
                old.is_unschedulable() && !new.is_unschedulable()
            }
            event => matches!(event, ClusterEvent::PodUpdated { .. }),
        }
    }
}

impl Filter for NodeUnschedulable {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        if !node.is_unschedulable() {
            return Ok(());
        }
        // Cordoning sets the field at once and the taint soon after; the field alone must have the
        // taint's effect. DaemonSet pods tolerate it.
        let taint = Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        let tolerations = pod
            .spec()
            .and_then(|spec| spec.tolerations.as_deref())
            .unwrap_or_default();
        if any_tolerates(tolerations, &taint) {
            return Ok(());
        }
        Err(Rejection::unresolvable(
            Self::NAME,
            "node(s) were unschedulable",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{build_node, build_pod};
    use serde_json::json;

    #[test]
    fn cordoned_node_rejects_pods_without_its_toleration() {
        let cordoned = build_node("n", json!({}), json!({"unschedulable": true}), json!({}));
        let check = |spec| {
            NodeUnschedulable
                .filter(&CycleState::default(), &build_pod(spec), &cordoned)
                .is_ok()
        };
        assert!(!check(json!({})));
        let key = "node.kubernetes.io/unschedulable";
        assert!(check(
            json!({"tolerations": [{"key": key, "operator": "Exists"}]})
        ));
    }

    #[test]
    fn node_event_helps_only_if_the_node_is_uncordoned() {
        let node = |cordoned: bool| {
            Arc::new(build_node(
                "n",
                json!({}),
                json!({"unschedulable": cordoned}),
                json!({}),
            ))
        };
        let pod = build_pod(json!({}));
        let updated = |old, new| ClusterEvent::NodeUpdated {
            old: node(old),
            new: node(new),
        };
        let cases = [
            (updated(true, false), true),
            (updated(false, true), false),
            (updated(false, false), false),
            (ClusterEvent::NodeAdded(node(false)), true),
            (ClusterEvent::NodeAdded(node(true)), false),
        ];
        for (event, want) in cases {
            assert_eq!(
                NodeUnschedulable.queueing_hint(&pod, &event),
                want,
                "{event:?}"
            );
        }
    }
}
