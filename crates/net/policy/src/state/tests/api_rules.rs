//! Rules of the API, one row each, as in upstream's e2e tests of NetworkPolicies.

use serde_json::{Value, json};

use super::{Cluster, Packet, Protocol, oracle, pod};

/// Namespaces x, y and z with pods a and b each. All are on node n1, except for those of z.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    for (number, namespace) in ["x", "y", "z"].iter().enumerate() {
        cluster.set_namespace(namespace, json!({ "ns": namespace }));
        for (index, name) in ["a", "b"].iter().enumerate() {
            let (key, host) = (format!("{namespace}/{name}"), number * 10 + index + 2);
            let node = if *namespace == "z" { "n2" } else { "n1" };
            let addresses = match node {
                "n1" => [format!("10.244.0.{host}"), format!("fd00::{host}")],
                _ => [format!("10.244.1.{host}"), format!("fd00:1::{host}")],
            };
            let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
            cluster.set_pod(&key, pod(&key, node, json!({ "pod": name }), &addresses));
        }
    }
    cluster
}

/// A packet, written `FROM TO PROTOCOL PORT`, with the family of the first address; and the
/// verdict.
fn check(case: &str, policies: &[(&str, Value)], packets: &[(&str, bool)]) {
    let mut cluster = cluster();
    for (key, spec) in policies {
        cluster.set_policy(key, spec.clone());
    }
    for (text, expect) in packets {
        let words: Vec<&str> = text.split(' ').collect();
        for family in 0..2 {
            let resolve = |name: &str| match cluster.pods.get(name) {
                Some(pod) => Some(pod.addresses[family]),
                None => name
                    .parse()
                    .ok()
                    .filter(|ip: &std::net::IpAddr| ip.is_ipv6() == (family == 1)),
            };
            let (Some(source), Some(destination)) = (resolve(words[0]), resolve(words[1])) else {
                continue;
            };
            let packet = Packet {
                source,
                destination,
                protocol: Protocol::parse(Some(words[2])).unwrap(),
                port: words[3].parse().unwrap(),
            };
            assert_eq!(
                cluster.passes(packet),
                *expect,
                "{case}: {text} ({packet:?})"
            );
            assert_eq!(
                oracle::may_pass(&cluster, packet),
                *expect,
                "{case}: {text}: the reference"
            );
        }
    }
}

#[test]
fn pods_without_policies_are_not_isolated() {
    check(
        "no policy",
        &[],
        &[
            ("x/a y/a TCP 80", true),
            ("z/a x/a UDP 81", true),
            ("192.0.2.1 x/a TCP 80", true),
            ("x/a 192.0.2.1 TCP 80", true),
        ],
    );
    check(
        "policy of another namespace",
        &[("y/deny", json!({ "podSelector": {} }))],
        &[("y/b x/a TCP 80", true), ("x/a y/b TCP 80", false)],
    );
}

#[test]
fn directions_are_isolated_separately() {
    let ingress = json!({ "podSelector": {}, "policyTypes": ["Ingress"] });
    let egress = json!({ "podSelector": {}, "policyTypes": ["Egress"] });
    let both = json!({ "podSelector": {}, "policyTypes": ["Ingress", "Egress"] });
    let (to, from) = ("y/a x/a TCP 80", "x/a y/a TCP 80");
    check(
        "ingress",
        &[("x/p", ingress.clone())],
        &[(to, false), (from, true)],
    );
    check(
        "egress",
        &[("x/p", egress.clone())],
        &[(to, true), (from, false)],
    );
    check("both", &[("x/p", both)], &[(to, false), (from, false)]);
    check(
        "two policies",
        &[("x/p", ingress), ("x/q", egress)],
        &[(to, false), (from, false), ("x/a x/b TCP 80", false)],
    );
}

#[test]
fn types_default_to_ingress_and_to_egress_with_egress_rules() {
    let packets = |ingress, egress| [("y/a x/a TCP 80", ingress), ("x/a y/a TCP 80", egress)];
    for (case, spec, ingress, egress) in [
        ("no rules", json!({ "podSelector": {} }), false, true),
        (
            "egress rules",
            json!({ "podSelector": {}, "egress": [{ "ports": [{ "port": 1 }] }] }),
            false,
            false,
        ),
        (
            "ingress rules without their type",
            json!({ "podSelector": {}, "ingress": [{}], "policyTypes": ["Egress"] }),
            true,
            false,
        ),
    ] {
        check(case, &[("x/p", spec)], &packets(ingress, egress));
    }
}

#[test]
fn empty_peers_and_ports_allow_all() {
    for rule in [json!({}), json!({ "from": [], "ports": [] })] {
        check(
            "allow all",
            &[("x/p", json!({ "podSelector": {}, "ingress": [rule] }))],
            &[
                ("y/a x/a TCP 80", true),
                ("z/a x/a SCTP 9", true),
                ("192.0.2.1 x/a UDP 5", true),
                ("2001:db8::1 x/a UDP 5", true),
            ],
        );
    }
}

#[test]
fn policies_are_a_union() {
    let allow = |name: &str| json!({ "podSelector": {}, "ingress": [{ "from": [{ "namespaceSelector": { "matchLabels": { "ns": name } } }] }] });
    check(
        "two peers",
        &[
            ("x/deny", json!({ "podSelector": {} })),
            ("x/y", allow("y")),
            ("x/z", allow("z")),
        ],
        &[
            ("y/a x/a TCP 80", true),
            ("z/a x/a TCP 80", true),
            ("x/b x/a TCP 80", false),
        ],
    );
}

#[test]
fn both_ends_must_allow_a_connection() {
    let deny_egress = json!({ "podSelector": {}, "policyTypes": ["Egress"] });
    check(
        "denied at the source in spite of the destination",
        &[
            ("y/deny", deny_egress),
            ("x/allow", json!({ "podSelector": {}, "ingress": [{}] })),
        ],
        &[("y/a x/a TCP 80", false), ("z/a x/a TCP 80", true)],
    );
    check(
        "denied at the destination in spite of the source",
        &[
            (
                "y/allow",
                json!({ "podSelector": {}, "policyTypes": ["Egress"], "egress": [{}] }),
            ),
            ("x/deny", json!({ "podSelector": {} })),
        ],
        &[("y/a x/a TCP 80", false), ("y/a z/a TCP 80", true)],
    );
}

#[test]
fn peers_select_pods_and_namespaces() {
    let ingress = |peer: Value| json!({ "podSelector": { "matchLabels": { "pod": "a" } }, "ingress": [{ "from": [peer] }] });
    let rows = |own: bool, other_a: bool, other_b: bool, third: bool| {
        [
            ("x/b x/a TCP 80", own),
            ("y/a x/a TCP 80", other_a),
            ("y/b x/a TCP 80", other_b),
            ("z/b x/a TCP 80", third),
            ("192.0.2.1 x/a TCP 80", false),
            // Not selected by the policy.
            ("192.0.2.1 x/b TCP 80", true),
        ]
    };
    for (case, peer, expect) in [
        (
            "all pods of the namespace",
            json!({ "podSelector": {} }),
            rows(true, false, false, false),
        ),
        (
            "all pods of all namespaces",
            json!({ "namespaceSelector": {} }),
            rows(true, true, true, true),
        ),
        (
            "a namespace",
            json!({ "namespaceSelector": { "matchLabels": { "ns": "y" } } }),
            rows(false, true, true, false),
        ),
        (
            "pods and namespaces together",
            json!({
            "namespaceSelector": { "matchExpressions": [{ "key": "ns", "operator": "NotIn", "values": ["x"] }] },
            "podSelector": { "matchExpressions": [{ "key": "pod", "operator": "In", "values": ["b", "c"] }] } }),
            rows(false, false, true, true),
        ),
        (
            "a label that no pod has",
            json!({ "podSelector": { "matchLabels": { "pod": "q" } } }),
            rows(false, false, false, false),
        ),
        (
            "nothing at all",
            json!({}),
            rows(false, false, false, false),
        ),
    ] {
        if case == "nothing at all" {
            // The reference does not know objects that validation rejects.
            let mut cluster = cluster();
            cluster.set_policy("x/p", ingress(peer));
            let packet = Packet {
                source: cluster.pods["x/b"].addresses[0],
                destination: cluster.pods["x/a"].addresses[0],
                protocol: Protocol::Tcp,
                port: 80,
            };
            assert!(!cluster.passes(packet), "{case}");
            continue;
        }
        check(case, &[("x/p", ingress(peer))], &expect);
    }
}

#[test]
fn ports_are_numbers_ranges_protocols_and_names() {
    let ingress = |ports: Value| json!({ "podSelector": {}, "ingress": [{ "ports": ports }] });
    for (case, ports, packets) in [
        (
            "protocol defaults to TCP",
            json!([{ "port": 80 }]),
            vec![
                ("y/a x/a TCP 80", true),
                ("y/a x/a TCP 81", false),
                ("y/a x/a UDP 80", false),
                ("y/a x/a SCTP 80", false),
            ],
        ),
        (
            "UDP",
            json!([{ "port": 80, "protocol": "UDP" }]),
            vec![("y/a x/a UDP 80", true), ("y/a x/a TCP 80", false)],
        ),
        (
            "SCTP is not TCP",
            json!([{ "port": 80, "protocol": "SCTP" }]),
            vec![("y/a x/a SCTP 80", true), ("y/a x/a TCP 80", false)],
        ),
        (
            "range",
            json!([{ "port": 79, "endPort": 81 }, { "port": 81, "endPort": 90 }, { "port": 85 }]),
            vec![
                ("y/a x/a TCP 78", false),
                ("y/a x/a TCP 79", true),
                ("y/a x/a TCP 85", true),
                ("y/a x/a TCP 90", true),
                ("y/a x/a TCP 91", false),
            ],
        ),
        (
            "all ports of a protocol",
            json!([{ "protocol": "UDP" }]),
            vec![
                ("y/a x/a UDP 1", true),
                ("y/a x/a UDP 65535", true),
                ("y/a x/a TCP 1", false),
            ],
        ),
        (
            "several protocols",
            json!([{ "port": 80 }, { "port": 81, "protocol": "UDP" }]),
            vec![
                ("y/a x/a TCP 80", true),
                ("y/a x/a UDP 81", true),
                ("y/a x/a TCP 81", false),
            ],
        ),
        (
            "name",
            json!([{ "port": "web" }]),
            vec![
                ("y/a x/a TCP 80", true),
                ("y/a x/a TCP 81", false),
                ("y/a x/a UDP 80", false),
            ],
        ),
        (
            "name of another protocol",
            json!([{ "port": "udp-web" }]),
            vec![("y/a x/a TCP 80", false), ("y/a x/a UDP 80", false)],
        ),
        (
            "name that no container has",
            json!([{ "port": "none" }]),
            vec![("y/a x/a TCP 80", false)],
        ),
        (
            "name and number",
            json!([{ "port": "web" }, { "port": 9 }]),
            vec![
                ("y/a x/a TCP 80", true),
                ("y/a x/a TCP 9", true),
                ("y/a x/a TCP 8", false),
            ],
        ),
    ] {
        check(case, &[("x/p", ingress(ports))], &packets);
    }
}

#[test]
fn invalid_ports_allow_nothing() {
    for port in [
        json!({ "port": 90, "endPort": 80 }),
        json!({ "port": 70000 }),
        json!({ "endPort": 80 }),
        json!({ "port": "web", "endPort": 80 }),
        json!({ "port": 80, "protocol": "ICMP" }),
    ] {
        let mut cluster = cluster();
        let spec = json!({ "podSelector": {}, "ingress": [{ "ports": [port] }] });
        cluster.set_policy("x/p", spec.clone());
        for number in [0, 80, 85, 90] {
            let packet = Packet {
                source: cluster.pods["y/a"].addresses[0],
                destination: cluster.pods["x/a"].addresses[0],
                protocol: Protocol::Tcp,
                port: number,
            };
            assert!(!cluster.passes(packet), "{spec} {packet:?}");
        }
    }
}

#[test]
fn egress_ports_and_names_are_those_of_the_destination() {
    let egress =
        |rule: Value| json!({ "podSelector": {}, "policyTypes": ["Egress"], "egress": [rule] });
    let peer = json!({ "namespaceSelector": { "matchLabels": { "ns": "z" } } });
    check(
        "number and peer",
        &[(
            "x/p",
            egress(json!({ "to": [peer.clone()], "ports": [{ "port": 80 }] })),
        )],
        &[
            ("x/a z/a TCP 80", true),
            ("x/a z/a TCP 81", false),
            ("x/a y/a TCP 80", false),
        ],
    );
    check(
        "name and peer",
        &[(
            "x/p",
            egress(json!({ "to": [peer], "ports": [{ "port": "web" }] })),
        )],
        &[
            ("x/a z/a TCP 80", true),
            ("x/a z/a TCP 81", false),
            ("x/a y/a TCP 80", false),
        ],
    );
    check(
        "name and every destination",
        &[("x/p", egress(json!({ "ports": [{ "port": "web" }] })))],
        &[
            ("x/a z/a TCP 80", true),
            ("x/a y/b TCP 80", true),
            ("x/a y/b TCP 81", false),
            ("x/a 192.0.2.1 TCP 80", false),
        ],
    );
    let block = json!({ "ipBlock": { "cidr": "10.244.1.0/24" } });
    check(
        "name and block",
        &[(
            "x/p",
            egress(json!({ "to": [block], "ports": [{ "port": "alt" }] })),
        )],
        &[
            ("10.244.0.2 10.244.1.22 TCP 81", true),
            ("10.244.0.2 10.244.1.22 TCP 80", false),
            ("10.244.0.2 10.244.0.12 TCP 81", false),
        ],
    );
}

#[test]
fn blocks_match_addresses_without_their_exceptions() {
    let block = |cidr: &str, except: Value| json!({ "podSelector": {}, "ingress": [{ "from": [{ "ipBlock": { "cidr": cidr, "except": except } }] }] });
    for (case, spec, packets) in [
        (
            "all of IPv4",
            block("0.0.0.0/0", json!([])),
            vec![
                ("192.0.2.1 x/a TCP 80", true),
                ("2001:db8::1 x/a TCP 80", false),
                ("10.244.0.12 10.244.0.2 TCP 80", true),
            ],
        ),
        (
            "all of IPv6",
            block("::/0", json!([])),
            vec![
                ("192.0.2.1 x/a TCP 80", false),
                ("2001:db8::1 x/a TCP 80", true),
            ],
        ),
        (
            "overlapping exceptions",
            block(
                "192.0.2.0/24",
                json!(["192.0.2.64/26", "192.0.2.80/28", "192.0.2.7/32"]),
            ),
            vec![
                ("192.0.2.1 x/a TCP 80", true),
                ("192.0.2.7 x/a TCP 80", false),
                ("192.0.2.90 x/a TCP 80", false),
                ("192.0.3.1 x/a TCP 80", false),
            ],
        ),
        (
            "bits of the host",
            block("192.0.2.77/24", json!([])),
            vec![
                ("192.0.2.1 x/a TCP 80", true),
                ("192.0.3.1 x/a TCP 80", false),
            ],
        ),
        (
            "everything is excepted",
            block("0.0.0.0/0", json!(["0.0.0.0/0"])),
            vec![("192.0.2.1 x/a TCP 80", false)],
        ),
        (
            "IPv6 with an exception",
            block("2001:db8::/32", json!(["2001:db8:1::/48"])),
            vec![
                ("2001:db8::1 x/a TCP 80", true),
                ("2001:db8:1::1 x/a TCP 80", false),
                ("192.0.2.1 x/a TCP 80", false),
            ],
        ),
    ] {
        check(case, &[("x/p", spec)], &packets);
    }
    // An address in a block and in the exception of another one is allowed.
    let two = json!({ "podSelector": {}, "ingress": [{ "from": [
        { "ipBlock": { "cidr": "192.0.2.0/24", "except": ["192.0.2.7/32"] } },
        { "ipBlock": { "cidr": "192.0.2.7/32" } }] }] });
    check(
        "two blocks",
        &[("x/p", two)],
        &[
            ("192.0.2.7 x/a TCP 80", true),
            ("192.0.3.7 x/a TCP 80", false),
        ],
    );
}

#[test]
fn block_that_cannot_be_parsed_allows_nothing() {
    for block in [
        json!({ "cidr": "192.0.2.0/33" }),
        json!({ "cidr": "192.0.2.0/24", "except": ["192.0.2.7"] }),
    ] {
        let mut cluster = cluster();
        let spec = json!({ "podSelector": {}, "ingress": [{ "from": [{ "ipBlock": block }] }] });
        cluster.set_policy("x/p", spec.clone());
        let packet = Packet {
            source: "192.0.2.1".parse().unwrap(),
            destination: cluster.pods["x/a"].addresses[0],
            protocol: Protocol::Tcp,
            port: 80,
        };
        assert!(!cluster.passes(packet), "{spec}");
    }
}

#[test]
fn pod_reaches_itself() {
    let both = json!({ "podSelector": {}, "policyTypes": ["Ingress", "Egress"] });
    check(
        "through a Service",
        &[("x/p", both)],
        &[("x/a x/a TCP 80", true), ("x/b x/a TCP 80", false)],
    );
}

/// The authors of policies are tenants, and every node computes the rules.
#[test]
fn text_of_a_large_policy_is_as_long_as_the_policy() {
    let peers: Vec<Value> = (0..300)
        .map(|n| json!({ "podSelector": { "matchLabels": { "pod": n.to_string() } } }))
        .collect();
    let ports: Vec<Value> = (0..300)
        .map(|n| json!({ "port": format!("p{n}") }))
        .collect();
    let rule = |peers: &str, list: &[Value]| json!({ peers: list, "ports": ports });
    let mut cluster = cluster();
    cluster.set_policy(
        "x/p",
        json!({ "podSelector": {}, "ingress": [rule("from", &peers)], "egress": [rule("to", &peers)] }),
    );
    let text = cluster.state.take_changes().change;
    let rules = text
        .lines()
        .filter(|line| line.starts_with("add rule"))
        .count();
    assert!(rules < 2 * 2 * (300 + 300 + 20), "{rules} rules");
}

#[test]
fn selectors_after_the_first_thousand_allow_nothing() {
    let mut peers = vec![json!({ "podSelector": { "matchLabels": { "pod": "none" } } }); 1000];
    peers.push(json!({ "podSelector": {} }));
    peers.push(json!({ "ipBlock": { "cidr": "10.244.0.12/32" } }));
    let mut cluster = cluster();
    cluster.set_policy(
        "x/p",
        json!({ "podSelector": {}, "ingress": [{ "from": peers }] }),
    );
    for (source, expect) in [("x/b", false), ("y/a", true)] {
        let packet = Packet {
            source: cluster.pods[source].addresses[0],
            destination: cluster.pods["x/a"].addresses[0],
            protocol: Protocol::Tcp,
            port: 80,
        };
        assert_eq!(cluster.passes(packet), expect, "{source}");
    }
    assert_eq!(cluster.state.policies["x/p"].ignored_selectors, 1);
}
