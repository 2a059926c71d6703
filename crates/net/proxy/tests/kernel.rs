//! Tests the generated rules in a real kernel: a node and two pods, each in a network namespace.
//!
//! Each test runs with nftables and with iptables. Skipped, with the reason printed, if namespaces
//! or one of these are not available.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

#[path = "kernel/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use net_proxy::{BaseChainOptions, Family, LocalNode, PodMatch, ServiceRules, build_service_rules};
use serde_json::{Value, json};
use world::{MODES, Mode, SCTP, UDP, World, sh};

/// Timeout of a packet, after which the test fails.
const DEADLINE: Duration = Duration::from_secs(60);

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

fn node_by_interface(pods: PodMatch) -> LocalNode {
    LocalNode {
        pod_ranges: Vec::new(),
        pod_interface: Some(pods),
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
    build_service_rules(&service, &[slice(backends, of)], node)
}

fn slice(backends: &[&str], of: &str) -> Arc<EndpointSlice> {
    let endpoints: Vec<Value> = backends
        .iter()
        .map(|ip| json!({ "addresses": [ip], "nodeName": of, "conditions": { "ready": true } }))
        .collect();
    let slice = serde_json::from_value(json!({
        "metadata": { "namespace": "ns", "name": "web-1" }, "addressType": "IPv4",
        "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }], "endpoints": endpoints,
    }));
    Arc::new(slice.unwrap())
}

/// Returns the options of a node with node ports at some addresses.
fn options_at(addresses: &[&str]) -> BaseChainOptions {
    BaseChainOptions {
        masquerade_bit: 14,
        node_port_addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
        ..BaseChainOptions::default()
    }
}

/// Runs a test with each mode.
fn with_each_mode(test: fn(World, Mode)) {
    for mode in MODES {
        println!("mode {mode:?}");
        if let Some(world) = World::with_pods(mode) {
            test(world, mode);
        }
    }
}

/// Asks again until each of two endpoints has responded: one is picked at random for each request.
/// Returns the distinct responses.
fn ask_both(ask: impl Fn() -> Result<Vec<String>, String>) -> Result<Vec<String>, String> {
    let mut found = BTreeSet::new();
    for _ in 0..10 {
        found.extend(ask()?);
        if found.len() > 1 {
            break;
        }
    }
    Ok(found.into_iter().collect())
}

fn names(names: &[&str]) -> Result<Vec<String>, String> {
    Ok(names.iter().map(|&name| name.to_owned()).collect())
}

#[test]
fn connections_reach_endpoints_and_follow_changes() {
    with_each_mode(|world, _| {
        let mut desired = world.desired();
        world.install(&desired, &options_at(&["10.244.0.1"]));
        let mut apply = |fragment: ServiceRules| {
            world.apply(&desired.set_rules("ns/web", fragment));
        };
        let (one, both) = (["10.244.0.2"], ["10.244.0.2", "10.244.0.3"]);
        apply(rules(&json!({}), &both));
        for (from, to) in [
            ("a", "10.96.0.7"),
            ("node", "10.96.0.7"),
            ("b", "10.244.0.1:30080"),
        ] {
            let found = ask_both(|| world.ask(from, to));
            assert_eq!(found, names(&["a", "b"]), "{from} to {to}");
        }
        let closed = world.ask("node", "127.0.0.1:30080");
        assert!(closed.is_err(), "node ports are closed at loopback");

        apply(rules(&json!({}), &one));
        // Also the pod itself.
        for from in ["a", "b"] {
            assert_eq!(world.ask(from, "10.96.0.7"), names(&["a"]), "{from}");
        }

        apply(rules(&json!({ "sessionAffinity": "ClientIP" }), &both));
        let bound = world.ask("b", "10.96.0.7").unwrap();
        assert_eq!(bound.len(), 1, "affinity");

        apply(rules(&json!({}), &[]));
        let refused = world.ask("b", "10.96.0.7").unwrap_err();
        assert!(refused.contains("Connection refused"), "{refused}");

        apply(ServiceRules::default());
        let left = world.list();
        assert!(
            !left.contains("ns/web") && !left.contains("KUBE-SEP-"),
            "{left}"
        );
    });
}

/// Returns whether Python can make sockets of the protocol here.
fn has_sockets(protocol: u8, kind: &str) -> Result<(), String> {
    let script =
        format!("import socket; socket.socket(socket.AF_INET, socket.SOCK_{kind}, {protocol})");
    sh(&format!("python3 -c '{script}'")).map(drop)
}

#[test]
fn packets_of_udp_and_sctp_reach_endpoints_and_follow_changes() {
    for (protocol, kind, name) in [(UDP, "DGRAM", "UDP"), (SCTP, "STREAM", "SCTP")] {
        if let Err(reason) = has_sockets(protocol, kind) {
            println!("skipped: no sockets of {name}: {reason}");
            continue;
        }
        for mode in MODES {
            println!("mode {mode:?}, {name}");
            let Some(mut world) = World::with_pods(mode) else {
                return;
            };
            for pod in ["a", "b"] {
                world.packet_server(pod, protocol, 8080);
                wait_for_packets(&world, protocol, pod);
            }
            let build = |backends: &[&str]| {
                let mut slice = EndpointSlice::clone(&slice(backends, "n1"));
                slice.ports.as_mut().unwrap()[0].protocol = Some(name.into());
                let ports = json!([{ "port": 80, "nodePort": 30080, "protocol": name }]);
                let service = json!({ "metadata": { "namespace": "ns", "name": "web" }, "spec": {
                    "clusterIPs": ["10.96.0.7"], "ports": ports, "type": "NodePort" } });
                let service: Service = serde_json::from_value(service).unwrap();
                build_service_rules(&service, &[Arc::new(slice)], &node_by_range())
            };
            let mut desired = world.desired();
            desired.set_rules("ns/web", build(&["10.244.0.2", "10.244.0.3"]));
            world.install(&desired, &options_at(&["10.244.0.1"]));
            let fronts = [("10.96.0.7", 80), ("10.244.0.1", 30080)];
            for front in fronts {
                for from in ["a", "b"] {
                    let found = ask_both(|| world.ask_packets(from, protocol, front));
                    assert_eq!(found, names(&["a", "b"]), "{from} to {front:?}");
                }
            }
            world.apply(&desired.set_rules("ns/web", build(&["10.244.0.2"])));
            for from in ["a", "b", "node"] {
                let found = world.ask_packets(from, protocol, fronts[0]);
                assert_eq!(found, names(&["a"]), "{from}");
            }
            world.apply(&desired.set_rules("ns/web", build(&[])));
            assert!(world.ask_packets("b", protocol, fronts[0]).is_err());
        }
    }
}

/// Waits until a pod's packet server responds.
fn wait_for_packets(world: &World, protocol: u8, pod: &str) {
    let ip = if pod == "a" {
        "10.244.0.2"
    } else {
        "10.244.0.3"
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while world.ask_packets("node", protocol, (ip, 8080)) != names(&[pod]) {
        assert!(std::time::Instant::now() < deadline, "no server in {pod}");
    }
}

/// Ordinary addresses of Services share chains: each of them leads to its own endpoints.
#[test]
fn services_with_as_many_endpoints_are_not_confused() {
    with_each_mode(|world, _| {
        let (a, b) = (["10.244.0.2"], ["10.244.0.3"]);
        let spec = |last: u8, more: Value| {
            let ports = json!([{ "port": 80, "nodePort": 30080 + u16::from(last) }]);
            let mut spec = json!({ "clusterIPs": [format!("10.96.0.{last}")], "ports": ports });
            spec.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            spec
        };
        let near = json!({ "internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local" });
        let mut desired = world.desired();
        for (name, spec, backends) in [
            (
                "ns/one",
                spec(7, json!({ "externalIPs": ["192.0.2.7"] })),
                &a,
            ),
            (
                "ns/two",
                spec(8, json!({ "externalIPs": ["192.0.2.8"] })),
                &b,
            ),
            ("ns/near", spec(9, near), &b),
            (
                "ns/sticky",
                spec(10, json!({ "sessionAffinity": "ClientIP" })),
                &a,
            ),
        ] {
            let mut built = rules(&spec, backends);
            built
                .ports
                .iter_mut()
                .for_each(|port| port.service = name.to_owned());
            desired.set_rules(name, built);
        }
        world.install(&desired, &options_at(&["10.244.0.1"]));
        let node = world.name("node");
        sh(&format!(
            "ip -n {node} route add 192.0.2.0/24 dev lo src 10.244.0.1"
        ))
        .unwrap();
        for from in ["a", "b", "node"] {
            for (to, expect) in [
                ("10.96.0.7", "a"),
                ("192.0.2.7", "a"),
                ("10.244.0.1:30087", "a"),
                ("10.96.0.8", "b"),
                ("192.0.2.8", "b"),
                ("10.244.0.1:30088", "b"),
                ("10.96.0.9", "b"),
                ("10.244.0.1:30089", "b"),
                ("10.96.0.10", "a"),
            ] {
                assert_eq!(world.ask(from, to), names(&[expect]), "{from} to {to}");
            }
        }
        // A port that no Service has is refused.
        assert!(world.ask("b", "10.96.0.7:81").is_err());
    });
}

/// Sources outside of the pods are masqueraded at cluster IPs: their replies come back through the
/// node.
#[test]
fn cluster_ip_masquerades_sources_that_are_not_pods() {
    with_each_mode(|world, _| {
        let foreign = LocalNode {
            pod_ranges: vec!["10.99.0.0/16".parse().unwrap()],
            ..node_by_range()
        };
        let all = LocalNode {
            masquerade_all: true,
            ..node_by_range()
        };
        let by_interface = node_by_interface(PodMatch::Prefix("br".into()));
        let node = world.name("node");
        for (local, masquerades) in [
            (node_by_range(), false),
            (foreign, true),
            (all, true),
            (by_interface, false),
        ] {
            let mut desired = world.desired();
            desired.set_rules(
                "ns/web",
                rules_on(&local, &json!({}), &["10.244.0.2"], "n1"),
            );
            let options = BaseChainOptions {
                masquerade: local.masquerade(),
                ..options_at(&[])
            };
            world.install(&desired, &options);
            world.nft(
                "add table ip probe\ndelete table ip probe\n\
                table ip probe { chain seen { type filter hook postrouting priority 300; \
                tcp dport 8080 ip saddr 10.244.0.1 counter; }; }\n",
            );
            assert_eq!(world.ask("b", "10.96.0.7"), names(&["a"]));
            let listing = sh(&format!("ip netns exec {node} nft list table ip probe")).unwrap();
            let seen = !listing.contains("packets 0 ");
            assert_eq!(seen, masquerades, "{local:?}: {listing}");
        }
    });
}

#[test]
fn many_services_are_installed() {
    with_each_mode(|mut world, _| {
        world.more.is_nft_variant = true;
        let mut desired = world.desired();
        for n in 0..300 {
            let spec = json!({ "clusterIPs": [format!("10.96.{}.{}", 1 + n / 200, n % 200 + 1)],
                "ports": [{ "port": 80 }], "type": "ClusterIP" });
            let backends = ["10.244.0.2", "10.244.0.3", "10.244.0.4", "10.244.0.5"];
            let mut built = rules(&spec, &backends);
            for port in &mut built.ports {
                port.service = format!("ns/web{n}");
            }
            desired.set_rules(&format!("ns/web{n}"), built);
        }
        desired.set_rules("ns/web", rules(&json!({}), &["10.244.0.3"]));
        world.install(&desired, &options_at(&[]));
        assert_eq!(world.ask("a", "10.96.0.7"), names(&["b"]));
        // Chains of Services that were deleted are removed.
        let mut desired = world.desired();
        desired.set_rules("ns/web", rules(&json!({}), &["10.244.0.2"]));
        world.install(&desired, &options_at(&[]));
        assert_eq!(world.ask("b", "10.96.0.7"), names(&["a"]));
        let left = world.list();
        assert!(!left.contains("10.244.0.5"), "{}", left.lines().count());
    });
}

#[test]
fn connections_of_both_families_reach_endpoints_and_follow_changes() {
    with_each_mode(|mut world, _| {
        if let Err(reason) = world.add_v6() {
            return println!("skipped: {reason}");
        }
        let node = LocalNode {
            families: vec![Family::V4, Family::V6],
            pod_ranges: ["10.244.0.0/16", "fd00:244::/64"]
                .map(|range| range.parse().unwrap())
                .into(),
            ..node_by_range()
        };
        let service: Service = serde_json::from_value(json!({
            "metadata": { "namespace": "ns", "name": "web" },
            "spec": { "clusterIPs": ["10.96.0.7", "fd00:96::7"], "type": "NodePort",
                "ports": [{ "port": 80, "nodePort": 30080 }] }
        }))
        .unwrap();
        let build = |v4: &[&str], v6: &[&str]| {
            let mut other = EndpointSlice::clone(&slice(v6, "n1"));
            other.address_type = "IPv6".into();
            build_service_rules(&service, &[slice(v4, "n1"), Arc::new(other)], &node)
        };
        let mut desired = world.desired();
        let both = build(
            &["10.244.0.2", "10.244.0.3"],
            &["fd00:244::2", "fd00:244::3"],
        );
        desired.set_rules("ns/web", both);
        world.install(&desired, &options_at(&["10.244.0.1", "fd00:244::1"]));
        for (from, to) in [
            ("b", "10.96.0.7"),
            ("b", "[fd00:96::7]"),
            ("node", "[fd00:96::7]"),
            ("b", "[fd00:244::1]:30080"),
        ] {
            let found = ask_both(|| world.ask(from, to));
            assert_eq!(found, names(&["a", "b"]), "{from} to {to}");
        }
        // A change of one family leaves the other one.
        let change = build(&["10.244.0.2", "10.244.0.3"], &["fd00:244::2"]);
        world.apply(&desired.set_rules("ns/web", change));
        // Also the pod itself.
        for from in ["a", "b"] {
            assert_eq!(world.ask(from, "[fd00:96::7]"), names(&["a"]), "{from}");
        }
        let found = ask_both(|| world.ask("b", "10.96.0.7"));
        assert_eq!(found, names(&["a", "b"]));
        world.apply(&desired.set_rules("ns/web", build(&["10.244.0.2"], &[])));
        assert!(world.ask("b", "[fd00:96::7]").is_err());
        assert_eq!(world.ask("b", "10.96.0.7"), names(&["a"]));
    });
}

/// A restart of the proxy installs all rules again.
#[test]
fn full_install_keeps_session_affinity() {
    with_each_mode(|world, _| {
        let mut desired = world.desired();
        let sticky = json!({ "sessionAffinity": "ClientIP" });
        desired.set_rules("ns/web", rules(&sticky, &["10.244.0.2", "10.244.0.3"]));
        world.install(&desired, &options_at(&[]));
        let bound = world.ask("b", "10.96.0.7").unwrap();
        assert_eq!(bound.len(), 1, "{bound:?}");
        for _ in 0..8 {
            world.install_and_keep(&desired, &options_at(&[]), true);
            assert_eq!(world.ask("b", "10.96.0.7").unwrap(), bound);
        }
    });
}

/// The short circuit: for the node and its pods, the policy Local does not hide endpoints of other
/// nodes.
#[test]
fn node_and_pods_reach_remote_endpoints_of_a_service_with_local_policy() {
    with_each_mode(|world, _| {
        let spec = json!({ "externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.9"] });
        let bridge = PodMatch::Interface("br0".into());
        let nodes = [
            node_by_range(),
            node_by_interface(bridge),
            node_by_interface(PodMatch::Prefix("br".into())),
        ];
        for local in nodes {
            let mut desired = world.desired();
            let rules = rules_on(&local, &spec, &["10.244.0.2"], "n2");
            desired.set_rules("ns/web", rules);
            world.install(&desired, &options_at(&["10.244.0.1"]));
            for (from, to) in [
                ("node", "10.244.0.1:30080"),
                ("b", "10.244.0.1:30080"),
                ("b", "192.0.2.9"),
            ] {
                assert_eq!(
                    world.ask(from, to),
                    names(&["a"]),
                    "{from} to {to}, {local:?}"
                );
            }
        }
        // Without a detection of pods, the policy Local applies to them too.
        let other = node_by_interface(PodMatch::Interface("eth0".into()));
        let mut desired = world.desired();
        desired.set_rules("ns/web", rules_on(&other, &spec, &["10.244.0.2"], "n2"));
        world.install(&desired, &options_at(&["10.244.0.1"]));
        assert!(world.ask("b", "192.0.2.9").is_err());
    });
}

/// `nodePortAddresses: [0.0.0.0/0]`: also addresses that the node gets later, and never loopback.
#[test]
fn node_ports_of_a_whole_family_are_open_at_all_addresses_except_loopback() {
    with_each_mode(|mut world, mode| {
        let options = BaseChainOptions {
            node_port_families: vec![Family::V4],
            service_ranges: vec!["10.96.0.0/16".parse().unwrap()],
            ..options_at(&[])
        };
        let mut desired = world.desired();
        desired.set_rules("ns/web", rules(&json!({}), &["10.244.0.2"]));
        world.install(&desired, &options);
        let node = world.name("node");
        sh(&format!("ip -n {node} addr add 192.0.2.2/32 dev lo")).unwrap();
        for address in ["10.244.0.1", "192.0.2.2"] {
            let answers = world.ask("b", &format!("{address}:30080"));
            assert_eq!(answers, names(&["a"]), "{address}");
        }
        assert!(world.ask("node", "127.0.0.1:30080").is_err());
        // Translated connections pass the chain that drops packets to unallocated cluster IPs.
        assert_eq!(world.ask("b", "10.96.0.7"), names(&["a"]));
        assert!(world.ask("b", "10.96.0.8").is_err());
        if mode == Mode::Iptables {
            world.more.localhost_node_ports = true;
            world.install(&desired, &options);
            sh(&format!(
                "ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet'"
            ))
            .unwrap();
            assert_eq!(world.ask("node", "127.0.0.1:30080"), names(&["a"]));
        }
    });
}

/// Sources outside the ranges never reach the load balancer's address, neither before nor after
/// translation.
#[test]
fn source_ranges_restrict_the_balancers_address() {
    with_each_mode(|world, _| {
        for (range, allowed) in [("10.244.0.3/32", true), ("198.51.100.0/24", false)] {
            let mut spec = json!({ "clusterIPs": ["10.96.0.7"], "type": "LoadBalancer",
                "ports": [{ "port": 80 }], "loadBalancerSourceRanges": [range] });
            spec["externalTrafficPolicy"] = json!("Local");
            let status = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.9" }] } });
            let mut service: Service = serde_json::from_value(
                json!({ "metadata": { "namespace": "ns", "name": "web" }, "spec": spec }),
            )
            .unwrap();
            service.status = serde_json::from_value(status).unwrap();
            let rules =
                build_service_rules(&service, &[slice(&["10.244.0.2"], "n1")], &node_by_range());
            let mut desired = world.desired();
            desired.set_rules("ns/web", rules);
            world.install(&desired, &options_at(&[]));
            let answers = world.ask("b", "192.0.2.9");
            assert_eq!(answers.is_ok(), allowed, "{range}: {answers:?}");
            // The ranges do not restrict the cluster IP.
            assert_eq!(world.ask("b", "10.96.0.7"), names(&["a"]), "{range}");
        }
    });
}

/// The policy Local drops connections from outside, which other nodes would serve.
#[test]
fn local_policy_drops_connections_without_a_local_endpoint() {
    with_each_mode(|world, _| {
        let outside = LocalNode {
            pod_ranges: vec!["10.99.0.0/16".parse().unwrap()],
            ..node_by_range()
        };
        let spec = json!({ "externalTrafficPolicy": "Local" });
        let mut desired = world.desired();
        desired.set_rules("ns/web", rules_on(&outside, &spec, &["10.244.0.2"], "n2"));
        world.install(&desired, &options_at(&["10.244.0.1"]));
        assert!(world.ask("b", "10.244.0.1:30080").is_err());
        let local = rules_on(&outside, &spec, &["10.244.0.2"], "n1");
        world.apply(&desired.set_rules("ns/web", local));
        assert_eq!(world.ask("b", "10.244.0.1:30080"), names(&["a"]));
    });
}

/// CVE-2020-8558: host ports on 127.0.0.1 set `route_localnet` on the bridge.
#[test]
fn packet_of_a_pod_to_the_loopback_address_of_the_node_is_dropped() {
    with_each_mode(|world, _| {
        let (node, pod) = (world.name("node"), world.name("a"));
        sh(&format!(
            "ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/ipv4/conf/br0/route_localnet'
             ip -n {pod} route flush table local dev lo
             ip -n {pod} route add 127.0.0.1/32 via 10.244.0.1 dev eth0 src 10.244.0.2"
        ))
        .unwrap();
        // After the rules of both modes.
        world.nft("table ip probe { chain input { type filter hook input priority 10; udp dport 9099 counter; }; }\n");
        let read = || {
            let counter = sh(&format!("ip netns exec {node} nft list table ip probe"));
            let text = counter.unwrap();
            text.split("packets ")
                .nth(1)
                .and_then(|rest| rest.split(' ').next())
                .and_then(|n| n.parse::<u32>().ok())
                .unwrap()
        };
        let delivered = |expect: u32| {
            for from in [&pod, &node] {
                sh(&format!(
                    "ip netns exec {from} bash -c 'echo hit > /dev/udp/127.0.0.1/9099'"
                ))
                .unwrap();
            }
            let began = Instant::now();
            while read() < expect && began.elapsed() < DEADLINE {
                std::thread::sleep(Duration::from_millis(20));
            }
            // Time for one more.
            std::thread::sleep(Duration::from_millis(200));
            read()
        };
        assert_eq!(
            delivered(2),
            2,
            "without rules, the pod's packet and the node's own"
        );
        world.install_without_servers(&world.desired(), &options_at(&[]));
        assert_eq!(delivered(3), 3, "with rules, the node's own only");
    });
}

/// Returns a Service with every kind of rule in both families.
fn rich_service() -> Service {
    let spec = json!({
        "type": "LoadBalancer", "clusterIPs": ["10.96.9.9", "fd00::9"],
        "externalIPs": ["192.0.2.9", "2001:db8::9"], "sessionAffinity": "ClientIP",
        "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
        "loadBalancerSourceRanges": ["192.0.2.0/24", "fd00::/8"],
        "ports": [{ "name": "a", "port": 80, "nodePort": 30080 },
            { "name": "s", "port": 81, "protocol": "SCTP" }, { "name": "u", "port": 53, "protocol": "UDP" }]
    });
    let mut service: Service = serde_json::from_value(
        json!({ "metadata": { "namespace": "ns", "name": "web" }, "spec": spec }),
    )
    .unwrap();
    let ingress = json!([{ "ip": "203.0.113.7" }, { "ip": "2001:db8::7" }]);
    service.status =
        serde_json::from_value(json!({ "loadBalancer": { "ingress": ingress } })).unwrap();
    service
}

/// Every kind of rule, in both families, is installed, changed and removed again.
#[test]
fn iptables_accepts_what_is_generated() {
    let Ok(world) = World::new(Mode::Iptables) else {
        return println!("skipped: no namespaces or no iptables");
    };
    let service = rich_service();
    let slice_of = |kind: &str, addresses: &[&str]| -> Arc<EndpointSlice> {
        let entry = |ip: &&str| json!({ "addresses": [ip], "nodeName": "n1" });
        let endpoints: Vec<Value> = addresses.iter().map(entry).collect();
        let tree = json!({ "metadata": {}, "addressType": kind, "endpoints": endpoints,
            "ports": [{ "name": "a", "port": 80 }, { "name": "s", "port": 81, "protocol": "SCTP" },
                { "name": "u", "port": 53, "protocol": "UDP" }] });
        Arc::new(serde_json::from_value(tree).unwrap())
    };
    for pods in [None, Some(PodMatch::Prefix("veth".into()))] {
        let node = LocalNode {
            families: vec![Family::V4, Family::V6],
            pod_interface: pods,
            ..node_by_range()
        };
        let build = |v4: &[&str], v6: &[&str]| {
            let slices = [slice_of("IPv4", v4), slice_of("IPv6", v6)];
            build_service_rules(&service, &slices, &node)
        };
        let mut desired = world.desired();
        desired.set_rules("ns/web", build(&["10.244.0.5", "10.244.0.6"], &["fd00::5"]));
        let options = BaseChainOptions {
            node_port_families: vec![Family::V6],
            ..options_at(&["10.244.0.1"])
        };
        for family in [Family::V4, Family::V6] {
            for input in world.installation(&desired, &options, family) {
                world.restore(family, &input);
            }
        }
        for (v4, v6) in [
            (&["10.244.0.7"][..], &["fd00::5", "fd00::6"][..]),
            (&[], &[]),
        ] {
            let difference = desired.set_rules("ns/web", build(v4, v6));
            assert_eq!(difference.len(), 2);
            world.change(&difference);
        }
        let listing = world.list();
        assert!(
            listing.contains("KUBE-EXTERNAL-SERVICES -d 203.0.113.7/32"),
            "{listing}"
        );
        assert!(!listing.contains("KUBE-SEP-"), "{listing}");
    }
    for family in [Family::V4, Family::V6] {
        world.remove(family);
    }
    let left = world.list();
    // The guard is the kubelet's.
    let own = left
        .lines()
        .filter(|line| line.contains("KUBE-") && !line.contains("KUBE-FIREWALL"));
    assert_eq!(own.collect::<Vec<_>>(), Vec::<&str>::new());
}
