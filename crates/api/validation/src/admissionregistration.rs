//! Webhook configurations, and admission policies without their expressions, which are compiled
//! elsewhere.

use crate::cel;
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use crate::selector;
use api_meta::names;
use api_meta::tree::{get, has, int, list, text, texts};
use serde_json::Value;

/// Rules of validating and mutating webhook configurations.
pub const WEBHOOKS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_webhooks,
    update: |new, _, e| validate_webhooks(new, e),
    sub: accept_subresource,
};
/// Rules of policy bindings.
pub const BINDING: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_binding,
    update: |new, _, e| validate_binding(new, e),
    sub: accept_subresource,
};

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

fn validate_webhooks(object: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("webhooks");
    let mut seen: Vec<&str> = Vec::new();
    for (i, hook) in list(object, "webhooks").iter().enumerate() {
        let at = path.index(i);
        let name = text(hook, "name");
        validate_webhook(hook, &at, errors);
        if !name.is_empty() && seen.contains(&name) {
            errors.duplicate(&at.child("name"), name);
        }
        seen.push(name);
    }
}

fn validate_webhook(hook: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(hook, "name");
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    } else {
        errors.invalid_each(
            &path.child("name"),
            name,
            rules::qualified_domain_problems(name, 3),
        );
    }
    let at = path.child("rules");
    for (i, rule) in list(hook, "rules").iter().enumerate() {
        validate_rule(rule, &at.index(i), errors);
    }
    rules::validate_one_of(hook, "failurePolicy", &["Fail", "Ignore"], path, errors);
    rules::validate_one_of(hook, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    // Webhooks of v1 must say that a dry run has no effects outside, since dry-run requests are
    // sent to them.
    match text(hook, "sideEffects") {
        "" => errors.required(
            &path.child("sideEffects"),
            "must specify one of None, NoneOnDryRun",
        ),
        "None" | "NoneOnDryRun" => {}
        other => errors.not_supported(&path.child("sideEffects"), other, &["None", "NoneOnDryRun"]),
    }
    // The client's request waits for the webhook, and the server ends it after 60 seconds by
    // default.
    if let Some(n) = int(hook, "timeoutSeconds").filter(|n| !(1..=30).contains(n)) {
        errors.invalid(
            &path.child("timeoutSeconds"),
            n,
            "the timeout value must be between 1 and 30 seconds",
        );
    }
    for field in ["namespaceSelector", "objectSelector"] {
        selector::validate_label_selector(get(hook, field), &path.child(field), errors);
    }
    rules::validate_one_of(
        hook,
        "reinvocationPolicy",
        &["IfNeeded", "Never"],
        path,
        errors,
    );
    validate_review_versions(hook, &path.child("admissionReviewVersions"), errors);
    cel::validate_each_expression(
        hook,
        "matchConditions",
        "expression",
        &VARIABLES,
        path,
        errors,
    );
    validate_client_config(
        get(hook, "clientConfig"),
        &path.child("clientConfig"),
        errors,
    );
}

fn validate_review_versions(hook: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = texts(hook, "admissionReviewVersions");
    if all.is_empty() {
        errors.required(path, "must specify one of v1, v1beta1");
    // Unknown versions may stand in the list: the server picks the first that it knows.
    } else if !all.iter().any(|v| ["v1", "v1beta1"].contains(v)) {
        errors.invalid(
            path,
            all.clone(),
            "must include at least one of v1, v1beta1",
        );
    }
    for (i, version) in all.iter().enumerate() {
        errors.invalid_each(&path.index(i), version, names::dns1035_label(version));
    }
}

fn validate_client_config(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (has(config, "url"), has(config, "service")) {
        (true, true) | (false, false) => {
            errors.required(path, "exactly one of url or service is required");
        }
        (true, false) => validate_webhook_url(text(config, "url"), &path.child("url"), errors),
        (false, true) => {
            let (service, at) = (get(config, "service"), path.child("service"));
            for field in ["name", "namespace"] {
                if text(service, field).is_empty() {
                    errors.required(&at.child(field), format!("service {field} is required"));
                }
            }
            if let Some(n) = int(service, "port")
                && let Some(problem) = rules::port_number_problem(n)
            {
                errors.invalid(
                    &at.child("port"),
                    n,
                    format!("port is not valid: {problem}"),
                );
            }
            let target = text(service, "path");
            if !target.is_empty() && !target.starts_with('/') {
                errors.invalid(&at.child("path"), target, "must start with a '/'");
            }
        }
    }
}

fn validate_webhook_url(value: &str, path: &Path<'_>, errors: &mut Errors) {
    let form = "url must have the form https://host[:port]/path";
    let Ok(parsed) = url::Url::parse(value) else {
        errors.required(
            path,
            format!("url must be a valid URL: {value}; desired format: https://host[:port]/path"),
        );
        return;
    };
    // The request contains the whole object, secrets included.
    if parsed.scheme() != "https" {
        errors.invalid(
            path,
            parsed.scheme(),
            format!("'https' is the only allowed URL scheme; {form}"),
        );
    }
    if parsed.host_str().unwrap_or_default().is_empty() {
        errors.invalid(path, "", format!("host must be specified; {form}"));
    }
    // Credentials belong into the kubeconfig file of the admission plugin: many users may read this
    // object.
    if !parsed.username().is_empty() {
        errors.invalid(
            path,
            parsed.username(),
            "user information is not permitted in the URL",
        );
    }
    if parsed.fragment().is_some() {
        errors.invalid(
            path,
            parsed.fragment().unwrap_or_default(),
            "fragments are not permitted in the URL",
        );
    }
    if parsed.query().is_some() {
        errors.invalid(
            path,
            parsed.query().unwrap_or_default(),
            "query parameters are not permitted in the URL",
        );
    }
}

fn validate_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (field, what) in [("apiGroups", "groups"), ("apiVersions", "versions")] {
        let all = texts(rule, field);
        let at = path.child(field);
        if all.is_empty() {
            errors.required(&at, "");
        }
        // A list beside the star looks narrower than it is, so upstream rejects it.
        if all.len() > 1 && all.contains(&"*") {
            errors.invalid(
                &at,
                all.clone(),
                format!("if '*' is present, must not specify other API {what}"),
            );
        }
        for (i, _) in all
            .iter()
            .enumerate()
            .filter(|(_, v)| v.is_empty() && field == "apiVersions")
        {
            errors.required(&at.index(i), "");
        }
    }
    let operations = texts(rule, "operations");
    let at = path.child("operations");
    if operations.is_empty() {
        errors.required(&at, "");
    }
    if operations.len() > 1 && operations.contains(&"*") {
        errors.invalid(
            &at,
            operations.clone(),
            "if '*' is present, must not specify other operations",
        );
    }
    for (i, operation) in operations
        .iter()
        .enumerate()
        .filter(|(_, o)| !OPERATIONS.contains(o))
    {
        errors.not_supported(&at.index(i), *operation, &OPERATIONS);
    }
    validate_resource_rule_resources(rule, &path.child("resources"), errors);
    rules::validate_one_of(rule, "scope", &["*", "Cluster", "Namespaced"], path, errors);
}

fn validate_resource_rule_resources(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = texts(rule, "resources");
    if all.is_empty() {
        errors.required(path, "");
    }
    let plain: Vec<&&str> = all.iter().filter(|r| !r.contains('/')).collect();
    if plain.len() > 1 && all.contains(&"*") {
        errors.invalid(
            path,
            all.clone(),
            "if '*' is present, must not specify other resources without subresources",
        );
    }
    if all.len() > 1 && all.contains(&"*/*") {
        errors.invalid(
            path,
            all.clone(),
            "if '*/*' is present, must not specify other resources",
        );
    }
    for (i, _) in all.iter().enumerate().filter(|(_, r)| r.is_empty()) {
        errors.required(&path.index(i), "");
    }
}

fn validate_binding(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let name = text(spec, "policyName");
    if name.is_empty() {
        errors.required(&path.child("policyName"), "");
    } else {
        errors.invalid_each(
            &path.child("policyName"),
            name,
            names::dns1123_subdomain(name),
        );
    }
    validate_param_ref(spec, &path, errors);
    if has(spec, "matchResources") {
        let mutating = text(object, "kind").starts_with("Mutating");
        validate_match_resources(
            get(spec, "matchResources"),
            mutating,
            &path.child("matchResources"),
            errors,
        );
    }
}

/// Rules of bindings of validating policies, which also specify the actions on a violation.
pub const VALIDATING_BINDING: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_validating_binding,
    update: |new, _, e| validate_validating_binding(new, e),
    sub: accept_subresource,
};

fn validate_validating_binding(object: &Value, errors: &mut Errors) {
    validate_binding(object, errors);
    let known = ["Audit", "Deny", "Warn"];
    let all = texts(get(object, "spec"), "validationActions");
    let at = Path::ROOT.child("spec");
    let at = at.child("validationActions");
    if all.is_empty() {
        errors.required(&at, "at least one validation action is required");
    }
    for (i, action) in all.iter().enumerate() {
        if !known.contains(action) {
            errors.not_supported(&at.index(i), *action, &known);
        }
        if all.iter().take(i).any(|a| a == action) {
            errors.duplicate(&at.index(i), *action);
        }
    }
    // The same message would come twice to the client.
    if all.contains(&"Deny") && all.contains(&"Warn") {
        errors.invalid(&at, all, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)");
    }
}

/// Rules of admission policies without their expressions.
pub const POLICY: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_policy,
    update: |new, _, e| validate_policy(new, e),
    sub: accept_subresource,
};

fn validate_policy(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    rules::validate_one_of(spec, "failurePolicy", &["Fail", "Ignore"], &path, errors);
    let at = path.child("variables");
    for (i, variable) in list(spec, "variables").iter().enumerate() {
        let name = text(variable, "name");
        // Expressions refer to variables by these names, which must be identifiers of CEL.
        let first = name
            .chars()
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if !first || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            errors.invalid(
                &at.index(i).child("name"),
                name,
                "name is not a valid CEL identifier",
            );
        }
    }
    validate_param_kind(spec, &path, errors);
    validate_expressions(spec, &path, errors);
    let reasons = [
        "Forbidden",
        "Invalid",
        "RequestEntityTooLarge",
        "Unauthorized",
    ];
    let at = path.child("validations");
    for (i, validation) in list(spec, "validations").iter().enumerate() {
        rules::validate_one_of(validation, "reason", &reasons, &at.index(i), errors);
    }
    let mutating = has(spec, "mutations");
    let at = path.child("mutations");
    for (i, mutation) in list(spec, "mutations").iter().enumerate() {
        rules::validate_one_of(
            mutation,
            "patchType",
            &["ApplyConfiguration", "JSONPatch"],
            &at.index(i),
            errors,
        );
    }
    rules::validate_one_of(
        spec,
        "reinvocationPolicy",
        &["IfNeeded", "Never"],
        &path,
        errors,
    );
    // A policy without constraints would never be evaluated, although its author expects
    // protection.
    if !has(spec, "matchConstraints") {
        errors.required(&path.child("matchConstraints"), "");
        return;
    }
    let at = path.child("matchConstraints");
    if list(get(spec, "matchConstraints"), "resourceRules").is_empty() {
        errors.required(&at.child("resourceRules"), "");
    }
    validate_match_resources(get(spec, "matchConstraints"), mutating, &at, errors);
}

const VARIABLES: [&str; 4] = ["object", "oldObject", "request", "authorizer"];

fn validate_param_kind(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(spec, "paramKind") {
        return;
    }
    let version = text(get(spec, "paramKind"), "apiVersion");
    let last = version.rsplit('/').next().unwrap_or_default();
    let at = path.child("paramKind");
    if version.is_empty() {
        errors.required(&at.child("apiVersion"), "");
    } else {
        errors.invalid_each(&at.child("apiVersion"), version, names::dns1035_label(last));
    }
}

fn validate_expressions(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut known = VARIABLES.to_vec();
    cel::validate_each_expression(
        spec,
        "matchConditions",
        "expression",
        &list_match_variables(spec, &known),
        path,
        errors,
    );
    known.push("namespaceObject");
    known.push("variables");
    let known = list_match_variables(spec, &known);
    cel::validate_each_expression(spec, "variables", "expression", &known, path, errors);
    for field in ["expression", "messageExpression"] {
        cel::validate_each_expression(spec, "validations", field, &known, path, errors);
    }
    cel::validate_each_expression(
        spec,
        "auditAnnotations",
        "valueExpression",
        &known,
        path,
        errors,
    );
}

/// Returns the known names, with `params` if the policy has parameters.
fn list_match_variables<'a>(spec: &Value, known: &[&'a str]) -> Vec<&'a str> {
    let mut known = known.to_vec();
    if has(spec, "paramKind") {
        known.push("params");
    }
    known
}

fn validate_match_resources(
    resources: &Value,
    mutating: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    rules::validate_one_of(
        resources,
        "matchPolicy",
        &["Equivalent", "Exact"],
        path,
        errors,
    );
    for field in ["namespaceSelector", "objectSelector"] {
        selector::validate_label_selector(get(resources, field), &path.child(field), errors);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        let at = path.child(field);
        for (i, rule) in list(resources, field).iter().enumerate() {
            validate_rule(rule, &at.index(i), errors);
            if mutating && field == "resourceRules" {
                let known = ["*", "CONNECT", "CREATE", "UPDATE"];
                for operation in texts(rule, "operations")
                    .into_iter()
                    .filter(|o| !known.contains(o))
                {
                    errors.not_supported(&at.child("operations"), operation, &known);
                }
            }
        }
    }
}

fn validate_param_ref(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(spec, "paramRef") {
        return;
    }
    let (reference, at) = (get(spec, "paramRef"), path.child("paramRef"));
    let (name, selector_) = (text(reference, "name"), get(reference, "selector"));
    match (name.is_empty(), selector_.is_null()) {
        (false, false) => {
            errors.forbidden(
                &at.child("name"),
                "name and selector are mutually exclusive",
            );
            errors.forbidden(
                &at.child("selector"),
                "name and selector are mutually exclusive",
            );
        }
        (true, true) => errors.required(&at, "one of name or selector must be specified"),
        _ => {}
    }
    selector::validate_label_selector(selector_, &at.child("selector"), errors);
    match text(reference, "parameterNotFoundAction") {
        "" => errors.required(&at.child("parameterNotFoundAction"), ""),
        "Allow" | "Deny" => {}
        other => errors.not_supported(
            &at.child("parameterNotFoundAction"),
            other,
            &["Allow", "Deny"],
        ),
    }
}
