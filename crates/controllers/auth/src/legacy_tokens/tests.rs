#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use client::events::Recorder;
use controllers_runtime::testing::serve;
use controllers_runtime::{Accounts, NAMESPACE, describe_actions};
use serde_json::Value;
use std::sync::Arc;

const DAY: Duration = Duration::from_secs(24 * 3600);
const YEAR: Duration = Duration::from_secs(8760 * 3600);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn make_secret(created: &str, labels: Value) -> Secret {
    serde_json::from_value(
        json!({"type": TYPE, "metadata": {"name": "t", "namespace": "n",
        "uid": "s", "resourceVersion": "7", "creationTimestamp": created, "labels": labels,
        "annotations": {NAME: "a", "kubernetes.io/service-account.uid": "u"}}}),
    )
    .unwrap()
}

#[test]
fn token_is_unused_after_a_period_without_creation_or_use() {
    let now = at("2026-06-01T12:00:00Z");
    let limit = Limit::before(now, 30 * DAY).unwrap();
    for (created, labels, expect) in [
        (
            "2026-05-02T12:00:00Z",
            json!({}),
            Some(Duration::from_secs(1)),
        ),
        ("2026-05-02T11:59:59Z", json!({}), None),
        ("2026-05-30T12:00:00Z", json!({}), Some(DAY)),
        (
            "2025-01-01T00:00:00Z",
            json!({LAST_USED: "2026-05-01"}),
            None,
        ),
        (
            "2025-01-01T00:00:00Z",
            json!({LAST_USED: "2026-05-02"}),
            Some(DAY),
        ),
        // Labels that a user has set: nothing is known, or the future.
        ("2025-01-01T00:00:00Z", json!({LAST_USED: ""}), Some(DAY)),
        (
            "2025-01-01T00:00:00Z",
            json!({LAST_USED: "20250101"}),
            Some(DAY),
        ),
        (
            "2025-01-01T00:00:00Z",
            json!({LAST_USED: "2025-1-1"}),
            Some(DAY),
        ),
        (
            "2025-01-01T00:00:00Z",
            json!({LAST_USED: "9999-12-31"}),
            Some(DAY),
        ),
    ] {
        let secret = make_secret(created, labels.clone());
        let found = limit.find_wait(&secret, now);
        assert_eq!(found, expect, "{created} {labels}");
    }
}

#[test]
fn uses_must_be_recorded_for_the_whole_period() {
    let limit = Limit::before(at("2026-06-01T12:00:00Z"), 30 * DAY).unwrap();
    for (since, expect) in [
        (None, false),
        (parse_date("2026-05-01"), true),
        (parse_date("2026-05-02"), false),
    ] {
        assert_eq!(limit.is_tracked_long_enough(since), expect, "{since:?}");
    }
}

#[test]
fn unused_token_is_marked_and_deleted_a_period_later() {
    let limit = Limit::before(at("2026-06-01T12:00:00Z"), 30 * DAY).unwrap();
    let today = parse_date("2026-06-01").unwrap();
    for (label, expect) in [
        (json!({}), vec!["patch Secret t", "requeue 86400s"]),
        (
            json!({INVALID_SINCE: "x"}),
            vec!["patch Secret t", "requeue 86400s"],
        ),
        (json!({INVALID_SINCE: "2026-05-02"}), vec!["requeue 86400s"]),
        (
            json!({INVALID_SINCE: "2026-05-01"}),
            vec!["delete Secret t"],
        ),
    ] {
        let secret = make_secret("2025-01-01T00:00:00Z", label.clone());
        let actions = limit.clean(&secret, today);
        assert_eq!(describe_actions(&actions), expect, "{label}");
        let body = &actions.first().and_then(Action::as_write).map(|w| &w.body);
        match (expect[0], body) {
            ("delete Secret t", Some(body)) => assert_eq!(
                body["preconditions"],
                json!({"uid": "s", "resourceVersion": "7"})
            ),
            ("patch Secret t", Some(body)) => assert_eq!(
                body["metadata"],
                json!({"uid": "s", "resourceVersion": "7",
                    "labels": {INVALID_SINCE: "2026-06-01"}})
            ),
            _ => assert_eq!(*body, None),
        }
    }
}

#[test]
fn period_that_no_time_can_express_keeps_all_tokens() {
    assert!(Limit::before(at("2026-06-01T12:00:00Z"), Duration::MAX).is_none());
}

/// Returns the actions for an unused token of a year ago, with the account and the pods given.
async fn reconcile(account: Value, pods: Vec<Value>, since: &'static str) -> Vec<String> {
    let (client, _) = serve(move |_| {
        Some(format!(
            r#"{{"metadata":{{"name":"x"}},"data":{{"since":"{since}"}}}}"#
        ))
    })
    .await
    .unwrap();
    let executor = Executor::new(
        Arc::new(Accounts::new(client, false).for_controller("t")),
        Recorder::disconnected(),
    );
    let from = |value: Value| serde_json::from_value(value).unwrap();
    let cleaner = LegacyTokenCleaner {
        secrets: Cache::with_objects(vec![make_secret("2001-01-01T00:00:00Z", json!({}))]),
        accounts: Cache::with_objects(vec![serde_json::from_value(account).unwrap()]),
        pods: Cache::with_indexes(
            pods.into_iter().map(from).collect::<Vec<Pod>>(),
            vec![(NAMESPACE, Box::new(|pod| vec![pod.namespace().to_owned()]))],
        ),
        period: YEAR,
    };
    describe_actions(&cleaner.reconcile("n/t", &executor).await.unwrap())
}

fn account(uid: &str, secrets: Value) -> Value {
    json!({"metadata": {"name": "a", "namespace": "n", "uid": uid}, "secrets": secrets})
}

#[tokio::test]
async fn generated_token_that_no_pod_mounts_is_marked() {
    let listed = json!([{"name": "t"}]);
    for (account, since, expect) in [
        (account("u", listed.clone()), "2001-01-01", "patch Secret t"),
        // Not generated, or of another account.
        (
            account("u", json!([{"name": "other"}])),
            "2001-01-01",
            "requeue 86400s",
        ),
        (account("u", Value::Null), "2001-01-01", "requeue 86400s"),
        (
            account("other", listed.clone()),
            "2001-01-01",
            "requeue 86400s",
        ),
        // Not recorded for long enough, or since an unknown day.
        (account("u", listed.clone()), "2999-01-01", "requeue 86400s"),
        (account("u", listed.clone()), "always", "requeue 86400s"),
    ] {
        let actions = reconcile(account.clone(), Vec::new(), since).await;
        assert_eq!(actions[0], expect, "{account} {since}");
    }
}

#[tokio::test]
async fn token_that_a_pod_mounts_is_kept() {
    let container = |fields: Value| {
        let mut container = json!({"name": "c"});
        let all = container.as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        container
    };
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        let all = volume.as_object_mut().unwrap();
        all.extend(source.as_object().unwrap().clone());
        json!({"containers": [], "volumes": [volume]})
    };
    let by_name = json!({"name": "t"});
    let key =
        json!({"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "t", "key": "k"}}}]});
    let all = json!({"envFrom": [{"secretRef": by_name}]});
    for spec in [
        json!({"containers": [container(key.clone())]}),
        json!({"containers": [container(all.clone())]}),
        json!({"containers": [], "initContainers": [container(key)]}),
        json!({"containers": [], "ephemeralContainers": [container(all)]}),
        json!({"containers": [], "imagePullSecrets": [by_name]}),
        volume(json!({"secret": {"secretName": "t"}})),
        volume(json!({"projected": {"sources": [{"secret": by_name}]}})),
        volume(json!({"csi": {"driver": "d", "nodePublishSecretRef": by_name}})),
        volume(json!({"flexVolume": {"driver": "d", "secretRef": by_name}})),
        volume(json!({"cephfs": {"monitors": [], "secretRef": by_name}})),
        volume(json!({"cinder": {"volumeID": "v", "secretRef": by_name}})),
        volume(json!({"rbd": {"monitors": [], "image": "i", "secretRef": by_name}})),
        volume(json!({"storageos": {"secretRef": by_name}})),
        volume(json!({"iscsi": {"targetPortal": "p", "iqn": "i", "lun": 0, "secretRef": by_name}})),
        volume(json!({"azureFile": {"secretName": "t", "shareName": "s"}})),
        volume(json!({"scaleIO": {"gateway": "g", "system": "s", "secretRef": by_name}})),
    ] {
        let pods = |namespace: &str| {
            vec![json!({"metadata": {"name": "p", "namespace": namespace}, "spec": spec})]
        };
        let account = || account("u", json!([by_name]));
        let kept = reconcile(account(), pods("n"), "2001-01-01").await;
        assert_eq!(kept, ["requeue 86400s"], "{spec}");
        let other = reconcile(account(), pods("m"), "2001-01-01").await;
        assert_eq!(other[0], "patch Secret t", "a pod of another namespace");
    }
}
