//! Policies beyond the limits of their namespace are closed, and cost other namespaces nothing.

use serde_json::{Value, json};

use super::{Cluster, Packet, Protocol, pod};
use crate::ClosingReason;
use crate::limits::{MAX_ELEMENTS, MAX_POLICIES, MAX_TERMS};

/// Selectors of each policy: two policies exceed the limit of elements.
const SELECTORS: usize = 13;
const PODS: usize = 1000;

fn remote_pod(number: usize) -> (String, Value) {
    let key = format!("big/p{number}");
    let (high, low) = (number / 250, number % 250);
    let addresses = [
        format!("10.245.{high}.{low}"),
        format!("fd00:5::{number:x}"),
    ];
    let addresses = addresses.each_ref().map(String::as_str);
    let object = pod(&key, "n2", json!({}), &addresses);
    (key, object)
}

/// Two namespaces with a pod of this node, and one with many pods elsewhere.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    for (namespace, address) in [("x", "10.244.0.2"), ("y", "10.244.0.3")] {
        cluster.set_namespace(namespace, json!({}));
        let key = format!("{namespace}/db");
        cluster.set_pod(&key, pod(&key, "n1", json!({ "app": "db" }), &[address]));
    }
    cluster.set_namespace("big", json!({ "team": "big" }));
    for (key, object) in (0..PODS).map(remote_pod) {
        cluster.set_pod(&key, object);
    }
    cluster
}

/// A policy with selectors of all remote pods, which allows a port of an address, too.
fn large_policy(name: &str, port: u16) -> Value {
    let peers: Vec<Value> = (0..SELECTORS)
        .map(|number| {
            let label = format!("{name}-{number}");
            json!({ "namespaceSelector": { "matchLabels": { "team": "big" } },
                "podSelector": { "matchExpressions": [{ "key": label, "operator": "DoesNotExist" }] } })
        })
        .collect();
    json!({ "podSelector": {}, "ingress": [{ "from": peers },
        { "from": [{ "ipBlock": { "cidr": "192.0.2.1/32" } }], "ports": [{ "port": port }] }] })
}

fn request(source: &str, destination: &str, port: u16) -> Packet {
    Packet {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        protocol: Protocol::Tcp,
        port,
    }
}

/// Returns whether the policies a and b of namespace x are open.
fn are_open(cluster: &mut Cluster) -> [bool; 2] {
    [1, 2].map(|port| cluster.passes(request("192.0.2.1", "10.244.0.2", port)))
}

#[test]
fn policy_whose_sets_exceed_the_limit_is_closed_and_later_ones_with_it() {
    let mut cluster = cluster();
    for order in [["a", "b"], ["b", "a"]] {
        for name in order {
            let port = if name == "a" { 1 } else { 2 };
            cluster.set_policy(&format!("x/{name}"), large_policy(name, port));
            cluster.set_policy(&format!("y/{name}"), large_policy("shared", port));
            cluster.state.update_rules();
        }
        assert_eq!(are_open(&mut cluster), [true, false], "{order:?}");
        assert!(cluster.passes(request("10.245.0.7", "10.244.0.2", 9)));
        assert!(
            !cluster.passes(request("198.51.100.1", "10.244.0.2", 2)),
            "isolated"
        );
        for port in [1, 2] {
            let other = request("192.0.2.1", "10.244.0.3", port);
            assert!(
                cluster.passes(other),
                "equal selectors count once, and each namespace for itself"
            );
        }
        let closed = cluster.state.take_newly_closed();
        assert_eq!(closed, [("x/b".to_owned(), ClosingReason::Limit)]);
        assert!(cluster.state.take_newly_closed().is_empty());
        assert_eq!(cluster.state.count_closed_policies(), 1);
        assert!(cluster.state.sets.count_elements("x") <= MAX_ELEMENTS);
        cluster.delete_policy("x/a");
        assert!(are_open(&mut cluster)[1], "there is room");
        for name in ["x/b", "y/a", "y/b"] {
            cluster.delete_policy(name);
        }
        cluster.state.update_rules();
        assert_eq!(cluster.state.count_closed_policies(), 0);
    }
}

#[test]
fn policy_is_closed_when_its_sets_grow_and_opened_by_a_retry() {
    let mut cluster = cluster();
    let extra: Vec<(String, Value)> = (PODS - 100..PODS).map(remote_pod).collect();
    for (key, _) in &extra {
        cluster.delete_pod(key);
    }
    cluster.set_policy("x/a", large_policy("a", 1));
    cluster.set_policy("x/b", large_policy("b", 2));
    assert_eq!(are_open(&mut cluster), [true, true]);
    for (key, object) in &extra {
        cluster.set_pod(key, object.clone());
        assert!(cluster.state.sets.count_elements("x") <= MAX_ELEMENTS);
    }
    assert_eq!(are_open(&mut cluster), [true, false]);
    for (key, _) in &extra {
        cluster.delete_pod(key);
    }
    assert!(cluster.state.retry_closed());
    assert_eq!(are_open(&mut cluster), [true, true]);
    assert!(!cluster.state.retry_closed(), "none is closed");
    // A label of the namespace adds all pods at once.
    cluster.set_namespace("big", json!({}));
    for (key, object) in &extra {
        cluster.set_pod(key, object.clone());
    }
    cluster.set_namespace("big", json!({ "team": "big" }));
    assert_eq!(are_open(&mut cluster), [true, false]);
}

#[test]
fn policy_with_too_many_blocks_is_closed() {
    let mut cluster = cluster();
    let block = |number: usize| {
        let (high, low) = (number / 250, number % 250);
        json!({ "ipBlock": { "cidr": format!("10.9.{high}.{low}/32") } })
    };
    // The rules themselves count, too.
    for (count, expect) in [(MAX_TERMS - 2, true), (MAX_TERMS - 1, false)] {
        let blocks: Vec<Value> = (0..count).map(block).collect();
        cluster.set_policy(
            "x/a",
            json!({ "podSelector": {}, "ingress": [{ "from": blocks }] }),
        );
        let passes = cluster.passes(request("10.9.0.1", "10.244.0.2", 1));
        assert_eq!(passes, expect, "{count} blocks");
    }
}

#[test]
fn policies_beyond_their_number_isolate_and_allow_nothing() {
    let mut cluster = cluster();
    let allow = |app: &str| json!({ "podSelector": { "matchLabels": { "app": app } }, "ingress": [{ "ports": [{ "port": 1 }] }] });
    for number in 0..MAX_POLICIES {
        cluster.set_policy(&format!("x/p{number:04}"), allow("none"));
    }
    assert!(cluster.passes(request("192.0.2.1", "10.244.0.2", 2)));
    for name in ["x/q", "x/r"] {
        cluster.set_policy(name, allow("db"));
        for port in [1, 2] {
            assert!(
                !cluster.passes(request("192.0.2.1", "10.244.0.2", port)),
                "{name}"
            );
        }
    }
    assert_eq!(
        cluster.state.count_closed_policies(),
        1,
        "the first one isolates"
    );
    cluster.delete_policy("x/p0000");
    assert!(cluster.passes(request("192.0.2.1", "10.244.0.2", 1)));
    cluster.delete_policy("x/p0001");
    assert_eq!(
        cluster.state.count_closed_policies(),
        1,
        "until the rules are updated"
    );
    assert!(cluster.passes(request("192.0.2.1", "10.244.0.2", 1)));
    assert_eq!(cluster.state.count_closed_policies(), 0);
}

/// A pod that has been deleted does not close the addresses of others.
#[test]
fn retained_pod_does_not_close_unknown_addresses() {
    let mut cluster = cluster();
    cluster.set_policy(
        "x/deny",
        json!({ "podSelector": {}, "policyTypes": ["Egress"] }),
    );
    assert!(!cluster.passes(request("10.244.0.99", "192.0.2.1", 1)));
    cluster.delete_pod("x/db");
    assert!(
        !cluster.passes(request("10.244.0.2", "192.0.2.1", 1)),
        "its own"
    );
    assert!(cluster.passes(request("10.244.0.99", "192.0.2.1", 1)));
}
