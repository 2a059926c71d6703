//! Tests of the rules: an interpreter evaluates packets against the text that nft would get.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod api_rules;
mod increments;
mod interpreter;
mod life_cycle;
mod limits;
mod oracle;

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use net_nft::{Family, Protocol};
use serde_json::{Value, json};

use super::*;

/// A packet that opens a connection.
#[derive(Debug, Clone, Copy)]
struct Packet {
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    port: u16,
}

/// Objects of a cluster, and the rules of node n1.
struct Cluster {
    state: PolicyState,
    pods: BTreeMap<String, PolicyPod>,
    namespaces: BTreeMap<String, Labels>,
    policies: BTreeMap<String, NetworkPolicy>,
}

fn guarded_network() -> GuardedNetwork {
    GuardedNetwork {
        ranges: vec![
            "10.244.0.0/24".parse().unwrap(),
            "fd00::/64".parse().unwrap(),
        ],
        bridge: Some("br0".to_owned()),
    }
}

impl Cluster {
    fn new() -> Self {
        Self {
            state: PolicyState::new(vec![Family::V4, Family::V6], guarded_network()),
            pods: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            policies: BTreeMap::new(),
        }
    }

    fn set_namespace(&mut self, name: &str, labels: Value) {
        let labels: Labels = serde_json::from_value(labels).unwrap();
        self.state.set_namespace(name, Some(labels.clone()));
        self.namespaces.insert(name.to_owned(), labels);
    }

    fn set_pod(&mut self, key: &str, object: Value) {
        let object: Pod = serde_json::from_value(object).unwrap();
        let pod = PolicyPod::new(&object, "n1");
        match &pod {
            Some(pod) => self.pods.insert(key.to_owned(), pod.clone()),
            None => self.pods.remove(key),
        };
        self.state.set_pod(key, pod);
    }

    fn delete_pod(&mut self, key: &str) {
        self.pods.remove(key);
        self.state.set_pod(key, None);
    }

    fn set_policy(&mut self, key: &str, spec: Value) {
        let (namespace, name) = key.split_once('/').unwrap();
        let object = json!({ "metadata": { "namespace": namespace, "name": name }, "spec": spec });
        let object: NetworkPolicy = serde_json::from_value(object).unwrap();
        self.state.set_policy(key, Some(Policy::new(&object)));
        self.policies.insert(key.to_owned(), object);
    }

    fn delete_policy(&mut self, key: &str) {
        self.policies.remove(key);
        self.state.set_policy(key, None);
    }

    /// Returns whether the rules let a packet pass.
    fn passes(&mut self, packet: Packet) -> bool {
        self.state.update_rules();
        interpreter::passes(&self.state, packet)
    }
}

fn pod(key: &str, node: &str, labels: Value, addresses: &[&str]) -> Value {
    let (namespace, name) = key.split_once('/').unwrap();
    let addresses: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
    json!({
        "metadata": { "namespace": namespace, "name": name, "uid": format!("uid-{key}"), "labels": labels },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "ports": [
            { "name": "web", "containerPort": 80 },
            { "name": "alt", "containerPort": 81 },
            { "name": "udp-web", "containerPort": 80, "protocol": "UDP" }] }] },
        "status": { "phase": "Running", "podIPs": addresses },
    })
}
