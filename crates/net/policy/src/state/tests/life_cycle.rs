//! Pods that start, terminate and are deleted, and objects that change.

use serde_json::{Value, json};

use super::{Cluster, Packet, Protocol, pod};

const SERVER: &str = "10.244.0.2";
const CLIENT: &str = "10.244.0.3";
/// Address of this node's range that no pod has.
const UNKNOWN: &str = "10.244.0.77";
const OUTSIDE: &str = "192.0.2.1";

fn packet(source: &str, destination: &str) -> Packet {
    Packet {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        protocol: Protocol::Tcp,
        port: 80,
    }
}

fn both_directions() -> Value {
    json!({ "podSelector": { "matchLabels": { "app": "db" } }, "policyTypes": ["Ingress", "Egress"] })
}

/// A server that a policy isolates, and a client that none does.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.set_namespace("ns", json!({}));
    cluster.set_pod(
        "ns/db",
        pod("ns/db", "n1", json!({ "app": "db" }), &[SERVER]),
    );
    cluster.set_pod(
        "ns/web",
        pod("ns/web", "n1", json!({ "app": "web" }), &[CLIENT]),
    );
    cluster.set_policy("ns/deny", both_directions());
    cluster
}

#[test]
fn pod_without_an_address_is_isolated_from_its_first_packet() {
    let mut cluster = cluster();
    cluster.delete_pod("ns/db");
    cluster.set_policy("ns/deny", json!({ "podSelector": {} }));
    cluster.set_policy(
        "ns/lock",
        json!({ "podSelector": { "matchLabels": { "app": "locked" } }, "policyTypes": ["Egress"] }),
    );
    assert!(
        cluster.passes(packet(UNKNOWN, OUTSIDE)),
        "no pod of the node has isolated egress"
    );
    let locked =
        |node: &str, addresses: &[&str]| pod("ns/new", node, json!({ "app": "locked" }), addresses);
    cluster.set_pod("ns/new", locked("n2", &[]));
    assert!(
        cluster.passes(packet(UNKNOWN, OUTSIDE)),
        "pods of other nodes do not concern this one"
    );
    cluster.set_pod("ns/new", locked("n1", &[]));
    assert!(!cluster.passes(packet(UNKNOWN, OUTSIDE)), "it starts");
    assert!(
        cluster.passes(packet(CLIENT, OUTSIDE)),
        "known pods are not concerned"
    );
    cluster.set_pod("ns/new", locked("n1", &["10.244.0.78"]));
    assert!(
        !cluster.passes(packet(UNKNOWN, OUTSIDE)),
        "its sandbox may be replaced by one with another address"
    );
    assert!(!cluster.passes(packet("10.244.0.78", OUTSIDE)));
}

#[test]
fn unknown_destination_is_closed_if_any_pod_of_the_node_is_isolated() {
    let mut cluster = cluster();
    assert!(!cluster.passes(packet(OUTSIDE, UNKNOWN)));
    cluster.delete_policy("ns/deny");
    assert!(cluster.passes(packet(OUTSIDE, UNKNOWN)));
}

#[test]
fn new_tables_are_closed_until_pods_are_known() {
    let text = cluster().state.closed_commands();
    for chain in ["unknown-sources", "unknown-destinations"] {
        assert!(
            text.contains(&format!("chain {chain} {{ drop; }}")),
            "{text}"
        );
    }
    assert!(
        text.contains("ip6 saddr fd00::/64 jump unknown-sources"),
        "{text}"
    );
}

#[test]
fn terminated_pod_no_longer_counts_and_terminating_pod_still_does() {
    let allow_web = json!({ "podSelector": { "matchLabels": { "app": "db" } },
        "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": "web" } } }] }] });
    let mut cluster = cluster();
    cluster.set_policy("ns/deny", allow_web);
    let mut object = pod("ns/web", "n1", json!({ "app": "web" }), &[CLIENT]);
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    cluster.set_pod("ns/web", object.clone());
    assert!(cluster.passes(packet(CLIENT, SERVER)), "terminating");
    object["status"]["phase"] = json!("Succeeded");
    cluster.set_pod("ns/web", object);
    assert!(!cluster.passes(packet(CLIENT, SERVER)), "terminated");
}

#[test]
fn isolated_pod_that_is_deleted_stays_isolated_until_its_address_is_used_again() {
    let mut cluster = cluster();
    cluster.delete_pod("ns/db");
    assert!(!cluster.passes(packet(SERVER, OUTSIDE)), "deleted by force");
    cluster.set_pod("ns/new", pod("ns/new", "n1", json!({}), &[SERVER]));
    assert!(
        cluster.passes(packet(SERVER, OUTSIDE)),
        "another pod has it"
    );

    let mut cluster = self::cluster();
    cluster.delete_pod("ns/db");
    cluster.delete_policy("ns/deny");
    assert!(cluster.passes(packet(SERVER, OUTSIDE)), "policy deleted");
    cluster.set_policy("ns/deny", both_directions());
    assert!(
        cluster.passes(packet(SERVER, OUTSIDE)),
        "pods that are not isolated are not retained"
    );
    assert_eq!(
        cluster.state.local.count_retained(),
        0,
        "none counts for the limit"
    );
}

#[test]
fn addresses_of_a_deleted_pod_stay_isolated_each_until_it_is_used_again() {
    let (v6, outside) = ("fd00::2", "2001:db8::1");
    let mut cluster = cluster();
    let db = |addresses: &[&str]| pod("ns/db", "n1", json!({ "app": "db" }), addresses);
    cluster.set_pod("ns/db", db(&[SERVER, v6]));
    cluster.delete_pod("ns/db");
    cluster.set_pod("ns/new", pod("ns/new", "n1", json!({}), &[SERVER]));
    assert!(cluster.passes(packet(SERVER, OUTSIDE)), "used again");
    assert!(!cluster.passes(packet(v6, outside)), "not used yet");
    // A node may say that a pod which has terminated runs again.
    cluster.set_pod("ns/db", db(&[UNKNOWN]));
    cluster.delete_pod("ns/db");
    assert!(!cluster.passes(packet(v6, outside)), "the first addresses");
    assert!(!cluster.passes(packet(UNKNOWN, OUTSIDE)), "the second one");
}

#[test]
fn replaced_pod_of_the_same_name_leaves_its_predecessor_isolated() {
    let mut cluster = cluster();
    let mut object = pod("ns/db", "n1", json!({ "app": "db" }), &[UNKNOWN]);
    object["metadata"]["uid"] = json!("another");
    cluster.set_pod("ns/db", object.clone());
    for address in [SERVER, UNKNOWN] {
        assert!(!cluster.passes(packet(address, OUTSIDE)), "{address}");
    }
    object["spec"]["nodeName"] = json!("n2");
    object["metadata"]["uid"] = json!("third");
    cluster.set_pod("ns/db", object);
    assert!(!cluster.passes(packet(UNKNOWN, OUTSIDE)), "moved to n2");
}

#[test]
fn address_of_two_pods_is_isolated_if_one_of_them_is() {
    for (first, second) in [("2026-01-01", "2026-01-02"), ("2026-01-02", "2026-01-01")] {
        let mut cluster = cluster();
        let created = |key: &str, app: &str, day: &str| {
            let mut object = pod(key, "n1", json!({ "app": app }), &[UNKNOWN]);
            object["metadata"]["creationTimestamp"] = json!(format!("{day}T00:00:00Z"));
            object
        };
        cluster.set_pod("ns/a", created("ns/a", "db", first));
        cluster.set_pod("ns/b", created("ns/b", "web", second));
        assert!(!cluster.passes(packet(UNKNOWN, OUTSIDE)), "both");
        cluster.delete_pod("ns/b");
        assert!(!cluster.passes(packet(UNKNOWN, OUTSIDE)), "only the other");
    }
}

#[test]
fn rules_follow_changed_labels_of_pods_and_namespaces() {
    let mut cluster = cluster();
    cluster.set_namespace("other", json!({ "team": "x" }));
    let labels = |value: &str| pod("other/c", "n2", json!({ "role": value }), &["10.244.1.2"]);
    cluster.set_pod("other/c", labels("client"));
    cluster.set_policy(
        "ns/deny",
        json!({ "podSelector": { "matchLabels": { "app": "db" } }, "ingress": [{ "from": [{
            "namespaceSelector": { "matchLabels": { "team": "x" } },
            "podSelector": { "matchLabels": { "role": "client" } } }] }] }),
    );
    let request = packet("10.244.1.2", SERVER);
    assert!(cluster.passes(request));
    cluster.set_pod("other/c", labels("guest"));
    assert!(!cluster.passes(request), "label of the peer");
    cluster.set_pod("other/c", labels("client"));
    cluster.set_namespace("other", json!({ "team": "y" }));
    assert!(!cluster.passes(request), "label of its namespace");
    cluster.state.set_namespace("other", None);
    assert!(!cluster.passes(request), "namespace deleted");
    cluster.set_namespace("other", json!({ "team": "x" }));
    assert!(cluster.passes(request));
    cluster.set_pod(
        "ns/db",
        pod("ns/db", "n1", json!({ "app": "free" }), &[SERVER]),
    );
    assert!(
        cluster.passes(packet(CLIENT, SERVER)),
        "no longer selected by the policy"
    );
}

#[test]
fn rules_of_a_deleted_policy_leave_nothing_behind() {
    let mut cluster = cluster();
    cluster.delete_policy("ns/deny");
    cluster.state.take_changes();
    let before = cluster.state.tables.dump();
    cluster.set_policy(
        "ns/p",
        json!({ "podSelector": {}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{ "from": [{ "podSelector": {} }], "ports": [{ "port": "web" }] }],
            "egress": [{ "to": [{ "namespaceSelector": {} }], "ports": [{ "port": "web" }] }] }),
    );
    cluster.state.take_changes();
    assert_ne!(before, cluster.state.tables.dump());
    cluster.delete_policy("ns/p");
    cluster.state.take_changes();
    assert_eq!(before, cluster.state.tables.dump());
}

#[test]
fn stale_addresses_are_those_that_change_their_pod() {
    let mut cluster = cluster();
    let mut take = |change: &dyn Fn(&mut Cluster)| {
        change(&mut cluster);
        let stale = cluster.state.take_stale_addresses();
        stale.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let db = |name: &str, addresses: &[&str]| pod(name, "n1", json!({ "app": "db" }), addresses);
    assert_eq!(take(&|_| {}), [""; 0], "no pod was isolated at its start");
    let same = |cluster: &mut Cluster| cluster.set_pod("ns/db", db("ns/db", &[SERVER, UNKNOWN]));
    assert_eq!(take(&same), [UNKNOWN], "gained by an isolated pod");
    assert_eq!(
        take(&|c| c.set_pod("ns/db", db("ns/db", &[SERVER]))),
        [UNKNOWN],
        "lost"
    );
    let labelled = pod("ns/web", "n1", json!({ "app": "db" }), &[CLIENT]);
    assert_eq!(
        take(&|c| c.set_pod("ns/web", labelled.clone())),
        [""; 0],
        "connections that exist stay"
    );
    let replaced = |c: &mut Cluster| {
        c.delete_pod("ns/db");
        c.set_pod("ns/next", db("ns/next", &[SERVER]));
    };
    assert_eq!(take(&replaced), [SERVER], "replaced within one sync");
    let mut renewed = pod("ns/next", "n1", json!({}), &[SERVER]);
    renewed["metadata"]["uid"] = json!("another");
    assert_eq!(
        take(&|c| c.set_pod("ns/next", renewed.clone())),
        [SERVER],
        "of the same name"
    );
    let other = pod("ns/remote", "n2", json!({ "app": "db" }), &["10.244.1.9"]);
    assert_eq!(
        take(&|c| c.set_pod("ns/remote", other.clone())),
        [""; 0],
        "of another node"
    );
    assert_eq!(take(&|c| c.delete_pod("ns/web")), [CLIENT], "deleted");
}

/// The author of a policy must not cost nodes anything that have none of the author's pods.
#[test]
fn policy_is_installed_while_it_isolates_a_pod_of_the_node() {
    let mut cluster = cluster();
    let peer = json!({ "podSelector": { "matchLabels": { "app": "web" } } });
    let spec = |app: &str| {
        json!({ "podSelector": { "matchLabels": { "app": app } },
            "ingress": [{ "from": [peer], "ports": [{ "port": "web" }] }] })
    };
    let mut is_installed = |change: &dyn Fn(&mut Cluster)| {
        change(&mut cluster);
        cluster.state.take_changes();
        let dump = cluster.state.tables.dump();
        let [has_chain, has_set] = ["other-p", "Set("].map(|name| dump.contains(name));
        assert_eq!(has_chain, has_set);
        has_chain
    };
    assert!(!is_installed(&|_| {}));
    let remote = pod("ns/far", "n2", json!({ "app": "far" }), &["10.244.1.2"]);
    let created = |c: &mut Cluster| {
        c.set_policy("ns/other-p", spec("far"));
        c.set_pod("ns/far", remote.clone());
    };
    assert!(!is_installed(&created), "isolates a pod elsewhere");
    let near = pod("ns/near", "n1", json!({ "app": "far" }), &["10.244.0.9"]);
    assert!(is_installed(&|c| c.set_pod("ns/near", near.clone())));
    assert!(
        !is_installed(&|c| c.set_policy("ns/other-p", spec("none"))),
        "selects no pod now"
    );
    assert!(is_installed(&|c| c.set_policy("ns/other-p", spec("far"))));
    assert!(is_installed(&|c| c.delete_pod("ns/near")), "retained");
    let next = pod("ns/next", "n1", json!({}), &["10.244.0.9"]);
    assert!(
        !is_installed(&|c| c.set_pod("ns/next", next.clone())),
        "released"
    );
}
