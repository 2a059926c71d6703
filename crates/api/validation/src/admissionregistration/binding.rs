//! Bindings of admission policies.

use super::rule::{validate_match_resources, validate_mutating_operations};
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::selector;
use api_meta::names;
use api_meta::tree::{get, has, text, texts};
use serde_json::Value;
use std::collections::HashSet;

/// Rules of bindings of validating policies, which also specify the actions on a violation.
pub const VALIDATING_BINDING: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_validating_binding,
    update: |new, _, e| validate_validating_binding(new, e),
    sub: accept_subresource,
};
/// Rules of bindings of mutating policies.
pub const MUTATING_BINDING: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_mutating_binding,
    update: |new, _, e| validate_mutating_binding(new, e),
    sub: accept_subresource,
};

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const EXCLUSIVE: &str = "name and selector are mutually exclusive";

fn validate_binding(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    // The policy need not exist yet: policies and bindings may be created in any order.
    let at = path.child("policyName");
    match text(spec, "policyName") {
        "" => errors.required(&at, ""),
        name => errors.invalid_each(&at, name, names::dns1123_subdomain(name)),
    }
    if has(spec, "paramRef") {
        validate_param_ref(get(spec, "paramRef"), &path.child("paramRef"), errors);
    }
    if has(spec, "matchResources") {
        let at = path.child("matchResources");
        validate_match_resources(get(spec, "matchResources"), &at, errors);
    }
}

fn validate_param_ref(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, selector) = (text(reference, "name"), get(reference, "selector"));
    let is_both = !name.is_empty() && !selector.is_null();
    // The parameter's kind is not known here, so its name has to pass only the rule that holds for
    // all kinds.
    errors.invalid_each(&path.child("name"), name, names::path_segment(name));
    if is_both {
        errors.forbidden(&path.child("name"), EXCLUSIVE);
    }
    selector::validate_label_selector(selector, &path.child("selector"), errors);
    if is_both {
        errors.forbidden(&path.child("selector"), EXCLUSIVE);
    }
    // An empty selector is different from none: it selects all parameters in the namespace.
    if name.is_empty() && selector.is_null() {
        errors.required(path, "one of name or selector must be specified");
    }
    // Upstream has no default for this field: the author decides whether a deleted parameter opens
    // the gate or closes it.
    let at = path.child("parameterNotFoundAction");
    match text(reference, "parameterNotFoundAction") {
        "" => errors.required(&at, ""),
        "Allow" | "Deny" => {}
        other => errors.not_supported(&at, other, &["Deny", "Allow"]),
    }
}

fn validate_mutating_binding(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    validate_binding(spec, &path, errors);
    let at = path.child("matchResources");
    validate_mutating_operations(get(spec, "matchResources"), &at, errors);
}

fn validate_validating_binding(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    validate_binding(spec, &path, errors);
    let all = texts(spec, "validationActions");
    let at = path.child("validationActions");
    let mut seen = HashSet::new();
    for (i, action) in all.iter().enumerate() {
        if !ACTIONS.contains(action) {
            errors.not_supported(&at.index(i), *action, &ACTIONS);
        }
        if !seen.insert(*action) {
            errors.duplicate(&at.index(i), *action);
        }
    }
    // A binding without actions would evaluate its policy for each request without any effect.
    if all.is_empty() {
        errors.required(&at, "at least one validation action is required");
    }
    // The same message would come twice to the client.
    if all.contains(&"Deny") && all.contains(&"Warn") {
        errors.invalid(&at, all, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)");
    }
}
