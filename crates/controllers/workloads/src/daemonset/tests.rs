#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe_actions;
use serde_json::{Value, json};

fn set(spec: Value) -> DaemonSet {
    let mut value = json!({
        "metadata": {"name": "d", "namespace": "n", "uid": "d", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": []}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}},
    });
    for (k, v) in spec.as_object().unwrap() {
        value["spec"][k] = v.clone();
    }
    serde_json::from_value(value).unwrap()
}

fn node(name: &str, taint: Option<&str>) -> Arc<Node> {
    let taints = taint.map(|effect| json!([{"key": "k", "effect": effect}]));
    Arc::new(
        serde_json::from_value(
            json!({"metadata": {"name": name, "uid": name, "labels": {"host": name}}, "spec": {"taints": taints}}),
        )
        .unwrap(),
    )
}

fn pod(name: &str, node: &str, hash: &str, ready: bool) -> Arc<Pod> {
    Arc::new(serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": "d", "controller-revision-hash": hash},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]},
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": if ready {"True"} else {"False"}, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })).unwrap())
}

fn run(set: &DaemonSet, pods: &[Arc<Pod>], nodes: &[Arc<Node>]) -> Vec<String> {
    let got = reconcile_daemon_set(
        set,
        pods,
        nodes,
        &[],
        "2026-01-01T00:01:00Z".parse().unwrap(),
    );
    describe_actions(&got)
        .into_iter()
        .filter(|l| l.contains(" Pod "))
        .collect()
}

fn hash_of(set: &DaemonSet) -> String {
    hash::hash_template(&set.spec.as_ref().unwrap().template, None)
}

#[test]
fn one_pod_on_each_node_that_fits() {
    let nodes = [
        node("a", None),
        node("b", Some("NoSchedule")),
        node("c", None),
    ];
    let s = set(json!({}));
    assert_eq!(run(&s, &[], &nodes), ["create Pod d-", "create Pod d-"]);
    let h = hash_of(&s);
    assert!(
        run(
            &s,
            &[
                pod("x", "a", &h, true),
                pod("y", "c", &h, true),
                pod("z", "b", &h, true)
            ],
            &nodes
        )
        .is_empty()
    );
    let evicting = [node("b", Some("NoExecute"))];
    assert_eq!(
        run(&s, &[pod("z", "b", &h, true)], &evicting),
        ["delete Pod z"]
    );
    let chosen = set(
        json!({"template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [], "nodeSelector": {"host": "c"}}}}),
    );
    assert_eq!(run(&chosen, &[], &nodes), ["create Pod d-"]);
    assert_eq!(
        run(
            &s,
            &[pod("x", "a", &h, true), pod("x2", "a", &h, true)],
            &nodes[..1]
        ),
        ["delete Pod x2"]
    );
}

#[test]
fn rolls_within_its_limit() {
    let nodes = [node("a", None), node("b", None)];
    let s = set(json!({}));
    let h = hash_of(&s);
    assert_eq!(
        run(
            &s,
            &[pod("x", "a", "old", true), pod("y", "b", "old", true)],
            &nodes
        ),
        ["delete Pod x"]
    );
    assert!(
        run(
            &s,
            &[pod("x", "a", &h, false), pod("y", "b", "old", true)],
            &nodes
        )
        .is_empty()
    );
    let by_hand = set(json!({"updateStrategy": {"type": "OnDelete"}}));
    assert!(
        run(
            &by_hand,
            &[pod("x", "a", "old", true), pod("y", "b", "old", true)],
            &nodes
        )
        .is_empty()
    );
    let surge = set(
        json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}),
    );
    assert_eq!(
        run(
            &surge,
            &[pod("x", "a", "old", true), pod("y", "b", "old", true)],
            &nodes
        ),
        ["create Pod d-"]
    );
    let both = [
        pod("x", "a", "old", true),
        pod("n", "a", &h, true),
        pod("y", "b", "old", true),
    ];
    assert_eq!(run(&surge, &both, &nodes), ["delete Pod x"]);
}

#[test]
fn failed_pod_is_replaced_after_its_back_off() {
    let s = set(json!({}));
    let nodes = [node("a", None)];
    let failed = |created: &str| {
        let mut found = pod("x", "a", &hash_of(&s), false).as_ref().clone();
        found.metadata.creation_timestamp = serde_json::from_value(json!(created)).ok();
        found.status.as_mut().unwrap().phase = Some("Failed".to_owned());
        Arc::new(found)
    };
    assert!(run(&s, &[failed("2026-01-01T00:00:55Z")], &nodes).is_empty());
    let late = run(&s, &[failed("2026-01-01T00:00:45Z")], &nodes);
    assert!(late.contains(&"delete Pod x".to_owned()), "{late:?}");
}

#[test]
fn pod_of_a_deleted_node_is_deleted_only_if_it_was_never_bound() {
    let s = set(json!({}));
    let bound = pod("bound", "gone", &hash_of(&s), true);
    let mut waiting = pod("waiting", "gone", &hash_of(&s), false).as_ref().clone();
    let built = pod::build_pod(&s, "gone", &hash_of(&s));
    waiting.spec = built.spec;
    let lines = run(&s, &[bound, Arc::new(waiting)], &[]);
    assert_eq!(lines, ["delete Pod waiting"]);
}

#[test]
fn unavailable_old_pods_are_replaced_beyond_the_limit() {
    let s = set(json!({}));
    let nodes = [node("a", None), node("b", None), node("c", None)];
    let pods = [
        pod("x", "a", "old", false),
        pod("y", "b", "old", false),
        pod("z", "c", "old", true),
    ];
    assert_eq!(run(&s, &pods, &nodes), ["delete Pod x", "delete Pod y"]);
}

#[test]
fn surge_is_limited_to_its_share_of_the_nodes() {
    let s = set(json!({"updateStrategy": {"type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "50%"}}}));
    let nodes: Vec<_> = ["a", "b", "c", "d"].map(|n| node(n, None)).into();
    let pods: Vec<_> = ["a", "b", "c", "d"].map(|n| pod(n, n, "old", true)).into();
    assert_eq!(run(&s, &pods, &nodes), ["create Pod d-", "create Pod d-"]);
}

#[test]
fn daemon_tolerates_node_conditions_and_host_network_the_missing_network() {
    let keys = |spec: Value| -> Vec<String> {
        let spec = serde_json::from_value(spec).unwrap();
        let all = pod::list_tolerations(&spec);
        all.into_iter().filter_map(|t| t.key).collect()
    };
    let plain = keys(json!({"containers": []}));
    assert_eq!(plain.len(), 6);
    assert!(!plain.contains(&"node.kubernetes.io/network-unavailable".to_owned()));
    let host = keys(json!({"containers": [], "hostNetwork": true}));
    assert!(host.contains(&"node.kubernetes.io/network-unavailable".to_owned()));
}

#[test]
fn pod_is_bound_to_its_node_by_affinity() {
    let s = set(json!({}));
    let built = pod::build_pod(&s, "a", "h");
    assert_eq!(pod::target_node(&built).as_deref(), Some("a"));
    assert_eq!(pods::node_name(&built), "");
}

#[test]
fn status_counts_nodes_by_the_state_of_their_pods() {
    let s = set(json!({}));
    let h = hash_of(&s);
    let nodes = [
        node("a", None),
        node("b", None),
        node("c", None),
        node("d", Some("NoSchedule")),
    ];
    let pods = [
        pod("x", "a", &h, true),
        pod("y", "b", "old", false),
        pod("w", "d", &h, true),
    ];
    let now = "2026-01-01T00:01:00Z".parse().unwrap();
    let got = reconcile_daemon_set(&s, &pods, &nodes, &[], now);
    let write = got
        .iter()
        .filter_map(Action::as_write)
        .find(|w| w.verb == controllers_runtime::Verb::UpdateStatus);
    let status = &write.unwrap().body["status"];
    for (field, expect) in [
        ("desiredNumberScheduled", 3),
        ("currentNumberScheduled", 2),
        ("numberMisscheduled", 1),
        ("numberReady", 1),
        ("numberAvailable", 1),
        ("numberUnavailable", 2),
        ("updatedNumberScheduled", 1),
    ] {
        assert_eq!(status[field], expect, "{field}");
    }
}
