#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe_actions;
use serde_json::{Value, json};

fn set(replicas: i32, spec: Value) -> StatefulSet {
    let mut value = json!({
        "metadata": {"name": "s", "namespace": "n", "uid": "s", "generation": 1},
        "spec": {"replicas": replicas, "serviceName": "s", "selector": {"matchLabels": {"app": "s"}},
                 "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": []}},
                 "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}},
    });
    for (k, v) in spec.as_object().unwrap() {
        value["spec"][k] = v.clone();
    }
    serde_json::from_value(value).unwrap()
}

fn revision_of(set: &StatefulSet) -> Arc<ControllerRevision> {
    Arc::new(history::find_current(set, &set.spec.as_ref().unwrap().template, None, &[]).revision)
}

fn pod(name: &str, ready: bool, revision: &str, deleting: bool) -> Arc<Pod> {
    Arc::new(serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": "s", "controller-revision-hash": revision},
            "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z"),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s", "controller": true}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": if ready {"True"} else {"False"},
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })).unwrap())
}

fn run(set: &StatefulSet, pods: &[Arc<Pod>], revisions: &[Arc<ControllerRevision>]) -> Vec<String> {
    let got = reconcile_stateful_set(
        set,
        pods,
        revisions,
        &Claims::new(),
        "2026-01-01T00:01:00Z".parse().unwrap(),
    );
    describe_actions(&got)
        .into_iter()
        .filter(|l| !l.starts_with("status"))
        .collect()
}

#[test]
fn makes_one_after_the_other() {
    let s = set(3, json!({}));
    let rev = revision_of(&s);
    let name = rev.name().to_owned();
    let revs = [rev];
    assert_eq!(run(&s, &[], &revs), ["create Pod s-0"]);
    assert!(run(&s, &[pod("s-0", false, &name, false)], &revs).is_empty());
    assert_eq!(
        run(&s, &[pod("s-0", true, &name, false)], &revs),
        ["create Pod s-1"]
    );
    let s = set(2, json!({"podManagementPolicy": "Parallel"}));
    assert_eq!(run(&s, &[], &revs), ["create Pod s-0", "create Pod s-1"]);
}

#[test]
fn removes_from_the_top() {
    let s = set(0, json!({}));
    let rev = revision_of(&s);
    let name = rev.name().to_owned();
    let revs = [rev];
    let all = [
        pod("s-0", true, &name, false),
        pod("s-1", true, &name, false),
    ];
    assert_eq!(run(&s, &all, &revs), ["delete Pod s-1"]);
    let all = [
        pod("s-0", true, &name, false),
        pod("s-1", true, &name, true),
    ];
    assert!(run(&s, &all, &revs).is_empty());
}

#[test]
fn renews_within_the_partition() {
    let s = set(2, json!({}));
    let rev = revision_of(&s);
    let name = rev.name().to_owned();
    let revs = [rev];
    let old = [
        pod("s-0", true, "s-old", false),
        pod("s-1", true, "s-old", false),
    ];
    assert_eq!(run(&s, &old, &revs), ["delete Pod s-1"]);
    let half = [
        pod("s-0", true, "s-old", false),
        pod("s-1", false, &name, false),
    ];
    assert!(run(&s, &half, &revs).is_empty());
    let half = [
        pod("s-0", true, "s-old", false),
        pod("s-1", true, &name, false),
    ];
    assert_eq!(run(&s, &half, &revs), ["delete Pod s-0"]);
    let held = set(
        2,
        json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}),
    );
    assert!(run(&held, &half, &revs).is_empty());
    let by_hand = set(2, json!({"updateStrategy": {"type": "OnDelete"}}));
    assert!(run(&by_hand, &old, &revs).is_empty());
}

#[test]
fn ordinals_shift() {
    let s = set(
        2,
        json!({"ordinals": {"start": 6}, "podManagementPolicy": "Parallel"}),
    );
    let rev = revision_of(&s);
    let name = rev.name().to_owned();
    let all = [
        pod("s-5", true, &name, false),
        pod("s-6", true, &name, false),
    ];
    assert_eq!(run(&s, &all, &[rev]), ["create Pod s-7", "delete Pod s-5"]);
}

#[test]
fn a_returning_template_is_renumbered() {
    let s = set(0, json!({}));
    let first = revision_of(&s);
    let mut second = first.as_ref().clone();
    second.revision = 2;
    second.metadata.name = Some("s-two".to_owned());
    second.data = Some(k8s_openapi::apimachinery::pkg::runtime::RawExtension(
        json!({"spec": {"template": {"x": 1}}}),
    ));
    let got = run(&s, &[], &[first.clone(), Arc::new(second)]);
    assert_eq!(got, [format!("update ControllerRevision {}", first.name())]);
}

#[test]
fn current_revision_stays_while_no_pod_is_there() {
    let mut s = set(
        1,
        json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}),
    );
    let update = revision_of(&s);
    let mut old = update.as_ref().clone();
    old.revision = 0;
    old.metadata.name = Some("s-old".to_owned());
    old.data = Some(k8s_openapi::apimachinery::pkg::runtime::RawExtension(
        json!({"spec": {"template": {"x": 1}}}),
    ));
    s.status = serde_json::from_value(json!({"replicas": 1, "currentRevision": "s-old"})).unwrap();
    let revisions = [Arc::new(old), update.clone()];
    let current = |pods: &[Arc<Pod>]| {
        let actions = reconcile_stateful_set(
            &s,
            pods,
            &revisions,
            &Claims::new(),
            "2026-01-01T00:01:00Z".parse().unwrap(),
        );
        let status = actions
            .iter()
            .filter_map(Action::as_write)
            .find(|w| w.target.kind == "StatefulSet");
        status.map(|w| {
            w.body["status"]["currentRevision"]
                .as_str()
                .unwrap()
                .to_owned()
        })
    };
    assert_eq!(current(&[]).as_deref(), Some("s-old"));
    assert_eq!(
        current(&[pod("s-0", true, update.name(), false)]).as_deref(),
        Some(update.name())
    );
}

fn timed(name: &str, phase: &str) -> Arc<Pod> {
    let mut found = pod(name, false, "x", false).as_ref().clone();
    found.status.as_mut().unwrap().phase = Some(phase.to_owned());
    Arc::new(found)
}

#[test]
fn only_names_with_a_plain_ordinal_belong_to_the_set() {
    let s = set(1, json!({}));
    for (name, expect) in [
        ("s-0", Some(0)),
        ("s-12", Some(12)),
        ("s-01", None),
        ("s-", None),
        ("s-x", None),
        ("t-0", None),
        ("s-s-0", None),
        ("s--1", None),
    ] {
        let got = identity::parse_ordinal(&s, &pod(name, true, "x", false));
        assert_eq!(got, expect, "{name}");
    }
}

#[test]
fn terminated_pod_is_deleted_and_blocks_later_ordinals() {
    let s = set(2, json!({}));
    let revs = [revision_of(&s)];
    for phase in ["Failed", "Succeeded"] {
        let lines = run(&s, &[timed("s-0", phase)], &revs);
        assert_eq!(lines, ["delete Pod s-0"], "{phase}");
    }
}

#[test]
fn unhealthy_pod_blocks_scaling_down_of_the_pods_above_it() {
    let s = set(1, json!({}));
    let rev = revision_of(&s);
    let name = rev.name().to_owned();
    let all = [
        pod("s-0", false, &name, false),
        pod("s-1", true, &name, false),
    ];
    assert!(run(&s, &all, &[rev]).is_empty());
}

#[test]
fn parallel_management_deletes_all_condemned_pods_at_once() {
    let s = set(0, json!({"podManagementPolicy": "Parallel"}));
    let rev = revision_of(&s);
    let name = rev.name().to_owned();
    let all = [
        pod("s-0", false, &name, false),
        pod("s-1", true, &name, false),
    ];
    assert_eq!(run(&s, &all, &[rev]), ["delete Pod s-1", "delete Pod s-0"]);
}

#[test]
fn max_unavailable_bounds_the_pods_that_are_replaced_together() {
    for (limit, expect) in [
        (json!(1), vec!["delete Pod s-3"]),
        (json!(2), vec!["delete Pod s-3", "delete Pod s-2"]),
        (json!("50%"), vec!["delete Pod s-3", "delete Pod s-2"]),
        (json!("10%"), vec!["delete Pod s-3"]),
    ] {
        let s = set(
            4,
            json!({"updateStrategy": {"type": "RollingUpdate",
                "rollingUpdate": {"partition": 0, "maxUnavailable": limit}}}),
        );
        let old: Vec<_> = (0..4)
            .map(|i| pod(&format!("s-{i}"), true, "s-old", false))
            .collect();
        assert_eq!(run(&s, &old, &[revision_of(&s)]), expect, "{limit}");
    }
}

#[test]
fn ordinals_below_the_partition_are_created_from_the_current_revision() {
    let mut s = set(
        2,
        json!({"podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}),
    );
    let update = revision_of(&s);
    let mut old = update.as_ref().clone();
    old.metadata.name = Some("s-old".to_owned());
    old.data = None;
    s.status = serde_json::from_value(json!({"replicas": 0, "currentRevision": "s-old"})).unwrap();
    let actions = reconcile_stateful_set(
        &s,
        &[],
        &[Arc::new(old), update.clone()],
        &Claims::new(),
        "2026-01-01T00:01:00Z".parse().unwrap(),
    );
    let label = |w: &controllers_runtime::Write| {
        w.body["metadata"]["labels"]["controller-revision-hash"].clone()
    };
    let labels: Vec<_> = actions
        .iter()
        .filter_map(Action::as_write)
        .filter(|w| w.target.kind == "Pod")
        .map(label)
        .collect();
    assert_eq!(labels, [json!("s-old"), json!(update.name())]);
}

#[test]
fn pod_gets_its_name_index_and_host_name() {
    let s = set(1, json!({}));
    let built = identity::build_pod(&s, &revision_of(&s), 7);
    let labels = built.metadata.labels.clone().unwrap();
    assert_eq!(built.name(), "s-7");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "7");
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "s-7");
    let spec = built.spec.unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("s-7"));
    assert_eq!(spec.subdomain.as_deref(), Some("s"));
}

fn set_with_claims(retention: Value) -> StatefulSet {
    set(
        1,
        json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
            "persistentVolumeClaimRetentionPolicy": retention}),
    )
}

#[test]
fn claim_is_created_before_its_pod() {
    let s = set_with_claims(json!(null));
    assert_eq!(
        run(&s, &[], &[revision_of(&s)]),
        ["create PersistentVolumeClaim data-s-0", "create Pod s-0"]
    );
}

#[test]
fn pod_waits_while_its_claim_is_deleted() {
    let s = set_with_claims(json!(null));
    let claim = serde_json::from_value(json!({"metadata": {"name": "data-s-0", "namespace": "n",
        "deletionTimestamp": "2026-01-01T00:00:00Z"}}))
    .unwrap();
    let claims = Claims::from([("data-s-0".to_owned(), Arc::new(claim))]);
    let now = "2026-01-01T00:01:00Z".parse().unwrap();
    let got = reconcile_stateful_set(&s, &[], &[revision_of(&s)], &claims, now);
    let lines = describe_actions(&got);
    assert!(!lines.contains(&"create Pod s-0".to_owned()), "{lines:?}");
}

#[test]
fn new_claim_is_owned_by_the_set_only_if_it_is_deleted_with_it() {
    for (retention, owners) in [
        (json!({"whenDeleted": "Delete", "whenScaled": "Retain"}), 1),
        (json!({"whenDeleted": "Retain", "whenScaled": "Delete"}), 0),
        (json!(null), 0),
    ] {
        let s = set_with_claims(retention.clone());
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let got = reconcile_stateful_set(&s, &[], &[revision_of(&s)], &Claims::new(), now);
        let claim = got
            .iter()
            .filter_map(Action::as_write)
            .find(|w| w.target.kind == "PersistentVolumeClaim")
            .unwrap();
        let refs = claim.body["metadata"]["ownerReferences"].as_array();
        assert_eq!(refs.map_or(0, Vec::len), owners, "{retention}");
    }
}
