//! Webhook configurations.

use super::rule::validate_rule;
use super::validate_condition_names;
use crate::cel::{Expressions, MATCH_CONDITIONS};
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use crate::selector;
use crate::webhook_client::validate_client_config;
use api_cel::hosts::policy::PolicyCompiler;
use api_meta::names;
use api_meta::tree::{get, int, list, opt_text, same, text, texts};
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
            // Conditions are compared by position. If a webhook is added or removed, all are
            // compiled again.
            ignores_conditions: hooks.len() == after.len()
                && hooks
                    .iter()
                    .zip(after)
                    .all(|(o, n)| same(o, n, "matchConditions")),
            // The beta version accepted effects that v1 rejects. One old webhook with them exempts
            // the object, because webhooks have no identity across updates.
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
        // A missing name has an error of its own, so two unnamed webhooks are not duplicates as
        // well.
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
        // Webhooks have no parameters, so their conditions are compiled without `params`.
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

/// Webhooks of v1 must say that a dry run has no effects outside, since dry-run requests are sent
/// to them.
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
    let mut seen = HashSet::new();
    for (i, version) in all.iter().enumerate() {
        if !seen.insert(*version) {
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
