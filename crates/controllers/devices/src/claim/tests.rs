#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use serde_json::{Value, json};

fn claim(deleting: bool, finalizers: &[&str], status: Value) -> ResourceClaim {
    serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "n",
        "finalizers": finalizers,
        "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z")},
        "spec": {}, "status": status}))
    .unwrap()
}

fn pods(uids: &[&str]) -> Value {
    let consumer = |uid: &&str| json!({"resource": "pods", "name": uid, "uid": uid});
    uids.iter().map(consumer).collect()
}

fn plan(claim: &ResourceClaim, ended: &[&str], owner_done: bool) -> Plan {
    let ended = ended.iter().map(|uid| (*uid).to_owned()).collect();
    plan_claim(claim, &ended, owner_done)
}

#[test]
fn devices_are_freed_when_the_last_pod_ends() {
    let status = json!({"allocation": {}, "reservedFor": pods(&["a", "b"])});
    let claim = claim(false, &[FINALIZER], status);
    let first = plan(&claim, &["a"], false);
    let left = first.status.unwrap().status.unwrap();
    assert!(left.allocation.is_some() && !first.releases);
    assert_eq!(left.reserved_for.unwrap()[0].uid, "b");
    let last = plan(&claim, &["a", "b"], false);
    let left = last.status.unwrap().status.unwrap();
    assert!(left.allocation.is_none() && left.reserved_for.is_none());
    assert!(last.releases && !last.deletes);
}

#[test]
fn claim_without_ended_pods_is_left_alone() {
    for status in [
        json!({"allocation": {}, "reservedFor": pods(&["a"])}),
        // Allocated by another client before its first use.
        json!({"allocation": {}}),
        json!({}),
    ] {
        let claim = claim(false, &[FINALIZER], status.clone());
        assert_eq!(plan(&claim, &["other"], false), Plan::default(), "{status}");
    }
}

#[test]
fn consumers_that_are_no_pods_are_kept() {
    let mut reserved = pods(&["a"]);
    reserved[0]["apiGroup"] = json!("example.com");
    let claim = claim(
        false,
        &[FINALIZER],
        json!({"allocation": {}, "reservedFor": reserved}),
    );
    assert_eq!(plan(&claim, &["a"], false), Plan::default());
}

#[test]
fn unused_claim_in_deletion_loses_its_devices_and_its_finalizer() {
    let allocated = claim(true, &["other", FINALIZER], json!({"allocation": {}}));
    let got = plan(&allocated, &[], false);
    assert!(got.releases && got.status.unwrap().status.unwrap().allocation.is_none());
    let free = plan(&claim(true, &[FINALIZER], json!({})), &[], false);
    assert!(free.releases && free.status.is_none());
    let used = claim(
        true,
        &[FINALIZER],
        json!({"allocation": {}, "reservedFor": pods(&["a"])}),
    );
    assert_eq!(plan(&used, &[], false), Plan::default());
}

#[test]
fn devices_of_another_allocator_are_not_freed() {
    let claim = claim(
        false,
        &[],
        json!({"allocation": {}, "reservedFor": pods(&["a"])}),
    );
    let got = plan(&claim, &["a"], false);
    assert!(!got.releases && got.status.unwrap().status.unwrap().allocation.is_some());
}

#[test]
fn generated_claim_is_deleted_when_its_finished_pod_was_the_last_user() {
    let status = json!({"allocation": {}, "reservedFor": pods(&["a"])});
    let owned = claim(false, &[FINALIZER], status);
    assert!(plan(&owned, &["a"], true).deletes);
    assert!(!plan(&owned, &[], true).deletes);
    assert!(!plan(&claim(true, &[], json!({})), &[], true).deletes);
}

#[test]
fn pod_is_done_when_it_has_ended_or_was_deleted_before_it_got_a_node() {
    for (phase, deleting, node, expect) in [
        ("Running", false, "a", false),
        ("Pending", true, "", true),
        ("Running", true, "a", false),
        ("Succeeded", false, "a", true),
        ("Failed", true, "a", true),
    ] {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p",
            "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z")},
            "spec": {"containers": [], "nodeName": node}, "status": {"phase": phase}}))
        .unwrap();
        assert_eq!(is_done(&pod), expect, "{phase} {deleting} {node:?}");
    }
}
