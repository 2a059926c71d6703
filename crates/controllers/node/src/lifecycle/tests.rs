#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe_actions;
use serde_json::Value;

fn node(ready: &str, taints: Value) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "a", "uid": "a", "resourceVersion": "1"}, "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
            {"type": "DiskPressure", "status": "False"}]},
    }))
    .unwrap()
}

fn reconcile_silent_node(node: &Node, silence: i64, any_heartbeat: bool) -> Vec<Action> {
    let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
    let pod: Pod = serde_json::from_value(
        json!({"metadata": {"name": "p", "namespace": "n", "uid": "p"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
    )
    .unwrap();
    let view = View {
        node,
        last_heartbeat: time::seconds_after(now, -silence),
        grace: Duration::from_secs(50),
        any_heartbeat,
        pods: &[Arc::new(pod)],
        now,
    };
    reconcile_node(&view)
}

fn taints(actions: &[Action]) -> Vec<String> {
    let patch = actions
        .iter()
        .filter_map(Action::as_write)
        .find(|w| w.verb == controllers_runtime::Verb::Merge(None));
    let list = patch
        .map(|w| w.body["spec"]["taints"].as_array().unwrap().clone())
        .unwrap_or_default();
    list.iter()
        .map(|t| {
            format!(
                "{}:{}",
                t["key"].as_str().unwrap().rsplit('/').next().unwrap(),
                t["effect"].as_str().unwrap()
            )
        })
        .collect()
}

#[test]
fn healthy_node_is_left_alone() {
    assert_eq!(
        describe_actions(&reconcile_silent_node(&node("True", json!([])), 5, true)),
        ["requeue 45s"]
    );
}

#[test]
fn silent_node_is_unknown_and_tainted() {
    let got = reconcile_silent_node(&node("True", json!([])), 60, true);
    assert_eq!(describe_actions(&got)[0], "status Node a");
    assert!(describe_actions(&got).contains(&"status Pod p".to_owned()));
    let unknown = serde_json::from_value(got[0].as_write().unwrap().body.clone()).unwrap();
    assert_eq!(
        taints(&reconcile_silent_node(&unknown, 60, true)),
        ["unreachable:NoSchedule", "unreachable:NoExecute"]
    );
    assert_eq!(
        taints(&reconcile_silent_node(&unknown, 60, false)),
        ["unreachable:NoSchedule"]
    );
}

#[test]
fn taints_are_patched_only_on_the_version_that_they_were_computed_from() {
    let marked = reconcile_silent_node(&node("True", json!([])), 60, true);
    assert_eq!(
        taints(&marked),
        Vec::<String>::new(),
        "the status write changes the version"
    );
    let unknown: Node = serde_json::from_value(marked[0].as_write().unwrap().body.clone()).unwrap();
    for actions in [
        reconcile_silent_node(&unknown, 60, true),
        reconcile_silent_node(&node("False", json!([])), 5, true),
    ] {
        let patch = actions
            .iter()
            .filter_map(Action::as_write)
            .find(|w| w.verb == controllers_runtime::Verb::Merge(None));
        assert_eq!(patch.unwrap().body["metadata"]["resourceVersion"], "1");
    }
}

#[test]
fn recovery_takes_only_our_taints_away() {
    let old = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}, {"key": "mine", "effect": "NoSchedule"}]);
    assert_eq!(
        taints(&reconcile_silent_node(&node("True", old), 5, true)),
        ["mine:NoSchedule"]
    );
    assert_eq!(
        taints(&reconcile_silent_node(&node("False", json!([])), 5, true)),
        ["not-ready:NoSchedule", "not-ready:NoExecute"]
    );
}
