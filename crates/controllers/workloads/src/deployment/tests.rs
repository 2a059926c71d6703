#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe;
use serde_json::{Value, json};

fn template(turn: i64) -> Value {
    json!({"metadata": {"labels": {"app": "d"}, "annotations": {"turn": turn.to_string()}}, "spec": {"containers": []}})
}

fn deployment(replicas: i32, turn: i64, spec: Value) -> Deployment {
    let mut value = json!({
        "metadata": {"name": "d", "namespace": "n", "uid": "d", "generation": 1},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "d"}}, "template": template(turn),
            "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}},
    });
    for (k, v) in spec.as_object().unwrap() {
        value["spec"][k] = v.clone();
    }
    serde_json::from_value(value).unwrap()
}

/// Builds a set: age, revision, spec.replicas, available, desired, max.
fn set(
    turn: i64,
    revision: i64,
    replicas: i32,
    available: i32,
    desired: i32,
    max: i32,
) -> Arc<ReplicaSet> {
    let mut template = template(turn);
    template["metadata"]["labels"]["pod-template-hash"] = json!(format!("h{turn}"));
    Arc::new(serde_json::from_value(json!({
        "metadata": {"name": format!("d-{turn}"), "namespace": "n", "uid": format!("rs{turn}"), "generation": 1,
            "creationTimestamp": format!("2026-01-01T00:00:0{turn}Z"), "labels": {"app": "d"},
            "annotations": {"deployment.kubernetes.io/revision": revision.to_string(),
                "deployment.kubernetes.io/desired-replicas": desired.to_string(),
                "deployment.kubernetes.io/max-replicas": max.to_string()},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true}]},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "d"}}, "template": template},
        "status": {"replicas": replicas, "readyReplicas": available, "availableReplicas": available, "observedGeneration": 1},
    })).unwrap())
}

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

fn run(d: &Deployment, sets: &[Arc<ReplicaSet>]) -> Vec<Action> {
    reconcile(d, sets, &[], now())
}

fn scaled_lines(actions: &[Action]) -> Vec<String> {
    describe(actions)
        .into_iter()
        .filter_map(|l| {
            l.strip_prefix("event ScalingReplicaSet ")
                .map(str::to_owned)
        })
        .collect()
}

#[test]
fn first_pass_makes_the_set() {
    let got = run(&deployment(3, 1, json!({})), &[]);
    let create = got[0].as_write().unwrap();
    assert_eq!(create.body["spec"]["replicas"], 3);
    assert_eq!(
        create.body["metadata"]["annotations"]["deployment.kubernetes.io/max-replicas"],
        "4"
    );
    let status = got
        .iter()
        .find_map(|a| a.as_write().filter(|w| w.target.kind == "Deployment"))
        .unwrap();
    assert_eq!(
        status.body["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "1"
    );
    assert_eq!(status.body["status"]["unavailableReplicas"], 3);
    assert!(scaled_lines(&got)[0].ends_with("from 0 to 3"));
}

#[test]
fn rolling_stays_in_bounds() {
    let d = deployment(4, 2, json!({}));
    for (sets, expect) in [
        (vec![set(1, 1, 4, 4, 4, 5)], vec!["up new from 0 to 1"]),
        (
            vec![set(1, 1, 4, 4, 4, 5), set(2, 2, 1, 0, 4, 5)],
            vec!["down replica set d-1 from 4 to 3"],
        ),
        (
            vec![set(1, 1, 3, 3, 4, 5), set(2, 2, 1, 0, 4, 5)],
            vec!["up replica set d-2 from 1 to 2"],
        ),
        (
            vec![set(1, 1, 3, 3, 4, 5), set(2, 2, 2, 1, 4, 5)],
            vec!["down replica set d-1 from 3 to 2"],
        ),
        (vec![set(1, 1, 0, 0, 4, 5), set(2, 2, 4, 4, 4, 5)], vec![]),
    ] {
        let got = scaled_lines(&run(&d, &sets));
        assert_eq!(got.len(), expect.len(), "{got:?} instead of {expect:?}");
        for (line, want) in got.iter().zip(&expect) {
            let (head, tail) = want
                .replace("up new ", "up replica set d- ")
                .split_once(" from")
                .map(|(a, b)| (a.trim().to_owned(), b.to_owned()))
                .unwrap();
            assert!(
                line.contains(&head) && line.ends_with(&tail),
                "{line} for {want}"
            );
        }
    }
}

#[test]
fn scaling_in_mid_rollout_is_proportional() {
    let d = deployment(
        8,
        2,
        json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}}),
    );
    let got = scaled_lines(&run(&d, &[set(1, 1, 4, 4, 4, 6), set(2, 2, 2, 0, 4, 6)]));
    assert_eq!(
        got,
        [
            "Scaled up replica set d-2 from 2 to 3",
            "Scaled up replica set d-1 from 4 to 7"
        ]
    );
}

#[test]
fn undo_renumbers_the_old_set() {
    let d = deployment(1, 1, json!({}));
    let got = run(&d, &[set(1, 1, 0, 0, 1, 2), set(2, 2, 1, 1, 1, 2)]);
    let update = got
        .iter()
        .find_map(|a| a.as_write().filter(|w| w.target.name == "d-1"))
        .unwrap();
    assert_eq!(
        update.body["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "3"
    );
    assert_eq!(
        update.body["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"],
        "1"
    );
}

#[test]
fn recreate_waits_for_old_pods() {
    let d = deployment(2, 2, json!({"strategy": {"type": "Recreate"}}));
    let got = scaled_lines(&run(&d, &[set(1, 1, 2, 2, 2, 2)]));
    assert_eq!(got, ["Scaled down replica set d-1 from 2 to 0"]);
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "d-1", "uid": "rs1", "controller": true}]},
        "status": {"phase": "Running"}}))
    .unwrap();
    let held = reconcile(&d, &[set(1, 1, 0, 0, 2, 2)], &[Arc::new(pod)], now());
    assert!(scaled_lines(&held).is_empty());
    let free = scaled_lines(&run(&d, &[set(1, 1, 0, 0, 2, 2)]));
    assert!(free[0].ends_with("from 0 to 2"), "{free:?}");
}

#[test]
fn settled_deployment_writes_nothing() {
    let mut d = deployment(1, 1, json!({}));
    let sets = [set(1, 1, 1, 1, 1, 2)];
    for _ in 0..2 {
        let got = run(&d, &sets);
        let Some(write) = got
            .iter()
            .find_map(|a| a.as_write().filter(|w| w.target.kind == "Deployment"))
        else {
            break;
        };
        d = serde_json::from_value(write.body.clone()).unwrap();
    }
    assert_eq!(describe(&run(&d, &sets)), Vec::<String>::new());
    let conditions = d.status.unwrap().conditions.unwrap();
    let reasons: Vec<_> = conditions
        .iter()
        .filter_map(|c| c.reason.as_deref())
        .collect();
    assert_eq!(
        reasons,
        ["MinimumReplicasAvailable", "NewReplicaSetAvailable"]
    );
}

#[test]
fn standing_still_times_out() {
    let mut d = deployment(1, 1, json!({"progressDeadlineSeconds": 2}));
    d.status = serde_json::from_value(
        json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "unavailableReplicas": 1,
        "conditions": [{"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated",
            "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
    )
    .unwrap();
    let got = run(&d, &[set(1, 1, 1, 0, 1, 2)]);
    let write = got
        .iter()
        .find_map(|a| a.as_write().filter(|w| w.target.kind == "Deployment"))
        .unwrap();
    let text = write.body["status"]["conditions"].to_string();
    assert!(
        text.contains("ProgressDeadlineExceeded") && text.contains("has timed out progressing"),
        "{text}"
    );
}
