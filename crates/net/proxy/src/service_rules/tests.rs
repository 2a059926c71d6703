#![allow(clippy::unwrap_used, clippy::expect_used)]
use serde_json::{Value, json};

use super::*;
use crate::base_chains::{
    CLUSTER_IPS, NO_ENDPOINT_NODE_PORTS, NO_ENDPOINT_SERVICES, SERVICE_IPS, SERVICE_NODE_PORTS,
};

pub(crate) fn node() -> LocalNode {
    LocalNode {
        name: "n1".into(),
        families: vec![Family::V4],
        pod_ranges: vec!["10.244.0.0/16".parse().unwrap()],
        ..LocalNode::default()
    }
}

pub(crate) fn service(spec: Value) -> Service {
    serde_json::from_value(
        json!({ "metadata": { "namespace": "ns", "name": "web" }, "spec": spec }),
    )
    .unwrap()
}

pub(crate) fn slice(endpoints: Value) -> Arc<EndpointSlice> {
    Arc::new(
        serde_json::from_value(json!({
            "metadata": { "namespace": "ns", "name": "web-1" }, "addressType": "IPv4",
            "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }], "endpoints": endpoints,
        }))
        .unwrap(),
    )
}

fn plain(more: Value) -> Service {
    let mut spec =
        json!({ "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ports": [{ "port": 80 }] });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    service(spec)
}

fn part(service: &Service, endpoints: Value) -> Part {
    build_service_rules(service, &[slice(endpoints)], &node())
        .parts
        .remove(&Family::V4)
        .unwrap_or_default()
}

fn rules<'a>(part: &'a Part, kind: &str) -> Vec<&'a Vec<String>> {
    part.chains
        .iter()
        .filter(|(name, _)| name.starts_with(kind))
        .map(|(_, rules)| rules)
        .collect()
}

fn element<'a>(part: &'a Part, set: &'static str, key: &str) -> Option<&'a str> {
    part.elements
        .get(&(set, key.to_owned()))
        .map(String::as_str)
}

fn two() -> Value {
    json!([
        { "addresses": ["10.244.0.5"], "nodeName": "n1", "conditions": { "ready": true } },
        { "addresses": ["10.244.1.6"], "nodeName": "n2", "conditions": { "ready": true } },
    ])
}

#[test]
fn cluster_ip_is_balanced_over_its_endpoints() {
    let part = part(&plain(json!({})), two());
    assert!(
        element(&part, SERVICE_IPS, "10.96.0.7 . tcp . 80")
            .unwrap()
            .starts_with("goto service-")
    );
    assert_eq!(element(&part, CLUSTER_IPS, "10.96.0.7"), Some(""));
    let chain = rules(&part, "service-")[0];
    assert!(
        chain[0].contains("ip saddr != 10.244.0.0/16 jump mark-for-masquerade"),
        "{chain:?}"
    );
    assert!(
        chain[1].starts_with("numgen random mod 2 vmap { 0 : goto endpoint-"),
        "{chain:?}"
    );
    let endpoints = rules(&part, "endpoint-");
    assert_eq!(endpoints.len(), 2);
    assert!(
        endpoints
            .iter()
            .any(|rules| rules[1] == "meta l4proto tcp dnat to 10.244.0.5:8080")
    );
}

#[test]
fn service_without_endpoints_rejects_connections() {
    let part = part(
        &plain(json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30080 }] })),
        json!([]),
    );
    assert_eq!(
        element(&part, NO_ENDPOINT_SERVICES, "10.96.0.7 . tcp . 80"),
        Some("goto reject-chain")
    );
    assert_eq!(
        element(&part, NO_ENDPOINT_NODE_PORTS, "tcp . 30080"),
        Some("goto reject-chain")
    );
    assert!(part.chains.is_empty());
}

#[test]
fn local_policy_drops_connections_without_local_endpoints() {
    let inside = part(&plain(json!({ "internalTrafficPolicy": "Local" })), far());
    assert_eq!(
        element(&inside, NO_ENDPOINT_SERVICES, "10.96.0.7 . tcp . 80"),
        Some("drop")
    );
    let outside = part(
        &plain(
            json!({ "type": "NodePort", "externalTrafficPolicy": "Local", "ports": [{ "port": 80, "nodePort": 30080 }] }),
        ),
        far(),
    );
    assert_eq!(
        element(&outside, NO_ENDPOINT_NODE_PORTS, "tcp . 30080"),
        Some("drop")
    );
    assert!(element(&outside, SERVICE_IPS, "10.96.0.7 . tcp . 80").is_some());
}

fn far() -> Value {
    json!([{ "addresses": ["10.244.1.6"], "nodeName": "n2", "conditions": { "ready": true } }])
}

/// The policy Local applies to connections from outside: the node and its pods reach endpoints on
/// other nodes.
#[test]
fn local_connections_to_outside_addresses_reach_endpoints_on_other_nodes() {
    let spec = json!({
        "type": "LoadBalancer", "externalIPs": ["192.0.2.9"], "externalTrafficPolicy": "Local",
        "ports": [{ "port": 80, "nodePort": 30080 }]
    });
    let part = part(&plain(spec), far());
    let node_port = element(&part, SERVICE_NODE_PORTS, "tcp . 30080").unwrap();
    assert!(node_port.starts_with("goto external-"), "{node_port}");
    assert_eq!(
        element(&part, SERVICE_IPS, "192.0.2.9 . tcp . 80"),
        Some(node_port)
    );
    assert_eq!(
        element(&part, NO_ENDPOINT_NODE_PORTS, "tcp . 30080"),
        Some("drop")
    );
    assert_eq!(
        element(&part, NO_ENDPOINT_SERVICES, "192.0.2.9 . tcp . 80"),
        Some("drop")
    );
    let external = rules(&part, "external-")[0];
    assert!(
        external[0].starts_with("ip saddr 10.244.0.0/16 goto service-"),
        "{external:?}"
    );
    assert!(
        external[2].starts_with("fib saddr type local goto service-"),
        "{external:?}"
    );
    assert_eq!(
        external.len(),
        3,
        "connections from outside fall through: {external:?}"
    );
}

#[test]
fn internal_policy_does_not_confine_external_traffic() {
    let part = part(
        &plain(
            json!({ "type": "NodePort", "internalTrafficPolicy": "Local", "ports": [{ "port": 80, "nodePort": 30080 }] }),
        ),
        two(),
    );
    assert!(
        element(&part, SERVICE_IPS, "10.96.0.7 . tcp . 80")
            .unwrap()
            .starts_with("goto local-")
    );
    let local = rules(&part, "local-")[0];
    assert!(local[1].starts_with("numgen random mod 1 "), "{local:?}");
    let external = rules(&part, "external-")[0];
    assert!(external[1].starts_with("goto service-"), "{external:?}");
    let service = rules(&part, "service-")[0];
    assert_eq!(
        service.len(),
        1,
        "only cluster addresses masquerade here: {service:?}"
    );
    assert!(
        service[0].starts_with("numgen random mod 2 "),
        "{service:?}"
    );
}

#[test]
fn node_port_connections_are_tracked_at_the_node_addresses_only() {
    let service = plain(
        json!({ "type": "NodePort", "ports": [{ "port": 53, "nodePort": 30053, "protocol": "UDP" }] }),
    );
    let endpoints: EndpointSlice = serde_json::from_value(json!({
        "metadata": {}, "addressType": "IPv4", "ports": [{ "name": "", "port": 53, "protocol": "UDP" }],
        "endpoints": far(),
    }))
    .unwrap();
    let node = LocalNode {
        node_port_addresses: vec!["192.0.2.2".parse().unwrap()],
        ..node()
    };
    let udp = build_service_rules(&service, &[Arc::new(endpoints)], &node).udp;
    let fronts: Vec<String> = udp.keys().map(ToString::to_string).collect();
    assert_eq!(fronts, ["10.96.0.7:53", "192.0.2.2:30053"]);
}

#[test]
fn external_addresses_and_node_ports_masquerade_the_source() {
    let part = part(
        &plain(
            json!({ "type": "NodePort", "externalIPs": ["192.0.2.9"], "ports": [{ "port": 80, "nodePort": 30080 }] }),
        ),
        two(),
    );
    assert!(
        element(&part, SERVICE_NODE_PORTS, "tcp . 30080")
            .unwrap()
            .starts_with("goto external-")
    );
    assert!(
        element(&part, SERVICE_IPS, "192.0.2.9 . tcp . 80")
            .unwrap()
            .starts_with("goto external-")
    );
    assert_eq!(rules(&part, "external-")[0][0], "jump mark-for-masquerade");
}

#[test]
fn affinity_remembers_clients_for_the_time_given() {
    let part = part(
        &plain(json!({
            "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 60 } }
        })),
        two(),
    );
    assert_eq!(part.sets.len(), 2);
    assert!(
        part.sets
            .values()
            .all(|declaration| declaration.contains("timeout 60s"))
    );
    assert!(
        rules(&part, "service-")[0]
            .iter()
            .filter(|rule| rule.starts_with("ip saddr @affinity60-"))
            .count()
            == 2
    );
}

#[test]
fn headless_and_external_name_services_have_no_rules() {
    for spec in [
        json!({ "clusterIP": "None" }),
        json!({ "type": "ExternalName", "externalName": "x.example" }),
    ] {
        assert_eq!(
            build_service_rules(&service(spec), &[slice(two())], &node()),
            ServiceRules::default()
        );
    }
}

#[test]
fn health_check_counts_ready_addresses_on_the_node_by_family() {
    let balancer = json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
        "clusterIPs": ["10.96.0.7", "fd00::7"],
        "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 81 }],
    });
    let ports = json!([{ "name": "a", "port": 8080 }, { "name": "b", "port": 8081 }]);
    let one_port = json!([{ "name": "b", "port": 8081 }]);
    let entry = |ip: &str, ready: bool, node: &str| {
        json!({ "addresses": [ip], "nodeName": node, "conditions": {
            "ready": ready, "serving": true, "terminating": !ready } })
    };
    let slice = |kind: &str, ports: &Value, endpoints: Value| -> Arc<EndpointSlice> {
        let tree =
            json!({ "metadata": {}, "addressType": kind, "ports": ports, "endpoints": endpoints });
        Arc::new(serde_json::from_value(tree).unwrap())
    };
    let slices = [
        slice(
            "IPv4",
            &ports,
            json!([
                entry("10.0.0.1", true, "n1"),
                entry("10.0.0.2", false, "n1"),
                entry("10.0.0.3", true, "n2")
            ]),
        ),
        slice("IPv4", &one_port, json!([entry("10.0.0.4", true, "n1")])),
        slice("IPv6", &ports, json!([entry("fd00::1", true, "n2")])),
    ];
    let node = LocalNode {
        families: vec![Family::V4, Family::V6],
        ..node()
    };
    let local = BTreeMap::from([
        (
            Family::V4,
            ["10.0.0.1", "10.0.0.4"]
                .map(|ip| ip.parse().unwrap())
                .into(),
        ),
        (Family::V6, BTreeSet::new()),
    ]);
    let expect = HealthCheck { port: 31000, local };
    let health = |change: Value| {
        let mut spec = balancer.clone();
        spec.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        build_service_rules(&service(spec), &slices, &node).health
    };
    assert_eq!(health(json!({})), Some(expect));
    for change in [
        json!({ "type": "NodePort" }),
        json!({ "externalTrafficPolicy": "Cluster" }),
        json!({ "healthCheckNodePort": 0 }),
    ] {
        assert_eq!(health(change.clone()), None, "{change}");
    }
}

#[test]
fn local_policies_without_an_endpoint_here_are_listed() {
    let listed = |spec: Value, endpoints: Value| {
        build_service_rules(&plain(spec), &[slice(endpoints)], &node()).no_local
    };
    let both = json!({ "internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local",
        "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30080 }] });
    let v4 = |policy| (Family::V4, policy);
    let external = json!({ "externalTrafficPolicy": "Local" });
    for (spec, endpoints, expect) in [
        (both.clone(), far(), vec![v4("internal"), v4("external")]),
        (both.clone(), two(), vec![]),
        (both, json!([]), vec![]),
        (external, far(), vec![]),
        (
            json!({ "internalTrafficPolicy": "Local" }),
            far(),
            vec![v4("internal")],
        ),
    ] {
        assert_eq!(
            listed(spec.clone(), endpoints.clone()),
            expect,
            "{spec} {endpoints}"
        );
    }
}

#[test]
fn source_ranges_restrict_the_balancers_addresses() {
    let addresses = ["203.0.113.7", "2001:db8::7"];
    let node = LocalNode {
        families: vec![Family::V4, Family::V6],
        node_addresses: vec!["192.0.2.2".parse().unwrap()],
        ..node()
    };
    let firewall = |ranges: &[&str], family: Family| {
        let mut service = plain(json!({
            "type": "LoadBalancer", "clusterIPs": ["10.96.0.7", "fd00::7"],
            "loadBalancerSourceRanges": ranges,
        }));
        let ingress = addresses.map(|ip| json!({ "ip": ip, "ipMode": "VIP" }));
        let status = json!({ "loadBalancer": { "ingress": ingress } });
        service.status = serde_json::from_value(status).unwrap();
        let parts = build_service_rules(&service, &[slice(two())], &node).parts;
        rules(&parts[&family], "firewall-")
            .into_iter()
            .flatten()
            .cloned()
            .collect::<Vec<_>>()
            .join(";")
    };
    for (ranges, family, expect) in [
        (&[][..], Family::V4, ""),
        (
            &["198.51.100.0/24"],
            Family::V4,
            "ip saddr != { 198.51.100.0/24 } drop",
        ),
        (&["198.51.100.0/24"], Family::V6, "drop"),
        (&["a.b.c.d/8"], Family::V4, "drop"),
        (
            &["010.000.0.0/08"],
            Family::V4,
            "ip saddr != { 10.0.0.0/8 } drop",
        ),
        (&["198.51.100.0/24", "0.0.0.0/0"], Family::V4, ""),
        (&["198.51.100.0/24", "::/0"], Family::V6, ""),
        (
            &[" 192.0.2.0/24"],
            Family::V4,
            "ip saddr != { 192.0.2.0/24, 203.0.113.7 } drop",
        ),
        (&["fd00::/8"], Family::V6, "ip6 saddr != { fd00::/8 } drop"),
    ] {
        assert_eq!(firewall(ranges, family), expect, "{ranges:?} {family:?}");
    }
}

/// A connection continues while its endpoint serves, as one of TCP does: also during termination,
/// and on another node after the policy became Local.
#[test]
fn udp_connections_stay_with_endpoints_that_serve() {
    let entry = |ip: &str, ready: bool, serving: bool| {
        json!({ "addresses": [ip], "nodeName": "n2", "conditions": {
            "ready": ready, "serving": serving, "terminating": !ready } })
    };
    let endpoints = json!([
        entry("10.0.0.1", true, true),
        entry("10.0.0.2", false, true),
        entry("10.0.0.3", false, false)
    ]);
    let tree = json!({
        "metadata": {}, "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{ "name": "", "port": 53, "protocol": "UDP" }],
    });
    let slice: Arc<EndpointSlice> = Arc::new(serde_json::from_value(tree).unwrap());
    for policy in ["Cluster", "Local"] {
        let service = plain(json!({
            "internalTrafficPolicy": policy, "ports": [{ "port": 53, "protocol": "UDP" }]
        }));
        let udp = build_service_rules(&service, std::slice::from_ref(&slice), &node()).udp;
        let targets: Vec<String> = udp.values().flatten().map(ToString::to_string).collect();
        assert_eq!(targets, ["10.0.0.1", "10.0.0.2"], "{policy}");
    }
}
