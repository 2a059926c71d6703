//! A pod as policies see it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api_semantics::pods;
use api_semantics::selectors::Labels;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use net_nft::Protocol;

/// Maximum number of ports with one name and protocol in a pod.
const MAX_NUMBERS: usize = 16;

/// A container port with a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedPort {
    /// Name of the port.
    pub name: String,
    /// Protocol.
    pub protocol: Protocol,
    /// Number of the port.
    pub number: u16,
}

/// The part of a pod that the rules depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyPod {
    /// Namespace of the pod.
    pub namespace: String,
    /// UID of the pod.
    pub uid: String,
    /// Time of creation, in the form of the API, which sorts.
    pub created: String,
    /// Labels of the pod.
    pub labels: Labels,
    /// Addresses, one for each family; none until the kubelet reports them.
    pub addresses: Vec<IpAddr>,
    /// Named ports of its containers.
    pub ports: Vec<NamedPort>,
    /// The pod is bound to this node.
    pub is_local: bool,
}

impl PolicyPod {
    /// Returns the pod as seen from a node. None for pods that policies do not apply to: those in
    /// the node's network, whose traffic is the node's, and those that have terminated, whose
    /// addresses may already belong to other pods. A pod that is being deleted still counts.
    #[must_use]
    pub fn new(pod: &Pod, node: &str) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        if spec.host_network == Some(true) || pods::is_terminal(pod) {
            return None;
        }
        let meta = &pod.metadata;
        Some(Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            created: meta
                .creation_timestamp
                .as_ref()
                .map(|time| time.0.to_string())
                .unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            addresses: read_addresses(pod),
            ports: read_ports(spec),
            is_local: spec.node_name.as_deref() == Some(node),
        })
    }
}

fn read_addresses(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    let listed = status
        .pod_ips
        .iter()
        .flatten()
        .map(|address| address.ip.as_str());
    // Clients of an old API version write the single field only.
    let mut found: Vec<IpAddr> = listed
        .chain(status.pod_ip.as_deref())
        .filter_map(|text| text.parse().ok())
        .collect();
    found.sort();
    found.dedup();
    found
}

fn read_ports(spec: &PodSpec) -> Vec<NamedPort> {
    // Init containers have ended when others connect, except for sidecars.
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let mut found: Vec<NamedPort> = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(container_ports)
        .collect();
    found.sort();
    found.dedup();
    limit_numbers(found)
}

/// Keeps the first numbers of each name and protocol: names are unique within a container only, and
/// the pods of one tenant would use up the room that the sets of another one have.
fn limit_numbers(sorted: Vec<NamedPort>) -> Vec<NamedPort> {
    let mut counts: BTreeMap<(String, Protocol), usize> = BTreeMap::new();
    let mut is_kept = |port: &NamedPort| {
        let count = counts
            .entry((port.name.clone(), port.protocol))
            .or_default();
        *count += 1;
        *count <= MAX_NUMBERS
    };
    sorted.into_iter().filter(|port| is_kept(port)).collect()
}

fn container_ports(container: &Container) -> impl Iterator<Item = NamedPort> {
    container.ports.iter().flatten().filter_map(|port| {
        Some(NamedPort {
            name: port.name.clone()?,
            protocol: Protocol::parse(port.protocol.as_deref())?,
            number: u16::try_from(port.container_port).ok()?,
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn read(spec: Value, status: Value) -> Option<PolicyPod> {
        let pod = json!({ "metadata": { "namespace": "ns", "name": "p" }, "spec": spec, "status": status });
        PolicyPod::new(&serde_json::from_value(pod).unwrap(), "n1")
    }

    fn containers() -> Value {
        json!([{ "name": "c", "ports": [
            { "name": "web", "containerPort": 80 },
            { "name": "dns", "containerPort": 53, "protocol": "UDP" },
            { "containerPort": 81 }] }])
    }

    #[test]
    fn ports_of_one_name_are_limited() {
        let ports = |first: u16, name: &str| -> Vec<Value> {
            let numbers = first..first + 100;
            let port = |number| json!({ "name": name, "containerPort": number });
            numbers.map(port).collect()
        };
        let containers = json!([
            { "name": "a", "ports": ports(1000, "dns") },
            { "name": "b", "ports": ports(2000, "dns") },
            { "name": "c", "ports": ports(80, "web") },
        ]);
        let status = json!({ "phase": "Running", "podIP": "10.244.0.2" });
        let pod = read(json!({ "containers": containers }), status).unwrap();
        let count = |name: &str| pod.ports.iter().filter(|port| port.name == name).count();
        assert_eq!((count("dns"), count("web")), (MAX_NUMBERS, MAX_NUMBERS));
    }

    #[test]
    fn pods_of_the_node_network_and_terminated_pods_do_not_count() {
        let running = json!({ "phase": "Running", "podIP": "10.244.0.2" });
        for (spec, status, expect) in [
            (json!({ "containers": [] }), running.clone(), true),
            (
                json!({ "containers": [], "hostNetwork": false }),
                running.clone(),
                true,
            ),
            (
                json!({ "containers": [], "hostNetwork": true }),
                running.clone(),
                false,
            ),
            (
                json!({ "containers": [] }),
                json!({ "phase": "Unknown" }),
                true,
            ),
            (
                json!({ "containers": [] }),
                json!({ "phase": "Failed" }),
                false,
            ),
            (
                json!({ "containers": [] }),
                json!({ "phase": "Succeeded" }),
                false,
            ),
        ] {
            assert_eq!(
                read(spec.clone(), status.clone()).is_some(),
                expect,
                "{spec} {status}"
            );
        }
    }

    #[test]
    fn terminating_pod_still_counts() {
        let pod = json!({
            "metadata": { "namespace": "ns", "name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "containers": [] }, "status": { "phase": "Running" } });
        assert!(PolicyPod::new(&serde_json::from_value(pod).unwrap(), "n1").is_some());
    }

    #[test]
    fn addresses_and_named_ports_are_those_of_both_families_and_of_sidecars() {
        let spec = json!({
            "nodeName": "n1", "containers": containers(),
            "initContainers": [
                { "name": "i", "ports": [{ "name": "init", "containerPort": 1 }] },
                { "name": "s", "restartPolicy": "Always", "ports": [{ "name": "side", "containerPort": 2 }] }] });
        let status = json!({ "podIP": "10.244.0.2",
            "podIPs": [{ "ip": "10.244.0.2" }, { "ip": "fd00::2" }] });
        let pod = read(spec, status).unwrap();
        assert!(pod.is_local);
        assert_eq!(pod.addresses.len(), 2);
        let names: Vec<&str> = pod.ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(names, ["dns", "side", "web"]);
    }

    #[test]
    fn pod_of_another_node_is_not_local() {
        for node in [json!("n2"), Value::Null] {
            let pod = read(json!({ "nodeName": node, "containers": [] }), json!({})).unwrap();
            assert!(!pod.is_local);
        }
    }
}
