#![allow(clippy::unwrap_used, clippy::expect_used)]
use serde_json::{Value, json};

use super::*;
use crate::base_chains::{
    CLUSTER_IPS, HAIRPINS, NO_ENDPOINT_NODE_PORTS, NO_ENDPOINT_SERVICES, SERVICE_IPS,
    SERVICE_NODE_PORTS,
};
use crate::nftables::render_nftables;
use crate::part::Part;

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
    let rules = build_service_rules(service, &[slice(endpoints)], &node());
    render_nftables(&rules, Family::V4)
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
        .map(|value| value.verdict.as_str())
}

/// Returns the endpoints among which connections to an address are shared, by their number.
fn picks(part: &Part, set: &'static str, key: &str) -> Vec<(String, String)> {
    let value = &part.elements[&(set, key.to_owned())];
    let all = value.dependents.iter();
    all.map(|((map, key), endpoint)| (format!("{map} {key}"), endpoint.clone()))
        .collect()
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
    let key = "10.96.0.7 . tcp . 80";
    assert_eq!(
        element(&part, SERVICE_IPS, key),
        Some("goto pick-cluster-2")
    );
    assert_eq!(element(&part, CLUSTER_IPS, "10.96.0.7"), Some(""));
    let pair = |number: u8, endpoint: &str| {
        let key = format!("endpoints 10.96.0.7 . tcp . 80 . {number}");
        (key, endpoint.to_owned())
    };
    let expect = [pair(0, "10.244.0.5 . 8080"), pair(1, "10.244.1.6 . 8080")];
    assert_eq!(picks(&part, SERVICE_IPS, key), expect);
    assert!(part.chains.is_empty());
    // Endpoints that reach themselves need another source; those on other nodes do so there.
    let hairpin = |ip: &str| element(&part, HAIRPINS, &format!("{ip} . {ip}"));
    assert_eq!(
        (hairpin("10.244.0.5"), hairpin("10.244.1.6")),
        (Some(""), None)
    );
}

#[test]
fn address_with_very_many_endpoints_has_a_chain() {
    let ports = json!([{ "port": 80, "nodePort": 30080 }]);
    let spec = json!({ "type": "NodePort", "internalTrafficPolicy": "Local", "ports": ports });
    for (here, there, expect) in [
        (64, 0, ["goto pick-cluster-64", "goto pick-nodeport-64"]),
        (1, 64, ["goto pick-cluster-1", "goto external-"]),
        (65, 0, ["goto local-", "goto external-"]),
    ] {
        let entry = |n: u8| {
            let node = if n < here { "n1" } else { "n2" };
            json!({ "addresses": [format!("10.244.0.{n}")], "nodeName": node })
        };
        let endpoints: Vec<Value> = (0..here + there).map(entry).collect();
        let part = part(&plain(spec.clone()), json!(endpoints));
        let found = [
            (SERVICE_IPS, "10.96.0.7 . tcp . 80"),
            (SERVICE_NODE_PORTS, "tcp . 30080"),
        ];
        for ((set, key), expect) in found.into_iter().zip(expect) {
            let found = element(&part, set, key).unwrap();
            assert!(found.starts_with(expect), "{here} {there}: {found}");
        }
        let masquerades = |kind| {
            let mut all = rules(&part, kind).into_iter().flatten();
            all.any(|rule| rule.contains("ip saddr != 10.244.0.0/16 jump mark-for-masquerade"))
        };
        assert_eq!(masquerades("local-"), here > 64);
        assert!(!masquerades("service-"));
    }
}

#[test]
fn port_with_very_many_addresses_has_a_chain() {
    let entry = |n: u8| json!({ "addresses": [format!("10.244.0.{n}")], "nodeName": "n1" });
    let endpoints: Vec<Value> = (0..64).map(entry).collect();
    // One address is the cluster IP.
    for (external, expect, picks) in [
        (15, "goto pick-external-64", 1024),
        (16, "goto external-", 0),
        (500, "goto external-", 0),
    ] {
        let address = |n: usize| format!("192.0.{}.{}", n / 256, n % 256);
        let addresses: Vec<String> = (0..external).map(address).collect();
        let part = part(
            &plain(json!({ "externalIPs": addresses })),
            json!(endpoints),
        );
        let found = element(&part, SERVICE_IPS, "192.0.0.9 . tcp . 80").unwrap();
        assert!(found.starts_with(expect), "{external}: {found}");
        let elements = part.elements.values();
        let found: usize = elements.map(|value| value.dependents.len()).sum();
        assert_eq!(found, picks, "{external}");
    }
}

#[test]
fn endpoint_of_an_unknown_node_may_reach_itself() {
    let endpoints = json!([{ "addresses": ["10.244.0.5"] }]);
    let part = part(&plain(json!({})), endpoints);
    assert_eq!(
        element(&part, HAIRPINS, "10.244.0.5 . 10.244.0.5"),
        Some("")
    );
}

#[test]
fn pods_that_reach_themselves_through_another_node_are_hairpins_there() {
    let spec = json!({ "type": "NodePort", "externalTrafficPolicy": "Local",
        "ports": [{ "port": 80, "nodePort": 30080 }] });
    let part = part(&plain(spec), two());
    for ip in ["10.244.0.5", "10.244.1.6"] {
        assert_eq!(element(&part, HAIRPINS, &format!("{ip} . {ip}")), Some(""));
    }
}

#[test]
fn many_endpoints_of_a_chain_are_picked_by_one_map() {
    for (affinity, expect) in [
        (
            "None",
            "meta l4proto tcp dnat ip to numgen random mod 9 map { 0 : 10.244.0.0 . 8080, ",
        ),
        ("ClientIP", "numgen random mod 9 vmap { 0 : goto endpoint-"),
    ] {
        let entry = |n: u8| json!({ "addresses": [format!("10.244.0.{n}")] });
        let endpoints: Vec<Value> = (0..9).map(entry).collect();
        let spec = json!({ "sessionAffinity": affinity, "type": "NodePort",
            "externalTrafficPolicy": "Local", "ports": [{ "port": 80, "nodePort": 30080 }] });
        let part = part(&plain(spec), json!(endpoints));
        let last = rules(&part, "service-")[0].last().cloned().unwrap();
        assert!(last.starts_with(expect), "{last}");
    }
}

#[test]
fn few_endpoints_of_a_chain_have_a_rule_each() {
    let entry =
        |n: u8| json!({ "addresses": [format!("10.244.0.{n}")], "conditions": { "ready": true } });
    let spec = json!({ "externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.9"] });
    for (count, expect) in [(1, 1), (8, 8), (9, 1)] {
        let endpoints: Vec<Value> = (0..count).map(entry).collect();
        let part = part(&plain(spec.clone()), json!(endpoints));
        assert_eq!(rules(&part, "service-")[0].len(), expect, "{count}");
    }
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
    let (address, node_port) = ("10.96.0.7 . tcp . 80", "tcp . 30080");
    assert_eq!(
        element(&part, SERVICE_IPS, address),
        Some("goto pick-cluster-1")
    );
    let own = (
        format!("endpoints {address} . 0"),
        "10.244.0.5 . 8080".to_owned(),
    );
    assert_eq!(picks(&part, SERVICE_IPS, address), [own]);
    assert_eq!(
        element(&part, SERVICE_NODE_PORTS, node_port),
        Some("goto pick-nodeport-2")
    );
    assert_eq!(picks(&part, SERVICE_NODE_PORTS, node_port).len(), 2);
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
    let slices = [Arc::new(endpoints)];
    // The unspecified address stands for all of its family.
    let whole = vec![net_nft::Family::V4, net_nft::Family::V6];
    for (addresses, families, expect) in [
        (&["192.0.2.2"][..], vec![], "192.0.2.2:30053"),
        (&[], whole, "0.0.0.0:30053"),
    ] {
        let node = LocalNode {
            node_port_addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
            node_port_families: families,
            ..node()
        };
        let udp = build_service_rules(&service, &slices, &node).udp;
        let mut fronts: Vec<String> = udp.keys().map(ToString::to_string).collect();
        fronts.retain(|front| front != "10.96.0.7:53");
        assert_eq!(fronts, [expect]);
    }
}

#[test]
fn external_addresses_and_node_ports_masquerade_the_source() {
    let part = part(
        &plain(
            json!({ "type": "NodePort", "externalIPs": ["192.0.2.9"], "ports": [{ "port": 80, "nodePort": 30080 }] }),
        ),
        two(),
    );
    for (set, key, verdict) in [
        (SERVICE_NODE_PORTS, "tcp . 30080", "goto pick-nodeport-2"),
        (SERVICE_IPS, "192.0.2.9 . tcp . 80", "goto pick-external-2"),
    ] {
        assert_eq!(element(&part, set, key), Some(verdict));
    }
    assert!(part.chains.is_empty());
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
        let built = build_service_rules(&service, &[slice(two())], &node);
        rules(&render_nftables(&built, family), "firewall-")
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
