//! Any sequence of changes leads to the rules of its result, and costs what it changes.

use std::net::IpAddr;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::{Cluster, Commands, Packet, Protocol, oracle, pod};

const NAMESPACES: [&str; 3] = ["x", "y", "z"];
const STEPS: usize = 200;

fn pick<'a, T>(rng: &mut StdRng, all: &'a [T]) -> &'a T {
    &all[rng.random_range(0..all.len())]
}

fn random_selector(rng: &mut StdRng, key: &str) -> Value {
    match rng.random_range(0..4) {
        0 => json!({}),
        1 => json!({ "matchLabels": { key: pick(rng, &["1", "2"]) } }),
        2 => json!({ "matchExpressions": [{ "key": key, "operator": "NotIn", "values": ["1"] }] }),
        _ => json!({ "matchExpressions": [{ "key": key, "operator": "Exists" }] }),
    }
}

fn random_peer(rng: &mut StdRng) -> Value {
    match rng.random_range(0..4) {
        0 => json!({ "podSelector": random_selector(rng, "app") }),
        1 => json!({ "namespaceSelector": random_selector(rng, "team") }),
        2 => {
            json!({ "namespaceSelector": random_selector(rng, "team"), "podSelector": random_selector(rng, "app") })
        }
        _ => {
            json!({ "ipBlock": { "cidr": "10.244.0.0/16", "except": [pick(rng, &["10.244.0.0/28", "10.244.1.0/24"])] } })
        }
    }
}

fn random_list(rng: &mut StdRng, make: impl Fn(&mut StdRng) -> Value) -> Value {
    let count = rng.random_range(0..3);
    (0..count).map(|_| make(rng)).collect()
}

fn random_port(rng: &mut StdRng) -> Value {
    let port = *pick(rng, &["web", "alt", "udp-web"]);
    match rng.random_range(0..4) {
        0 => json!({ "port": port }),
        1 => json!({ "port": port, "protocol": "UDP" }),
        2 => json!({ "port": 80, "endPort": pick(rng, &[80, 81]),
            "protocol": pick(rng, &["TCP", "SCTP"]) }),
        _ => json!({ "protocol": pick(rng, &["UDP", "SCTP"]) }),
    }
}

fn random_rules(rng: &mut StdRng, peers: &str) -> Value {
    random_list(
        rng,
        |rng| json!({ peers: random_list(rng, random_peer), "ports": random_list(rng, random_port) }),
    )
}

fn random_spec(rng: &mut StdRng) -> Value {
    let mut spec = json!({
        "podSelector": random_selector(rng, "app"),
        "ingress": random_rules(rng, "from"), "egress": random_rules(rng, "to"),
    });
    match rng.random_range(0..4) {
        0 => spec["policyTypes"] = json!(["Ingress"]),
        1 => spec["policyTypes"] = json!(["Egress"]),
        2 => spec["policyTypes"] = json!(["Ingress", "Egress"]),
        _ => {}
    }
    spec
}

fn random_labels(rng: &mut StdRng, key: &str) -> Value {
    match rng.random_range(0..3) {
        0 => json!({}),
        1 => json!({ key: "1" }),
        _ => json!({ key: "2", "other": "1" }),
    }
}

fn random_change(rng: &mut StdRng, cluster: &mut Cluster) {
    let namespace = *pick(rng, &NAMESPACES);
    let number = rng.random_range(0..4);
    match rng.random_range(0..8) {
        0 => {
            let labels = random_labels(rng, "team");
            cluster.set_namespace(namespace, labels);
        }
        1 | 2 => {
            let spec = random_spec(rng);
            cluster.set_policy(&format!("{namespace}/p{number}"), spec);
        }
        3 => cluster.delete_policy(&format!("{namespace}/p{number}")),
        4 => cluster.delete_pod(&format!("{namespace}/a{number}")),
        _ => {
            let key = format!("{namespace}/a{number}");
            let node = *pick(rng, &["n1", "n2"]);
            let addresses = random_addresses(rng, cluster, &key, node);
            let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
            let labels = random_labels(rng, "app");
            cluster.set_pod(&key, pod(&key, node, labels, &addresses));
        }
    }
}

/// Returns no address, one, or one of each family. Other pods may have had them.
fn random_addresses(rng: &mut StdRng, cluster: &Cluster, key: &str, node: &str) -> Vec<String> {
    let (v4, v6) = match node {
        "n1" => ("10.244.0", "fd00:"),
        _ => ("10.244.1", "fd00:1:"),
    };
    loop {
        let host = rng.random_range(2..18);
        let all = [format!("{v4}.{host}"), format!("{v6}:{host}")];
        let parsed: IpAddr = all[0].parse().unwrap();
        let mut others = cluster.pods.iter().filter(|(other, _)| *other != key);
        if others.all(|(_, pod)| !pod.addresses.contains(&parsed)) {
            return all[..rng.random_range(0..3)].to_vec();
        }
    }
}

fn compare_with_reference(cluster: &mut Cluster, rng: &mut StdRng) {
    let mut addresses: Vec<IpAddr> = cluster
        .pods
        .values()
        .flat_map(|pod| pod.addresses.clone())
        .collect();
    addresses.extend(["192.0.2.1", "2001:db8::1"].map(|text| text.parse::<IpAddr>().unwrap()));
    for _ in 0..20 {
        let source = *pick(rng, &addresses);
        let mut peers = addresses.clone();
        peers.retain(|address| address.is_ipv4() == source.is_ipv4());
        let packet = Packet {
            source,
            destination: *pick(rng, &peers),
            protocol: *pick(rng, &[Protocol::Tcp, Protocol::Udp, Protocol::Sctp]),
            port: *pick(rng, &[80, 81, 82]),
        };
        assert_eq!(
            cluster.passes(packet),
            oracle::may_pass(cluster, packet),
            "{packet:?} {:#?} {:#?}",
            cluster.policies,
            cluster.pods
        );
    }
}

#[test]
fn rules_after_random_changes_are_those_of_the_reference_and_of_a_fresh_state() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let mut cluster = Cluster::new();
        for _ in 0..STEPS {
            random_change(&mut rng, &mut cluster);
            if rng.random_bool(0.3) {
                cluster.state.take_changes();
            }
            compare_with_reference(&mut cluster, &mut rng);
        }
        let mut fresh = Cluster::new();
        for (name, labels) in &cluster.namespaces {
            fresh.set_namespace(name, json!(labels));
        }
        for (key, pod) in &cluster.pods {
            fresh.state.set_pod(key, Some(pod.clone()));
        }
        for (key, policy) in &cluster.policies {
            fresh.set_policy(key, json!(policy.spec));
        }
        let state = &mut cluster.state;
        state.local.release_retained(&mut state.tables);
        state.take_changes();
        fresh.state.take_changes();
        assert_eq!(state.tables.dump(), fresh.state.tables.dump());
    }
}

type Change<'a> = &'a mut dyn FnMut(&mut Cluster);

/// 100 namespaces with 50 pods and 5 policies each; every 50th pod is on this node.
fn large_cluster() -> Cluster {
    let mut cluster = Cluster::new();
    for namespace in 0..100 {
        let name = format!("ns{namespace}");
        cluster.set_namespace(&name, json!({ "team": format!("t{}", namespace % 10) }));
        for number in 0..50 {
            let key = format!("{name}/pod{number}");
            let node = if number == 0 { "n1" } else { "n2" };
            let range = if number == 0 { 0 } else { 1 + namespace };
            let address = format!(
                "10.244.{range}.{}",
                if number == 0 { namespace } else { number }
            );
            let labels =
                json!({ "app": format!("app{}", number % 10), "name": number.to_string() });
            cluster.set_pod(&key, pod(&key, node, labels, &[&address]));
        }
        for number in 0..5 {
            let spec = json!({ "podSelector": { "matchLabels": { "app": format!("app{number}") } }, "ingress": [{ "from": [
                { "podSelector": { "matchLabels": { "app": format!("app{}", number + 1) } } },
                { "namespaceSelector": { "matchLabels": { "team": format!("t{number}") } },
                  "podSelector": { "matchLabels": { "app": format!("app{number}") } } }] }] });
            cluster.set_policy(&format!("{name}/p{number}"), spec);
        }
    }
    cluster.state.take_changes();
    cluster
}

#[test]
fn change_among_5000_pods_and_500_policies_costs_what_it_changes() {
    let mut cluster = large_cluster();
    assert_eq!((cluster.pods.len(), cluster.policies.len()), (5000, 500));
    let labels = |app: &str| json!({ "app": app });
    let mut measure = |change: Change<'_>| {
        let before = cluster.state.comparisons();
        change(&mut cluster);
        let Commands { change, removal } = cluster.state.take_changes();
        let lines = change.lines().count() + removal.lines().count();
        (cluster.state.comparisons() - before, lines)
    };
    let address = ["10.244.8.7"];
    let cases: [(&str, Change<'_>, (u64, usize)); 7] = [
        (
            "status of a pod",
            &mut |cluster| {
                let key = "ns7/pod7";
                let labels = json!({ "app": "app7", "name": "7" });
                cluster.set_pod(key, pod(key, "n2", labels, &address));
            },
            (0, 0),
        ),
        (
            "label of a pod elsewhere",
            &mut |cluster| {
                let key = "ns7/pod7";
                cluster.set_pod(key, pod(key, "n2", labels("app1"), &address));
            },
            (2, 2),
        ),
        (
            "new pod elsewhere",
            &mut |cluster| {
                let key = "ns7/new";
                cluster.set_pod(key, pod(key, "n2", labels("app3"), &["10.244.8.99"]));
            },
            (2, 2),
        ),
        (
            "new pod of this node",
            &mut |cluster| {
                let key = "ns7/own";
                cluster.set_pod(key, pod(key, "n1", labels("app3"), &["10.244.0.200"]));
            },
            // The first pod that the policy isolates here: every pod that its selectors may select.
            (600, 40),
        ),
        (
            "label of a namespace",
            &mut |cluster| cluster.set_namespace("ns7", json!({ "team": "t1" })),
            // Every set of selected namespaces, and every pod of the namespace for the one set.
            (60, 1),
        ),
        (
            "new policy",
            &mut |cluster| {
                cluster.set_policy(
                    "ns7/new",
                    json!({ "podSelector": { "matchLabels": { "app": "app9" } } }),
                );
            },
            // Six policies for each of the two pods of this node.
            (12, 4),
        ),
        (
            "deleted policy",
            &mut |cluster| cluster.delete_policy("ns7/p0"),
            (12, 20),
        ),
    ];
    for (case, change, (comparisons, lines)) in cases {
        let (compared, written) = measure(change);
        assert!(
            compared <= comparisons && written <= lines,
            "{case}: {compared} comparisons, {written} lines"
        );
    }
}

/// Pods with the same policies share a chain of jumps. Otherwise each of them has one: the limit of
/// policies bounds its length.
#[test]
fn new_policy_costs_a_chain_of_jumps_for_each_group_of_pods() {
    const PODS: usize = 100;
    const POLICIES: usize = 200;
    for (groups, is_shared) in [(1, true), (PODS, false)] {
        let mut cluster = Cluster::new();
        cluster.set_namespace("ns", json!({}));
        // Policies first: each one would otherwise be compared with all pods.
        for number in 0..POLICIES {
            // Each pod is left out by one of the policies, or by none.
            let excluded = if is_shared {
                "none".to_owned()
            } else {
                number.to_string()
            };
            let selector = json!({ "matchExpressions": [
                { "key": "name", "operator": "NotIn", "values": [excluded] }] });
            cluster.set_policy(
                &format!("ns/p{number:03}"),
                json!({ "podSelector": selector }),
            );
        }
        for number in 0..PODS {
            let key = format!("ns/pod{number:03}");
            let labels = json!({ "app": "db", "name": number.to_string() });
            let address = format!("10.244.0.{}", number + 2);
            cluster.set_pod(&key, pod(&key, "n1", labels, &[&address]));
        }
        cluster.state.take_changes();
        cluster.set_policy(
            "ns/new",
            json!({ "podSelector": { "matchLabels": { "app": "db" } } }),
        );
        let Commands { change, removal } = cluster.state.take_changes();
        let (written, removed) = (change.lines().count(), removal.lines().count());
        // For each family: the policy's chain, and for each group a declaration, a flush, the jumps
        // and the drop. Elements are one line for each map.
        let expected = 2 * (2 + groups * (POLICIES + 4)) + 4;
        assert!(
            written <= expected,
            "{groups} groups: {written} of {expected} lines"
        );
        assert!(
            removed <= 2 * 2 * groups,
            "{groups} groups: {removed} lines removed"
        );
    }
}
