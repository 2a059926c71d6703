//! Tolerations, topology spread constraints, readiness and scheduling gates, and taints.

use super::match_keys;
use super::options::PodOptions;
use crate::field::{Errors, Path};
use crate::rules;
use crate::selector;
use api_meta::names;
use api_meta::tree::{get, has, int, list, opt_text, text};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const NOT_POSITIVE: &str = "must be greater than zero";
const UNSATISFIABLE: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];

/// Validates the tolerations of a runtime class.
pub fn validate_tolerations(all: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, toleration) in all.iter().enumerate() {
        validate_toleration(toleration, false, &path.index(i), errors);
    }
}

/// Validates the tolerations of a pod.
pub fn validate_pod_tolerations(
    spec: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.child("tolerations");
    for (i, toleration) in list(spec, "tolerations").iter().enumerate() {
        validate_toleration(
            toleration,
            options.comparison_operators,
            &at.index(i),
            errors,
        );
    }
}

fn validate_toleration(toleration: &Value, compares: bool, path: &Path<'_>, errors: &mut Errors) {
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
                    value,
                    "value must be empty when `operator` is 'Exists'",
                );
            }
        }
        "Lt" | "Gt" if compares => validate_number(value, &path.child("value"), errors),
        // Comparing taints needs TaintTolerationComparisonOperators, an alpha feature of v1.36.
        "Lt" | "Gt" => errors.not_supported(&at, operator, &["Equal", "Exists", "Lt", "Gt"]),
        other => errors.not_supported(&at, other, &["Equal", "Exists"]),
    }
    // An empty effect matches all effects.
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        errors.not_supported(&path.child("effect"), effect, &EFFECTS);
    }
}

fn validate_number(value: &str, path: &Path<'_>, errors: &mut Errors) {
    // The scheduler compares text of taints as numbers. A canonical form makes equal numbers equal
    // labels.
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_decimal = !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && (digits == "0" && value == "0" || !digits.starts_with('0'));
    if !is_decimal {
        let detail = "must be a valid decimal integer in canonical form";
        errors.invalid(path, value, detail);
    }
    // Upstream reports the form and the parser's error separately, so a malformed number has two
    // errors.
    if value.parse::<i64>().is_err() {
        let quoted = crate::field::go_quote(value);
        let why = if is_decimal {
            "value out of range"
        } else {
            "invalid syntax"
        };
        errors.invalid(
            path,
            value,
            format!("strconv.ParseInt: parsing {quoted}: {why}"),
        );
    }
}

/// Validates topology spread constraints.
pub fn validate_spread_constraints(
    spec: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let all = list(spec, "topologySpreadConstraints");
    // Two constraints for one domain and action could demand different skews, so the pair is the
    // key.
    let kind = |constraint| {
        (
            text(constraint, "topologyKey"),
            text(constraint, "whenUnsatisfiable"),
        )
    };
    let last: HashMap<_, usize> = (0..).zip(all).map(|(i, c)| (kind(c), i)).collect();
    for (i, constraint) in all.iter().enumerate() {
        let at = path.index(i);
        let (key, when) = kind(constraint);
        let skew = int(constraint, "maxSkew").unwrap_or(0);
        // A skew of zero could not be satisfied by a number of pods that the domains do not divide.
        if skew <= 0 {
            errors.invalid(&at.child("maxSkew"), skew, NOT_POSITIVE);
        }
        if key.is_empty() {
            errors.required(&at.child("topologyKey"), "can not be empty");
        }
        if !UNSATISFIABLE.contains(&when) {
            errors.not_supported(&at.child("whenUnsatisfiable"), when, &UNSATISFIABLE);
        }
        // The first of two equal constraints is reported, as in upstream.
        if last.get(&(key, when)).is_some_and(|last| *last > i) {
            let at = at.child("{topologyKey, whenUnsatisfiable}");
            errors.duplicate(&at, format!("{{{key}, {when}}}"));
        }
        validate_spread_constraint(constraint, when, options, &at, errors);
    }
}

fn validate_spread_constraint(
    constraint: &Value,
    when: &str,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(domains) = int(constraint, "minDomains") {
        // Without DoNotSchedule the scheduler places the pod anyway, so a minimum of domains could
        // not be enforced.
        let at = path.child("minDomains");
        if domains <= 0 {
            errors.invalid(&at, domains, NOT_POSITIVE);
        }
        if when != "DoNotSchedule" {
            let detail =
                format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}");
            errors.invalid(&at, domains, detail);
        }
    }
    for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        rules::validate_one_of(constraint, field, &["Honor", "Ignore"], path, errors);
    }
    if options.legacy_match_label_keys {
        match_keys::validate_legacy_match_keys(constraint, path, errors);
    } else {
        match_keys::validate_match_keys(constraint, path, errors);
    }
    if !options.invalid_spread_selectors {
        let at = path.child("labelSelector");
        selector::validate_label_selector(get(constraint, "labelSelector"), &at, errors);
    }
}

/// Returns whether a selector of a topology spread constraint is invalid.
pub fn has_invalid_spread_selectors(spec: &Value) -> bool {
    // The errors are counted only, so their paths don't matter.
    let mut errors = Errors::default();
    for constraint in list(spec, "topologySpreadConstraints") {
        let selector = get(constraint, "labelSelector");
        selector::validate_label_selector(selector, &Path::ROOT, &mut errors);
    }
    !errors.is_empty()
}

/// Validates readiness gates.
pub fn validate_readiness_gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, gate) in list(spec, "readinessGates").iter().enumerate() {
        let (name, at) = (text(gate, "conditionType"), path.index(i));
        errors.invalid_each(
            &at.child("conditionType"),
            name,
            names::qualified_name(name),
        );
    }
}

/// Validates scheduling gates.
pub fn validate_scheduling_gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        errors.invalid_each(&path.index(i), name, names::qualified_name(name));
        if seen.contains(&name) {
            errors.duplicate(&path.index(i), name);
        }
        seen.insert(name);
    }
}

/// Validates the taints of a node.
pub fn validate_taints(all: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen: HashSet<(&str, &str)> = HashSet::new();
    for (i, taint) in all.iter().enumerate() {
        let at = path.index(i);
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        errors.invalid_each(&at.child("key"), key, names::qualified_name(key));
        let value = opt_text(taint, "value").unwrap_or_default();
        let problems = names::label_value(value);
        if !problems.is_empty() {
            errors.invalid(&at.child("value"), value, problems.join(";"));
        }
        if effect.is_empty() {
            errors.required(&at.child("effect"), "");
        } else if !EFFECTS.contains(&effect) {
            errors.not_supported(&at.child("effect"), effect, &EFFECTS);
        }
        // The value is no part of the identity: `kubectl taint` replaces it by key and effect.
        if seen.contains(&(key, effect)) {
            let detail = "taints must be unique by key and effect pair";
            errors.duplicate_because(&at, taint.clone(), detail);
        }
        seen.insert((key, effect));
    }
}
