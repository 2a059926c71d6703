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
            // Resolvable: the pod that has the port may be a victim of a preemption.
            let reason = "node(s) didn't have free ports for the requested pod ports";
            return Err(Rejection::unschedulable(Self::NAME, reason));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{build_pod, labelled_node, named_pod};
    use serde_json::json;

    fn ports(host_ip: &str, protocol: &str, port: i32) -> Value {
        json!({"containers": [{"name": "c", "ports": [
            {"containerPort": 80, "hostPort": port, "hostIP": host_ip, "protocol": protocol}]}]})
    }

    #[test]
    fn host_port_conflicts_by_port_protocol_and_overlapping_address() {
        let mut node = labelled_node("n", json!({}));
        node.add_pod(Arc::new(named_pod(
            "a",
            json!({}),
            ports("10.0.0.1", "TCP", 8080),
        )));
        let cases = [
            (ports("10.0.0.1", "TCP", 8080), false),
            (ports("", "TCP", 8080), false),
            (ports("0.0.0.0", "TCP", 8080), false),
            (ports("10.0.0.2", "TCP", 8080), true),
            (ports("10.0.0.1", "UDP", 8080), true),
            (ports("10.0.0.1", "TCP", 8081), true),
        ];
        for (spec, want) in cases {
            let got = NodePorts.filter(&CycleState::default(), &build_pod(spec.clone()), &node);
            assert_eq!(got.is_ok(), want, "{spec}");
            let code = got.err().map(|rejection| rejection.code);
            assert!(code.is_none_or(|code| code == scheduler_framework::Code::Unschedulable));
        }
    }

    #[test]
    fn port_of_a_sidecar_counts_and_that_of_an_init_container_does_not() {
        let init = |policy: Value| {
            json!({"initContainers": [{"name": "i", "restartPolicy": policy,
                "ports": [{"containerPort": 80, "hostPort": 8080}]}]})
        };
        assert_eq!(build_pod(init(json!("Always"))).host_ports.len(), 1);
        assert!(build_pod(init(Value::Null)).host_ports.is_empty());
    }

    #[test]
    fn pod_without_host_ports_skips_the_filter_and_its_deletion_helps_no_other() {
        let skips = |pod: &PodInfo| {
            let result =
                NodePorts.pre_filter(&mut CycleState::default(), pod, &Snapshot::default());
            matches!(result, PreFilterResult::Skip)
        };
        let (plain, with_port) = (build_pod(json!({})), build_pod(ports("", "TCP", 80)));
        assert!(skips(&plain) && !skips(&with_port));
        let deleted = |pod: PodInfo| ClusterEvent::AssignedPodDeleted(Arc::new(pod));
        assert!(!NodePorts.queueing_hint(&with_port, &deleted(plain)));
        assert!(NodePorts.queueing_hint(&with_port, &deleted(build_pod(ports("", "TCP", 80)))));
    }
}
