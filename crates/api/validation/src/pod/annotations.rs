//! Annotations of pods that have a meaning.

use super::claims::MIRROR;
use super::options::PodOptions;
use super::profiles::{self, APPARMOR_CONTAINER};
use super::scheduling::validate_pod_tolerations;
use crate::field::{Errors, Path};
use api_meta::tree::{get, opt_text, text};
use serde_json::{Value, json};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";

/// Validates the annotations of a pod or template. `path` is that of its metadata.
pub fn validate_pod_annotations(
    metadata: &Value,
    spec: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (annotations, at) = (get(metadata, "annotations"), path.child("annotations"));
    // The kubelet of that node made the mirror pod of a static one.
    if let Some(value) = opt_text(annotations, MIRROR)
        && text(spec, "nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(&at.key(MIRROR), value, detail);
    }
    validate_tolerations_annotation(annotations, options, &at, errors);
    if !options.invalid_deletion_cost && !has_valid_deletion_cost(metadata) {
        let shown = text(annotations, DELETION_COST);
        errors.invalid(&at.key(DELETION_COST), shown, "must be a 32bit integer");
    }
    profiles::validate_profile_annotations(annotations, spec, &at, errors);
}

fn validate_tolerations_annotation(
    annotations: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let annotation = text(annotations, TOLERATIONS);
    if annotation.is_empty() {
        return;
    }
    match serde_json::from_str::<Vec<Value>>(annotation) {
        Err(why) => errors.invalid(path, TOLERATIONS, why.to_string()),
        Ok(all) => {
            let mut found = Errors::default();
            let spec = json!({"tolerations": all});
            validate_pod_tolerations(&spec, options, &path.child(TOLERATIONS), &mut found);
            // The path has the key of the annotation in the place of a field.
            for mut error in found.0 {
                error.field = error.field.replacen(".tolerations[", "[", 1);
                errors.0.push(error);
            }
        }
    }
}

/// Returns whether the deletion cost is absent or a 32-bit number without a plus sign or leading
/// zeros.
pub fn has_valid_deletion_cost(metadata: &Value) -> bool {
    opt_text(get(metadata, "annotations"), DELETION_COST).is_none_or(|cost| {
        let is_canonical = cost == "0" || cost.starts_with(|c: char| matches!(c, '-' | '1'..='9'));
        is_canonical && cost.parse::<i32>().is_ok()
    })
}

/// Validates changes of annotations of a pod.
pub fn validate_annotation_updates(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("annotations");
    let (after, before) = (get(new, "annotations"), get(old, "annotations"));
    for (key, value) in before.as_object().into_iter().flatten() {
        if get(after, key) != value {
            forbid_change(key, "remove or update", &at, errors);
        }
    }
    for (key, _) in after.as_object().into_iter().flatten() {
        if before.get(key).is_none() {
            forbid_change(key, "add", &at, errors);
        }
    }
}

fn forbid_change(key: &str, change: &str, path: &Path<'_>, errors: &mut Errors) {
    // The runtime has started the containers with their profiles.
    if key.starts_with(APPARMOR_CONTAINER) {
        let detail = format!("may not {change} AppArmor annotations");
        errors.forbidden(&path.key(key), detail);
    }
    // The annotation decides whether a kubelet may delete the pod and what a node may read.
    if key == MIRROR {
        let detail = format!("may not {change} mirror pod annotation");
        errors.forbidden(&path.key(key), detail);
    }
}
