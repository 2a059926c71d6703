//! A whole pod, by the rules that its creation and its changes share.

use super::options::PodOptions;
use super::{annotations, container, profiles, spec};
use crate::field::{Errors, Path};
use api_meta::tree::{get, has, list, text};
use serde_json::Value;

/// Validates metadata and spec of a pod.
pub fn validate_pod_object(pod: &Value, options: &PodOptions, errors: &mut Errors) {
    let (metadata, of_pod) = (get(pod, "metadata"), get(pod, "spec"));
    let (meta_path, path) = (Path::ROOT.child("metadata"), Path::ROOT.child("spec"));
    annotations::validate_pod_annotations(metadata, of_pod, options, &meta_path, errors);
    spec::validate_pod_spec(of_pod, Some(metadata), options, &path, errors);
    validate_token_owner(of_pod, &path.child("volumes"), errors);
    container::validate_images(of_pod, &["containers", "initContainers"], &path, errors);
}

/// Checks that a pod with a projected token has a service account.
fn validate_token_owner(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !text(spec, "serviceAccountName").is_empty() {
        return;
    }
    for (i, volume) in list(spec, "volumes").iter().enumerate() {
        let at = path.index(i);
        let at = at.child("projected");
        let at = at.child("sources");
        let sources = list(get(volume, "projected"), "sources");
        for (j, source) in sources.iter().enumerate() {
            if has(source, "serviceAccountToken") {
                let detail = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&at.index(j).child("serviceAccountToken"), detail);
            }
        }
    }
}

/// Validates a new pod.
pub fn validate_new_pod(pod: &Value, errors: &mut Errors) {
    let options = PodOptions {
        is_pod: true,
        ..PodOptions::default()
    };
    validate_pod_object(pod, &options, errors);
    let (path, spec) = (Path::ROOT.child("spec"), get(pod, "spec"));
    // They are for debugging a pod that runs, and do not restart (KEP-277).
    if !list(spec, "ephemeralContainers").is_empty() {
        let at = path.child("ephemeralContainers");
        errors.forbidden(&at, "cannot be set on create");
    }
    // Gates hold a pod back from the scheduler. A pod with a node does not pass it.
    if !list(spec, "schedulingGates").is_empty() && !text(spec, "nodeName").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&path.child("nodeName"), detail);
    }
    profiles::validate_profiles_match(get(pod, "metadata"), spec, &path, errors);
}
