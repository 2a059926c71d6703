//! PodDisruptionBudgets.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use crate::selector;
use api_meta::tree::{get, has};
use serde_json::Value;

pub const BUDGET: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_disruption_budget,
    update: |new, _, e| validate_disruption_budget(new, e),
    sub: accept_subresource,
};

// Both bounds together could contradict each other after a change of the replicas.
fn validate_disruption_budget(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
        errors.invalid(
            &path,
            spec.clone(),
            "minAvailable and maxUnavailable cannot be both set",
        );
    }
    for field in ["minAvailable", "maxUnavailable"] {
        rules::validate_non_negative_or_percent(get(spec, field), &path.child(field), errors);
        rules::validate_at_most_100_percent(get(spec, field), &path.child(field), errors);
    }
    selector::validate_label_selector(get(spec, "selector"), &path.child("selector"), errors);
    rules::validate_one_of(
        spec,
        "unhealthyPodEvictionPolicy",
        &["AlwaysAllow", "IfHealthyBudget"],
        &path,
        errors,
    );
}
