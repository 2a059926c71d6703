#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe;
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
    let got = reconcile(
        set,
        pods,
        nodes,
        &[],
        "2026-01-01T00:01:00Z".parse().unwrap(),
    );
    describe(&got)
        .into_iter()
        .filter(|l| l.contains(" Pod "))
        .collect()
}

fn hash_of(set: &DaemonSet) -> String {
    hash::template(&set.spec.as_ref().unwrap().template, None)
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
