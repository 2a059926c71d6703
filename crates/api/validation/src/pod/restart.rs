//! Restart policies of containers and their rules (KEP-5307).

use crate::field::{Errors, Path};
use api_meta::tree::{get, has, list, opt_text, text};
use serde_json::Value;

const POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const RULES: usize = 20;
const EXIT_CODES: usize = 255;

/// Validates `restartPolicy` and `restartPolicyRules` of a container or init container.
pub fn validate_container_restart(
    container: &Value,
    is_init: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let rules = list(container, "restartPolicyRules");
    let at = path.child("restartPolicy");
    match opt_text(container, "restartPolicy") {
        None if rules.is_empty() => return,
        None => {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.required(&at, detail);
            // Upstream ends here for init containers, whose rules mean nothing without a policy.
            if is_init {
                return;
            }
        }
        Some(policy) if !POLICIES.contains(&policy) => errors.not_supported(&at, policy, &POLICIES),
        Some(_) => {}
    }
    let at = path.child("restartPolicyRules");
    if rules.len() > RULES {
        errors.too_many(&at, rules.len(), RULES);
    }
    for (i, rule) in rules.iter().enumerate() {
        validate_restart_rule(rule, &at.index(i), errors);
    }
}

fn validate_restart_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let action = text(rule, "action");
    if !ACTIONS.contains(&action) {
        errors.not_supported(&path.child("action"), action, &ACTIONS);
    }
    let at = path.child("exitCodes");
    if !has(rule, "exitCodes") {
        errors.required(&at, "must be specified");
        return;
    }
    let codes = get(rule, "exitCodes");
    let operator = text(codes, "operator");
    if !OPERATORS.contains(&operator) {
        errors.not_supported(&at.child("operator"), operator, &OPERATORS);
    }
    let count = list(codes, "values").len();
    if count > EXIT_CODES {
        errors.too_many(&at.child("values"), count, EXIT_CODES);
    }
}

/// Returns whether a container restarts after an exit with a code.
pub fn restarts_after(container: &Value, pod_policy: &str, code: i64) -> bool {
    let policy = opt_text(container, "restartPolicy");
    // Rules count only beside a policy of the container.
    if policy.is_some()
        && list(container, "restartPolicyRules")
            .iter()
            .any(|r| matches(r, code))
    {
        return true;
    }
    match policy
        .filter(|p| POLICIES.contains(p))
        .unwrap_or(pod_policy)
    {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    }
}

fn matches(rule: &Value, code: i64) -> bool {
    let codes = get(rule, "exitCodes");
    let is_listed = list(codes, "values")
        .iter()
        .any(|v| v.as_i64() == Some(code));
    match text(codes, "operator") {
        "In" => is_listed,
        "NotIn" => !is_listed,
        _ => false,
    }
}

/// Returns whether a rule of any container restarts all of them.
pub fn may_restart_all(spec: &Value) -> bool {
    let restarts_all = |container: &Value| {
        let mut rules = list(container, "restartPolicyRules").iter();
        rules.any(|rule| text(rule, "action") == "RestartAllContainers")
    };
    ["initContainers", "containers"]
        .iter()
        .any(|field| list(spec, field).iter().any(restarts_all))
}
