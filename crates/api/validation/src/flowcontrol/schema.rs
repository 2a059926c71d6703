//! FlowSchemas.

use super::validate_conditions;
use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use api_meta::names;
use api_meta::tree::{equal, flag, get, has, int, list, text, texts};
use serde_json::{Value, json};

pub const FLOW_SCHEMA: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_flow_schema,
    update: |new, _, errors| validate_flow_schema(new, errors),
    sub: |_, new, _, errors| validate_conditions(new, errors),
};

const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];
const METHODS: [&str; 2] = ["ByNamespace", "ByUser"];
const SUBJECTS: [(&str, &str); 3] = [
    ("Group", "group"),
    ("ServiceAccount", "serviceAccount"),
    ("User", "user"),
];

/// Returns the spec of a mandatory schema. The mandatory objects keep the server reachable for its
/// own components. Suggested ones may be changed or deleted.
fn mandatory_spec(name: &str) -> Option<Value> {
    let rules = |groups: &[&str]| {
        let subjects: Vec<Value> = groups
            .iter()
            .map(|name| json!({"kind": "Group", "group": {"name": name}}))
            .collect();
        json!([{"subjects": subjects, "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true,
                "namespaces": ["*"]}]}])
    };
    match name {
        "exempt" => Some(
            json!({"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 1,
                "rules": rules(&["system:masters"])}),
        ),
        "catch-all" => Some(
            json!({"priorityLevelConfiguration": {"name": "catch-all"}, "matchingPrecedence": 10_000,
                "distinguisherMethod": {"type": "ByUser"},
                "rules": rules(&["system:unauthenticated", "system:authenticated"])}),
        ),
        _ => None,
    }
}

fn validate_flow_schema(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let name = text(get(object, "metadata"), "name");
    validate_precedence(spec, name, &path, errors);
    let method = get(spec, "distinguisherMethod");
    // An absent method is valid: all requests of the schema are then one flow.
    if !method.is_null() && !METHODS.contains(&text(method, "type")) {
        let at = path.child("distinguisherMethod");
        errors.not_supported(&at.child("type"), method.clone(), &METHODS);
    }
    let level = text(get(spec, "priorityLevelConfiguration"), "name");
    let at = path.child("priorityLevelConfiguration");
    match level {
        "" => errors.required(&at.child("name"), "must reference a priority level"),
        level => errors.invalid_each(&at.child("name"), level, names::dns1123_subdomain(level)),
    }
    let at = path.child("rules");
    for (i, rule) in list(spec, "rules").iter().enumerate() {
        validate_policy_rules(rule, &at.index(i), errors);
    }
    if mandatory_spec(name).is_some_and(|fixed| !equal(&fixed, spec)) {
        let detail = format!("spec of '{name}' must equal the fixed value");
        errors.invalid(&path, spec.clone(), detail);
    }
    validate_conditions(object, errors);
}

fn validate_precedence(spec: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("matchingPrecedence");
    let precedence = int(spec, "matchingPrecedence").unwrap_or(0);
    if precedence <= 0 {
        errors.invalid(&at, precedence, "must be a positive value");
    }
    // The mandatory schema catch-all has 10000, and must remain the last.
    if precedence > 10_000 {
        errors.invalid(&at, precedence, "must not be greater than 10000");
    }
    if precedence == 1 && name != "exempt" {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(&at, precedence, detail);
    }
}

fn validate_policy_rules(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let subjects = list(rule, "subjects");
    let at = path.child("subjects");
    if subjects.is_empty() {
        errors.required(&at, "subjects must contain at least one value");
    }
    for (i, subject) in subjects.iter().enumerate() {
        validate_subject(subject, &at.index(i), errors);
    }
    let (resources, urls) = (list(rule, "resourceRules"), list(rule, "nonResourceRules"));
    if resources.is_empty() && urls.is_empty() {
        errors.required(
            path,
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        );
    }
    let at = path.child("resourceRules");
    for (i, rule) in resources.iter().enumerate() {
        validate_resource_rule(rule, &at.index(i), errors);
    }
    let at = path.child("nonResourceRules");
    for (i, rule) in urls.iter().enumerate() {
        validate_non_resource_rule(rule, &at.index(i), errors);
    }
}

fn validate_subject(subject: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(subject, "kind");
    let Some((_, field)) = SUBJECTS.iter().find(|(k, _)| *k == kind) else {
        let known = SUBJECTS.map(|(kind, _)| kind);
        return errors.not_supported(&path.child("kind"), kind, &known);
    };
    let (chosen, at) = (get(subject, field), path.child(field));
    if chosen.is_null() {
        let detail = format!("{field} is required when subject kind is '{kind}'");
        errors.required(&at, detail);
    } else {
        validate_chosen_subject(chosen, kind, &at, errors);
    }
    for (other, field) in SUBJECTS.iter().rev() {
        if *other != kind && has(subject, field) {
            let detail = format!("{field} is forbidden when subject kind is not '{other}'");
            errors.forbidden(&path.child(field), detail);
        }
    }
}

fn validate_chosen_subject(subject: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let (name, namespace) = (text(subject, "name"), text(subject, "namespace"));
    let is_account = kind == "ServiceAccount";
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    } else if is_account && name != "*" {
        errors.invalid_each(&path.child("name"), name, names::dns1123_subdomain(name));
    }
    let at = path.child("namespace");
    match namespace {
        _ if !is_account => {}
        "" => errors.required(&at, "must specify namespace for service account"),
        namespace => errors.invalid_each(&at, namespace, names::dns1123_label(namespace)),
    }
}

fn validate_verbs(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (verbs, at) = (texts(rule, "verbs"), path.child("verbs"));
    if verbs.is_empty() {
        errors.required(&at, "verbs must contain at least one value");
    } else if verbs.contains(&"*") {
        validate_lone_wildcard(&verbs, "verbs", &at, errors);
    } else if verbs.iter().any(|verb| !VERBS.contains(verb)) {
        errors.not_supported(&at, verbs, &VERBS);
    }
}

/// Other values beside the wildcard look like a restriction that does not exist.
fn validate_lone_wildcard(all: &[&str], what: &str, path: &Path<'_>, errors: &mut Errors) {
    if all.len() > 1 && all.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.invalid(path, all.to_vec(), detail);
    }
}

fn validate_resource_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_verbs(rule, path, errors);
    for (field, one, what) in [
        ("apiGroups", "api group", "api groups"),
        ("resources", "resource", "resources"),
    ] {
        let (all, at) = (texts(rule, field), path.child(field));
        if all.is_empty() {
            errors.required(
                &at,
                format!("resource rules must supply at least one {one}"),
            );
        }
        validate_lone_wildcard(&all, what, &at, errors);
    }
    let (namespaces, at) = (texts(rule, "namespaces"), path.child("namespaces"));
    if namespaces.is_empty() && !flag(rule, "clusterScope") {
        errors.required(
            &at,
            "resource rules that are not cluster scoped must supply at least one namespace",
        );
    } else if namespaces.contains(&"*") {
        validate_lone_wildcard(&namespaces, "namespaces", &at, errors);
    } else {
        for (i, namespace) in namespaces.iter().enumerate() {
            for problem in names::dns1123_label(namespace) {
                let detail =
                    format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
                errors.invalid(&at.index(i), *namespace, detail);
            }
        }
    }
}

fn validate_non_resource_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_verbs(rule, path, errors);
    let (urls, at) = (
        texts(rule, "nonResourceURLs"),
        path.child("nonResourceURLs"),
    );
    if urls.is_empty() {
        errors.required(&at, "nonResourceURLs must contain at least one value");
    } else if urls.contains(&"*") {
        validate_lone_wildcard(&urls, "non-resource URLs", &at, errors);
    } else {
        for (i, url) in urls.iter().enumerate() {
            if let Some(problem) = url_problem(url) {
                errors.invalid(&at.index(i), *url, problem);
            }
        }
    }
}

fn url_problem(url: &str) -> Option<&'static str> {
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        url if !url.starts_with('/') => Some("must start with slash"),
        url if url.contains(' ') => Some("must not contain white-space"),
        url if url.contains("//") => Some("must not contain double slash"),
        url => match url.matches('*').count() {
            0 => None,
            1 if url.ends_with("/*") => None,
            _ => Some("wildcard can only do suffix matching"),
        },
    }
}
