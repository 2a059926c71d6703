//! Volumes, claims and storage classes.

use super::labels::{deprecation, expression_warnings, selector_warnings};
use crate::field::Path;
use crate::rules::read_quantity;
use api_meta::tree::{get, has, list, same, text};
use serde_json::Value;

const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
/// Sources whose plugins have been removed.
const REMOVED: [(&str, &str, &str); 6] = [
    (
        "cephfs",
        "cephfs",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    // Upstream spells this path unlike the field.
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    (
        "rbd",
        "rbd",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
];

pub(super) fn volume_warnings(object: &Value) -> Vec<String> {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let annotations = get(get(object, "metadata"), "annotations");
    let mut warnings = Vec::new();
    for (key, why) in [
        (
            CLASS,
            "deprecated since v1.8; use \"storageClassName\" attribute instead",
        ),
        (
            OPTIONS,
            "deprecated since v1.31; use \"mountOptions\" attribute instead",
        ),
    ] {
        if has(annotations, key) {
            warnings.push(format!("metadata.annotations[{key}]: {why}"));
        }
    }
    if text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        warnings.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".into());
    }
    let at = path.child("nodeAffinity");
    let at = at.child("required");
    let at = at.child("nodeSelectorTerms");
    let required = get(get(spec, "nodeAffinity"), "required");
    for (i, term) in list(required, "nodeSelectorTerms").iter().enumerate() {
        warnings.extend(expression_warnings(term, &at.index(i)));
    }
    for (source, name, why) in REMOVED {
        if has(spec, source) {
            warnings.push(format!("spec.{name}: {why}"));
        }
    }
    warnings
}

pub(super) fn claim_warnings(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if has(get(get(object, "metadata"), "annotations"), CLASS) {
        warnings.push(format!("metadata.annotations[{CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"));
    }
    let resources = get(get(object, "spec"), "resources");
    for field in ["requests", "limits"] {
        if let Some(size) = read_quantity(get(resources, field), "storage")
            && size.milli_value() % 1000 != 0
        {
            warnings.push(format!("spec.resources.{field}[storage]: fractional byte value \"{size}\" is invalid, must be an integer"));
        }
    }
    warnings
}

pub(super) fn storage_class_warnings(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, term) in list(object, "allowedTopologies").iter().enumerate() {
        for (j, expression) in list(term, "matchLabelExpressions").iter().enumerate() {
            if let Some(why) = deprecation(text(expression, "key")) {
                warnings.push(format!(
                    "allowedTopologies[{i}].matchLabelExpressions[{j}].key: {why}"
                ));
            }
        }
    }
    warnings
}

pub(super) fn storage_capacity_warnings(object: &Value) -> Vec<String> {
    selector_warnings(
        get(object, "nodeTopology"),
        &Path::ROOT.child("nodeTopology"),
    )
}

pub(super) fn csi_driver_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let spec = get(object, "spec");
    let is_unset = !has(spec, "serviceAccountTokenInSecrets");
    let is_changed = old.is_none_or(|old| !same(get(old, "spec"), spec, "tokenRequests"));
    if is_changed && is_unset && !list(spec, "tokenRequests").is_empty() {
        return vec!["spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".into()];
    }
    Vec::new()
}
