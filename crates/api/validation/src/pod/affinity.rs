//! Node, pod and pod anti-affinity.

use super::match_keys;
use super::options::PodOptions;
use crate::field::{Errors, Path};
use crate::selector;
use api_meta::names;
use api_meta::tree::{get, has, int, list, text, texts};
use serde_json::Value;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const SELECTORS: [&str; 2] = ["labelSelector", "namespaceSelector"];
const WEIGHT: &str = "must be in the range 1-100";

/// Validates `affinity` of a pod.
pub fn validate_affinity(
    affinity: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.child("nodeAffinity");
    validate_node_affinity(get(affinity, "nodeAffinity"), options, &at, errors);
    for field in ["podAffinity", "podAntiAffinity"] {
        validate_pod_affinity(get(affinity, field), options, &path.child(field), errors);
    }
}

fn validate_weight(item: &Value, path: &Path<'_>, errors: &mut Errors) {
    let weight = int(item, "weight").unwrap_or(0);
    // The scheduler adds the weights of all terms, so their range is limited.
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), weight, WEIGHT);
    }
}

fn validate_node_affinity(
    affinity: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // Terms are alternatives, and their expressions have to match together. No term at all would
    // match no node.
    if has(affinity, REQUIRED) {
        let invalid_values = options.invalid_node_affinity_values;
        let at = path.child(REQUIRED);
        validate_node_selector(get(affinity, REQUIRED), invalid_values, &at, errors);
    }
    let at = path.child(PREFERRED);
    for (i, item) in list(affinity, PREFERRED).iter().enumerate() {
        validate_weight(item, &at.index(i), errors);
        let at = at.index(i);
        // A value that no label can have is only a preference that no node fulfils.
        let term = get(item, "preference");
        validate_node_selector_term(term, true, &at.child("preference"), errors);
    }
}

/// Validates a node selector: at least one term.
pub fn validate_node_selector(
    node_selector: &Value,
    invalid_values: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.child("nodeSelectorTerms");
    let terms = list(node_selector, "nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&at, "must have at least one node selector term");
    }
    for (i, term) in terms.iter().enumerate() {
        validate_node_selector_term(term, invalid_values, &at.index(i), errors);
    }
}

/// Returns whether a required node affinity has a value that is no label value.
pub fn has_invalid_node_values(spec: &Value) -> bool {
    let required = get(get(get(spec, "affinity"), "nodeAffinity"), REQUIRED);
    list(required, "nodeSelectorTerms")
        .iter()
        .any(selector::has_invalid_values)
}

/// Returns whether a selector of a pod affinity is invalid.
pub fn has_invalid_pod_selectors(spec: &Value) -> bool {
    // Only the number of errors counts here: the old pod is not reported to the client.
    let mut errors = Errors::default();
    for field in ["podAffinity", "podAntiAffinity"] {
        let affinity = get(get(spec, "affinity"), field);
        let preferred = list(affinity, PREFERRED)
            .iter()
            .map(|item| get(item, "podAffinityTerm"));
        for term in list(affinity, REQUIRED).iter().chain(preferred) {
            for field in SELECTORS {
                selector::validate_label_selector(get(term, field), &Path::ROOT, &mut errors);
            }
        }
    }
    !errors.is_empty()
}

// An empty term matches no node, unlike an empty label selector.
fn validate_node_selector_term(
    term: &Value,
    invalid_values: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.child("matchExpressions");
    for (i, expression) in list(term, "matchExpressions").iter().enumerate() {
        validate_node_requirement(expression, invalid_values, &at.index(i), errors);
    }
    let at = path.child("matchFields");
    for (i, expression) in list(term, "matchFields").iter().enumerate() {
        validate_field_requirement(expression, &at.index(i), errors);
    }
}

fn validate_node_requirement(
    expression: &Value,
    invalid_values: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let values = list(expression, "values");
    let count = values.len();
    let at = path.child("values");
    match text(expression, "operator") {
        "In" | "NotIn" if count == 0 => {
            errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if count > 0 => {
            errors.forbidden(
                &at,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            );
        }
        // A label is compared with one number. Upstream doesn't check here that it is a number; the
        // scheduler then finds no match.
        "Gt" | "Lt" if count != 1 => {
            errors.required(
                &at,
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            );
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        ),
    }
    let key = text(expression, "key");
    errors.invalid_each(&path.child("key"), key, names::qualified_name(key));
    // A value that no label can have never matches. Stored pods may have one, and their affinity is
    // immutable.
    for (i, value) in values.iter().enumerate().filter(|_| !invalid_values) {
        let value = value.as_str().unwrap_or_default();
        errors.invalid_each(&at.index(i), value, names::label_value(value));
    }
}

fn validate_field_requirement(expression: &Value, path: &Path<'_>, errors: &mut Errors) {
    let values = list(expression, "values");
    match text(expression, "operator") {
        "In" | "NotIn" => {
            // The scheduler turns the name into a direct look-up of one node.
            if values.len() != 1 {
                errors.required(
                    &path.child("values"),
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                );
            }
        }
        other => errors.invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        ),
    }
    let key = text(expression, "key");
    // Nodes have no other field that a selector of the scheduler may read.
    if key != "metadata.name" {
        errors.invalid(&path.child("key"), key, "not a valid field selector key");
        return;
    }
    let at = path.child("values");
    for (i, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        errors.invalid_each(&at.index(i), value, names::dns1123_subdomain(value));
    }
}

fn validate_pod_affinity(
    affinity: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.child(REQUIRED);
    for (i, term) in list(affinity, REQUIRED).iter().enumerate() {
        validate_pod_affinity_term(term, options, &at.index(i), errors);
    }
    let at = path.child(PREFERRED);
    for (i, item) in list(affinity, PREFERRED).iter().enumerate() {
        validate_weight(item, &at.index(i), errors);
        let at = at.index(i);
        let term = get(item, "podAffinityTerm");
        validate_pod_affinity_term(term, options, &at.child("podAffinityTerm"), errors);
    }
}

// Every term needs a topology key: upstream has none that means the whole cluster.
fn validate_pod_affinity_term(
    term: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let invalid_values = options.invalid_selector_values;
    for field in SELECTORS {
        let at = path.child(field);
        selector::validate_selector_leniently(get(term, field), invalid_values, &at, errors);
    }
    for namespace in texts(term, "namespaces") {
        // Upstream's path lacks the `s` of the field.
        let at = path.child("namespace");
        errors.invalid_each(&at, namespace, names::dns1123_label(namespace));
    }
    match_keys::validate_match_keys(term, path, errors);
    let key = text(term, "topologyKey");
    let at = path.child("topologyKey");
    // An empty key has the second error as well, from the rule for names.
    if key.is_empty() {
        errors.required(&at, "can not be empty");
    }
    errors.invalid_each(&at, key, names::qualified_name(key));
}
