//! Webhook configurations.

use super::rule::validate_rule;
use super::validate_condition_names;
use crate::cel::{Expressions, MATCH_CONDITIONS};
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use crate::selector;
use api_cel::hosts::policy::PolicyCompiler;
use api_meta::names;
use api_meta::tree::{get, has, int, list, opt_text, same, text, texts};
use serde_json::Value;
use std::collections::HashSet;

/// Rules of validating and mutating webhook configurations.
pub const WEBHOOKS: Rules = Rules {
    name: NameRule::Subdomain,
    create: |object, errors| validate_webhooks(object, &Options::STRICT, errors),
    update: |new, old, errors| validate_webhooks(new, &Options::after(new, old), errors),
    sub: accept_subresource,
};

const REVIEWS: [&str; 2] = ["v1", "v1beta1"];
const HARMLESS: [&str; 2] = ["None", "NoneOnDryRun"];
const EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];
const FORM: &str = "; desired format: https://host[/path]";

/// Rules that the old object lifts: the beta version of the group had fewer.
struct Options<'a> {
    /// The old webhooks.
    stored: Vec<&'a Value>,
    ignores_conditions: bool,
    allows_effects: bool,
    allows_unknown_reviews: bool,
    allows_equal_names: bool,
    allows_values: bool,
}

impl<'a> Options<'a> {
    const STRICT: Options<'static> = Options {
        stored: Vec::new(),
        ignores_conditions: false,
        allows_effects: false,
        allows_unknown_reviews: false,
        allows_equal_names: false,
        allows_values: false,
    };

    fn after(new: &Value, old: &'a Value) -> Self {
        let (hooks, after) = (list(old, "webhooks"), list(new, "webhooks"));
        let is_unknown = |hook: &Value| {
            let all = texts(hook, "admissionReviewVersions");
            !all.is_empty() && !all.iter().any(|version| REVIEWS.contains(version))
        };
        let has_old_values = hooks.iter().any(|hook| {
            ["namespaceSelector", "objectSelector"]
                .iter()
                .any(|f| selector::has_invalid_values(get(hook, f)))
        });
        let names: HashSet<&str> = hooks.iter().map(|hook| text(hook, "name")).collect();
        Self {
            stored: hooks.iter().collect(),
            ignores_conditions: hooks.len() == after.len()
                && hooks
                    .iter()
                    .zip(after)
                    .all(|(o, n)| same(o, n, "matchConditions")),
            allows_effects: hooks
                .iter()
                .any(|hook| !HARMLESS.contains(&text(hook, "sideEffects"))),
            allows_unknown_reviews: hooks.iter().any(is_unknown),
            allows_equal_names: names.len() < hooks.len(),
            allows_values: has_old_values,
        }
    }
}

fn validate_webhooks(object: &Value, options: &Options<'_>, errors: &mut Errors) {
    let path = Path::ROOT.child("webhooks");
    let hooks = list(object, "webhooks");
    let mut seen = HashSet::new();
    for (i, hook) in hooks.iter().enumerate() {
        let at = path.index(i);
        let name = text(hook, "name");
        validate_webhook(hook, options, &at, errors);
        validate_review_versions(hook, options, &at.child("admissionReviewVersions"), errors);
        let is_repeated = !seen.insert(name);
        if is_repeated && !name.is_empty() && !options.allows_equal_names {
            errors.duplicate(&at.child("name"), name);
        }
    }
}

fn validate_webhook(hook: &Value, options: &Options<'_>, path: &Path<'_>, errors: &mut Errors) {
    validate_webhook_name(text(hook, "name"), &path.child("name"), errors);
    let at = path.child("rules");
    for (i, rule) in list(hook, "rules").iter().enumerate() {
        validate_rule(rule, &at.index(i), errors);
    }
    rules::validate_one_of(hook, "failurePolicy", &["Fail", "Ignore"], path, errors);
    rules::validate_one_of(hook, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    validate_side_effects(hook, options, &path.child("sideEffects"), errors);
    // The client's request waits for the webhook, and the server ends it after 60 seconds by
    // default.
    if let Some(n) = int(hook, "timeoutSeconds").filter(|n| !(1..=30).contains(n)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.child("timeoutSeconds"), n, detail);
    }
    for field in ["namespaceSelector", "objectSelector"] {
        let at = path.child(field);
        selector::validate_selector_leniently(get(hook, field), options.allows_values, &at, errors);
    }
    let reinvocation = ["IfNeeded", "Never"];
    rules::validate_one_of(hook, "reinvocationPolicy", &reinvocation, path, errors);
    let at = path.child("clientConfig");
    validate_client_config(get(hook, "clientConfig"), &at, errors);
    if !options.ignores_conditions {
        validate_condition_names(hook, path, errors);
        let expressions = Expressions {
            new: hook,
            old: &options.stored,
        };
        let compiler = PolicyCompiler::new(false);
        expressions.validate(&compiler, &MATCH_CONDITIONS, path, errors);
    }
}

fn validate_webhook_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let problems = names::dns1123_subdomain(name);
    if !problems.is_empty() {
        return errors.invalid(path, name, problems.join(","));
    }
    // The name is a key in audit annotations and metrics of all clusters.
    if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.invalid(path, name, detail);
    }
}

/// Webhooks of v1 must say that a dry run has no effects outside, since dry-run requests are sent to
/// them.
fn validate_side_effects(
    hook: &Value,
    options: &Options<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let allowed: &[&str] = match options.allows_effects {
        true => &EFFECTS,
        false => &HARMLESS,
    };
    match opt_text(hook, "sideEffects") {
        None => errors.required(path, format!("must specify one of {}", allowed.join(", "))),
        Some(effects) if !allowed.contains(&effects) => {
            errors.not_supported(path, effects, allowed);
        }
        Some(_) => {}
    }
}

fn validate_review_versions(
    hook: &Value,
    options: &Options<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let all = texts(hook, "admissionReviewVersions");
    if all.is_empty() {
        return errors.required(path, "must specify one of v1, v1beta1");
    }
    for (i, version) in all.iter().enumerate() {
        if all.iter().take(i).any(|v| v == version) {
            errors.invalid(&path.index(i), *version, "duplicate version");
        } else {
            errors.invalid_each(&path.index(i), version, names::dns1035_label(version));
        }
    }
    // Unknown versions may stand in the list: the server picks the first that it knows.
    let is_known = all.iter().any(|version| REVIEWS.contains(version));
    if !is_known && !options.allows_unknown_reviews {
        errors.invalid(path, all, "must include at least one of v1, v1beta1");
    }
}

fn validate_client_config(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (opt_text(config, "url"), has(config, "service")) {
        (Some(_), true) | (None, false) => {
            errors.required(path, "exactly one of url or service is required");
        }
        (Some(url), false) => validate_webhook_url(url, &path.child("url"), errors),
        (None, true) => {
            validate_webhook_service(get(config, "service"), &path.child("service"), errors);
        }
    }
}

fn validate_webhook_service(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Upstream's call has the two arguments in the wrong order, so each path is the other's.
    for (field, reported) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, field).is_empty() {
            errors.required(&path.child(reported), "");
        }
    }
    let port = int(service, "port").unwrap_or(443);
    if let Some(problem) = rules::port_number_problem(port) {
        let detail = format!("port is not valid: {problem}");
        errors.invalid(&path.child("port"), port, detail);
    }
    let target = text(service, "path");
    let at = path.child("path");
    if target == "//" {
        return errors.invalid(&at, target, "segment[0] may not be empty");
    }
    if target.is_empty() || target == "/" {
        return;
    }
    if !target.starts_with('/') {
        errors.invalid(&at, target, "must start with a '/'");
    }
    let mut chars = target.chars();
    chars.next();
    let steps = chars.as_str();
    let steps = steps.strip_suffix('/').unwrap_or(steps);
    for (i, step) in steps.split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(&at, target, format!("segment[{i}] may not be empty"));
            continue;
        }
        for problem in names::dns1123_subdomain(step) {
            errors.invalid(&at, target, format!("segment[{i}]: {problem}"));
        }
    }
}

fn validate_webhook_url(value: &str, path: &Path<'_>, errors: &mut Errors) {
    let parsed = match url::Url::parse(value) {
        Ok(parsed) => Some(parsed),
        // Such a URL has neither scheme nor host.
        Err(url::ParseError::RelativeUrlWithoutBase) => None,
        Err(url::ParseError::EmptyHost) => {
            return errors.invalid(path, "", format!("host must be specified{FORM}"));
        }
        Err(error) => {
            let detail = format!("url must be a valid URL: {error}{FORM}");
            return errors.required(path, detail);
        }
    };
    let scheme = parsed.as_ref().map_or("", |url| url.scheme());
    // The request contains the whole object, secrets included.
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        errors.invalid(path, scheme, detail);
    }
    let host = parsed.as_ref().and_then(|url| url.host_str());
    if host.unwrap_or_default().is_empty() {
        errors.invalid(path, "", format!("host must be specified{FORM}"));
    }
    let Some(parsed) = parsed else { return };
    // Credentials belong into the kubeconfig file of the admission plugin: many users may read this
    // object.
    if !parsed.username().is_empty() || parsed.password().is_some() {
        let detail = "user information is not permitted in the URL";
        errors.invalid(path, parsed.username(), detail);
    }
    for (part, what) in [
        (parsed.fragment(), "fragments"),
        (parsed.query(), "query parameters"),
    ] {
        if let Some(part) = part.filter(|part| !part.is_empty()) {
            errors.invalid(path, part, format!("{what} are not permitted in the URL"));
        }
    }
}
