#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe;
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
    describe(&reconcile_claim(
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
