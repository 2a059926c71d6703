//! Rules of webhooks and policies: which requests they see.

use crate::field::{Errors, Path};
use crate::rules;
use crate::selector;
use api_meta::names;
use api_meta::tree::{get, has, list, texts};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
/// A deleted object can't be changed.
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];

/// Validates a rule with its operations.
pub(super) fn validate_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let operations = texts(rule, "operations");
    let at = path.child("operations");
    validate_wildcard_list(&operations, "operations", &at, errors);
    for (i, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            errors.not_supported(&at.index(i), *operation, &OPERATIONS);
        }
    }
    let groups = texts(rule, "apiGroups");
    validate_wildcard_list(&groups, "API groups", &path.child("apiGroups"), errors);
    let versions = texts(rule, "apiVersions");
    let at = path.child("apiVersions");
    validate_wildcard_list(&versions, "API versions", &at, errors);
    // An empty group is the core group, but there is no empty version.
    for (i, _) in versions.iter().enumerate().filter(|(_, v)| v.is_empty()) {
        errors.required(&at.index(i), "");
    }
    validate_resources(&texts(rule, "resources"), &path.child("resources"), errors);
    rules::validate_one_of(rule, "scope", &SCOPES, path, errors);
}

/// A list beside the star looks narrower than it is, so upstream rejects it.
fn validate_wildcard_list(all: &[&str], what: &str, path: &Path<'_>, errors: &mut Errors) {
    if all.is_empty() {
        errors.required(path, "");
    }
    if all.len() > 1 && all.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.invalid(path, all.to_vec(), detail);
    }
}

fn validate_resources(all: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if all.is_empty() {
        errors.required(path, "");
    }
    let (mut resources, mut subresources) = (BTreeSet::new(), BTreeSet::new());
    // As upstream, the last name without a subresource decides.
    let mut is_last_plain = false;
    for (i, name) in all.iter().enumerate() {
        let at = path.index(i);
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        let Some((resource, sub)) = name.split_once('/') else {
            is_last_plain = *name != "*";
            continue;
        };
        // Upstream reads the list once, so only names that follow the covering wildcard are
        // reported.
        if resources.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {name}");
            errors.invalid(&at, *name, detail);
        }
        if subresources.contains(sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {name}");
            errors.invalid(&at, *name, detail);
        }
        if sub == "*" {
            resources.insert(resource);
        }
        if resource == "*" {
            subresources.insert(sub);
        }
    }
    if all.len() > 1 && all.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.invalid(path, all.to_vec(), detail);
    }
    // The star covers resources without their subresources: `*` beside `pods/log` is not redundant.
    if all.contains(&"*") && is_last_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, all.to_vec(), detail);
    }
}

/// Validates which objects a policy or binding applies to.
pub(super) fn validate_match_resources(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    if has(resources, "matchPolicy") {
        rules::validate_one_of(resources, "matchPolicy", &MATCH_POLICIES, path, errors);
    } else {
        errors.required(&path.child("matchPolicy"), "");
    }
    for field in ["namespaceSelector", "objectSelector"] {
        if !has(resources, field) {
            errors.required(&path.child(field), "");
        }
        selector::validate_label_selector(get(resources, field), &path.child(field), errors);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        let at = path.child(field);
        for (i, rule) in list(resources, field).iter().enumerate() {
            validate_named_rule(rule, &at.index(i), errors);
        }
    }
}

fn validate_named_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    // A rule may match any resource, so the names have to pass only the weakest rule of all kinds.
    let all = texts(rule, "resourceNames");
    let at = path.child("resourceNames");
    let mut seen = HashSet::new();
    for (i, name) in all.iter().enumerate() {
        errors.invalid_each(&at.index(i), name, names::path_segment(name));
        if !seen.insert(*name) {
            errors.duplicate(&at.index(i), *name);
        }
    }
    validate_rule(rule, path, errors);
}

/// Checks that rules of a mutating policy have only operations whose object can be changed.
pub(super) fn validate_mutating_operations(
    resources: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.child("resourceRules");
    for rule in list(resources, "resourceRules") {
        for operation in texts(rule, "operations") {
            if !MUTATING_OPERATIONS.contains(&operation) {
                errors.not_supported(&at.child("operations"), operation, &MUTATING_OPERATIONS);
            }
        }
    }
}
