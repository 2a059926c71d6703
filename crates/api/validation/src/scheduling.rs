//! PriorityClasses, Workloads and PodGroups.

mod groups;

pub use groups::{POD_GROUP, WORKLOAD};

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use api_meta::tree::{flag, get, has, int, same, text};
use serde_json::Value;

pub const PRIORITY_CLASS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_priority_class,
    update: validate_priority_class_update,
    sub: accept_subresource,
};

// Priorities above are reserved for the system classes, so that no user's pod can preempt the
// control plane.
const HIGHEST: i64 = 1_000_000_000;
const SYSTEM: [(&str, i64); 2] = [
    ("system-cluster-critical", 2 * HIGHEST),
    ("system-node-critical", 2 * HIGHEST + 1000),
];

fn validate_priority_class(object: &Value, errors: &mut Errors) {
    let name = text(get(object, "metadata"), "name");
    // Negative values are valid: such pods are preempted even for pods without a class.
    let value = int(object, "value").unwrap_or(0);
    if name.starts_with("system-") {
        validate_system_class(name, value, flag(object, "globalDefault"), errors);
    } else if value > HIGHEST {
        errors.forbidden(
            &Path::ROOT.child("value"),
            format!("maximum allowed value of a user defined priority is {HIGHEST}"),
        );
    }
    if has(object, "preemptionPolicy") {
        let known = ["PreemptLowerPriority", "Never"];
        rules::validate_required_one_of(object, "preemptionPolicy", &known, &Path::ROOT, errors);
    }
}

/// The API server creates the two system classes itself, and they must pass this check.
fn validate_system_class(name: &str, value: i64, is_default: bool, errors: &mut Errors) {
    let why = match SYSTEM.iter().find(|(known, _)| *known == name) {
        None => format!("{name} is not a known system priority class"),
        Some((_, known)) if *known != value => {
            format!("value of {name} PriorityClass must be {known}")
        }
        Some(_) if is_default => format!("globalDefault of {name} PriorityClass must be false"),
        Some(_) => return,
    };
    // Upstream reports the reserved name whatever is wrong with the class.
    let metadata = Path::ROOT.child("metadata");
    errors.forbidden(&metadata.child("name"), format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}"));
}

// Pods have a copy of the value, so a change would reach new pods only.
fn validate_priority_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    if int(new, "value") != int(old, "value") {
        errors.forbidden(
            &Path::ROOT.child("value"),
            "may not be changed in an update.",
        );
    }
    if !same(new, old, "preemptionPolicy") {
        rules::validate_immutable(new, old, "preemptionPolicy", &Path::ROOT, errors);
    }
}
