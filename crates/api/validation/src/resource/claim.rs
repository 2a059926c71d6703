//! ResourceClaims, ResourceClaimTemplates and DeviceClasses.

use super::status::validate_claim_status_update;
use super::values::{
    exceeds, request_names, validate_device_configuration, validate_fully_qualified_name,
    validate_request_references, validate_unique,
};
use crate::cel;
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::{self, NameRule};
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, int, list, opt_text, same, text};
use serde_json::Value;

pub const CLAIM: Rules = Rules {
    name: NameRule::Subdomain,
    create: |object, errors| {
        let path = Path::ROOT.child("spec");
        validate_device_claim(get(object, "spec"), &path, errors);
    },
    update: validate_spec_unchanged,
    sub: validate_claim_status_update,
};
pub const TEMPLATE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_claim_template,
    update: |new, old, errors| {
        validate_claim_template(new, errors);
        validate_spec_unchanged(new, old, errors);
    },
    sub: accept_subresource,
};
pub const DEVICE_CLASS: Rules = Rules {
    name: NameRule::Subdomain,
    create: |object, errors| validate_device_class(object, None, errors),
    update: |new, old, errors| validate_device_class(new, Some(old), errors),
    sub: accept_subresource,
};

// The limits are upstream's. The scheduler searches combinations of devices, so each limit bounds a
// factor of that search.
const MOST_REQUESTS: usize = 32;
const MOST_ALTERNATIVES: usize = 8;
const MOST_SELECTORS: usize = 32;
const MOST_CONSTRAINTS: usize = 32;
const MOST_CONFIGS: usize = 32;
const MOST_TOLERATIONS: usize = 16;
// The compiler's work grows with the text, before any cost can be estimated.
const LONGEST_EXPRESSION: usize = 10 * 1024;
const MODES: [&str; 2] = ["All", "ExactCount"];
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// The scheduler has allocated devices for the old spec.
fn validate_spec_unchanged(new: &Value, old: &Value, errors: &mut Errors) {
    rules::validate_immutable(new, old, "spec", &Path::ROOT, errors);
}

fn validate_claim_template(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let (meta, at) = (get(spec, "metadata"), path.child("metadata"));
    metadata::validate_annotations(meta, &at, errors);
    metadata::validate_labels(meta, "labels", &at, errors);
    validate_template_metadata(meta, &at, errors);
    validate_device_claim(get(spec, "spec"), &path.child("spec"), errors);
}

fn validate_template_metadata(meta: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Only labels and annotations are copied into claims, so anything else would be lost silently.
    for (field, value) in meta
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, v)| !v.is_null())
    {
        // Upstream's path has the name of the Go field.
        let spelled = match field.as_str() {
            "labels" | "annotations" => continue,
            "uid" => "uID",
            other => other,
        };
        // Clients in Go send empty values for fields that they have not set.
        let empty = value.as_array().is_some_and(Vec::is_empty) || value == "";
        if !empty {
            errors.forbidden(&path.child(spelled), "may not be set");
        }
    }
}

fn validate_device_claim(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (devices, path) = (get(spec, "devices"), path.child("devices"));
    let requests = list(devices, "requests");
    let at = path.child("requests");
    // A list that is too long is not looked into: each element may contain expressions, which are
    // costly to compile.
    if !exceeds(requests, MOST_REQUESTS, &at, errors) {
        for (i, request) in requests.iter().enumerate() {
            validate_device_request(request, &at.index(i), errors);
        }
        // Constraints, configurations and containers refer to requests by name.
        let keys = requests.iter().map(|request| text(request, "name").into());
        validate_unique(keys, &at, errors);
    }
    // Read even if the list is too long, so that references to existing requests are not reported
    // as unknown.
    let known = request_names(devices);
    let constraints = list(devices, "constraints");
    let at = path.child("constraints");
    if !exceeds(constraints, MOST_CONSTRAINTS, &at, errors) {
        for (i, constraint) in constraints.iter().enumerate() {
            validate_constraint(constraint, &known, &at.index(i), errors);
        }
    }
    let configs = list(devices, "config");
    let at = path.child("config");
    if !exceeds(configs, MOST_CONFIGS, &at, errors) {
        for (i, config) in configs.iter().enumerate() {
            validate_request_references(config, &known, &at.index(i), errors);
            validate_device_configuration(config, false, &at.index(i), errors);
        }
    }
}

/// A request names one device class, or alternatives of which the scheduler takes the first that
/// fits (KEP-4816).
fn validate_device_request(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(request, "name");
    errors.invalid_each(&path.child("name"), name, names::dns1123_label(name));
    let alternatives = list(request, "firstAvailable");
    // An older client drops fields that it doesn't know. An object with neither was probably
    // written by one.
    match (has(request, "exactly"), !alternatives.is_empty()) {
        (false, false) => errors.required(
            path,
            "exactly one of `exactly` or `firstAvailable` is required",
        ),
        (true, true) => errors.invalid(
            path,
            Value::Null,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        (true, false) => {
            validate_exact_request(get(request, "exactly"), &path.child("exactly"), errors);
        }
        (false, true) => {
            validate_alternatives(alternatives, &path.child("firstAvailable"), errors);
        }
    }
}

fn validate_alternatives(all: &[Value], path: &Path<'_>, errors: &mut Errors) {
    if exceeds(all, MOST_ALTERNATIVES, path, errors) {
        return;
    }
    for (i, sub) in all.iter().enumerate() {
        let at = path.index(i);
        let name = text(sub, "name");
        errors.invalid_each(&at.child("name"), name, names::dns1123_label(name));
        validate_exact_request(sub, &at, errors);
    }
    // Allocation results name the alternative, so its name has to be unique within the request.
    validate_unique(all.iter().map(|sub| text(sub, "name").into()), path, errors);
}

fn validate_exact_request(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("deviceClassName");
    match text(request, "deviceClassName") {
        "" => errors.required(&at, ""),
        class => errors.invalid_each(&at, class, names::dns1123_subdomain(class)),
    }
    validate_device_selectors(request, path, errors);
    let mode = text(request, "allocationMode");
    let count = int(request, "count").unwrap_or(0);
    match mode {
        // `All` depends on the devices that a node has, so a number would contradict it.
        "All" if count != 0 => errors.invalid(
            &path.child("count"),
            count,
            "must not be specified when allocationMode is 'All'",
        ),
        "ExactCount" if count <= 0 => {
            errors.invalid(&path.child("count"), count, "must be greater than zero");
        }
        "All" | "ExactCount" => {}
        other => errors.not_supported(&path.child("allocationMode"), other, &MODES),
    }
    let tolerations = list(request, "tolerations");
    let at = path.child("tolerations");
    if !exceeds(tolerations, MOST_TOLERATIONS, &at, errors) {
        for (i, toleration) in tolerations.iter().enumerate() {
            validate_device_toleration(toleration, &at.index(i), errors);
        }
    }
}

fn validate_device_toleration(toleration: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (key, value) = (text(toleration, "key"), text(toleration, "value"));
    if !key.is_empty() {
        errors.invalid_each(&path.child("key"), key, names::qualified_name(key));
    }
    let at = path.child("value");
    match text(toleration, "operator") {
        "Exists" if !value.is_empty() => {
            errors.invalid(&at, value, "must be empty for operator `Exists`");
        }
        "Exists" => {}
        "Equal" => errors.invalid_each(&at, value, names::label_value(value)),
        "" => errors.required(&path.child("operator"), ""),
        other => errors.not_supported(&path.child("operator"), other, &["Equal", "Exists"]),
    }
    let effect = text(toleration, "effect");
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        errors.not_supported(&path.child("effect"), effect, &EFFECTS);
    }
}

/// Validates device selectors: expressions over `device`.
fn validate_device_selectors(parent: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (all, path) = (list(parent, "selectors"), path.child("selectors"));
    if exceeds(all, MOST_SELECTORS, &path, errors) {
        return;
    }
    for (i, selector) in all.iter().enumerate() {
        let at = path.index(i);
        let at = at.child("cel");
        if !has(selector, "cel") {
            errors.required(&at, "");
            continue;
        }
        let expression = text(get(selector, "cel"), "expression");
        if expression.len() > LONGEST_EXPRESSION {
            errors.too_long(&at.child("expression"), LONGEST_EXPRESSION);
        } else {
            cel::validate_device_expression(expression, &at.child("expression"), errors);
        }
    }
}

fn validate_constraint(
    constraint: &Value,
    requests: &[(&str, Vec<&str>)],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    validate_request_references(constraint, requests, path, errors);
    for field in ["matchAttribute", "distinctAttribute"] {
        if let Some(name) = opt_text(constraint, field) {
            return validate_fully_qualified_name(name, &path.child(field), errors);
        }
    }
    errors.required(path, "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set");
}

fn validate_device_class(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    validate_device_selectors(spec, &path, errors);
    let configs = list(spec, "config");
    let is_stored = old.is_some_and(|old| same(get(old, "spec"), spec, "config"));
    let at = path.child("config");
    if !exceeds(configs, MOST_CONFIGS, &at, errors) {
        for (i, config) in configs.iter().enumerate() {
            validate_device_configuration(config, is_stored, &at.index(i), errors);
        }
    }
    if let Some(name) = opt_text(spec, "extendedResourceName")
        && !crate::pod::is_extended_resource(name)
    {
        let detail = "must be a valid extended resource name";
        errors.invalid(&path.child("extendedResourceName"), name, detail);
    }
}
