//! PodDisruptionBudgets.

use crate::dispatch::{Rules, no_sub};
use crate::field::{Errors, Path};
use crate::metadata::NameRule;
use crate::rules;
use crate::selector;
use crate::tree::{get, has};
use serde_json::Value;

pub const BUDGET: Rules = Rules {
    name: NameRule::Subdomain,
    create: budget,
    update: |new, _, e| budget(new, e),
    sub: no_sub,
};

fn budget(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
        errors.invalid(
            &path,
            spec.clone(),
            "minAvailable and maxUnavailable cannot be both set",
        );
    }
    for field in ["minAvailable", "maxUnavailable"] {
        rules::non_negative_or_percent(get(spec, field), &path.child(field), errors);
        rules::at_most_100_percent(get(spec, field), &path.child(field), errors);
    }
    selector::validate(get(spec, "selector"), &path.child("selector"), errors);
    rules::one_of(
        spec,
        "unhealthyPodEvictionPolicy",
        &["AlwaysAllow", "IfHealthyBudget"],
        &path,
        errors,
    );
}
