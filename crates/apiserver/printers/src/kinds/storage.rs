//! Volumes, claims, classes, CSI and resource claims.

use super::Row;
use crate::cells::*;
use crate::table::{AGE, NAME, boolean, integer, text, wide};
use api_meta::Meta;
use api_meta::meta::{at, str_at};
use jiff::Timestamp;
use serde_json::Value;

pub(super) const ROWS: &[Row] = &[
    (
        "",
        "persistentvolumes",
        &[
            NAME,
            text("Capacity", |o, _| Value::from(str_at(o, &["spec", "capacity", "storage"]))),
            text("Access Modes", |o, _| access_modes(items(o, &["spec", "accessModes"]))),
            text("Reclaim Policy", |o, _| Value::from(str_at(o, &["spec", "persistentVolumeReclaimPolicy"]))),
            text("Status", |o, _| phase(o)),
            text("Claim", |o, _| match at(o, &["spec", "claimRef"]) {
                Some(claim) => Value::from(format!("{}/{}", str_at(claim, &["namespace"]), str_at(claim, &["name"]))),
                None => Value::from(""),
            }),
            text("StorageClass", |o, _| class(o)),
            text("VolumeAttributesClass", |o, _| or(str_at(o, &["spec", "volumeAttributesClassName"]), "<unset>")),
            text("Reason", |o, _| Value::from(str_at(o, &["status", "reason"]))),
            AGE,
            wide("VolumeMode", |o, _| or(str_at(o, &["spec", "volumeMode"]), "<unset>")),
        ],
    ),
    (
        "",
        "persistentvolumeclaims",
        &[
            NAME,
            text("Status", |o, _| phase(o)),
            text("Volume", |o, _| Value::from(str_at(o, &["spec", "volumeName"]))),
            text("Capacity", |o, _| bound(o, Value::from(str_at(o, &["status", "capacity", "storage"])))),
            text("Access Modes", |o, _| bound(o, access_modes(items(o, &["status", "accessModes"])))),
            text("StorageClass", |o, _| class(o)),
            text("VolumeAttributesClass", |o, _| or(str_at(o, &["spec", "volumeAttributesClassName"]), "<unset>")),
            AGE,
            wide("VolumeMode", |o, _| or(str_at(o, &["spec", "volumeMode"]), "<unset>")),
        ],
    ),
    (
        "storage.k8s.io",
        "storageclasses",
        &[
            text("Name", class_name),
            text("Provisioner", |o, _| Value::from(str_at(o, &["provisioner"]))),
            text("ReclaimPolicy", |o, _| or(str_at(o, &["reclaimPolicy"]), "Delete")),
            text("VolumeBindingMode", |o, _| or(str_at(o, &["volumeBindingMode"]), "Immediate")),
            text("AllowVolumeExpansion", |o, _| Value::from(truth(o, &["allowVolumeExpansion"]))),
            AGE,
        ],
    ),
    (
        "storage.k8s.io",
        "volumeattributesclasses",
        &[NAME, text("DriverName", |o, _| Value::from(str_at(o, &["driverName"]))), AGE],
    ),
    (
        "storage.k8s.io",
        "volumeattachments",
        &[
            NAME,
            text("Attacher", |o, _| Value::from(str_at(o, &["spec", "attacher"]))),
            text("PV", |o, _| Value::from(str_at(o, &["spec", "source", "persistentVolumeName"]))),
            text("Node", |o, _| Value::from(str_at(o, &["spec", "nodeName"]))),
            boolean("Attached", |o, _| Value::from(truth(o, &["status", "attached"]))),
            AGE,
        ],
    ),
    (
        "storage.k8s.io",
        "csidrivers",
        &[
            NAME,
            boolean("AttachRequired", |o, _| {
                Value::from(at(o, &["spec", "attachRequired"]).and_then(Value::as_bool).unwrap_or(true))
            }),
            boolean("PodInfoOnMount", |o, _| Value::from(truth(o, &["spec", "podInfoOnMount"]))),
            boolean("StorageCapacity", |o, _| Value::from(truth(o, &["spec", "storageCapacity"]))),
            text("TokenRequests", |o, _| each(o, &["spec", "tokenRequests"], &["audience"], "<unset>")),
            boolean("RequiresRepublish", |o, _| Value::from(truth(o, &["spec", "requiresRepublish"]))),
            text("Modes", |o, _| strings(o, &["spec", "volumeLifecycleModes"], "<none>")),
            AGE,
        ],
    ),
    (
        "storage.k8s.io",
        "csinodes",
        &[NAME, integer("Drivers", |o, _| Value::from(items(o, &["spec", "drivers"]).len())), AGE],
    ),
    ("resource.k8s.io", "deviceclasses", &[NAME, AGE]),
    ("resource.k8s.io", "resourceclaims", &[NAME, text("State", claim_state), AGE]),
    ("resource.k8s.io", "resourceclaimtemplates", &[NAME, AGE]),
    (
        "resource.k8s.io",
        "resourceslices",
        &[
            NAME,
            text("Node", |o, _| Value::from(str_at(o, &["spec", "nodeName"]))),
            text("Driver", |o, _| Value::from(str_at(o, &["spec", "driver"]))),
            text("Pool", |o, _| Value::from(str_at(o, &["spec", "pool", "name"]))),
            AGE,
        ],
    ),
];

fn access_modes(modes: &[Value]) -> Value {
    let short = |mode: &Value| match mode.as_str().unwrap_or_default() {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    };
    let mut texts: Vec<&str> = Vec::new();
    for text in modes.iter().map(short).filter(|t| !t.is_empty()) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    Value::from(texts.join(","))
}

fn phase(o: &Value) -> Value {
    Value::from(if o.is_being_deleted() { "Terminating" } else { str_at(o, &["status", "phase"]) })
}

fn class(o: &Value) -> Value {
    let old = o.annotation("volume.beta.kubernetes.io/storage-class");
    Value::from(old.unwrap_or_else(|| str_at(o, &["spec", "storageClassName"])))
}

/// A claim's capacity and modes mean something once it is bound.
fn bound(claim: &Value, value: Value) -> Value {
    if str_at(claim, &["spec", "volumeName"]).is_empty() { Value::from("") } else { value }
}

fn class_name(o: &Value, _: Timestamp) -> Value {
    let default = o.annotation("storageclass.kubernetes.io/is-default-class") == Some("true");
    Value::from(if default { format!("{} (default)", o.name()) } else { o.name().to_owned() })
}

fn claim_state(claim: &Value, _: Timestamp) -> Value {
    let allocated = at(claim, &["status", "allocation"]).is_some();
    let reserved = !items(claim, &["status", "reservedFor"]).is_empty();
    let mut states = Vec::new();
    if claim.is_being_deleted() {
        states.push("deleted");
    }
    match (allocated, reserved) {
        (true, true) => states.extend(["allocated", "reserved"]),
        (true, false) => states.push("allocated"),
        (false, _) if states.is_empty() => states.push("pending"),
        _ => {}
    }
    Value::from(states.join(","))
}
