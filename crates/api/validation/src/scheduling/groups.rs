//! Workloads and PodGroups (KEP-4671). Fields of gates that are off (topology, claims, preemption)
//! are dropped from new objects. A stored object may have them, and then they do not change.

use crate::conditions::validate_conditions;
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules::{IMMUTABLE, NameCheck, reject_hidden_changes, validate_minimum};
use api_meta::names;
use api_meta::tree::{get, has, int, list, opt, opt_text, same, text};
use serde_json::Value;
use std::collections::HashSet;

/// Rules of Workloads.
pub const WORKLOAD: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_workload,
    update: validate_workload_update,
    sub: accept_subresource,
};

/// Rules of PodGroups.
pub const POD_GROUP: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_group,
    update: validate_group_update,
    sub: |_, new, _, errors| validate_group_status(new, errors),
};

// Upstream's limits.
const MOST_TEMPLATES: usize = 8;
const MOST_CLAIMS: usize = 4;
/// Members of a scheduling policy, of which exactly one is set.
const POLICIES: [&str; 2] = ["basic", "gang"];

fn validate_workload(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    if let Some(owner) = opt(spec, "controllerRef") {
        let at = path.child("controllerRef");
        if let Some(group) = opt_text(owner, "apiGroup").filter(|group| !group.is_empty()) {
            errors.invalid_each(
                &at.child("apiGroup"),
                group,
                names::dns1123_subdomain(group),
            );
        }
        for field in ["kind", "name"] {
            validate_name(owner, field, names::path_segment, &at, errors);
        }
    }
    let (templates, at) = (
        list(spec, "podGroupTemplates"),
        path.child("podGroupTemplates"),
    );
    match templates.len() {
        0 => return errors.required(&at, ""),
        count if count > MOST_TEMPLATES => return errors.too_many(&at, count, MOST_TEMPLATES),
        _ => {}
    }
    reject_duplicates(templates, &at, errors);
    for (i, template) in templates.iter().enumerate() {
        let at = at.index(i);
        validate_name(template, "name", names::dns1123_label, &at, errors);
        let policy = get(template, "schedulingPolicy");
        validate_policy(policy, &at.child("schedulingPolicy"), errors);
    }
}

fn validate_group(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    if let Some(reference) = opt(spec, "podGroupTemplateRef") {
        let at = path.child("podGroupTemplateRef");
        validate_union(reference, &["workload"], &at, errors);
        if let Some(workload) = opt(reference, "workload") {
            let at = at.child("workload");
            validate_name(
                workload,
                "workloadName",
                names::dns1123_subdomain,
                &at,
                errors,
            );
            validate_name(
                workload,
                "podGroupTemplateName",
                names::dns1123_label,
                &at,
                errors,
            );
        }
    }
    let policy = get(spec, "schedulingPolicy");
    validate_policy(policy, &path.child("schedulingPolicy"), errors);
}

fn validate_policy(policy: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_union(policy, &POLICIES, path, errors);
    let Some(gang) = opt(policy, "gang") else {
        return;
    };
    let at = path.child("gang");
    match int(gang, "minCount") {
        None | Some(0) => errors.required(&at.child("minCount"), ""),
        count => validate_minimum(count, 1, &at.child("minCount"), errors),
    }
}

/// Checks that exactly one of the members is set.
fn validate_union(value: &Value, members: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let set: Vec<&str> = members
        .iter()
        .copied()
        .filter(|name| has(value, name))
        .collect();
    let all = || {
        let quoted: Vec<String> = members.iter().map(|name| format!("`{name}`")).collect();
        quoted.join(", ")
    };
    match set.len() {
        0 => errors.invalid(path, "", format!("must specify one of: {}", all())),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            errors.invalid(
                path,
                shown,
                format!("must specify exactly one of: {}", all()),
            );
        }
    }
}

fn validate_name(
    value: &Value,
    field: &str,
    check: NameCheck,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    match text(value, field) {
        "" => errors.required(&path.child(field), ""),
        name => errors.invalid_each(&path.child(field), name, check(name)),
    }
}

fn reject_duplicates(items: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (i, item) in items.iter().enumerate() {
        if !seen.insert(text(item, "name")) {
            errors.duplicate(&path.index(i), item.clone());
        }
    }
}

/// Rejects changes of fields of the spec.
fn keep_fields(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    let (new, old) = (get(new, "spec"), get(old, "spec"));
    reject_hidden_changes(new, old, fields, &Path::ROOT.child("spec"), errors);
}

fn validate_workload_update(new: &Value, old: &Value, errors: &mut Errors) {
    keep_fields(new, old, &["controllerRef", "podGroupTemplates"], errors);
    let templates = |object| list(get(object, "spec"), "podGroupTemplates").iter();
    let all = || templates(new).zip(templates(old));
    if errors.is_empty() && all().any(|(new, old)| is_other_policy(new, old)) {
        let spec = Path::ROOT.child("spec");
        errors.invalid(&spec.child("podGroupTemplates"), Value::Null, IMMUTABLE);
    }
}

/// Returns whether the policies of two templates or groups have other members. One without fields
/// equals an absent one in comparisons of values.
fn is_other_policy(new: &Value, old: &Value) -> bool {
    let [new, old] = [new, old].map(|owner| get(owner, "schedulingPolicy"));
    let mut members = POLICIES.iter();
    members.any(|member| has(new, member) != has(old, member))
}

fn validate_group_update(new: &Value, old: &Value, errors: &mut Errors) {
    let kept = ["podGroupTemplateRef", "schedulingPolicy", "resourceClaims"];
    keep_fields(new, old, &kept, errors);
    if errors.is_empty() && is_other_policy(get(new, "spec"), get(old, "spec")) {
        let spec = Path::ROOT.child("spec");
        errors.invalid(&spec.child("schedulingPolicy"), Value::Null, IMMUTABLE);
    }
    let (spec, before) = (get(new, "spec"), get(old, "spec"));
    let path = Path::ROOT.child("spec");
    for field in [
        "schedulingConstraints",
        "disruptionMode",
        "priorityClassName",
        "priority",
    ] {
        if has(spec, field) && !same(spec, before, field) {
            errors.forbidden(&path.child(field), "");
        }
    }
}

fn validate_group_status(object: &Value, errors: &mut Errors) {
    let (status, path) = (get(object, "status"), Path::ROOT.child("status"));
    validate_conditions(status, &path.child("conditions"), errors);
    let (claims, at) = (
        list(status, "resourceClaimStatuses"),
        path.child("resourceClaimStatuses"),
    );
    let known = list(get(object, "spec"), "resourceClaims");
    for (i, claim) in claims.iter().enumerate() {
        let name = text(claim, "name");
        if !known.iter().any(|known| text(known, "name") == name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&at.index(i).child("name"), name, detail);
        }
    }
    if claims.len() > MOST_CLAIMS {
        return errors.too_many(&at, claims.len(), MOST_CLAIMS);
    }
    reject_duplicates(claims, &at, errors);
    for (i, claim) in claims.iter().enumerate() {
        if let Some(name) = opt_text(claim, "resourceClaimName") {
            let at = at.index(i);
            errors.invalid_each(
                &at.child("resourceClaimName"),
                name,
                names::dns1123_subdomain(name),
            );
        }
    }
}
