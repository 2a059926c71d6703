#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use serde_json::{Value, json};

fn claim_of(class: Value, volume: Value) -> PersistentVolumeClaim {
    serde_json::from_value(
        json!({"metadata": {"name": "c", "namespace": "n", "uid": "c"},
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

#[test]
fn bound_claims_and_volumes_leave_their_indexes() {
    assert_eq!(
        index_open_claim(&claim_of(json!("slow"), json!(null))),
        ["slow"]
    );
    assert!(index_open_claim(&claim_of(json!("slow"), json!("v"))).is_empty());
    let mut volume = volume_of("v", "slow", "1Gi").as_ref().clone();
    assert_eq!(index_free_volume(&volume), ["slow"]);
    volume.spec.as_mut().unwrap().claim_ref =
        serde_json::from_value(json!({"namespace": "n", "name": "c"})).ok();
    assert!(index_free_volume(&volume).is_empty());
    assert_eq!(claim_key(&volume).as_deref(), Some("n/c"));
}

#[test]
fn volume_enqueues_only_the_open_claims_that_it_fits() {
    let named = |name: &str, class: &str, bound: bool| {
        let mut found = claim_of(json!(class), if bound { json!("v") } else { json!(null) });
        found.metadata.name = Some(name.to_owned());
        found
    };
    let claims = vec![
        named("open", "slow", false),
        named("other", "fast", false),
        named("bound", "slow", true),
    ];
    let binder = Binder::fixed(claims, Vec::new(), Vec::new());
    assert_eq!(
        binder.keys_enqueued_by(&volume_of("v", "slow", "4Gi")),
        ["v", "n/open"]
    );
    assert_eq!(
        binder.keys_enqueued_by(&volume_of("v", "slow", "1Gi")),
        ["v"],
        "too small"
    );
    let mut taken = volume_of("v", "slow", "4Gi").as_ref().clone();
    taken.spec.as_mut().unwrap().claim_ref =
        serde_json::from_value(json!({"namespace": "n", "name": "c"})).ok();
    assert_eq!(binder.keys_enqueued_by(&taken), ["v", "n/c"]);
}
