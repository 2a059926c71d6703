//! ResourceQuotas.

use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use crate::pod::{validate_resource_quantity, validate_standard_name};
use crate::rules;
use api_meta::tree::{entries, get, list, text, texts};
use api_semantics::quantities::parse_quantity;
use serde_json::Value;
use std::collections::BTreeSet;

pub const RESOURCE_QUOTA: Rules = Rules {
    name: NameRule::Subdomain,
    create: |object, errors| {
        validate_quota_spec(object, errors);
        validate_quota_status(object, errors);
    },
    update: validate_quota_update,
    sub: |_, new, _, errors| validate_quota_status(new, errors),
};

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
/// Pods are in exactly one scope of each pair.
const CONFLICTS: [[&str; 2]; 2] = [
    ["BestEffort", "NotBestEffort"],
    ["Terminating", "NotTerminating"],
];
const COMPUTE: [&str; 6] = [
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
];
const OTHERS: [&str; 13] = [
    "ephemeral-storage",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
/// Most scopes that are checked, and resources that are reported: each error shows the whole list.
const MOST_SHOWN: usize = 16;
const EXISTS_ONLY: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";

fn is_quota_resource(name: &str) -> bool {
    // Limits of huge pages equal their requests, so a quota counts the requests only.
    let huge = ["hugepages-", "requests.hugepages-"];
    COMPUTE.contains(&name) || OTHERS.contains(&name) || huge.iter().any(|p| name.starts_with(p))
}

fn scope_allows(scope: &str, name: &str) -> bool {
    match scope {
        // Best-effort pods request nothing, so only their number can be limited.
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&name),
        scope if SCOPES.contains(&scope) => name == "pods" || COMPUTE.contains(&name),
        _ => true,
    }
}

fn validate_quota_spec(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    validate_amounts(spec, "hard", &path, errors);
    validate_scopes(spec, &path.child("scopes"), errors);
    validate_scope_selector(spec, &path.child("scopeSelector"), errors);
}

fn validate_quota_status(object: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("status");
    for field in ["hard", "used"] {
        validate_amounts(get(object, "status"), field, &path, errors);
    }
}

fn validate_amounts(parent: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child(field);
    for (name, value) in entries(parent, field) {
        let at = path.key(name);
        validate_standard_name(name, &at, errors);
        // A name with a slash may be an extended resource or a count of objects, as in
        // `count/deployments.apps`.
        if !name.contains('/') && !is_quota_resource(name) {
            errors.invalid(&at, name.as_str(), "must be a standard resource for quota");
        }
        let Some(amount) = parse_quantity(value) else {
            continue;
        };
        validate_resource_quantity(name, amount, value, &at, errors);
    }
}

/// Returns the limited resources that the quota can't count within the scope.
fn misplaced_resources<'a>(spec: &'a Value, scope: &'a str) -> impl Iterator<Item = &'a String> {
    // Resources of other domains can be in any scope, since the server doesn't know what they
    // count.
    entries(spec, "hard")
        .map(|(name, _)| name)
        .filter(move |name| is_quota_resource(name) && !scope_allows(scope, name))
        .take(MOST_SHOWN)
}

fn validate_scopes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = texts(spec, "scopes");
    for scope in all.iter().take(MOST_SHOWN) {
        // Unknown scopes match no pod, so the quota would limit nothing.
        if !SCOPES.contains(scope) {
            errors.invalid(path, all.clone(), "unsupported scope");
        }
        for _ in misplaced_resources(spec, scope) {
            errors.invalid(path, all.clone(), "unsupported scope applied to resource");
        }
    }
    // No pod is in both, so the quota would limit nothing.
    for pair in CONFLICTS {
        if pair.iter().all(|scope| all.contains(scope)) {
            errors.invalid(path, all.clone(), "conflicting scopes");
        }
    }
}

fn validate_scope_selector(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let selector = get(spec, "scopeSelector");
    let path = path.child("matchExpressions");
    let all = list(selector, "matchExpressions");
    for requirement in all.iter().take(MOST_SHOWN) {
        let scope = text(requirement, "scopeName");
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.child("scopeName"), scope, "unsupported scope");
        }
        for _ in misplaced_resources(spec, scope) {
            let detail = "unsupported scope applied to resource";
            errors.invalid(&path, selector.clone(), detail);
        }
        validate_scope_operator(requirement, scope, &path, errors);
    }
    for pair in CONFLICTS {
        let names = |scope: &&str| all.iter().any(|r| text(r, "scopeName") == *scope);
        if pair.iter().all(names) {
            // Upstream shows the plain scopes here, although the conflict is in the selector.
            errors.invalid(&path, get(spec, "scopes").clone(), "conflicting scopes");
        }
    }
}

fn validate_scope_operator(requirement: &Value, scope: &str, path: &Path<'_>, errors: &mut Errors) {
    let operator = text(requirement, "operator");
    // Only the scopes of classes have values.
    let valued = ["PriorityClass", "VolumeAttributesClass"].contains(&scope);
    if SCOPES.contains(&scope) && !valued && operator != "Exists" {
        errors.invalid(&path.child("operator"), operator, EXISTS_ONLY);
    }
    let empty = list(requirement, "values").is_empty();
    let at = path.child("values");
    // Operators have the rules of label selectors, because the quota converts them into one.
    match operator {
        "In" | "NotIn" if empty => errors.required(
            &at,
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        ),
        "Exists" | "DoesNotExist" if !empty => errors.invalid(
            &at,
            get(requirement, "values").clone(),
            "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        ),
    }
}

fn validate_quota_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_quota_spec(new, errors);
    // The order does not matter, so a client may sort the list.
    let scopes =
        |object| -> BTreeSet<&str> { texts(get(object, "spec"), "scopes").into_iter().collect() };
    // The usage in the status counts pods of the old scopes.
    if scopes(new) != scopes(old) {
        let spec = Path::ROOT.child("spec");
        errors.invalid(
            &spec.child("scopes"),
            get(get(new, "spec"), "scopes").clone(),
            rules::IMMUTABLE,
        );
    }
}
