//! Pod templates in workloads.

use super::options::PodOptions;
use super::{annotations, profiles, ratchet, spec};
use crate::field::{Errors, Path};
use crate::metadata;
use crate::selector;
use api_meta::tree::{get, list};
use serde_json::{Value, json};

/// Returns the tolerances for a change of a template.
pub fn read_template_options(old: &Value) -> PodOptions {
    ratchet::read_update_options(get(old, "metadata"), get(old, "spec"))
}

/// Validates a template independent of its owner.
pub fn validate_pod_template(
    template: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // Upstream names labels and annotations without `metadata` here.
    let meta = get(template, "metadata");
    metadata::validate_labels(meta, "labels", path, errors);
    metadata::validate_annotations(meta, path, errors);
    let (pod, at) = (get(template, "spec"), path.child("spec"));
    annotations::validate_pod_annotations(meta, pod, options, path, errors);
    spec::validate_pod_spec(pod, None, options, &at, errors);
    profiles::validate_profiles_match(meta, pod, &at, errors);
    if !list(pod, "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(&at.child("ephemeralContainers"), detail);
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
