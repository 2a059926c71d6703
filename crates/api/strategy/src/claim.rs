//! Data sources of PersistentVolumeClaims, and device states of ResourceClaims.

use api_meta::tree::{at_mut, get, has, list, make, remove, set, text};
use serde_json::Value;

const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

/// Brings `dataSource` and `dataSourceRef` in line (KEP-1495). An old claim is given for updates.
pub(crate) fn prepare_data_sources(object: &mut Value, old: Option<&Value>) {
    let was_used = old.is_some_and(|old| {
        let spec = get(old, "spec");
        has(spec, "dataSource") || has(spec, "dataSourceRef")
    });
    let Some(spec) = make(object, "spec") else {
        return;
    };
    // The older field ignores everything but claims and snapshots.
    if !was_used && !has(spec, "dataSourceRef") && !is_claim_or_snapshot(get(spec, "dataSource")) {
        remove(spec, "dataSource");
    }
    copy_data_source(spec);
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    match text(source, "kind") {
        "PersistentVolumeClaim" => text(source, "apiGroup").is_empty(),
        "VolumeSnapshot" => text(source, "apiGroup") == SNAPSHOTS,
        _ => false,
    }
}

fn copy_data_source(spec: &mut Value) {
    let (source, reference) = (get(spec, "dataSource"), get(spec, "dataSourceRef"));
    let (field, value) = match (source.is_null(), reference.is_null()) {
        (false, true) => ("dataSourceRef", source.clone()),
        // The older field has no namespace.
        (true, false) if text(reference, "namespace").is_empty() => {
            let mut value = reference.clone();
            remove(&mut value, "namespace");
            ("dataSource", value)
        }
        _ => return,
    };
    set(spec, field, value);
}

/// Returns what identifies a device, or a share of one.
fn device_key(device: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|field| text(device, field))
}

/// Drops the states of devices that a write of a ResourceClaim's status deallocates: their drivers
/// don't report about them any more.
pub(crate) fn drop_deallocated_devices(new: &mut Value, old: &Value) {
    let allocated = |claim: &Value| -> Vec<Value> {
        let devices = get(get(get(claim, "status"), "allocation"), "devices");
        list(devices, "results").to_vec()
    };
    let (before, after) = (allocated(old), allocated(new));
    let is_known = |all: &[Value], device: &Value| {
        let key = device_key(device);
        all.iter().any(|result| device_key(result) == key)
    };
    let kept: Vec<Value> = list(get(new, "status"), "devices")
        .iter()
        .filter(|device| !is_known(&before, device) || is_known(&after, device))
        .cloned()
        .collect();
    let Some(status) = at_mut(new, "status") else {
        return;
    };
    if kept.is_empty() {
        remove(status, "devices");
    } else {
        set(status, "devices", kept);
    }
}
