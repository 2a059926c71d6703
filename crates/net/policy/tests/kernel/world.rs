//! The namespaces, and the rules of the node.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use net_nft::{Commands, Family};
use net_policy::{GuardedNetwork, Policy, PolicyPod, PolicyState};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

/// Pods of the node, and the last part of their addresses.
pub const PODS: [(&str, u8); 3] = [("a", 2), ("b", 3), ("c", 4)];
/// A host outside of the cluster.
pub const OUTSIDE: &str = "outside";

/// A node with pods and a host outside. Dropping it removes everything.
pub struct World {
    tag: String,
    pub state: PolicyState,
}

pub fn sh(script: &str) -> Result<String, String> {
    let output = Command::new("sh")
        .args(["-ec", script])
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{script}: {errors}"))
}

pub fn network() -> GuardedNetwork {
    GuardedNetwork {
        ranges: vec![
            "10.244.0.0/24".parse().unwrap(),
            "fd00::/64".parse().unwrap(),
        ],
        bridge: Some("br0".to_owned()),
    }
}

impl World {
    /// Returns None, with the reason printed, if this machine does not allow it.
    pub fn start() -> Option<Self> {
        let made = Self::create();
        made.map_err(|reason| println!("skipped: {reason}")).ok()
    }

    fn create() -> Result<Self, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let families = vec![Family::V4, Family::V6];
        let world = Self {
            tag: format!("icn{}-{count}", std::process::id()),
            state: PolicyState::new(families, network()),
        };
        world.create_node()?;
        for (pod, host) in PODS {
            world.create_pod(pod, host)?;
        }
        Ok(world)
    }

    fn create_node(&self) -> Result<(), String> {
        let (node, outside) = (self.name("node"), self.name(OUTSIDE));
        // Without detection of duplicates, IPv6 addresses work at once.
        sh(&format!(
            "ip netns add {node}
             ip netns add {outside}
             for ns in {node} {outside}; do ip -n $ns link set lo up; ip netns exec $ns sh -c 'echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; echo 0 > /proc/sys/net/ipv6/conf/all/accept_dad'; done
             ip -n {node} link add br0 type bridge
             ip -n {node} addr add 10.244.0.1/24 dev br0
             ip -n {node} addr add fd00::1/64 dev br0 nodad
             ip -n {node} link set br0 up
             ip -n {node} link add up0 type veth peer name eth0 netns {outside}
             ip -n {node} addr add 192.0.2.1/24 dev up0
             ip -n {node} addr add 2001:db8::1/64 dev up0 nodad
             ip -n {node} link set up0 up
             ip -n {outside} addr add 192.0.2.2/24 dev eth0
             ip -n {outside} addr add 192.0.2.3/24 dev eth0
             ip -n {outside} addr add 2001:db8::2/64 dev eth0 nodad
             ip -n {outside} link set eth0 up
             ip -n {outside} route add default via 192.0.2.1
             ip -n {outside} -6 route add default via 2001:db8::1
             ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
             ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables; echo 1 > /proc/sys/net/bridge/bridge-nf-call-ip6tables'
             ip netns exec {node} nft list tables"
        ))?;
        Ok(())
    }

    fn create_pod(&self, pod: &str, host: u8) -> Result<(), String> {
        let (node, inside) = (self.name("node"), self.name(pod));
        sh(&format!(
            "ip netns add {inside}
             ip netns exec {inside} sh -c 'echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; echo 0 > /proc/sys/net/ipv6/conf/all/accept_dad'
             ip -n {node} link add v{pod} type veth peer name eth0 netns {inside}
             ip -n {node} link set v{pod} master br0 up
             ip -n {node} link set v{pod} type bridge_slave hairpin on
             ip -n {inside} link set lo up
             ip -n {inside} addr add 10.244.0.{host}/24 dev eth0
             ip -n {inside} addr add fd00::{host}/64 dev eth0 nodad
             ip -n {inside} link set eth0 up
             ip -n {inside} route add default via 10.244.0.1
             ip -n {inside} -6 route add default via fd00::1"
        ))
        .map(drop)
    }

    pub fn name(&self, what: &str) -> String {
        format!("{}-{what}", self.tag)
    }

    /// Runs `work` in a thread in one of the namespaces.
    pub fn run_inside<T: Send + 'static>(
        &self,
        place: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let path = format!("/run/netns/{}", self.name(place));
        std::thread::spawn(move || {
            let namespace = File::open(path).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        })
    }

    /// Applies commands on the node.
    pub fn nft(&self, commands: &str) {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.name("node"), "nft", "-f", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(commands.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}\n{commands}");
    }

    /// Returns the rules of the node, without counters of connections.
    pub fn list_rules(&self) -> String {
        let node = self.name("node");
        let lists = ["ip", "ip6"].map(|family| {
            sh(&format!(
                "ip netns exec {node} nft list table {family} ironclad-network-policy"
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
                { "name": "udp-web", "containerPort": 8080, "protocol": "UDP" }] }] },
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

impl Drop for World {
    fn drop(&mut self) {
        for name in ["a", "b", "c", OUTSIDE, "node"] {
            let _ = sh(&format!("ip netns del {}", self.name(name)));
        }
    }
}
