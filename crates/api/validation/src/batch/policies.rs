//! Failure and success policies of jobs.

use super::indexes::count_indexes;
use crate::field::{Errors, FieldError, Path};
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, int, list, opt_text, text};
use serde_json::{Value, json};
use std::collections::HashSet;

// Every failed pod is compared with every rule.
const RULES: usize = 20;
// An exit code has one byte, and zero is success.
const EXIT_CODES: usize = 255;
const CONDITIONS: usize = 20;
// The text is parsed at each sync of the job, and it is a part of each watch event.
const INDEXES: usize = 64 * 1024;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// Adds an error whose message does not show the value.
pub(super) fn reject_unshown(path: &Path<'_>, detail: impl Into<String>, errors: &mut Errors) {
    errors.0.push(FieldError {
        kind: crate::field::ErrorKind::Invalid,
        field: path.to_string(),
        value: None,
        detail: detail.into(),
    });
}

/// Requires one of the known values, which the message lists in Go's form of a list.
fn require_known(value: &str, known: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if value.is_empty() {
        let quoted: Vec<String> = known.iter().map(|k| crate::field::go_quote(k)).collect();
        errors.required(path, format!("valid values: [{}]", quoted.join(" ")));
    } else if !known.contains(&value) {
        errors.not_supported(path, value, known);
    }
}

/// Validates `podFailurePolicy` (KEP-3329).
pub(super) fn validate_failure_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules_ = list(get(spec, "podFailurePolicy"), "rules");
    let at = path.child("rules");
    if rules_.len() > RULES {
        errors.too_many(&at, rules_.len(), RULES);
    }
    for (i, rule) in rules_.iter().enumerate() {
        let at = at.index(i);
        let action = text(rule, "action");
        // The action ends the retries of one index, which only exist with a limit for each.
        if action != "FailIndex" {
            require_known(action, &ACTIONS, &at.child("action"), errors);
        } else if !has(spec, "backoffLimitPerIndex") {
            let detail = "requires the backoffLimitPerIndex to be set";
            errors.invalid(&at.child("action"), action, detail);
        }
        // A rule with both would not say whether one match is enough.
        let has_codes = has(rule, "onExitCodes");
        let has_conditions = !list(rule, "onPodConditions").is_empty();
        if has_codes {
            let codes = get(rule, "onExitCodes");
            validate_exit_codes(codes, spec, &at.child("onExitCodes"), errors);
        }
        validate_pod_conditions(rule, &at.child("onPodConditions"), errors);
        if has_codes && has_conditions {
            let detail = "specifying both OnExitCodes and OnPodConditions is not supported";
            reject_unshown(&at, detail, errors);
        } else if !has_codes && !has_conditions {
            let detail = "specifying one of OnExitCodes and OnPodConditions is required";
            reject_unshown(&at, detail, errors);
        }
    }
}

fn validate_exit_codes(codes: &Value, spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let operator = text(codes, "operator");
    require_known(operator, &OPERATORS, &path.child("operator"), errors);
    let pod = get(get(spec, "template"), "spec");
    // A misspelt name would never match, and the failures would be retried silently.
    if let Some(name) = opt_text(codes, "containerName") {
        let mut all = ["containers", "initContainers"]
            .iter()
            .flat_map(|field| list(pod, field));
        if !all.any(|container| text(container, "name") == name) {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.invalid(&path.child("containerName"), name, detail);
        }
    }
    let (values, at) = (list(codes, "values"), path.child("values"));
    if values.is_empty() {
        errors.invalid(&at, json!([]), "at least one value is required");
    } else if values.len() > EXIT_CODES {
        errors.too_many(&at, values.len(), EXIT_CODES);
    }
    let mut seen = HashSet::new();
    let (mut is_ordered, mut before) = (true, i64::MIN);
    for (i, value) in values.iter().enumerate() {
        let n = value.as_i64().unwrap_or(0);
        // Zero is success, which no failure policy is asked about.
        if n == 0 && operator == "In" {
            errors.invalid(&at.index(i), n, "must not be 0 for the In operator");
        }
        is_ordered &= before <= n;
        before = n;
        if !seen.insert(n) {
            errors.duplicate(&at.index(i), n);
        }
    }
    // Ordered values make the list a set: equal policies are equal objects.
    if !is_ordered {
        errors.invalid(&at, values.to_vec(), "must be ordered");
    }
}

fn validate_pod_conditions(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = list(rule, "onPodConditions");
    if all.len() > CONDITIONS {
        errors.too_many(path, all.len(), CONDITIONS);
    }
    for (i, condition) in all.iter().enumerate() {
        let at = path.index(i);
        let kind = text(condition, "type");
        errors.invalid_each(&at.child("type"), kind, names::qualified_name(kind));
        require_known(
            text(condition, "status"),
            &STATUSES,
            &at.child("status"),
            errors,
        );
    }
}

/// Validates `successPolicy` (KEP-3998).
pub(super) fn validate_success_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(spec, "successPolicy") {
        return;
    }
    let policy = get(spec, "successPolicy");
    if text(spec, "completionMode") != "Indexed" {
        // Success is defined by indexes. Without them, the rest of the policy can't be judged.
        errors.invalid(path, policy.clone(), "requires indexed completion mode");
        return;
    }
    let rules_ = list(policy, "rules");
    let at = path.child("rules");
    if rules_.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(&at, detail);
    }
    // The first rule that matches ends the job, so the controller evaluates them at each sync.
    if rules_.len() > RULES {
        errors.too_many(&at, rules_.len(), RULES);
    }
    // A missing number of completions is reported elsewhere.
    let completions = int(spec, "completions").unwrap_or(i64::from(i32::MAX));
    for (i, rule) in rules_.iter().enumerate() {
        validate_success_rule(rule, completions, &at.index(i), errors);
    }
}

fn validate_success_rule(rule: &Value, completions: i64, path: &Path<'_>, errors: &mut Errors) {
    let (count, indexes) = (
        int(rule, "succeededCount"),
        opt_text(rule, "succeededIndexes"),
    );
    if count.is_none() && indexes.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.required(path, detail);
    }
    let mut total = 0;
    if let Some(indexes) = indexes {
        let at = path.child("succeededIndexes");
        // The text is still parsed: the parser is linear, and the request's size bounds it.
        if indexes.len() > INDEXES {
            errors.too_long(&at, INDEXES);
        }
        match count_indexes(indexes, completions) {
            Ok(n) => total = n,
            Err(why) => {
                errors.invalid(
                    &at,
                    indexes,
                    format!("error parsing succeededIndexes: {why}"),
                );
            }
        }
    }
    let Some(count) = count else {
        return;
    };
    rules::validate_non_negative(rule, "succeededCount", path, errors);
    let at = path.child("succeededCount");
    if count > completions {
        let detail = format!(
            "must be less than or equal to {completions} (the number of specified completions)"
        );
        errors.invalid(&at, count, detail);
    }
    // More successes than listed indexes could never occur, so the job would not end by this rule.
    if indexes.is_some() && count > total {
        let detail = format!(
            "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        );
        errors.invalid(&at, count, detail);
    }
}
