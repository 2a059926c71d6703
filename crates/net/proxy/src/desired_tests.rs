#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use super::*;
use crate::base_chains::{BaseChainOptions, build_base_chains};
use crate::local::LocalNode;
use crate::service_rules::{build_service_rules, tests as fixtures};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::sync::Arc;

fn with(count: usize, spec: serde_json::Value) -> ServiceRules {
    named("web", count, spec)
}

fn named(name: &str, count: usize, spec: serde_json::Value) -> ServiceRules {
    let endpoints: Vec<_> = (0..count)
        .map(|n| json!({ "addresses": [format!("10.244.0.{}", n + 2)], "nodeName": "n1", "conditions": { "ready": true } }))
        .collect();
    let mut service = fixtures::service(spec);
    service.metadata.name = Some(name.to_owned());
    build_service_rules(
        &service,
        &[fixtures::slice(json!(endpoints))],
        &fixtures::node(),
    )
}

fn plain(n: usize) -> serde_json::Value {
    json!({ "clusterIPs": [format!("10.96.{}.{}", n / 200, n % 200 + 1)], "ports": [{ "port": 80 }] })
}

#[test]
fn unchanged_rules_need_no_commands() {
    let mut desired = DesiredRules::default();
    desired.set_rules("ns/web", with(2, plain(1)));
    assert_eq!(
        desired.set_rules("ns/web", with(2, plain(1))),
        Commands::default()
    );
}

#[test]
fn one_endpoint_among_a_thousand_services_is_a_small_transaction() {
    let mut desired = DesiredRules::default();
    for n in 0..1000 {
        desired.set_rules(&format!("ns/web{n}"), with(2, plain(n)));
    }
    let commands = desired.set_rules("ns/web7", with(3, plain(7)));
    assert!(commands.change.lines().count() < 10, "{}", commands.change);
    assert_eq!(commands.removal, "");
    let back = desired.set_rules("ns/web7", with(2, plain(7)));
    assert_eq!(back.removal.lines().count(), 2, "{}", back.removal);
}

#[test]
fn contested_address_moves_to_the_next_service() {
    let spec = |ip: &str| json!({ "clusterIPs": [ip], "externalIPs": ["192.0.2.9"], "ports": [{ "port": 80 }] });
    let mut desired = DesiredRules::default();
    desired.set_rules("ns/a", named("a", 1, spec("10.96.0.1")));
    let second = desired.set_rules("ns/b", named("b", 1, spec("10.96.0.2")));
    assert!(
        !second.change.contains("192.0.2.9 . tcp"),
        "{}",
        second.change
    );
    let gone = desired.set_rules("ns/a", ServiceRules::default());
    assert!(
        gone.change
            .contains("add element ip kube-proxy service-ips { 192.0.2.9 . tcp . 80"),
        "{}",
        gone.change
    );
}

/// The real nft checks the whole text, if this process may use it.
#[test]
fn nft_accepts_what_is_generated() {
    if !rustix::process::geteuid().is_root()
        || Command::new("nft").arg("--version").output().is_err()
    {
        println!("skipped: nft can't be used");
        return;
    }
    let rich = json!({
        "type": "LoadBalancer", "clusterIPs": ["10.96.9.9", "fd00::9"],
        "externalIPs": ["192.0.2.9", "2001:db8::9"],
        "externalTrafficPolicy": "Local", "sessionAffinity": "ClientIP",
        "loadBalancerSourceRanges": ["192.0.2.0/24", "192.0.2.128/25", "fd00::/8"],
        "ports": [{ "port": 80, "nodePort": 30080 }, { "name": "s", "port": 81, "protocol": "SCTP" }]
    });
    let interface = LocalNode {
        pod_interface: Some("veth*".into()),
        families: vec![Family::V4, Family::V6],
        node_addresses: vec!["192.0.2.2".parse().unwrap()],
        ..fixtures::node()
    };
    let listed = BaseChainOptions {
        masquerade_bit: 14,
        node_port_addresses: vec!["192.0.2.2".parse().unwrap()],
        ..BaseChainOptions::default()
    };
    let ranges = ["10.96.0.0/12", "10.96.0.0/16", "fd00::/108"];
    let whole = BaseChainOptions {
        node_port_families: vec![Family::V4, Family::V6],
        service_ranges: ranges.map(|range| range.parse().unwrap()).into(),
        ..listed.clone()
    };
    for (node, options) in [(fixtures::node(), listed), (interface, whole)] {
        let mut desired = DesiredRules::default();
        desired.set_rules("ns/a", with(2, plain(1)));
        desired.set_rules("ns/b", with(0, plain(2)));
        let mut service = fixtures::service(rich.clone());
        let ingress = json!([{ "ip": "203.0.113.7" }, { "ip": "2001:db8::7" }]);
        let status = json!({ "loadBalancer": { "ingress": ingress } });
        service.status = serde_json::from_value(status).unwrap();
        let mut v6 = EndpointSlice::clone(&fixtures::slice(json!([
            { "addresses": ["fd00::1:5"], "nodeName": "n1", "conditions": { "ready": true } }
        ])));
        v6.address_type = "IPv6".into();
        let v4 = fixtures::slice(json!([
            { "addresses": ["10.244.0.5"], "nodeName": "n1", "conditions": { "ready": true } },
            { "addresses": ["10.244.1.6"], "nodeName": "n2", "conditions": { "ready": true } }
        ]));
        let rules = build_service_rules(&service, &[v4, Arc::new(v6)], &node);
        assert_eq!(rules.parts.len(), node.families.len());
        desired.set_rules("ns/c", rules);
        let text = build_base_chains(Family::V4, &options)
            + &build_base_chains(Family::V6, &options)
            + &desired.install_commands();
        check_with_nft(&text);
    }
}

#[track_caller]
fn check_with_nft(text: &str) {
    let mut child = Command::new("nft")
        .args(["-c", "-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}\n{text}",
        String::from_utf8_lossy(&output.stderr)
    );
}
