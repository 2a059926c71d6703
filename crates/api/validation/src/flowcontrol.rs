//! FlowSchemas and PriorityLevelConfigurations.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use api_meta::tree::{get, has, int, list, text};
use serde_json::{Value, json};

pub const FLOW_SCHEMA: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_flow_schema,
    update: |new, _, e| validate_flow_schema(new, e),
    sub: accept_subresource,
};
pub const PRIORITY_LEVEL: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_priority_level,
    update: |new, _, e| validate_priority_level(new, e),
    sub: accept_subresource,
};

/// Returns the immutable specs of the catch-all flow schemas and priority levels.
fn mandatory_spec(kind: &str, name: &str) -> Option<Value> {
    let everything = |subjects: Value| {
        json!([{"subjects": subjects, "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}]}])
    };
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    match (kind, name) {
        ("FlowSchema", "exempt") => Some(
            json!({"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 1,
            "rules": everything(json!([group("system:masters")]))}),
        ),
        ("FlowSchema", "catch-all") => {
            Some(json!({"priorityLevelConfiguration": {"name": "catch-all"},
            "matchingPrecedence": 10_000, "distinguisherMethod": {"type": "ByUser"},
            "rules": everything(json!([group("system:unauthenticated"), group("system:authenticated")]))}))
        }
        ("PriorityLevelConfiguration", "catch-all") => Some(json!({"type": "Limited", "limited":
            {"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}}})),
        _ => None,
    }
}

fn validate_mandatory_object(kind: &str, object: &Value, errors: &mut Errors) {
    let name = text(get(object, "metadata"), "name");
    // The mandatory objects keep the server reachable for its own components. Suggested ones may be
    // changed or deleted.
    if mandatory_spec(kind, name).is_some_and(|fixed| fixed != *get(object, "spec")) {
        let detail = format!("spec of '{name}' must equal the fixed value");
        errors.invalid(
            &Path::ROOT.child("spec"),
            get(object, "spec").clone(),
            detail,
        );
    }
}

fn validate_flow_schema(object: &Value, errors: &mut Errors) {
    validate_mandatory_object("FlowSchema", object, errors);
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let precedence = int(spec, "matchingPrecedence").unwrap_or(0);
    if precedence <= 0 {
        errors.invalid(
            &path.child("matchingPrecedence"),
            precedence,
            "must be a positive value",
        );
    // The mandatory catch-all schema has 10000, and must remain the last.
    } else if precedence > 10_000 {
        errors.invalid(
            &path.child("matchingPrecedence"),
            precedence,
            "must not be greater than 10000",
        );
    }
    if text(get(spec, "priorityLevelConfiguration"), "name").is_empty() {
        errors.required(
            &path.child("priorityLevelConfiguration").child("name"),
            "must reference a priority level",
        );
    }
    let level = text(get(spec, "priorityLevelConfiguration"), "name");
    if !level.is_empty() {
        let at = path.child("priorityLevelConfiguration");
        errors.invalid_each(
            &at.child("name"),
            level,
            api_meta::names::dns1123_subdomain(level),
        );
    }
    // An absent method is valid: all requests of the schema are then one flow.
    let method = get(spec, "distinguisherMethod");
    rules::validate_one_of(
        method,
        "type",
        &["ByNamespace", "ByUser"],
        &path.child("distinguisherMethod"),
        errors,
    );
    validate_policy_rules(spec, &path.child("rules"), errors);
}

fn validate_policy_rules(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    for (i, rule) in list(spec, "rules").iter().enumerate() {
        let at = at.index(i);
        if list(rule, "subjects").is_empty() {
            errors.required(
                &at.child("subjects"),
                "subjects must contain at least one value",
            );
        }
        if list(rule, "resourceRules").is_empty() && list(rule, "nonResourceRules").is_empty() {
            errors.required(
                &at,
                "at least one of resourceRules and nonResourceRules has to be non-empty",
            );
        }
        validate_rule_parts(rule, &at, errors);
        let subjects = at.child("subjects");
        for (j, subject) in list(rule, "subjects").iter().enumerate() {
            let kind = text(subject, "kind");
            if !["Group", "ServiceAccount", "User"].contains(&kind) {
                errors.not_supported(
                    &subjects.index(j).child("kind"),
                    kind,
                    &["Group", "ServiceAccount", "User"],
                );
            }
        }
    }
}

const VERBS: [&str; 10] = [
    "*",
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
const METHODS: [&str; 8] = [
    "*", "delete", "get", "head", "options", "patch", "post", "put",
];

fn validate_rule_parts(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("resourceRules");
    for (i, one) in list(rule, "resourceRules").iter().enumerate() {
        let at = at.index(i);
        validate_verbs(one, &VERBS, &at, errors);
        let spaces = at.child("namespaces");
        for (j, namespace) in list(one, "namespaces").iter().enumerate() {
            let namespace = namespace.as_str().unwrap_or_default();
            if namespace != "*" {
                errors.invalid_each(
                    &spaces.index(j),
                    namespace,
                    api_meta::names::dns1123_label(namespace),
                );
            }
        }
    }
    let at = path.child("nonResourceRules");
    for (i, one) in list(rule, "nonResourceRules").iter().enumerate() {
        let at = at.index(i);
        validate_verbs(one, &METHODS, &at, errors);
        let urls = at.child("nonResourceURLs");
        for (j, url) in list(one, "nonResourceURLs").iter().enumerate() {
            let url = url.as_str().unwrap_or_default();
            if url != "*" && !url.starts_with('/') {
                errors.invalid(&urls.index(j), url, "must start with slash");
            }
        }
    }
}

fn validate_verbs(rule: &Value, known: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let all = api_meta::tree::texts(rule, "verbs");
    if all.iter().any(|v| !known.contains(v)) {
        errors.not_supported(&path.child("verbs"), all, known);
    }
}

fn validate_priority_level(object: &Value, errors: &mut Errors) {
    validate_mandatory_object("PriorityLevelConfiguration", object, errors);
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let kind = text(spec, "type");
    let exempt = text(get(object, "metadata"), "name") == "exempt";
    // A second exempt level would lift every limit for the requests that reach it.
    if exempt != (kind == "Exempt") && ["Exempt", "Limited"].contains(&kind) {
        errors.invalid(
            &path.child("type"),
            kind,
            "type must be 'Exempt' if and only if name is 'exempt'",
        );
    }
    match kind {
        "Exempt" => {
            if has(spec, "limited") {
                errors.forbidden(
                    &path.child("limited"),
                    "must be nil if the type is not Limited",
                );
            }
        }
        "Limited" => {
            if has(spec, "exempt") {
                errors.forbidden(&path.child("exempt"), "must be nil if the type is Limited");
            }
            validate_limited(spec, &path, errors);
        }
        other => errors.not_supported(&path.child("type"), other, &["Exempt", "Limited"]),
    }
}

fn validate_limited(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (limited, at) = (get(spec, "limited"), path.child("limited"));
    if limited.is_null() {
        errors.required(&at, "must not be empty when type is Limited");
        return;
    }
    rules::validate_non_negative(limited, "nominalConcurrencyShares", &at, errors);
    let (response, at) = (get(limited, "limitResponse"), at.child("limitResponse"));
    match text(response, "type") {
        "Reject" if has(response, "queuing") => {
            errors.forbidden(
                &at.child("queuing"),
                "must be nil if limited.limitResponse.type is not Limited",
            );
        }
        "Reject" => {}
        "Queue" if !has(response, "queuing") => {
            errors.required(
                &at.child("queuing"),
                "must not be empty if limited.limitResponse.type is Limited",
            );
        }
        "Queue" => {
            for field in ["handSize", "queues", "queueLengthLimit"] {
                rules::validate_positive(
                    get(response, "queuing"),
                    field,
                    &at.child("queuing"),
                    errors,
                );
            }
        }
        other => errors.not_supported(&at.child("type"), other, &["Queue", "Reject"]),
    }
}
