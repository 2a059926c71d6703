#![allow(clippy::unwrap_used, clippy::expect_used)]
use serde_json::{Value, json};

use super::*;

pub(crate) fn node() -> Node {
    Node {
        name: "n1".into(),
        families: vec![Family::V4],
        pod_ranges: vec!["10.244.0.0/16".parse().unwrap()],
        ..Node::default()
    }
}

pub(crate) fn service(spec: Value) -> Service {
    serde_json::from_value(json!({ "metadata": { "namespace": "ns", "name": "web" }, "spec": spec })).unwrap()
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
    let mut spec = json!({ "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ports": [{ "port": 80 }] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    service(spec)
}

fn part(service: &Service, endpoints: Value) -> Part {
    fragment(service, &[slice(endpoints)], &node()).parts.remove(&Family::V4).unwrap_or_default()
}

fn rules<'a>(part: &'a Part, kind: &str) -> Vec<&'a Vec<String>> {
    part.chains.iter().filter(|(name, _)| name.starts_with(kind)).map(|(_, rules)| rules).collect()
}

fn element<'a>(part: &'a Part, set: &'static str, key: &str) -> Option<&'a str> {
    part.elements.get(&(set, key.to_owned())).map(String::as_str)
}

fn two() -> Value {
    json!([
        { "addresses": ["10.244.0.5"], "nodeName": "n1", "conditions": { "ready": true } },
        { "addresses": ["10.244.1.6"], "nodeName": "n2", "conditions": { "ready": true } },
    ])
}

#[test]
fn a_cluster_address_spreads_over_its_endpoints() {
    let part = part(&plain(json!({})), two());
    assert!(element(&part, SERVICE_IPS, "10.96.0.7 . tcp . 80").unwrap().starts_with("goto service-"));
    assert_eq!(element(&part, CLUSTER_IPS, "10.96.0.7"), Some(""));
    let chain = rules(&part, "service-")[0];
    assert!(chain[0].contains("ip saddr != 10.244.0.0/16 jump mark-for-masquerade"), "{chain:?}");
    assert!(chain[1].starts_with("numgen random mod 2 vmap { 0 : goto endpoint-"), "{chain:?}");
    let endpoints = rules(&part, "endpoint-");
    assert_eq!(endpoints.len(), 2);
    assert!(endpoints.iter().any(|rules| rules[1] == "meta l4proto tcp dnat to 10.244.0.5:8080"));
}

#[test]
fn without_endpoints_connections_are_refused() {
    let part = part(&plain(json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30080 }] })), json!([]));
    assert_eq!(element(&part, NO_ENDPOINT_SERVICES, "10.96.0.7 . tcp . 80"), Some("goto reject-chain"));
    assert_eq!(element(&part, NO_ENDPOINT_NODE_PORTS, "tcp . 30080"), Some("goto reject-chain"));
    assert!(part.chains.is_empty());
}

#[test]
fn a_local_policy_drops_rather_than_leave_the_node() {
    let far = json!([{ "addresses": ["10.244.1.6"], "nodeName": "n2", "conditions": { "ready": true } }]);
    let inside = part(&plain(json!({ "internalTrafficPolicy": "Local" })), far.clone());
    assert_eq!(element(&inside, NO_ENDPOINT_SERVICES, "10.96.0.7 . tcp . 80"), Some("drop"));
    let outside = part(
        &plain(
            json!({ "type": "NodePort", "externalTrafficPolicy": "Local", "ports": [{ "port": 80, "nodePort": 30080 }] }),
        ),
        far,
    );
    assert_eq!(element(&outside, NO_ENDPOINT_NODE_PORTS, "tcp . 30080"), Some("drop"));
    assert!(element(&outside, SERVICE_IPS, "10.96.0.7 . tcp . 80").is_some());
}

#[test]
fn external_addresses_and_node_ports_hide_the_source() {
    let part = part(
        &plain(
            json!({ "type": "NodePort", "externalIPs": ["192.0.2.9"], "ports": [{ "port": 80, "nodePort": 30080 }] }),
        ),
        two(),
    );
    assert!(element(&part, SERVICE_NODE_PORTS, "tcp . 30080").unwrap().starts_with("goto external-"));
    assert!(element(&part, SERVICE_IPS, "192.0.2.9 . tcp . 80").unwrap().starts_with("goto external-"));
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
    assert!(part.sets.values().all(|declaration| declaration.contains("timeout 60s")));
    assert!(rules(&part, "service-")[0].iter().filter(|rule| rule.starts_with("ip saddr @affinity60-")).count() == 2);
}

#[test]
fn headless_and_external_name_services_have_no_rules() {
    for spec in [json!({ "clusterIP": "None" }), json!({ "type": "ExternalName", "externalName": "x.example" })] {
        assert_eq!(fragment(&service(spec), &[slice(two())], &node()), Fragment::default());
    }
}

#[test]
fn a_health_check_port_counts_local_endpoints() {
    let service = plain(json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
        "ports": [{ "port": 80, "nodePort": 30080 }]
    }));
    assert_eq!(fragment(&service, &[slice(two())], &node()).health, Some((31000, 1)));
}
