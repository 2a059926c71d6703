#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use super::*;
use crate::base_chains::{BaseChainOptions, build_base_chains};
use crate::service_rules::{build_service_rules, tests as fixtures};

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
        return;
    }
    let mut desired = DesiredRules::default();
    desired.set_rules("ns/a", with(2, plain(1)));
    desired.set_rules("ns/b", with(0, plain(2)));
    let rich = json!({
        "type": "LoadBalancer", "clusterIPs": ["10.96.9.9"], "externalIPs": ["192.0.2.9"],
        "externalTrafficPolicy": "Local", "sessionAffinity": "ClientIP", "loadBalancerSourceRanges": ["192.0.2.0/24"],
        "ports": [{ "port": 80, "nodePort": 30080 }]
    });
    desired.set_rules("ns/c", with(3, rich));
    let options = BaseChainOptions {
        masquerade_bit: 14,
        node_port_addresses: vec!["192.0.2.2".parse().unwrap()],
        ..BaseChainOptions::default()
    };
    let text = build_base_chains(Family::V4, &options)
        + &build_base_chains(Family::V6, &options)
        + &desired.install_commands();
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
