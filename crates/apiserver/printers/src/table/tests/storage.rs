use super::*;

#[test]
fn unbound_claim_shows_neither_capacity_nor_modes() {
    let status = json!({"phase": "Pending", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
    let row = cells(
        "",
        "v1",
        "persistentvolumeclaims",
        json!({"spec": {"storageClassName": "fast"}, "status": status}),
    );
    assert_eq!(row[1..6], ["Pending", "", "", "", "fast"].map(Value::from));
    let row = cells(
        "",
        "v1",
        "persistentvolumeclaims",
        json!({"spec": {"volumeName": "pv", "volumeMode": "Block"}, "status": status}),
    );
    assert_eq!(row[2..5], ["pv", "1Gi", "RWO"].map(Value::from));
    assert_eq!(row[8], "Block");
}

#[test]
fn access_modes_are_short_distinct_and_in_fixed_order() {
    let row = |modes: Value| {
        cells(
            "",
            "v1",
            "persistentvolumes",
            json!({"spec": {"accessModes": modes}}),
        )[2]
        .clone()
    };
    assert_eq!(
        row(json!([
            "ReadWriteMany",
            "ReadOnlyMany",
            "ReadWriteOnce",
            "ReadWriteMany"
        ])),
        "RWO,ROX,RWX"
    );
    assert_eq!(row(json!(["ReadWriteOncePod"])), "RWOP");
    assert_eq!(row(json!([])), "");
}

#[test]
fn deleted_volumes_and_claims_are_terminating() {
    for plural in ["persistentvolumes", "persistentvolumeclaims"] {
        let object = json!({"metadata": {"deletionTimestamp": "2024-01-01T00:01:00Z"}, "status": {"phase": "Bound"}});
        assert!(
            cells("", "v1", plural, object).contains(&json!("Terminating")),
            "{plural}"
        );
    }
}

#[test]
fn volume_row_names_its_claim() {
    let spec = json!({"capacity": {"storage": "5Gi"}, "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "fast",
        "claimRef": {"namespace": "n", "name": "c"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"});
    let row = cells(
        "",
        "v1",
        "persistentvolumes",
        json!({"spec": spec, "status": {"phase": "Bound"}}),
    );
    assert_eq!(
        Value::from(row),
        json!([
            "x",
            "5Gi",
            "RWO",
            "Retain",
            "Bound",
            "n/c",
            "fast",
            "<unset>",
            "",
            "100s",
            "Filesystem"
        ])
    );
}

#[test]
fn beta_annotation_of_the_class_comes_before_the_field() {
    let metadata = json!({"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}});
    let object = json!({"metadata": metadata, "spec": {"storageClassName": "new"}});
    assert_eq!(cells("", "v1", "persistentvolumeclaims", object)[5], "old");
}

#[test]
fn default_storage_class_is_marked() {
    let row = |annotation: &str, value: &str| {
        let object = json!({"metadata": {"name": "fast", "annotations": {annotation: value}}, "provisioner": "p"});
        cells("storage.k8s.io", "v1", "storageclasses", object)[0].clone()
    };
    assert_eq!(
        row("storageclass.kubernetes.io/is-default-class", "true"),
        "fast (default)"
    );
    assert_eq!(
        row("storageclass.beta.kubernetes.io/is-default-class", "true"),
        "fast (default)"
    );
    assert_eq!(
        row("storageclass.kubernetes.io/is-default-class", "false"),
        "fast"
    );
}

#[test]
fn resource_claim_state_lists_allocation_and_use() {
    let allocated = json!({"allocation": {}});
    let used = json!({"allocation": {}, "reservedFor": [{"name": "p"}]});
    for (deleted, status, expect) in [
        (false, json!({}), "pending"),
        (false, allocated.clone(), "allocated"),
        (false, used.clone(), "allocated,reserved"),
        (true, used, "deleted,allocated,reserved"),
    ] {
        let mut object = json!({"status": status});
        if deleted {
            object["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:01:00Z");
        }
        assert_eq!(
            cells("resource.k8s.io", "v1", "resourceclaims", object)[1],
            expect,
            "{status}"
        );
    }
}
