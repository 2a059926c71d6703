#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe_actions;
use k8s_openapi::api::apps::v1::ReplicaSet;
use serde_json::{Value, json};

fn set(replicas: i32, status: Value) -> ReplicaSet {
    serde_json::from_value(json!({
        "metadata": {"name": "r", "namespace": "n", "uid": "r", "generation": 1},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "a"}},
                 "template": {"metadata": {"labels": {"app": "a"}}}},
        "status": status,
    }))
    .unwrap()
}

fn pod(name: &str, ready: bool, extra: Value) -> Arc<Pod> {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": "a"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]},
        "spec": {"nodeName": "node", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready",
            "status": if ready {"True"} else {"False"}, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    });
    merge(&mut value, extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(a), Value::Object(b)) => {
            for (k, v) in b {
                merge(a.entry(k).or_insert(Value::Null), v);
            }
        }
        (slot, v) => *slot = v,
    }
}

fn now() -> Timestamp {
    "2026-01-01T00:00:05Z".parse().unwrap()
}

#[test]
fn creates_what_is_missing_and_reports() {
    let got = reconcile_set(
        &set(3, json!({"replicas": 0})),
        &[pod("a", true, json!({}))],
        &[],
        now(),
    );
    assert_eq!(
        describe_actions(&got),
        ["create Pod r-", "create Pod r-", "status ReplicaSet r"]
    );
}

#[test]
fn settled_set_writes_nothing() {
    let status = json!({"replicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "fullyLabeledReplicas": 1, "observedGeneration": 1});
    assert!(reconcile_set(&set(1, status), &[pod("a", true, json!({}))], &[], now()).is_empty());
}

#[test]
fn removes_in_order() {
    let all = [
        pod("old", true, json!({})),
        pod("unready", false, json!({})),
        pod(
            "nowhere",
            false,
            json!({"spec": {"nodeName": null}, "status": {"phase": "Pending"}}),
        ),
        pod(
            "cheap",
            true,
            json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}}),
        ),
        pod(
            "young",
            true,
            json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:04Z"}]}}),
        ),
    ];
    for (count, expect) in [
        (4, vec!["nowhere"]),
        (3, vec!["nowhere", "unready"]),
        (2, vec!["nowhere", "unready", "cheap"]),
        (1, vec!["nowhere", "unready", "cheap", "young"]),
    ] {
        let got = reconcile_set(&set(count, json!({"replicas": 5})), &all, &all, now());
        let names: Vec<_> = describe_actions(&got)
            .iter()
            .filter_map(|l| l.strip_prefix("delete Pod ").map(str::to_owned))
            .collect();
        assert_eq!(names, expect);
    }
}

#[test]
fn failure_shows_and_clears() {
    let refused = report_failure(
        &set(1, json!({"replicas": 0})),
        &[],
        "exceeded quota: q",
        now(),
    );
    let body = &refused[0].as_write().unwrap().body;
    assert_eq!(
        body.pointer("/status/conditions/0/reason"),
        Some(&json!("FailedCreate"))
    );
    let set: ReplicaSet = serde_json::from_value(body.clone()).unwrap();
    let set = ReplicaSet {
        spec: set
            .spec
            .map(|s| k8s_openapi::api::apps::v1::ReplicaSetSpec {
                replicas: Some(0),
                ..s
            }),
        ..set
    };
    let cleared = reconcile_set(&set, &[], &[], now());
    assert!(
        cleared[0]
            .as_write()
            .unwrap()
            .body
            .pointer("/status/conditions")
            .is_none()
    );
}

#[test]
fn availability_waits_for_min_ready_seconds() {
    let mut set = set(
        1,
        json!({"replicas": 1, "readyReplicas": 1, "fullyLabeledReplicas": 1, "observedGeneration": 1}),
    );
    set.spec.as_mut().unwrap().min_ready_seconds = Some(7);
    let got = reconcile_set(&set, &[pod("a", true, json!({}))], &[], now());
    assert_eq!(describe_actions(&got), ["requeue 2s"]);
}

#[test]
fn terminated_and_deleted_pods_are_replaced() {
    let ended = pod("f", false, json!({"status": {"phase": "Failed"}}));
    let deleted = pod(
        "d",
        true,
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    let got = reconcile_set(
        &set(1, json!({"replicas": 0})),
        &[ended, deleted],
        &[],
        now(),
    );
    assert_eq!(describe_actions(&got)[0], "create Pod r-");
}

#[test]
fn pods_on_crowded_nodes_are_deleted_first() {
    let on = |name: &str, node: &str| pod(name, true, json!({"spec": {"nodeName": node}}));
    let own = [on("a", "crowded"), on("b", "free")];
    let siblings = [own[0].clone(), own[1].clone(), on("c", "crowded")];
    let got = reconcile_set(&set(1, json!({"replicas": 2})), &own, &siblings, now());
    assert_eq!(describe_actions(&got)[0], "delete Pod a");
}

#[test]
fn pods_with_more_restarts_are_deleted_first() {
    let restarted = |name: &str, count: i32| {
        pod(
            name,
            true,
            json!({"status": {"containerStatuses": [{"name": "c", "image": "", "imageID": "",
                "ready": true, "restartCount": count}]}}),
        )
    };
    let own = [restarted("calm", 0), restarted("restless", 3)];
    let got = reconcile_set(&set(1, json!({"replicas": 2})), &own, &own, now());
    assert_eq!(describe_actions(&got)[0], "delete Pod restless");
}

#[test]
fn set_in_deletion_creates_and_deletes_no_pods() {
    let mut own = set(3, json!({"replicas": 0}));
    own.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).ok();
    let got = describe_actions(&reconcile_set(
        &own,
        &[pod("a", true, json!({}))],
        &[],
        now(),
    ));
    assert_eq!(got, ["status ReplicaSet r"]);
}

#[test]
fn failed_deletion_is_reported_with_its_own_reason() {
    let own = set(0, json!({"replicas": 1}));
    let got = report_failure(&own, &[pod("a", true, json!({}))], "denied", now());
    let condition = got[0].as_write().unwrap().body["status"]["conditions"][0].clone();
    assert_eq!(condition["reason"], "FailedDelete");
    assert_eq!(condition["message"], "denied");
}

#[test]
fn pods_in_deletion_count_as_terminating_replicas() {
    let deleted = pod(
        "d",
        true,
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    let got = reconcile_set(&set(0, json!({"replicas": 1})), &[deleted], &[], now());
    let status = &got[0].as_write().unwrap().body["status"];
    assert_eq!(status["terminatingReplicas"], 1);
    assert_eq!(status["replicas"], 0);
}

#[test]
fn at_most_one_burst_of_pods_is_created_at_once() {
    let got = reconcile_set(&set(2000, json!({"replicas": 0})), &[], &[], now());
    let Action::Batch(writes) = &got[0] else {
        panic!("{got:?}")
    };
    assert_eq!(writes.len(), BURST);
}
