//! Host ports: two pods can't listen on the same one.

use crate::pod::spec::{self, Role};
use k8s_openapi::api::core::v1::{ContainerPort, Pod};
use std::sync::Arc;

pub(crate) const MESSAGE: &str = "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the \
                                  requested pod ports";

/// Returns whether another pod uses one of the pod's host ports.
pub(crate) fn has_conflict(pod: &Pod, others: &[Arc<Pod>]) -> bool {
    let taken: Vec<&ContainerPort> = others.iter().flat_map(|other| host_ports(other)).collect();
    host_ports(pod).any(|own_port| taken.iter().any(|port| ports_overlap(own_port, port)))
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let sidecars = spec::init_containers(pod)
        .filter(|(role, _)| *role == Role::Sidecar)
        .map(|(_, c)| c);
    let all = sidecars
        .chain(spec::app_containers(pod))
        .flat_map(|c| c.ports.iter().flatten());
    all.filter(|p| p.host_port.is_some_and(|port| port > 0))
}

fn ports_overlap(a: &ContainerPort, b: &ContainerPort) -> bool {
    fn protocol(port: &ContainerPort) -> &str {
        port.protocol
            .as_deref()
            .filter(|p| !p.is_empty())
            .unwrap_or("TCP")
    }
    fn address(port: &ContainerPort) -> Option<&str> {
        port.host_ip
            .as_deref()
            .filter(|ip| !matches!(*ip, "" | "0.0.0.0" | "::"))
    }
    let addresses = address(a).zip(address(b)).is_none_or(|(a, b)| a == b);
    a.host_port == b.host_port && protocol(a) == protocol(b) && addresses
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod(ports: Value) -> Pod {
        serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "ports": ports}]}}))
            .unwrap()
    }

    #[test]
    fn host_port_is_taken_once_for_an_address_and_protocol() {
        let taken = [Arc::new(pod(
            json!([{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}]),
        ))];
        for (port, want) in [
            (json!({"hostPort": 80}), true),
            (json!({"hostPort": 80, "hostIP": "0.0.0.0"}), true),
            (json!({"hostPort": 80, "hostIP": "10.0.0.1"}), true),
            (json!({"hostPort": 80, "hostIP": "10.0.0.2"}), false),
            (json!({"hostPort": 80, "protocol": "UDP"}), false),
            (json!({"hostPort": 81}), false),
            (json!({}), false),
        ] {
            let mut own_port = json!({"containerPort": 80});
            own_port
                .as_object_mut()
                .unwrap()
                .extend(port.as_object().unwrap().clone());
            assert_eq!(
                has_conflict(&pod(json!([own_port])), &taken),
                want,
                "{port}"
            );
        }
    }
}
