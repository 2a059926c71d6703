#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe;
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
    Arc::new(history::current(set, &set.spec.as_ref().unwrap().template, None, &[]).revision)
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
    let got = reconcile(
        set,
        pods,
        revisions,
        &Claims::new(),
        "2026-01-01T00:01:00Z".parse().unwrap(),
    );
    describe(&got)
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
        let actions = reconcile(
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
