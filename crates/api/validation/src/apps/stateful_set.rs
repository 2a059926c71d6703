//! StatefulSets.

use super::owner_selector::{SelectorMessages, validate_owner_selector};
use super::strategy::validate_stateful_set_strategy;
use super::template::{forbid_deadline, require_restart_policy};
use crate::field::{Errors, Path};
use crate::metadata;
use crate::pod::{self, PodOptions};
use crate::rules;
use api_meta::names;
use api_meta::tree::{equal, get, has, list, opt, remove, set, text};
use serde_json::{Value, json};

const UPDATE: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
const MUTABLE: [&str; 7] = [
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
];

/// Fields that a change tolerates: those that it cannot repair, because they are immutable.
#[derive(Clone, Copy, Default)]
struct Tolerances {
    is_update: bool,
    /// The old template was invalid already.
    invalid_template: bool,
}

pub(super) fn validate_new_stateful_set(object: &Value, errors: &mut Errors) {
    let options = PodOptions::default();
    validate_spec(get(object, "spec"), &options, Tolerances::default(), errors);
}

pub(super) fn validate_stateful_set_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (n, o) = (get(new, "spec"), get(old, "spec"));
    let options = pod::read_template_options(get(o, "template"));
    let mut tolerances = Tolerances {
        is_update: true,
        invalid_template: false,
    };
    // If the old object fails under the same rules, its template is exempt. Otherwise, a finalizer
    // could never be removed from it.
    let mut before = Errors::default();
    validate_spec(o, &options, tolerances, &mut before);
    tolerances.invalid_template = !before.is_empty();
    validate_spec(n, &options, tolerances, errors);
    let rest = |spec: &Value| {
        let mut spec = spec.clone();
        MUTABLE
            .iter()
            .for_each(|field| drop(remove(&mut spec, field)));
        spec
    };
    // Claims and identities of existing pods follow from the other fields.
    if !equal(&rest(n), &rest(o)) {
        errors.forbidden(&Path::ROOT.child("spec"), UPDATE);
    }
}

fn validate_spec(spec: &Value, options: &PodOptions, tolerances: Tolerances, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    match text(spec, "podManagementPolicy") {
        "" => errors.required(&path.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.invalid(&path.child("podManagementPolicy"), other, detail);
        }
    }
    let at = path.child("updateStrategy");
    validate_stateful_set_strategy(get(spec, "updateStrategy"), &at, errors);
    validate_retention(spec, &path, errors);
    // Claim templates are immutable, so an update could not repair an error in them.
    if !tolerances.is_update {
        let at = path.child("volumeClaimTemplates");
        for (i, claim) in list(spec, "volumeClaimTemplates").iter().enumerate() {
            let at = at.index(i);
            let claim = get(claim, "spec");
            crate::claim::validate_claim_template_spec(claim, &at.child("spec"), errors);
        }
    }
    rules::validate_non_negative(spec, "replicas", &path, errors);
    rules::validate_non_negative(spec, "minReadySeconds", &path, errors);
    let at = path.child("ordinals");
    rules::validate_non_negative(get(spec, "ordinals"), "start", &at, errors);
    // Pods that need no stable DNS name need no Service.
    let service = text(spec, "serviceName");
    if !tolerances.is_update && !service.is_empty() {
        let at = path.child("serviceName");
        errors.invalid_each(&at, service, names::dns1123_label(service));
    }
    validate_selector_and_template(spec, options, tolerances, &path, errors);
    let at = path.child("template");
    require_restart_policy(get(spec, "template"), &at, errors);
    forbid_deadline(get(spec, "template"), "StatefulSet", &at, errors);
}

fn validate_retention(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let field = "persistentVolumeClaimRetentionPolicy";
    if let Some(policy) = opt(spec, field) {
        let at = path.child(field);
        for field in ["whenDeleted", "whenScaled"] {
            let value = text(policy, field);
            if !matches!(value, "Retain" | "Delete") {
                errors.not_supported(&at.child(field), value, &["Retain", "Delete"]);
            }
        }
    }
}

fn validate_selector_and_template(
    spec: &Value,
    options: &PodOptions,
    tolerances: Tolerances,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let messages = SelectorMessages {
        empty: "empty selector is invalid for statefulset",
        invalid: "",
    };
    if !validate_owner_selector(spec, messages, path, errors) {
        return;
    }
    let labels = get(spec, "selector");
    let (template, at) = (build_template(spec), path.child("template"));
    pod::validate_template_labels(&template, labels, &at, errors);
    if !tolerances.invalid_template {
        pod::validate_pod_template(&template, options, &at, errors);
    }
    // A second time, as upstream does: only these are validated if the rest was invalid before.
    let meta = get(&template, "metadata");
    metadata::validate_labels(meta, "labels", &at, errors);
    metadata::validate_annotations(meta, &at, errors);
    pod::validate_pod_annotations(meta, get(&template, "spec"), options, &at, errors);
}

/// Returns the template as the controller uses it: it sets the names of the pods and adds a volume
/// for each claim template.
fn build_template(spec: &Value) -> Value {
    let mut template = get(spec, "template").clone();
    let claims = list(spec, "volumeClaimTemplates");
    let names: Vec<&str> = claims
        .iter()
        .map(|c| text(get(c, "metadata"), "name"))
        .collect();
    let of_claim =
        |name: &&str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    // A claim's volume replaces one of the same name in the template, as when the controller
    // creates a pod.
    let own = list(get(&template, "spec"), "volumes").to_vec();
    let others = own
        .into_iter()
        .filter(|v| !names.contains(&text(v, "name")));
    let volumes: Vec<Value> = names.iter().map(of_claim).chain(others).collect();
    if let Some(pod) = api_meta::tree::at_mut(&mut template, "spec") {
        // The controller overwrites both in each pod, so the template's values don't matter.
        remove(pod, "subdomain");
        remove(pod, "hostname");
        if !claims.is_empty() || has(pod, "volumes") {
            set(pod, "volumes", volumes);
        }
    }
    template
}
