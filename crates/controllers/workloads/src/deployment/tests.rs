#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe_actions;
use serde_json::{Value, json};

fn make_template(turn: i64) -> Value {
    json!({"metadata": {"labels": {"app": "d"}, "annotations": {"turn": turn.to_string()}}, "spec": {"containers": []}})
}

fn deployment(replicas: i32, turn: i64, spec: Value) -> Deployment {
    let mut value = json!({
        "metadata": {"name": "d", "namespace": "n", "uid": "d", "generation": 1},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "d"}}, "template": make_template(turn),
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
    let mut template = make_template(turn);
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
    reconcile_deployment(d, sets, &[], now())
}

fn scaled_lines(actions: &[Action]) -> Vec<String> {
    describe_actions(actions)
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
    let held = reconcile_deployment(&d, &[set(1, 1, 0, 0, 2, 2)], &[Arc::new(pod)], now());
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
    assert_eq!(describe_actions(&run(&d, &sets)), Vec::<String>::new());
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

/// Returns the bounds of a Deployment with these values of maxSurge and maxUnavailable.
fn bounds_of(replicas: i32, surge: Value, unavailable: Value) -> (i32, i32) {
    let d = deployment(
        replicas,
        1,
        json!({"strategy": {"type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}),
    );
    (bounds::max_surge(&d), bounds::max_unavailable(&d))
}

#[test]
fn surge_and_unavailability_are_resolved_from_numbers_and_percentages() {
    for (replicas, surge, unavailable, expect) in [
        (10, json!(3), json!(2), (3, 2)),
        (10, json!("25%"), json!("25%"), (3, 2)),
        (2, json!("25%"), json!("25%"), (1, 0)),
        (10, json!("0%"), json!(1), (0, 1)),
        (10, json!("100%"), json!("100%"), (10, 10)),
        (3, json!(null), json!(null), (1, 0)),
        (2, json!(1), json!(5), (1, 2)),
        (0, json!(1), json!(1), (1, 0)),
    ] {
        let case = format!("{replicas} {surge} {unavailable}");
        assert_eq!(bounds_of(replicas, surge, unavailable), expect, "{case}");
    }
}

#[test]
fn one_pod_may_be_unavailable_when_both_bounds_resolve_to_zero() {
    assert_eq!(bounds_of(10, json!(0), json!(0)), (0, 1));
    assert_eq!(bounds_of(3, json!("0%"), json!("25%")), (0, 1));
}

#[test]
fn recreate_has_neither_surge_nor_unavailability() {
    let d = deployment(4, 1, json!({"strategy": {"type": "Recreate"}}));
    assert_eq!((bounds::max_surge(&d), bounds::max_unavailable(&d)), (0, 0));
}

#[test]
fn new_set_is_created_with_the_room_that_the_surge_leaves() {
    for (surge, old_pods, expect) in [(1, 4, 1), (3, 4, 3), (4, 1, 4), (0, 4, 0)] {
        let d = deployment(
            4,
            2,
            json!({"strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1}}}),
        );
        let got = run(&d, &[set(1, 1, old_pods, old_pods, 4, 4 + surge)]);
        let create = got
            .iter()
            .filter_map(Action::as_write)
            .find(|w| w.target.kind == "ReplicaSet" && w.verb == controllers_runtime::Verb::Create);
        let size = create.unwrap().body["spec"]["replicas"].clone();
        assert_eq!(size, expect, "surge {surge}, {old_pods} old pods");
    }
}

#[test]
fn unavailable_pods_of_old_sets_are_removed_before_available_ones() {
    let d = deployment(4, 3, json!({}));
    let sets = [
        set(1, 1, 2, 0, 4, 5),
        set(2, 2, 2, 2, 4, 5),
        set(3, 3, 1, 1, 4, 5),
    ];
    let got = scaled_lines(&run(&d, &sets));
    assert_eq!(got, ["Scaled down replica set d-1 from 2 to 0"]);
}

#[test]
fn paused_deployment_is_scaled_but_not_rolled_out() {
    let d = deployment(6, 2, json!({"paused": true}));
    let got = run(&d, &[set(1, 1, 4, 4, 4, 5)]);
    assert_eq!(
        scaled_lines(&got),
        ["Scaled up replica set d-1 from 4 to 6"]
    );
    let lines = describe_actions(&got);
    assert!(!lines.iter().any(|l| l.starts_with("create")), "{lines:?}");
}

#[test]
fn pausing_and_resuming_is_recorded_as_progress() {
    let reason = |d: &Deployment| {
        let got = run(d, &[set(1, 1, 1, 0, 1, 2)]);
        let write = got
            .iter()
            .find_map(|a| a.as_write().filter(|w| w.target.kind == "Deployment"))
            .unwrap();
        let fresh: Deployment = serde_json::from_value(write.body.clone()).unwrap();
        let all = fresh.status.clone().unwrap().conditions.unwrap();
        let found = all.iter().find(|c| c.type_ == "Progressing").unwrap();
        (found.reason.clone().unwrap(), fresh)
    };
    let (paused, mut fresh) = reason(&deployment(1, 1, json!({"paused": true})));
    assert_eq!(paused, "DeploymentPaused");
    fresh.spec.as_mut().unwrap().paused = None;
    fresh.status.as_mut().unwrap().updated_replicas = Some(1);
    fresh.status.as_mut().unwrap().replicas = Some(1);
    assert_eq!(reason(&fresh).0, "DeploymentResumed");
}

#[test]
fn old_empty_sets_above_the_history_limit_are_deleted_oldest_revision_first() {
    let mut d = deployment(1, 4, json!({"revisionHistoryLimit": 1}));
    d.status = serde_json::from_value(json!({"observedGeneration": 1, "replicas": 1,
        "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}))
    .unwrap();
    let sets = [
        set(1, 3, 0, 0, 1, 2),
        set(2, 1, 0, 0, 1, 2),
        set(3, 2, 0, 0, 1, 2),
        set(4, 4, 1, 1, 1, 2),
    ];
    let lines = describe_actions(&run(&d, &sets));
    let deleted: Vec<_> = lines.iter().filter(|l| l.starts_with("delete")).collect();
    assert_eq!(deleted, ["delete ReplicaSet d-2", "delete ReplicaSet d-3"]);
}

#[test]
fn empty_selector_is_reported_and_selects_nothing() {
    let d = deployment(1, 1, json!({"selector": {}}));
    let lines = describe_actions(&run(&d, &[]));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("event SelectingAll"), "{lines:?}");
}

#[test]
fn deployment_in_deletion_changes_no_set() {
    let mut d = deployment(4, 2, json!({}));
    d.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).ok();
    let lines = describe_actions(&run(&d, &[set(1, 1, 2, 2, 2, 3)]));
    assert_eq!(lines, ["status Deployment d"]);
}

#[test]
fn name_collision_raises_the_collision_count() {
    let got = run(&deployment(1, 1, json!({})), &[]);
    let create = got[0].as_write().unwrap();
    let counted = create.if_exists[0].as_write().unwrap();
    assert_eq!(counted.body["status"]["collisionCount"], 1);
}

#[test]
fn annotations_are_copied_except_those_of_kubectl_and_of_revisions() {
    let mut d = deployment(1, 1, json!({}));
    let notes = d.metadata.annotations.get_or_insert_default();
    for key in [
        "kubernetes.io/change-cause",
        "kubectl.kubernetes.io/last-applied-configuration",
        "deployment.kubernetes.io/revision",
    ] {
        notes.insert(key.to_owned(), "x".to_owned());
    }
    let got = run(&d, &[]);
    let copied = &got[0].as_write().unwrap().body["metadata"]["annotations"];
    assert_eq!(copied["kubernetes.io/change-cause"], "x");
    assert_eq!(copied["deployment.kubernetes.io/revision"], "1");
    assert!(copied["kubectl.kubernetes.io/last-applied-configuration"].is_null());
}
