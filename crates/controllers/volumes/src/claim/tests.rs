#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe_actions;
use serde_json::{Value, json};

fn claim_of(class: Value, volume: Value, annotations: Value) -> PersistentVolumeClaim {
    serde_json::from_value(
        json!({"metadata": {"name": "c", "namespace": "n", "uid": "c", "annotations": annotations},
        "spec": {"storageClassName": class, "volumeName": volume, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "2Gi"}}}}),
    )
    .unwrap()
}

fn volume_of(name: &str, class: &str, size: &str) -> Arc<PersistentVolume> {
    let tree = json!({"metadata": {"name": name}, "spec": {"storageClassName": class, "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"], "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["far"]}]}]}}}});
    Arc::new(serde_json::from_value(tree).unwrap())
}

fn class_named(name: &str, mode: &str, provisioner: &str) -> Option<Arc<StorageClass>> {
    let tree =
        json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
    Some(Arc::new(serde_json::from_value(tree).unwrap()))
}

fn describe_claim(found: &PersistentVolumeClaim, view: &ClaimView) -> Vec<String> {
    describe_actions(&reconcile_claim(
        found,
        view,
        "2026-01-01T00:00:00Z".parse().unwrap(),
    ))
}

#[test]
fn claim_that_waits_for_a_consumer_is_not_bound_to_a_volume_elsewhere() {
    let found = claim_of(json!("slow"), json!(null), json!({SELECTED_NODE: "near"}));
    let view = |mode: &str| ClaimView {
        free: vec![volume_of("v", "slow", "4Gi")],
        class: class_named("slow", mode, "p"),
        ..ClaimView::default()
    };
    let late = describe_claim(&found, &view("WaitForFirstConsumer"));
    assert!(
        late[0].starts_with("update PersistentVolumeClaim c"),
        "left to the provisioner: {late:?}"
    );
    assert_eq!(
        describe_claim(&found, &view("Immediate")),
        ["update PersistentVolume v"]
    );
}

#[test]
fn claim_without_a_class_takes_the_default_one_that_came_later() {
    let view = ClaimView {
        default_class: class_named("std", "Immediate", "p"),
        ..ClaimView::default()
    };
    assert_eq!(
        describe_claim(&claim_of(json!(null), json!(null), json!({})), &view),
        ["update PersistentVolumeClaim c"]
    );
    let none = describe_claim(&claim_of(json!(""), json!(null), json!({})), &view);
    assert!(none[0].starts_with("event FailedBinding"), "{none:?}");
}

#[test]
fn claim_that_names_a_volume_is_bound_only_if_the_volume_serves() {
    let found = claim_of(json!("slow"), json!("v"), json!({}));
    let cases = [
        ("slow", "4Gi", "update PersistentVolume v"),
        ("slow", "1Gi", "event VolumeMismatch"),
        ("x", "4Gi", "event VolumeMismatch"),
    ];
    for (class, size, expect) in cases {
        let view = ClaimView {
            named: Some(volume_of("v", class, size)),
            ..ClaimView::default()
        };
        let got = describe_claim(&found, &view);
        assert!(got[0].starts_with(expect), "{class} {size}: {got:?}");
    }
}

/// Returns a volume that names the claim `n/c`, with this UID and phase.
fn reserved(uid: Option<&str>, phase: &str) -> PersistentVolume {
    let mut volume = volume_of("v", "slow", "4Gi").as_ref().clone();
    volume.spec.as_mut().unwrap().claim_ref =
        serde_json::from_value(json!({"namespace": "n", "name": "c", "uid": uid})).ok();
    volume.status = serde_json::from_value(json!({"phase": phase})).ok();
    volume
}

#[test]
fn binding_is_written_step_by_step_the_volume_first() {
    let open = claim_of(json!("slow"), json!(null), json!({}));
    let mut done = claim_of(json!("slow"), json!("v"), json!({BOUND: "yes"}));
    let view = |volume: PersistentVolume, claim: &PersistentVolumeClaim| ClaimView {
        named: claim
            .spec
            .as_ref()
            .unwrap()
            .volume_name
            .as_ref()
            .map(|_| Arc::new(volume.clone())),
        reserved: vec![Arc::new(volume)],
        ..ClaimView::default()
    };
    for (volume, claim, expect) in [
        (
            reserved(None, "Available"),
            &open,
            "update PersistentVolume v",
        ),
        (
            reserved(Some("c"), "Available"),
            &open,
            "status PersistentVolume v",
        ),
        (
            reserved(Some("c"), "Bound"),
            &open,
            "update PersistentVolumeClaim c",
        ),
        (
            reserved(Some("c"), "Bound"),
            &done,
            "status PersistentVolumeClaim c",
        ),
    ] {
        let view = view(volume, claim);
        assert_eq!(describe_claim(claim, &view), [expect]);
    }
    done.status = serde_json::from_value(json!({"phase": "Bound",
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "4Gi"}}))
    .ok();
    let view = view(reserved(Some("c"), "Bound"), &done);
    assert!(describe_claim(&done, &view).is_empty());
}

#[test]
fn claim_whose_volume_was_deleted_is_lost() {
    let bound = claim_of(json!("slow"), json!("v"), json!({BOUND: "yes"}));
    let got = reconcile_claim(&bound, &ClaimView::default(), Timestamp::UNIX_EPOCH);
    assert_eq!(got[0].as_write().unwrap().body["status"]["phase"], "Lost");
    let waiting = claim_of(json!("slow"), json!("v"), json!({}));
    assert!(describe_claim(&waiting, &ClaimView::default()).is_empty());
}

#[test]
fn volume_is_released_when_its_claim_is_deleted_or_replaced() {
    let phase = |volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>| {
        let got = reconcile_volume(volume, claim, Timestamp::UNIX_EPOCH);
        got.first()
            .map(|a| a.as_write().unwrap().body["status"]["phase"].clone())
    };
    let own = claim_of(json!("slow"), json!("v"), json!({}));
    let mut other = own.clone();
    other.metadata.uid = Some("later".to_owned());
    let bound = reserved(Some("c"), "Bound");
    assert_eq!(phase(&bound, Some(&own)), None);
    assert_eq!(phase(&bound, None), Some(json!("Released")));
    assert_eq!(phase(&bound, Some(&other)), Some(json!("Released")));
    assert_eq!(phase(&reserved(None, ""), None), Some(json!("Available")));
}

#[test]
fn claim_without_a_volume_is_left_to_the_provisioner() {
    let found = claim_of(json!("slow"), json!(null), json!({}));
    let view = ClaimView {
        class: class_named("slow", "Immediate", "disk.example.com"),
        ..ClaimView::default()
    };
    let lines = describe_claim(&found, &view);
    assert_eq!(lines[0], "update PersistentVolumeClaim c");
    assert!(
        lines[1].starts_with("event ExternalProvisioning"),
        "{lines:?}"
    );
    let missing = describe_claim(&found, &ClaimView::default());
    assert!(
        missing[0].starts_with("event ProvisioningFailed"),
        "{missing:?}"
    );
}
