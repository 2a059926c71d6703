#![allow(clippy::unwrap_used, clippy::expect_used)]
use serde_json::{Value, json};

use super::*;
use crate::base_chains::BaseChainOptions;
use crate::desired::DesiredRules;
use crate::part::Part;
use crate::service_rules::build_service_rules;
use crate::service_rules::tests as fixtures;

fn render(more: Value, endpoints: Value) -> Part {
    let mut spec = json!({ "clusterIPs": ["10.96.0.7"], "ports": [{ "name": "http", "port": 80, "nodePort": 30080 }] });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let mut service = fixtures::service(spec);
    let status = json!({ "loadBalancer": { "ingress": [{ "ip": "203.0.113.7" }] } });
    if more["type"] == "LoadBalancer" {
        service.status = serde_json::from_value(status).unwrap();
    }
    let mut slice = fixtures::slice(endpoints);
    std::sync::Arc::make_mut(&mut slice).ports.as_mut().unwrap()[0].name = Some("http".into());
    let rules = build_service_rules(&service, &[slice], &fixtures::node());
    render_iptables(&rules, Family::V4)
}

fn endpoint(ip: &str, node: &str) -> Value {
    json!({ "addresses": [ip], "nodeName": node, "conditions": { "ready": true } })
}

/// Returns all rules, as `CHAIN RULE`, without comments.
fn lines(part: &Part) -> Vec<String> {
    let chains = part.chains.iter();
    let chains = chains.flat_map(|(name, rules)| rules.iter().map(move |r| format!("{name} {r}")));
    let elements = part.elements.iter();
    let elements = elements.map(|((set, key), value)| {
        let value = value.verdict.as_str();
        let verdict = value.split_once("\" ").map_or(value, |(_, v)| v);
        format!("{set} {key} {verdict}")
    });
    let mut all: Vec<String> = chains.chain(elements).collect();
    all.sort();
    all
}

#[track_caller]
fn check(more: Value, endpoints: Value, expect: &[&str]) {
    assert_eq!(lines(&render(more, endpoints)), expect);
}

const ID: &str = "-p tcp -m tcp --dport 80";

#[test]
fn cluster_ip_is_balanced_over_its_endpoints() {
    let part = render(
        json!({}),
        json!([endpoint("10.244.0.5", "n1"), endpoint("10.244.1.6", "n2")]),
    );
    let service = part
        .chains
        .keys()
        .find(|name| name.starts_with("KUBE-SVC-"));
    let service = service.unwrap().clone();
    let rules = &part.chains[&service];
    assert_eq!(
        rules[0],
        format!("-d 10.96.0.7 {ID} ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ")
    );
    assert!(
        rules[1].starts_with("-m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-")
    );
    assert!(rules[2].starts_with("-j KUBE-SEP-"));
    let key = ("nat KUBE-SERVICES", format!("-d 10.96.0.7 {ID}"));
    let expect = format!("-m comment --comment \"ns/web:http cluster IP\" -j {service}");
    assert_eq!(part.elements[&key].verdict, expect);
}

#[test]
fn connections_without_an_endpoint_are_rejected_or_dropped() {
    let far = json!([endpoint("10.244.1.6", "n2")]);
    check(
        json!({ "type": "NodePort" }),
        json!([]),
        &[
            "filter KUBE-EXTERNAL-SERVICES -p tcp -m tcp --dport 30080 -m addrtype --dst-type LOCAL -j REJECT --reject-with tcp-reset",
            &format!("filter KUBE-SERVICES -d 10.96.0.7 {ID} -j REJECT --reject-with tcp-reset"),
        ],
    );
    let local = render(
        json!({ "type": "NodePort", "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local" }),
        far,
    );
    let local = lines(&local);
    let has = |text: &str| local.iter().any(|line| line.contains(text));
    assert!(
        has("--dst-type LOCAL -j DROP") && has(&format!("{ID} -j DROP")),
        "{local:?}"
    );
    assert!(
        has("-m addrtype --src-type LOCAL -j KUBE-SVC-"),
        "{local:?}"
    );
    assert!(has("-s 10.244.0.0/16 -j KUBE-SVC-"), "{local:?}");
    assert!(!has("KUBE-SVL-"), "{local:?}");
}

#[test]
fn sources_of_a_load_balancer_are_allowed_before_translation() {
    let restricted = json!({ "type": "LoadBalancer", "loadBalancerSourceRanges": ["198.51.100.0/24"],
        "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000 });
    let near = json!([endpoint("10.244.0.5", "n1")]);
    let found = lines(&render(restricted.clone(), near));
    let has = |text: &str| found.iter().any(|line| line.contains(text));
    let address = format!("-d 203.0.113.7 {ID}");
    assert!(
        has(&format!("filter KUBE-PROXY-FIREWALL {address} -j DROP")),
        "{found:?}"
    );
    assert!(
        has(&format!("nat KUBE-SERVICES {address} -j KUBE-FW-")),
        "{found:?}"
    );
    assert!(has("-s 198.51.100.0/24 -j KUBE-EXT-"), "{found:?}");
    assert!(
        has("filter KUBE-NODEPORTS -p tcp -m tcp --dport 31000 -j ACCEPT"),
        "{found:?}"
    );
    // Without an endpoint, all sources are rejected.
    let none = lines(&render(restricted, json!([])));
    assert!(
        !none
            .iter()
            .any(|line| line.contains("KUBE-FW-") || line.contains("FIREWALL")),
        "{none:?}"
    );
}

#[test]
fn affinity_is_kept_in_a_list_for_each_endpoint() {
    let found = lines(&render(
        json!({ "sessionAffinity": "ClientIP" }),
        json!([endpoint("10.244.0.5", "n1")]),
    ));
    let has = |text: &str| found.iter().any(|line| line.contains(text));
    assert!(
        has("--rcheck --reap --seconds 10800 -j KUBE-SEP-"),
        "{found:?}"
    );
    assert!(
        has("--set -p tcp -m tcp -j DNAT --to-destination 10.244.0.5:8080"),
        "{found:?}"
    );
}

const SAVED: &str = "# Generated by iptables-save\n*filter\n:INPUT ACCEPT [0:0]\n:KUBE-FORWARD - [0:0]\n:KUBE-FIREWALL - [0:0]\n\
    :OTHER - [0:0]\n-A INPUT -j KUBE-FIREWALL\n-A INPUT -p tcp -j OTHER\n\
    -A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD\n\
    -A FORWARD -s 192.0.2.1/32 -j KUBE-FORWARD\n-A KUBE-FORWARD -j ACCEPT\n\
    -A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP\n\
    -A KUBE-FIREWALL -s 1.2.3.4/32 -m comment --comment \"block incoming localnet connections\" -j DROP\nCOMMIT\n\
    *nat\n:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]\n:KUBE-SERVICES - [0:0]\n\
    -A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\nCOMMIT\n";

#[test]
fn installation_replaces_jumps_and_removes_stale_chains() {
    let desired = DesiredRules::new(render_iptables);
    let options = BaseChainOptions {
        masquerade_bit: 14,
        ..BaseChainOptions::default()
    };
    let text = write_iptables_installation(
        &desired,
        Family::V4,
        &options,
        IptablesOptions::default(),
        SAVED,
    )
    .concat();
    for line in [
        "-D FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD",
        "-D INPUT -j KUBE-FIREWALL",
        "-D KUBE-FIREWALL -s 1.2.3.4/32 -m comment --comment \"block incoming localnet connections\" -j DROP",
        "-A KUBE-PROXY-SOURCES ! -i lo -s 127.0.0.0/8 -j DROP",
        "-I INPUT -j KUBE-FIREWALL",
        "-D OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES",
        "-I OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES",
        ":KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]",
        "-X KUBE-SVC-AAAAAAAAAAAAAAAA",
        "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(
        !text.contains("192.0.2.1") && !text.contains("OTHER"),
        "{text}"
    );
    // The kubelet may have rules of its own in this chain, and an old iptables lacks the option.
    assert!(
        !text.contains(":KUBE-FIREWALL") && !text.contains("--random-fully"),
        "{text}"
    );
    // Packets pass the guard before the chain that admits health checks.
    let guard = text.find("-I INPUT -m comment --comment \"loopback sources");
    let health = text.find("-I INPUT -m comment --comment \"kubernetes health check");
    assert!(guard.is_some() && guard > health, "{text}");
    let v6 = write_iptables_installation(
        &desired,
        Family::V6,
        &options,
        IptablesOptions::default(),
        "",
    )
    .concat();
    assert!(!v6.contains("127.0.0.0") && !v6.contains("-D "), "{v6}");
}

/// The nft variant takes minutes for many chains at once.
#[test]
fn chains_of_many_services_are_installed_before_a_rule_leads_to_them() {
    let mut desired = DesiredRules::new(render_iptables);
    for n in 0..400 {
        let mut service = fixtures::service(json!({
            "clusterIPs": [format!("10.96.{}.{}", n / 200, n % 200 + 1)], "ports": [{ "port": 80 }]
        }));
        service.metadata.name = Some(format!("web{n}"));
        let ips = ["10.244.0.5", "10.244.0.6", "10.244.0.7", "10.244.0.8"];
        let slice = fixtures::slice(json!(ips.map(|ip| endpoint(ip, "n1"))));
        let rules = build_service_rules(&service, &[slice], &fixtures::node());
        desired.set_rules(&format!("ns/web{n}"), rules);
    }
    let options = BaseChainOptions::default();
    let write = |is_nft_variant: bool, saved: &str| {
        let more = IptablesOptions {
            is_nft_variant,
            ..IptablesOptions::default()
        };
        write_iptables_installation(&desired, Family::V4, &options, more, saved)
    };
    assert_eq!(write(false, "").len(), 1);
    let inputs = write(true, "");
    let lines = |text: &str, start: &str| text.lines().filter(|l| l.starts_with(start)).count();
    let chains = inputs
        .iter()
        .map(|input| lines(input, ":KUBE-S"))
        .collect::<Vec<_>>();
    // The last one has the two shared chains with such a name.
    assert_eq!(chains, [1000, 1002]);
    assert!(
        inputs[0].starts_with("*nat\n:KUBE-MARK-MASQ "),
        "{}",
        inputs[0]
    );
    assert_eq!(lines(&inputs[0], "-A KUBE-SERVICES"), 0);
    assert_eq!(lines(&inputs[1], "-A KUBE-SERVICES -d"), 400);
    // A chain that exists is not emptied before the last transaction.
    let again = write(
        true,
        "*nat\n:KUBE-MARK-MASQ - [0:0]\n:KUBE-SEP-A - [0:0]\nCOMMIT\n",
    );
    assert!(!again[0].contains(":KUBE-MARK-MASQ"));
    assert_eq!(again.len(), 4);
    assert_eq!(again[2], "*nat\n:KUBE-SEP-A - [0:0]\nCOMMIT\n");
    assert_eq!(again[3], "*nat\n-X KUBE-SEP-A\nCOMMIT\n");
}

#[test]
fn removal_leaves_the_chains_of_others() {
    let commands = write_iptables_removal(SAVED);
    for (text, line) in [
        // First, so that a chain that can't be deleted translates nothing.
        (
            &commands.change,
            "-D OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES",
        ),
        (&commands.change, ":KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]"),
        (&commands.removal, "-X KUBE-FORWARD"),
        (&commands.removal, "-X KUBE-SERVICES"),
        (&commands.removal, "-X KUBE-SVC-AAAAAAAAAAAAAAAA"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    for text in [&commands.change, &commands.removal] {
        assert!(
            !text.contains("OTHER") && !text.contains("KUBE-FIREWALL"),
            "{text}"
        );
    }
    let none = write_iptables_removal("*nat\n:OUTPUT ACCEPT [0:0]\n:DOCKER - [0:0]\nCOMMIT\n");
    assert_eq!(none, net_nft::Commands::default());
}

#[test]
fn absent_jump_is_noticed() {
    let forward = "-P FORWARD ACCEPT\n-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL\n\
        -A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD\n\
        -A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
        -A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES\n";
    assert!(base::has_jumps(forward, Family::V4, "filter", "FORWARD"));
    for gone in ["KUBE-FORWARD", "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"] {
        let left: Vec<&str> = forward
            .lines()
            .filter(|line| !line.ends_with(gone))
            .collect();
        assert!(
            !base::has_jumps(&left.join("\n"), Family::V4, "filter", "FORWARD"),
            "{gone}"
        );
    }
}
