//! Matching of free volumes and claims.

use std::sync::Arc;

use api_meta::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use controllers_runtime::{Meta, labels};

/// Returns the smallest free volume that satisfies the claim.
pub fn find_best_volume<'v>(
    claim: &PersistentVolumeClaim,
    volumes: &'v [Arc<PersistentVolume>],
) -> Option<&'v Arc<PersistentVolume>> {
    let fitting = volumes.iter().filter(|v| is_match(claim, v));
    // The smallest volume wastes the least; the name makes the choice repeatable.
    fitting.min_by(|a, b| {
        capacity_of(a)
            .cmp(&capacity_of(b))
            .then_with(|| a.name().cmp(b.name()))
    })
}

fn capacity_of(volume: &PersistentVolume) -> Option<Quantity> {
    volume
        .spec
        .as_ref()?
        .capacity
        .as_ref()?
        .get("storage")?
        .0
        .parse()
        .ok()
}

/// Returns whether a free volume satisfies the claim.
pub fn is_match(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let (Some(want), Some(have)) = (&claim.spec, &volume.spec) else {
        return false;
    };
    have.claim_ref.is_none()
        && find_mismatch(claim, volume).is_none()
        && want
            .selector
            .as_ref()
            .is_none_or(|s| labels::labels_match(Some(s), volume.meta().labels.as_ref()))
}

/// Returns why a volume can't serve a claim. Ignores the claim's selector, which does not apply to
/// a claim that names its volume.
pub fn find_mismatch(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
) -> Option<&'static str> {
    let (Some(want), Some(have)) = (&claim.spec, &volume.spec) else {
        return Some("there is no spec");
    };
    let text = |name: &Option<String>| name.clone().unwrap_or_default();
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let requested = want
        .resources
        .as_ref()
        .and_then(|r| r.requests.as_ref()?.get("storage"));
    let requested = requested.and_then(|q| q.0.parse::<Quantity>().ok());
    let offered: Vec<_> = have.access_modes.iter().flatten().collect();
    if volume.is_deleting() {
        Some("the volume is marked for deletion")
    } else if requested.is_some_and(|requested| capacity_of(volume).is_none_or(|c| c < requested)) {
        Some("requested PV is too small")
    // An empty class is a class of its own: it matches volumes without a class only.
    } else if text(&want.storage_class_name) != text(&have.storage_class_name) {
        Some("storageClassName does not match")
    } else if text(&want.volume_attributes_class_name) != text(&have.volume_attributes_class_name) {
        Some("volumeAttributesClassName does not match")
    } else if mode(&want.volume_mode) != mode(&have.volume_mode) {
        Some("incompatible volumeMode")
    } else if !want
        .access_modes
        .iter()
        .flatten()
        .all(|m| offered.contains(&m))
    {
        Some("incompatible accessMode")
    } else {
        None
    }
}

/// Returns the class that a claim or volume names, or an empty string.
pub fn class_of(name: Option<&String>) -> String {
    name.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn claim_is_matched_to_the_smallest_volume_of_its_class() {
        let volume = |name: &str, size: &str, class: &str| -> Arc<PersistentVolume> {
            Arc::new(
                serde_json::from_value(
                    json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce"], "storageClassName": class}}),
                )
                .unwrap(),
            )
        };
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "n"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "x", "resources": {"requests": {"storage": "2Gi"}}}})).unwrap();
        let all = [
            volume("a", "1Gi", "x"),
            volume("b", "8Gi", "x"),
            volume("c", "4Gi", "x"),
            volume("d", "2Gi", "y"),
        ];
        assert_eq!(find_best_volume(&claim, &all).unwrap().name(), "c");
    }

    fn mismatch_of(change: &dyn Fn(&mut serde_json::Value)) -> Option<&'static str> {
        let mut volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "storageClassName": "x"}});
        change(&mut volume);
        let claim = serde_json::from_value(json!({"spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "x", "resources": {"requests": {"storage": "2Gi"}}}}))
        .unwrap();
        find_mismatch(&claim, &serde_json::from_value(volume).unwrap())
    }

    #[test]
    fn every_mismatch_has_its_reason() {
        assert_eq!(mismatch_of(&|_| {}), None);
        for (path, value, expect) in [
            (
                "/spec/capacity/storage",
                json!("1Gi"),
                "requested PV is too small",
            ),
            (
                "/spec/storageClassName",
                json!("y"),
                "storageClassName does not match",
            ),
            (
                "/spec/accessModes",
                json!(["ReadOnlyMany"]),
                "incompatible accessMode",
            ),
        ] {
            let got = mismatch_of(&|v| *v.pointer_mut(path).unwrap() = value.clone());
            assert_eq!(got, Some(expect));
        }
        let block = mismatch_of(&|v| v["spec"]["volumeMode"] = json!("Block"));
        assert_eq!(block, Some("incompatible volumeMode"));
        let deleted =
            mismatch_of(&|v| v["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        assert_eq!(deleted, Some("the volume is marked for deletion"));
    }

    #[test]
    fn selector_of_the_claim_limits_free_volumes_only() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({"spec": {
            "selector": {"matchLabels": {"disk": "fast"}}}}))
        .unwrap();
        let volume = |disk: &str| -> PersistentVolume {
            serde_json::from_value(
                json!({"metadata": {"name": "v", "labels": {"disk": disk}}, "spec": {}}),
            )
            .unwrap()
        };
        assert!(is_match(&claim, &volume("fast")));
        assert!(!is_match(&claim, &volume("slow")));
        assert_eq!(find_mismatch(&claim, &volume("slow")), None);
    }
}
