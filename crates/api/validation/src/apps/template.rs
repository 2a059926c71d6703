//! Templates of workloads that replace their pods.

use crate::field::{Errors, Path};
use crate::pod::{self, PodOptions};
use api_meta::tree::{get, has, text};
use serde_json::Value;

/// Checks the restart policy: the controllers replace pods, they do not wait for their end. Jobs
/// have a check of their own.
pub(super) fn require_restart_policy(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (policy, at) = (
        text(get(template, "spec"), "restartPolicy"),
        path.child("spec"),
    );
    if policy != "Always" {
        errors.not_supported(&at.child("restartPolicy"), policy, &["Always"]);
    }
}

/// Forbids a deadline: a pod that ends by it would be replaced at once, in an endless loop.
pub(super) fn forbid_deadline(template: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let field = "activeDeadlineSeconds";
    if has(get(template, "spec"), field) {
        let at = path.child("spec");
        errors.forbidden(
            &at.child(field),
            format!("{field} in {kind} is not Supported"),
        );
    }
}

/// Validates the template of a replicated workload, whose pods `labels` (a LabelSelector) must
/// match.
pub(super) fn validate_replica_template(
    template: &Value,
    labels: &Value,
    kind: &str,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    pod::validate_template_labels(template, labels, path, errors);
    pod::validate_pod_template(template, options, path, errors);
    require_restart_policy(template, path, errors);
    forbid_deadline(template, kind, path, errors);
}
