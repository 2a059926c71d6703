//! PodDisruptionBudgets.

use crate::conditions::validate_conditions;
use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use crate::rules;
use crate::selector;
use api_meta::tree::{get, has, opt};
use serde_json::Value;

pub const BUDGET: Rules = Rules {
    // Upstream has no rule of its own for these names.
    name: NameRule::PathSegment,
    create: |new, errors| validate_disruption_budget(new, false, errors),
    update: |new, old, errors| {
        let labels = get(get(old, "spec"), "selector");
        validate_disruption_budget(new, selector::has_invalid_values(labels), errors);
    },
    sub: |_, new, _, errors| validate_budget_status(new, errors),
};

// Both bounds together could contradict each other after a change of the replicas.
fn validate_disruption_budget(object: &Value, invalid_values: bool, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.invalid(&path, spec.clone(), detail);
    }
    // A percentage above 100 could never be reached, so it would block each eviction and each drain
    // of a node.
    for field in ["minAvailable", "maxUnavailable"] {
        if let Some(value) = opt(spec, field) {
            let at = path.child(field);
            rules::validate_non_negative_or_percent(value, &at, errors);
            rules::validate_at_most_100_percent(value, &at, errors);
        }
    }
    // The selector may be empty or absent: the first selects all pods of the namespace, the second
    // none.
    let at = path.child("selector");
    selector::validate_selector_leniently(get(spec, "selector"), invalid_values, &at, errors);
    let known = ["AlwaysAllow", "IfHealthyBudget"];
    rules::validate_one_of(spec, "unhealthyPodEvictionPolicy", &known, &path, errors);
}

fn validate_budget_status(object: &Value, errors: &mut Errors) {
    let (status, path) = (get(object, "status"), Path::ROOT.child("status"));
    validate_conditions(status, &path.child("conditions"), errors);
    // The eviction API subtracts from the status, so a negative number would be a wrong answer to
    // all clients.
    for field in [
        "disruptionsAllowed",
        "currentHealthy",
        "desiredHealthy",
        "expectedPods",
    ] {
        rules::validate_non_negative(status, field, &path, errors);
    }
}
