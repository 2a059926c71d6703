//! Tolerations, topology spread constraints, readiness and scheduling gates, and taints.

use crate::field::{Errors, Path};
use crate::rules;
use crate::selector;
use api_meta::names;
use api_meta::tree::{get, has, int, list, opt_text, text};
use serde_json::Value;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const UNSATISFIABLE: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];

/// Validates the tolerations of a pod or runtime class.
pub fn validate_tolerations(all: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, toleration) in all.iter().enumerate() {
        validate_toleration(toleration, &path.index(i), errors);
    }
}

fn validate_toleration(toleration: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
    let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
    let at = path.child("operator");
    if !key.is_empty() {
        errors.invalid_each(&path.child("key"), key, names::qualified_name(key));
    // An empty key tolerates every taint. With a value it would be unclear which key the value
    // belongs to.
    } else if operator != "Exists" {
        errors.invalid(
            &at,
            operator,
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        );
    }
    // Only NoExecute evicts; the other effects end with scheduling, where nothing lasts.
    if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
        errors.invalid(
            &path.child("effect"),
            effect,
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        );
    }
    match operator {
        "Equal" | "" => {
            let problems = names::label_value(value);
            if !problems.is_empty() {
                // The value of a taint is a label value, so any other value could never match.
                errors.invalid(&at, value, problems.join(";"));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                errors.invalid(
                    &at,
                    toleration.clone(),
                    "value must be empty when `operator` is 'Exists'",
                );
            }
        }
        other => errors.not_supported(&at, other, &["Equal", "Exists"]),
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        errors.not_supported(&path.child("effect"), effect, &EFFECTS);
    }
}

/// Validates topology spread constraints.
pub fn validate_spread_constraints(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (i, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        let at = path.index(i);
        let (key, when) = (
            text(constraint, "topologyKey"),
            text(constraint, "whenUnsatisfiable"),
        );
        let skew = int(constraint, "maxSkew").unwrap_or(0);
        // A skew of zero could not be satisfied by a number of pods that the domains do not divide.
        if skew <= 0 {
            errors.invalid(&at.child("maxSkew"), skew, rules::NOT_POSITIVE);
        }
        if key.is_empty() {
            errors.required(&at.child("topologyKey"), "can not be empty");
        }
        if !UNSATISFIABLE.contains(&when) {
            errors.not_supported(&at.child("whenUnsatisfiable"), when, &UNSATISFIABLE);
        }
        if seen.contains(&(key, when)) {
            errors.duplicate(
                &at.child("{topologyKey, whenUnsatisfiable}"),
                format!("{{{key}, {when}}}"),
            );
        }
        seen.push((key, when));
        validate_spread_constraint(constraint, when, &at, errors);
    }
}

fn validate_spread_constraint(
    constraint: &Value,
    when: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(domains) = int(constraint, "minDomains") {
        // Without DoNotSchedule the scheduler places the pod anyway, so a minimum of domains could
        // not be enforced.
        let at = path.child("minDomains");
        if domains <= 0 {
            errors.invalid(&at, domains, rules::NOT_POSITIVE);
        }
        if when != "DoNotSchedule" {
            errors.invalid(
                &at,
                domains,
                format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}"),
            );
        }
    }
    for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        rules::validate_one_of(constraint, field, &["Honor", "Ignore"], path, errors);
    }
    let keys = list(constraint, "matchLabelKeys");
    // The keys are added to the selector. Without one, nothing is counted (KEP-3243).
    if !keys.is_empty() && !has(constraint, "labelSelector") {
        errors.forbidden(
            &path.child("matchLabelKeys"),
            "must not be specified when labelSelector is not set",
        );
    }
    for (i, key) in keys.iter().enumerate() {
        let key = key.as_str().unwrap_or_default();
        errors.invalid_each(
            &path.child("matchLabelKeys").index(i),
            key,
            names::qualified_name(key),
        );
    }
    selector::validate_label_selector(
        get(constraint, "labelSelector"),
        &path.child("labelSelector"),
        errors,
    );
}

/// Validates readiness gates.
pub fn validate_readiness_gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, gate) in list(spec, "readinessGates").iter().enumerate() {
        super::probe::validate_qualified_name(
            text(gate, "conditionType"),
            &path.index(i).child("conditionType"),
            errors,
        );
    }
}

/// Validates scheduling gates.
pub fn validate_scheduling_gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        super::probe::validate_qualified_name(name, &path.index(i).child("name"), errors);
        if seen.contains(&name) {
            errors.duplicate(&path.index(i), name);
        }
        seen.push(name);
    }
}

/// Validates the taints of a node.
pub fn validate_taints(all: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (i, taint) in all.iter().enumerate() {
        let at = path.index(i);
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        errors.invalid_each(&at.child("key"), key, names::qualified_name(key));
        let value = opt_text(taint, "value").unwrap_or_default();
        errors.invalid_each(&at.child("value"), value, names::label_value(value));
        if effect.is_empty() {
            errors.required(&at.child("effect"), "");
        } else if !EFFECTS.contains(&effect) {
            errors.not_supported(&at.child("effect"), effect, &EFFECTS);
        }
        if seen.contains(&(key, effect)) {
            errors.duplicate(&at, taint.clone());
        }
        seen.push((key, effect));
    }
}
