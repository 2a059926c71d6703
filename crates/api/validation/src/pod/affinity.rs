//! Node, pod and pod anti-affinity.

use crate::field::{Errors, Path};
use crate::selector;
use api_meta::names;
use api_meta::tree::{get, has, int, list, text};
use serde_json::Value;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const WEIGHT: &str = "must be in the range 1-100";

/// Validates `affinity` of a pod.
pub fn validate_affinity(affinity: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_node_affinity(
        get(affinity, "nodeAffinity"),
        &path.child("nodeAffinity"),
        errors,
    );
    for field in ["podAffinity", "podAntiAffinity"] {
        validate_pod_affinity(get(affinity, field), &path.child(field), errors);
    }
}

fn validate_weight(item: &Value, path: &Path<'_>, errors: &mut Errors) {
    let weight = int(item, "weight").unwrap_or(0);
    // The scheduler adds the weights of all terms, so their range is limited.
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), weight, WEIGHT);
    }
}

fn validate_node_affinity(affinity: &Value, path: &Path<'_>, errors: &mut Errors) {
    if has(affinity, REQUIRED) {
        validate_node_selector(get(affinity, REQUIRED), &path.child(REQUIRED), errors);
    }
    let at = path.child(PREFERRED);
    for (i, item) in list(affinity, PREFERRED).iter().enumerate() {
        validate_weight(item, &at.index(i), errors);
        validate_node_selector_term(
            get(item, "preference"),
            &at.index(i).child("preference"),
            errors,
        );
    }
}

/// Validates a node selector: at least one term.
pub fn validate_node_selector(node_selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("nodeSelectorTerms");
    let terms = list(node_selector, "nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&at, "must have at least one node selector term");
    }
    for (i, term) in terms.iter().enumerate() {
        validate_node_selector_term(term, &at.index(i), errors);
    }
}

// An empty term matches no node, unlike an empty label selector.
fn validate_node_selector_term(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("matchExpressions");
    for (i, expression) in list(term, "matchExpressions").iter().enumerate() {
        validate_node_requirement(expression, &at.index(i), errors);
    }
    let at = path.child("matchFields");
    for (i, expression) in list(term, "matchFields").iter().enumerate() {
        validate_field_requirement(expression, &at.index(i), errors);
    }
}

fn validate_node_requirement(expression: &Value, path: &Path<'_>, errors: &mut Errors) {
    let count = list(expression, "values").len();
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
}

fn validate_field_requirement(expression: &Value, path: &Path<'_>, errors: &mut Errors) {
    let values = list(expression, "values");
    match text(expression, "operator") {
        "In" | "NotIn" => {
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
    }
}

fn validate_pod_affinity(affinity: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child(REQUIRED);
    for (i, term) in list(affinity, REQUIRED).iter().enumerate() {
        validate_pod_affinity_term(term, &at.index(i), errors);
    }
    let at = path.child(PREFERRED);
    for (i, item) in list(affinity, PREFERRED).iter().enumerate() {
        validate_weight(item, &at.index(i), errors);
        validate_pod_affinity_term(
            get(item, "podAffinityTerm"),
            &at.index(i).child("podAffinityTerm"),
            errors,
        );
    }
}

// Every term needs a topology key: upstream has none that means the whole cluster.
fn validate_pod_affinity_term(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["labelSelector", "namespaceSelector"] {
        selector::validate_label_selector(get(term, field), &path.child(field), errors);
    }
    for namespace in list(term, "namespaces") {
        let namespace = namespace.as_str().unwrap_or_default();
        errors.invalid_each(
            &path.child("namespace"),
            namespace,
            names::dns1123_label(namespace),
        );
    }
    let key = text(term, "topologyKey");
    let at = path.child("topologyKey");
    if key.is_empty() {
        errors.required(&at, "can not be empty");
    }
    errors.invalid_each(&at, key, names::qualified_name(key));
}
