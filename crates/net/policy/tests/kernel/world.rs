//! The rules of a node, with its network.

use std::ops::Deref;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use net_nft::{Commands, Family};
use net_policy::{GuardedNetwork, Policy, PolicyPod, PolicyState, find_stale_connections};
use serde_json::{Value, json};
use testkit_network::{NodeNetwork, PODS, Transport, run_script};

/// A node of a test.
pub struct World {
    network: NodeNetwork,
    pub state: PolicyState,
}

impl Deref for World {
    type Target = NodeNetwork;

    fn deref(&self) -> &NodeNetwork {
        &self.network
    }
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

impl World {
    /// Returns None, with the reason printed, if the caller is not root.
    pub fn start() -> Option<Self> {
        let network = NodeNetwork::create_as_root()?;
        let families = vec![Family::V4, Family::V6];
        Some(Self {
            network,
            state: PolicyState::new(families, guarded_network()),
        })
    }

    /// Asserts that connections over TCP work or not.
    #[track_caller]
    pub fn check(&self, from: &str, to: &str, expect: bool) {
        let found = self.reaches(from, to, Transport::Tcp, expect);
        assert_eq!(found, expect, "{from} to {to}\n{}", self.list_rules());
    }

    /// Returns the rules of the node, without counters of connections.
    pub fn list_rules(&self) -> String {
        let node = self.name("node");
        let lists = ["ip", "ip6"].map(|family| {
            run_script(&format!(
                "ip netns exec {node} nft list table {family} kube-proxy-policy"
            ))
        });
        lists.map(Result::unwrap).concat()
    }

    /// Installs everything, as the agent does at its start.
    pub fn install(&mut self) {
        let commands = self.state.install_commands();
        self.nft(&commands);
    }

    /// Applies the changes since the last call, as the agent does.
    pub fn sync(&mut self) {
        let Commands { change, removal } = self.state.take_changes();
        self.nft(&change);
        self.nft(&removal);
    }

    /// Deletes tracked connections, as the agent does after a sync.
    pub fn delete_stale_connections(&mut self) {
        let stale = self.state.take_stale_addresses();
        let run = |arguments: &str| {
            let node = self.name("node");
            run_script(&format!("ip netns exec {node} conntrack {arguments}"))
        };
        let listing = ["-L -f ipv4", "-L -f ipv6"].map(|arguments| run(arguments).unwrap());
        for arguments in find_stale_connections(&stale, &listing.concat()) {
            // It fails if there is no such entry, because another call has deleted it.
            let _ = run(&arguments.join(" "));
        }
    }

    /// Sets a pod with the addresses of its namespace, or with none.
    pub fn set_pod(&mut self, name: &str, labels: Value, has_address: bool) {
        let host = PODS.iter().find(|(pod, _)| *pod == name).unwrap().1;
        let addresses = if has_address {
            json!([{ "ip": format!("10.244.0.{host}") }, { "ip": format!("fd00::{host}") }])
        } else {
            json!([])
        };
        let object: Pod = serde_json::from_value(json!({
            "metadata": { "namespace": "ns", "name": name, "uid": name, "labels": labels },
            "spec": { "nodeName": "n1", "containers": [{ "name": "c", "ports": [
                { "name": "web", "containerPort": 8080 },
                { "name": "udp-web", "containerPort": 8080, "protocol": "UDP" },
                { "name": "sctp-web", "containerPort": 8080, "protocol": "SCTP" }] }] },
            "status": { "phase": "Running", "podIPs": addresses },
        }))
        .unwrap();
        let key = format!("ns/{name}");
        self.state.set_pod(&key, PolicyPod::new(&object, "n1"));
    }

    /// Sets a policy of the pods' namespace.
    pub fn set_policy(&mut self, name: &str, spec: Value) {
        let object = json!({ "metadata": { "namespace": "ns", "name": name }, "spec": spec });
        let object: NetworkPolicy = serde_json::from_value(object).unwrap();
        let key = format!("ns/{name}");
        self.state.set_policy(&key, Some(Policy::new(&object)));
    }

    pub fn delete_policy(&mut self, name: &str) {
        self.state.set_policy(&format!("ns/{name}"), None);
    }
}
