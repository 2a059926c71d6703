//! `matchLabelKeys` and `mismatchLabelKeys` (KEP-3243, KEP-3633). The strategy of pods has added
//! the pod's own labels of these keys to the selector.

use crate::field::{Errors, Path};
use api_meta::names;
use api_meta::tree::{entries, get, has, list, text, texts};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

const DOUBLE: &str = "exists in both matchLabelKeys and labelSelector";
const NO_SELECTOR: &str = "must not be specified when labelSelector is not set";

/// Validates both lists of a pod affinity term or topology spread constraint.
pub fn validate_match_keys(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        validate_label_keys(term, field, &path.child(field), errors);
    }
    validate_no_own_requirement(term, path, errors);
    let mismatched: HashSet<&str> = texts(term, "mismatchLabelKeys").into_iter().collect();
    let at = path.child("matchLabelKeys");
    for (i, key) in texts(term, "matchLabelKeys").into_iter().enumerate() {
        if mismatched.contains(key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(&at.index(i), key, detail);
        }
    }
}

fn validate_label_keys(term: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let keys = texts(term, field);
    // The keys are added to the selector. Without one, nothing is counted.
    if !keys.is_empty() && !has(term, "labelSelector") {
        errors.forbidden(path, NO_SELECTOR);
        return;
    }
    for (i, key) in keys.into_iter().enumerate() {
        errors.invalid_each(&path.index(i), key, names::qualified_name(key));
    }
}

/// Checks that the author did not select by a key of `matchLabelKeys`, beside the requirement that
/// the strategy has added.
fn validate_no_own_requirement(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Of a key that is listed twice, the last place counts, as upstream.
    let places: HashMap<&str, usize> = texts(term, "matchLabelKeys").into_iter().zip(0..).collect();
    let selector = get(term, "labelSelector");
    let mut seen: HashSet<&str> = entries(selector, "matchLabels")
        .map(|(key, _)| key.as_str())
        .collect();
    for expression in list(selector, "matchExpressions") {
        let key = text(expression, "key");
        if !seen.insert(key)
            && let Some(i) = places.get(key)
        {
            errors.invalid(&path.index(*i), key, DOUBLE);
        }
    }
}

/// Validates `matchLabelKeys` by the rule before v1.34, when the scheduler added the keys.
pub fn validate_legacy_match_keys(constraint: &Value, path: &Path<'_>, errors: &mut Errors) {
    let keys = texts(constraint, "matchLabelKeys");
    let (selector, at) = (
        get(constraint, "labelSelector"),
        path.child("matchLabelKeys"),
    );
    if !keys.is_empty() && selector.is_null() {
        errors.forbidden(&at, NO_SELECTOR);
    }
    let expressions = list(selector, "matchExpressions").iter();
    let selected: HashSet<&str> = expressions.map(|e| text(e, "key")).collect();
    for (i, key) in keys.into_iter().enumerate() {
        errors.invalid_each(&at.index(i), key, names::qualified_name(key));
        let is_selected = get(selector, "matchLabels").get(key).is_some() || selected.contains(key);
        if is_selected {
            errors.invalid(&at.index(i), key, DOUBLE);
        }
    }
}

/// Returns whether a topology spread constraint violates the rule of new pods.
pub fn has_invalid_match_keys(spec: &Value) -> bool {
    let mut errors = Errors::default();
    for constraint in list(spec, "topologySpreadConstraints") {
        let alone = serde_json::json!({
            "matchLabelKeys": get(constraint, "matchLabelKeys"),
            "labelSelector": get(constraint, "labelSelector"),
        });
        validate_match_keys(&alone, &Path::ROOT, &mut errors);
    }
    !errors.is_empty()
}
