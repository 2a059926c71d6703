//! Volumes, claims, classes and CSI objects.

use super::{Name, build, create, merge, update};
use serde_json::{Value, json};

const VOLUME: Name = ("", "PersistentVolume");
const CLAIM: Name = ("", "PersistentVolumeClaim");
const CLASS: Name = ("storage.k8s.io", "StorageClass");
const CSI_DRIVER: Name = ("storage.k8s.io", "CSIDriver");
const CSI_NODE: Name = ("storage.k8s.io", "CSINode");
const ATTACHMENT: Name = ("storage.k8s.io", "VolumeAttachment");

fn volume(change: Value) -> Value {
    let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/data"}});
    merge(&mut spec, change);
    json!({"spec": spec})
}

fn claim(change: Value) -> Value {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}});
    merge(&mut spec, change);
    json!({"spec": spec})
}

#[test]
fn volume_needs_modes_capacity_and_a_source() {
    create(
        VOLUME,
        volume(json!({"accessModes": null})),
        &["spec.accessModes: Required value"],
    );
    create(
        VOLUME,
        volume(json!({"hostPath": null})),
        &["spec: Required value: must specify a volume type"],
    );
    create(
        VOLUME,
        volume(json!({"capacity": {"storage": "0"}})),
        &["spec.capacity[storage]: Invalid value: \"0\": must be greater than zero"],
    );
}

#[test]
fn access_modes_are_known_and_once_per_pod_stands_alone() {
    create(
        CLAIM,
        claim(json!({"accessModes": ["ReadSometimes"]})),
        &["spec.accessModes: Unsupported value: \"ReadSometimes\""],
    );
    create(
        CLAIM,
        claim(json!({"accessModes": ["ReadWriteOncePod", "ReadOnlyMany"]})),
        &["spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"],
    );
}

#[test]
fn reclaim_policy_is_known() {
    create(
        VOLUME,
        volume(json!({"persistentVolumeReclaimPolicy": "Keep"})),
        &[
            "spec.persistentVolumeReclaimPolicy: Unsupported value: \"Keep\": supported values: \"Delete\", \"Recycle\", \"Retain\"",
        ],
    );
}

#[test]
fn local_volume_is_bound_to_a_node() {
    create(
        VOLUME,
        volume(json!({"hostPath": null, "local": {"path": "/d"}})),
        &["spec.nodeAffinity: Required value: Local volume requires node affinity"],
    );
}

#[test]
fn source_of_a_volume_does_not_change() {
    let old = build(VOLUME, volume(json!({})));
    update(
        VOLUME,
        &old,
        json!({"spec": {"capacity": {"storage": "2Gi"}}}),
        &[],
    );
    update(
        VOLUME,
        &old,
        json!({"spec": {"hostPath": {"path": "/other"}}}),
        &[
            "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation",
        ],
    );
}

#[test]
fn claim_requests_storage() {
    create(
        CLAIM,
        claim(json!({"resources": null})),
        &["spec.resources[storage]: Required value"],
    );
    create(
        CLAIM,
        claim(json!({"resources": {"requests": {"storage": "0"}}})),
        &["spec.resources[storage]: Invalid value: \"0\": must be greater than zero"],
    );
}

#[test]
fn data_source_of_the_core_group_is_a_claim() {
    create(
        CLAIM,
        claim(json!({"dataSourceRef": {"kind": "Pod", "name": "p"}})),
        &[
            // The reference is copied into the older field.
            "spec.dataSource: Invalid value: \"Pod\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
            "spec.dataSourceRef: Invalid value: \"Pod\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        ],
    );
}

#[test]
fn bound_claim_grows_and_does_not_shrink() {
    let mut old = build(CLAIM, claim(json!({"storageClassName": "c"})));
    let size = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let fixed = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
    update(CLAIM, &old, size("2Gi"), &[fixed]);
    old["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
    update(CLAIM, &old, size("2Gi"), &[]);
    update(
        CLAIM,
        &old,
        size("512Mi"),
        &["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"],
    );
}

#[test]
fn claim_without_class_gets_one_later() {
    let old = build(CLAIM, claim(json!({})));
    update(
        CLAIM,
        &old,
        json!({"spec": {"storageClassName": "default"}}),
        &[],
    );
    let chosen = build(CLAIM, claim(json!({"storageClassName": "a"})));
    update(
        CLAIM,
        &chosen,
        json!({"spec": {"storageClassName": "b"}}),
        &["spec: Forbidden: spec is immutable after creation"],
    );
}

#[test]
fn class_needs_a_provisioner_and_keeps_it() {
    create(CLASS, json!({}), &["provisioner: Required value"]);
    let old = build(
        CLASS,
        json!({"provisioner": "a.io/b", "parameters": {"a": "b"}}),
    );
    update(
        CLASS,
        &old,
        json!({"provisioner": "a.io/c"}),
        &["provisioner: Invalid value: \"a.io/c\": field is immutable"],
    );
}

#[test]
fn class_policies_are_known() {
    create(
        CLASS,
        json!({"provisioner": "a.io/b", "reclaimPolicy": "Recycle", "volumeBindingMode": "Later"}),
        &[
            "reclaimPolicy: Unsupported value: \"Recycle\": supported values: \"Delete\", \"Retain\"",
            "volumeBindingMode: Unsupported value: \"Later\": supported values: \"Immediate\", \"WaitForFirstConsumer\"",
        ],
    );
}

#[test]
fn attachment_names_attacher_node_and_one_source() {
    create(
        ATTACHMENT,
        json!({"spec": {"attacher": "", "nodeName": "", "source": {"persistentVolumeName": "v"}}}),
        &[
            "spec.attacher: Required value",
            "spec.nodeName: Invalid value: \"\": a lowercase RFC 1123 subdomain must",
        ],
    );
    create(
        ATTACHMENT,
        json!({"spec": {"attacher": "a.io", "nodeName": "n", "source": {}}}),
        &[
            "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ],
    );
}

#[test]
fn drivers_of_a_csi_node_are_unique_and_named() {
    let driver = json!({"name": "a.io", "nodeID": "1"});
    create(
        CSI_NODE,
        json!({"spec": {"drivers": [driver, driver]}}),
        &["spec.drivers[1].name: Duplicate value: \"a.io\""],
    );
    create(
        CSI_NODE,
        json!({"spec": {"drivers": [{"name": "a.io"}]}}),
        &["spec.drivers[0].nodeID: Required value"],
    );
}

#[test]
fn csi_driver_has_known_policies() {
    create(
        CSI_DRIVER,
        json!({"spec": {"fsGroupPolicy": "Maybe"}}),
        &[
            "spec.fsGroupPolicy: Unsupported value: \"Maybe\": supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\"",
        ],
    );
}
