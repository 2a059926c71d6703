//! Data sources of PersistentVolumeClaims.

use api_meta::tree::{get, has, make, remove, set, text};
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
