//! Pod templates in workloads.

use super::spec;
use crate::field::{Errors, Path};
use crate::metadata;
use crate::selector;
use api_meta::tree::{get, has, list, text};
use serde_json::{Value, json};

/// Validates a template independent of its owner.
pub fn validate_pod_template(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    let meta = get(template, "metadata");
    metadata::validate_labels(meta, "labels", path, errors);
    metadata::validate_annotations(meta, path, errors);
    let (pod, at) = (get(template, "spec"), path.child("spec"));
    spec::validate_pod_spec(pod, meta, &at, errors);
    if !list(pod, "ephemeralContainers").is_empty() {
        errors.forbidden(
            &at.child("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

/// Validates a template of a replicated workload, whose pods `selector` (a LabelSelector) must
/// match.
pub fn validate_replica_template(
    template: &Value,
    labels: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    validate_template_labels(template, labels, path, errors);
    validate_pod_template(template, path, errors);
    let (pod, at) = (get(template, "spec"), path.child("spec"));
    let policy = text(pod, "restartPolicy");
    // The controllers replace pods, they do not wait for their end. Jobs have a check of their own.
    if policy != "Always" {
        errors.not_supported(&at.child("restartPolicy"), policy, &["Always"]);
    }
    if has(pod, "activeDeadlineSeconds") {
        errors.forbidden(
            &at.child("activeDeadlineSeconds"),
            // A pod that ends by its deadline would be replaced at once, in an endless loop.
            "activeDeadlineSeconds in ReplicaSet is not Supported",
        );
    }
}

/// Checks that the selector matches the template's labels. An empty selector is rejected elsewhere;
/// an absent one matches nothing.
pub fn validate_template_labels(
    template: &Value,
    labels: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // The caller reports the empty selector; a second error about labels would mislead.
    if labels.is_object() && selector::is_empty_selector(labels) {
        return;
    }
    let own = get(get(template, "metadata"), "labels");
    let matched = match selector::compile_selector(labels) {
        Err(()) => return,
        Ok(None) => false,
        Ok(Some(compiled)) => compiled.matches_map(own.as_object()),
    };
    if !matched {
        let shown = if own.is_null() {
            json!({})
        } else {
            own.clone()
        };
        errors.invalid(
            &path.child("metadata").child("labels"),
            shown,
            "`selector` does not match template `labels`",
        );
    }
}
