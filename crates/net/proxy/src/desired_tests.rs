#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use super::*;
use crate::base_chains::{BaseChainOptions, build_base_chains};
use crate::local::{LocalNode, PodMatch};
use crate::nftables::{render_nftables, write_difference, write_installation};
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
    let mut desired = DesiredRules::new(render_nftables);
    desired.set_rules("ns/web", with(2, plain(1)));
    assert_eq!(
        desired.set_rules("ns/web", with(2, plain(1))),
        Difference::default()
    );
}

#[test]
fn one_endpoint_among_a_thousand_services_is_a_small_transaction() {
    let mut desired = DesiredRules::new(render_nftables);
    for n in 0..1000 {
        desired.set_rules(&format!("ns/web{n}"), with(2, plain(n)));
    }
    let commands = write_difference(&desired.set_rules("ns/web7", with(3, plain(7))));
    assert!(commands.change.lines().count() <= 10, "{}", commands.change);
    assert_eq!(commands.removal, "");
    let back = write_difference(&desired.set_rules("ns/web7", with(2, plain(7))));
    assert_eq!(back.removal, "");
    assert!(
        back.change
            .contains("delete element ip kube-proxy hairpin-connections"),
        "{}",
        back.change
    );
}

#[test]
fn moved_endpoint_changes_its_own_elements_only() {
    let rules = |hosts: &[usize]| {
        let entry =
            |host: &usize| json!({ "addresses": [format!("10.244.1.{host}")], "nodeName": "n2" });
        let endpoints: Vec<_> = hosts.iter().map(entry).collect();
        let service = fixtures::service(plain(1));
        let slice = fixtures::slice(json!(endpoints));
        build_service_rules(&service, &[slice], &fixtures::node())
    };
    let before: Vec<usize> = (10..60).collect();
    let mut desired = DesiredRules::new(render_nftables);
    desired.set_rules("ns/web", rules(&before));
    let mut after = before.clone();
    after[7] = 1;
    let commands = write_difference(&desired.set_rules("ns/web", rules(&after)));
    let key = "10.96.0.2 . tcp . 80 . 7";
    let expect = format!(
        "delete element ip kube-proxy endpoints {{ {key} : 10.244.1.17 . 8080 }}\n\
         add element ip kube-proxy endpoints {{ {key} : 10.244.1.1 . 8080 }}\n"
    );
    assert_eq!(commands.change, expect);
    after.remove(20);
    let commands = write_difference(&desired.set_rules("ns/web", rules(&after)));
    // The last one takes the place, and the address leads to another number.
    assert_eq!(
        commands.change.matches(" . tcp . 80").count(),
        5,
        "{}",
        commands.change
    );
}

/// The endpoints of an address belong to the Service that has the address.
#[test]
fn endpoints_of_a_contested_address_are_those_of_its_owner() {
    let spec = |ip: &str| json!({ "clusterIPs": [ip], "externalIPs": ["192.0.2.9"], "ports": [{ "port": 80 }] });
    let mut desired = DesiredRules::new(render_nftables);
    let installed = |desired: &DesiredRules| -> Vec<String> {
        let all = desired.elements(Family::V4);
        let own = all.filter(|element| element.key.starts_with("192.0.2.9"));
        own.map(|element| format!("{} {} : {}", element.set, element.key, element.value))
            .collect()
    };
    desired.set_rules("ns/b", named("b", 2, spec("10.96.0.2")));
    let of_b = installed(&desired);
    assert_eq!(of_b.len(), 3, "{of_b:?}");
    let first = write_difference(&desired.set_rules("ns/a", named("a", 1, spec("10.96.0.1"))));
    let of_a = installed(&desired);
    assert_eq!(of_a.len(), 2, "{of_a:?}");
    assert!(
        first
            .change
            .contains("192.0.2.9 . tcp . 80 . 1 : 10.244.0.3 . 8080 }"),
        "{}",
        first.change
    );
    // A change of the other one is none of the address.
    let other = write_difference(&desired.set_rules("ns/b", named("b", 3, spec("10.96.0.2"))));
    assert!(!other.change.contains("192.0.2.9"), "{}", other.change);
    assert_eq!(installed(&desired), of_a);
    desired.set_rules("ns/a", ServiceRules::default());
    assert_eq!(installed(&desired).len(), 4);
}

/// Two Services may have one pod.
#[test]
fn hairpin_of_an_endpoint_stays_until_its_last_service_is_removed() {
    let mut desired = DesiredRules::new(render_nftables);
    let element = "hairpin-connections { 10.244.0.2 . 10.244.0.2 }";
    for (service, count, expect) in [
        ("a", 1, Some("add")),
        ("b", 1, None),
        ("a", 0, None),
        ("b", 0, Some("delete")),
    ] {
        let commands = write_difference(
            &desired.set_rules(&format!("ns/{service}"), named(service, count, plain(1))),
        );
        let found = commands.change.lines().find(|line| line.contains(element));
        let verb = found.and_then(|line| line.split(' ').next());
        assert_eq!(verb, expect, "{service} {count}");
    }
}

#[test]
fn contested_address_moves_to_the_next_service() {
    let spec = |ip: &str| json!({ "clusterIPs": [ip], "externalIPs": ["192.0.2.9"], "ports": [{ "port": 80 }] });
    let mut desired = DesiredRules::new(render_nftables);
    desired.set_rules("ns/a", named("a", 1, spec("10.96.0.1")));
    let second = write_difference(&desired.set_rules("ns/b", named("b", 2, spec("10.96.0.2"))));
    assert!(
        !second.change.contains("192.0.2.9 . tcp"),
        "{}",
        second.change
    );
    let gone = write_difference(&desired.set_rules("ns/a", ServiceRules::default()));
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
        pod_interface: Some(PodMatch::Prefix("veth".into())),
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
        let mut desired = DesiredRules::new(render_nftables);
        desired.set_rules("ns/a", with(2, plain(1)));
        desired.set_rules("ns/b", with(0, plain(2)));
        desired.set_rules("ns/d", with(9, plain(3)));
        let ports = json!([{ "port": 80, "nodePort": 30081 }, { "name": "u", "port": 53, "protocol": "UDP" }]);
        let shared = json!({ "clusterIPs": ["10.96.0.8"], "type": "NodePort",
            "externalIPs": ["192.0.2.10"], "ports": ports });
        desired.set_rules("ns/e", named("e", 2, shared));
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
        let families: BTreeSet<Family> = rules.ports.iter().map(|port| port.family).collect();
        assert_eq!(families.len(), node.families.len());
        desired.set_rules("ns/c", rules);
        let text = build_base_chains(Family::V4, &options)
            + &build_base_chains(Family::V6, &options)
            + &write_installation(&desired, Family::V4)
            + &write_installation(&desired, Family::V6);
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
