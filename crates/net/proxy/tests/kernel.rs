//! Tests the generated rules in a real kernel: a node and two pods, each in a network namespace.
//!
//! Skipped, with the reason printed, if namespaces or nftables are not available.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use net_proxy::{
    BaseChainOptions, DesiredRules, Family, LocalNode, ServiceRules, build_base_chains,
    build_service_rules,
};
use serde_json::{Value, json};

/// A node with a bridge and pods behind it; dropping it removes everything.
struct World {
    tag: String,
    servers: Vec<Child>,
}

fn sh(script: &str) -> Result<String, String> {
    let output = Command::new("sh")
        .args(["-ec", script])
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!(
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    ))
}

impl World {
    fn new() -> Result<Self, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let world = Self {
            tag: format!("icp{}-{count}", std::process::id()),
            servers: Vec::new(),
        };
        let node = world.name("node");
        sh(&format!(
            "ip netns add {node}
             ip -n {node} link set lo up
             ip -n {node} link add br0 type bridge
             ip -n {node} addr add 10.244.0.1/24 dev br0
             ip -n {node} link set br0 up
             ip -n {node} route add 10.96.0.0/16 dev lo src 10.244.0.1
             ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
             ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables'
             ip netns exec {node} nft list tables"
        ))?;
        Ok(world)
    }

    fn name(&self, what: &str) -> String {
        format!("{}-{what}", self.tag)
    }

    /// Adds a pod that serves its name over HTTP on port 8080.
    fn pod(&mut self, name: &str, address: &str) -> Result<(), String> {
        let (node, pod) = (self.name("node"), self.name(name));
        sh(&format!(
            "ip netns add {pod}
             ip -n {node} link add v{name} type veth peer name eth0 netns {pod}
             ip -n {node} link set v{name} master br0 up
             ip -n {node} link set v{name} type bridge_slave hairpin on
             ip -n {pod} link set lo up
             ip -n {pod} addr add {address}/24 dev eth0
             ip -n {pod} link set eth0 up
             ip -n {pod} route add default via 10.244.0.1"
        ))?;
        self.server(name, 8080);
        Ok(())
    }

    /// Starts an HTTP server in a namespace; it responds with the namespace's name.
    fn server(&mut self, name: &str, port: u16) {
        let script = format!(
            "d=$(mktemp -d); echo {name} > $d/index.html; exec busybox httpd -f -p {port} -h $d"
        );
        let server = Command::new("ip")
            .args(["netns", "exec", &self.name(name), "sh", "-c", &script])
            .stdout(Stdio::null())
            .spawn()
            .expect("ip was run before");
        self.servers.push(server);
    }

    fn nft(&self, commands: &str) {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.name("node"), "nft", "-f", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(commands.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}\n{commands}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Returns the distinct responses to several requests from one of the namespaces.
    fn ask(&self, from: &str, url: &str) -> Result<Vec<String>, String> {
        let from = self.name(from);
        let script = format!(
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do ip netns exec {from} timeout 2 busybox wget -q -O - http://{url}/; done"
        );
        let mut answers: Vec<String> = sh(&script)?.lines().map(str::to_owned).collect();
        answers.sort();
        answers.dedup();
        Ok(answers)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        for name in ["a", "b", "node"] {
            let _ = sh(&format!("ip netns del {}", self.name(name)));
        }
    }
}

fn rules(more: &Value, backends: &[&str]) -> ServiceRules {
    rules_at(more, backends, "n1")
}

fn node_by_range() -> LocalNode {
    LocalNode {
        name: "n1".into(),
        families: vec![Family::V4],
        pod_ranges: vec!["10.244.0.0/16".parse().unwrap()],
        ..LocalNode::default()
    }
}

fn node_by_interface(pattern: &str) -> LocalNode {
    LocalNode {
        pod_ranges: Vec::new(),
        pod_interface: Some(pattern.to_owned()),
        ..node_by_range()
    }
}

/// Returns the rules on node n1 of a Service with its endpoints on some node.
fn rules_at(more: &Value, backends: &[&str], of: &str) -> ServiceRules {
    rules_on(&node_by_range(), more, backends, of)
}

fn rules_on(node: &LocalNode, more: &Value, backends: &[&str], of: &str) -> ServiceRules {
    let mut spec = json!({ "clusterIPs": ["10.96.0.7"], "ports": [{ "port": 80, "nodePort": 30080 }], "type": "NodePort" });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let service: Service = serde_json::from_value(
        json!({ "metadata": { "namespace": "ns", "name": "web" }, "spec": spec }),
    )
    .unwrap();
    let endpoints: Vec<Value> = backends
        .iter()
        .map(|ip| json!({ "addresses": [ip], "nodeName": of, "conditions": { "ready": true } }))
        .collect();
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": { "namespace": "ns", "name": "web-1" }, "addressType": "IPv4",
        "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }], "endpoints": endpoints,
    }))
    .unwrap();
    build_service_rules(&service, &[Arc::new(slice)], node)
}

fn world() -> Option<World> {
    let made = World::new().and_then(|mut world| {
        world.pod("a", "10.244.0.2")?;
        world.pod("b", "10.244.0.3")?;
        Ok(world)
    });
    made.map_err(|reason| println!("skipped: {reason}")).ok()
}

#[test]
fn connections_reach_endpoints_and_follow_changes() {
    let Some(world) = world() else { return };
    let options = BaseChainOptions {
        masquerade_bit: 14,
        node_port_addresses: vec!["10.244.0.1".parse().unwrap()],
        ..BaseChainOptions::default()
    };
    world.nft(&build_base_chains(Family::V4, &options));
    let mut desired = DesiredRules::default();
    let mut apply = |fragment: ServiceRules| {
        let commands = desired.set_rules("ns/web", fragment);
        world.nft(&commands.change);
        world.nft(&commands.removal);
    };
    let (one, both) = (["10.244.0.2"], ["10.244.0.2", "10.244.0.3"]);
    apply(rules(&json!({}), &both));
    std::thread::sleep(std::time::Duration::from_millis(300));

    assert_eq!(
        world.ask("a", "10.96.0.7"),
        Ok(vec!["a".into(), "b".into()]),
        "pod to cluster address"
    );
    assert_eq!(
        world.ask("node", "10.96.0.7"),
        Ok(vec!["a".into(), "b".into()]),
        "node to cluster address"
    );
    assert_eq!(
        world.ask("b", "10.244.0.1:30080"),
        Ok(vec!["a".into(), "b".into()]),
        "node port"
    );
    assert!(
        world.ask("node", "127.0.0.1:30080").is_err(),
        "node ports are closed at loopback"
    );

    apply(rules(&json!({}), &one));
    assert_eq!(
        world.ask("a", "10.96.0.7"),
        Ok(vec!["a".into()]),
        "a pod reaches itself"
    );
    assert_eq!(world.ask("b", "10.96.0.7"), Ok(vec!["a".into()]));

    apply(rules(&json!({ "sessionAffinity": "ClientIP" }), &both));
    assert_eq!(
        world.ask("b", "10.96.0.7").map(|answers| answers.len()),
        Ok(1),
        "affinity"
    );

    apply(rules(&json!({}), &[]));
    let began = std::time::Instant::now();
    assert!(
        world.ask("b", "10.96.0.7").is_err() && began.elapsed().as_secs() < 1,
        "refused at once"
    );

    apply(ServiceRules::default());
    let left = sh(&format!(
        "ip netns exec {} nft list table ip kube-proxy",
        world.name("node")
    ))
    .unwrap();
    assert!(!left.contains("ns/web"), "{left}");
}

/// A restart of the proxy installs the whole table again.
#[test]
fn full_install_keeps_session_affinity() {
    let Some(world) = world() else { return };
    let options = BaseChainOptions {
        masquerade_bit: 14,
        ..BaseChainOptions::default()
    };
    let mut desired = DesiredRules::default();
    desired.set_rules(
        "ns/web",
        rules(
            &json!({ "sessionAffinity": "ClientIP" }),
            &["10.244.0.2", "10.244.0.3"],
        ),
    );
    world.nft(&(build_base_chains(Family::V4, &options) + &desired.install_commands()));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let bound = world.ask("b", "10.96.0.7").unwrap();
    assert_eq!(bound.len(), 1, "{bound:?}");
    for _ in 0..8 {
        let listing = sh(&format!(
            "ip netns exec {} nft -j list sets",
            world.name("node")
        ))
        .unwrap();
        world.nft(
            &(build_base_chains(Family::V4, &options)
                + &desired.install_commands()
                + &desired.keep_affinity(&listing)),
        );
        assert_eq!(world.ask("b", "10.96.0.7").unwrap(), bound);
    }
}

/// The short circuit: for the node and its pods, the policy Local does not hide endpoints of other
/// nodes.
#[test]
fn node_and_pods_reach_remote_endpoints_of_a_service_with_local_policy() {
    let Some(world) = world() else { return };
    let options = BaseChainOptions {
        masquerade_bit: 14,
        node_port_addresses: vec!["10.244.0.1".parse().unwrap()],
        ..BaseChainOptions::default()
    };
    let spec = json!({ "externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.9"] });
    let nodes = [
        node_by_range(),
        node_by_interface("br0"),
        node_by_interface("br*"),
    ];
    for local in nodes {
        let mut desired = DesiredRules::default();
        let rules = rules_on(&local, &spec, &["10.244.0.2"], "n2");
        desired.set_rules("ns/web", rules);
        world.nft(&(build_base_chains(Family::V4, &options) + &desired.install_commands()));
        std::thread::sleep(std::time::Duration::from_millis(300));
        for from in ["node", "b"] {
            assert_eq!(
                world.ask(from, "10.244.0.1:30080"),
                Ok(vec!["a".into()]),
                "node port from {from}, {local:?}"
            );
        }
        assert_eq!(
            world.ask("b", "192.0.2.9"),
            Ok(vec!["a".into()]),
            "external IP from a pod, {local:?}"
        );
    }
    // Without a detection of pods, the policy Local applies to them too.
    let unknown = rules_on(&node_by_interface("eth0"), &spec, &["10.244.0.2"], "n2");
    let mut desired = DesiredRules::default();
    desired.set_rules("ns/web", unknown);
    world.nft(&(build_base_chains(Family::V4, &options) + &desired.install_commands()));
    assert!(world.ask("b", "192.0.2.9").is_err());
}

/// `nodePortAddresses: [0.0.0.0/0]`: also addresses that the node gets later, and never loopback.
#[test]
fn node_ports_of_a_whole_family_are_open_at_all_addresses_except_loopback() {
    let Some(world) = world() else { return };
    let options = BaseChainOptions {
        masquerade_bit: 14,
        node_port_families: vec![Family::V4],
        service_ranges: vec!["10.96.0.0/16".parse().unwrap()],
        ..BaseChainOptions::default()
    };
    let mut desired = DesiredRules::default();
    desired.set_rules("ns/web", rules(&json!({}), &["10.244.0.2"]));
    world.nft(&(build_base_chains(Family::V4, &options) + &desired.install_commands()));
    let node = world.name("node");
    sh(&format!("ip -n {node} addr add 192.0.2.2/32 dev lo")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    for address in ["10.244.0.1", "192.0.2.2"] {
        let answers = world.ask("b", &format!("{address}:30080"));
        assert_eq!(answers, Ok(vec!["a".into()]), "{address}");
    }
    assert!(world.ask("node", "127.0.0.1:30080").is_err());
    // Translated connections pass the chain that drops packets to unallocated cluster IPs.
    assert_eq!(world.ask("b", "10.96.0.7"), Ok(vec!["a".into()]));
    assert!(world.ask("b", "10.96.0.8").is_err());
}

/// CVE-2020-8558: host ports on 127.0.0.1 set `route_localnet` on the bridge.
#[test]
fn packet_of_a_pod_to_the_loopback_address_of_the_node_is_dropped() {
    let Some(world) = world() else { return };
    let (node, pod) = (world.name("node"), world.name("a"));
    sh(&format!(
        "ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/ipv4/conf/br0/route_localnet'
         ip -n {pod} route flush table local dev lo
         ip -n {pod} route add 127.0.0.1/32 via 10.244.0.1 dev eth0 src 10.244.0.2"
    ))
    .unwrap();
    world.nft("table ip probe { chain input { type filter hook input priority 0; udp dport 9099 counter; }; }\n");
    let delivered = || {
        sh(&format!(
            "ip netns exec {pod} bash -c 'echo hit > /dev/udp/127.0.0.1/9099'"
        ))
        .unwrap();
        sh(&format!(
            "ip netns exec {node} bash -c 'echo hit > /dev/udp/127.0.0.1/9099'"
        ))
        .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        let counter = sh(&format!("ip netns exec {node} nft list table ip probe"));
        let text = counter.unwrap();
        text.split("packets ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .and_then(|n| n.parse::<u32>().ok())
            .unwrap()
    };
    assert_eq!(
        delivered(),
        2,
        "without rules, the pod's packet and the node's own"
    );
    world.nft(&build_base_chains(
        Family::V4,
        &BaseChainOptions {
            masquerade_bit: 14,
            ..BaseChainOptions::default()
        },
    ));
    assert_eq!(delivered(), 3, "with rules, the node's own only");
}
