//! HorizontalPodAutoscalers of the versions v1 and v2.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, int, list, text};
use serde_json::Value;

pub const AUTOSCALER: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_autoscaler,
    update: |new, _, e| validate_autoscaler(new, e),
    sub: accept_subresource,
};

/// Sources of metrics and the field of each.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// Sources in the order of evaluation; only the content of the first one is validated.
const IN_ORDER: [&str; 5] = [
    "object",
    "external",
    "pods",
    "resource",
    "containerResource",
];

fn validate_autoscaler(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let min = int(spec, "minReplicas");
    let max = int(spec, "maxReplicas").unwrap_or(0);
    if let Some(min) = min.filter(|m| *m < 1) {
        errors.invalid(
            &path.child("minReplicas"),
            min,
            "must be greater than or equal to 1",
        );
    }
    // Absent and zero are the same for Go clients, so upstream reports a missing value.
    if max == 0 {
        errors.required(&path.child("maxReplicas"), "");
    } else if max < 0 {
        errors.invalid(
            &path.child("maxReplicas"),
            max,
            "must be greater than or equal to 1",
        );
    }
    if min.is_some_and(|m| max < m) {
        errors.invalid(
            &path.child("maxReplicas"),
            max,
            "must be greater than or equal to `minReplicas`",
        );
    }
    validate_scale_target(
        get(spec, "scaleTargetRef"),
        &path.child("scaleTargetRef"),
        errors,
    );
    validate_metrics(spec, min, &path.child("metrics"), errors);
    let at = path.child("behavior");
    for field in ["scaleUp", "scaleDown"] {
        if has(get(spec, "behavior"), field) {
            validate_behavior(get(get(spec, "behavior"), field), &at.child(field), errors);
        }
    }
    if let Some(n) = int(spec, "targetCPUUtilizationPercentage").filter(|n| *n < 1) {
        errors.invalid(
            &path.child("targetCPUUtilizationPercentage"),
            n,
            rules::NOT_POSITIVE,
        );
    }
}

// The scale subresource of any kind may be a target, so kind and version are names, not known
// kinds.
fn validate_scale_target(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["kind", "name"] {
        let value = text(reference, field);
        if value.is_empty() {
            errors.required(&path.child(field), "");
        } else {
            errors.invalid_each(&path.child(field), value, names::path_segment(value));
        }
    }
    let version = text(reference, "apiVersion");
    let last = version.rsplit('/').next().unwrap_or_default();
    if !version.is_empty() {
        let mut problems = names::dns1035_label(last);
        if let Some((group, _)) = version.split_once('/') {
            problems.extend(names::dns1123_subdomain(group));
        }
        errors.invalid_each(&path.child("apiVersion"), version, problems);
    }
}

fn validate_metrics(spec: &Value, min: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    let all = list(spec, "metrics");
    let known: Vec<&str> = SOURCES.iter().map(|(kind, _)| *kind).collect();
    for (i, metric) in all.iter().enumerate() {
        let at = path.index(i);
        let kind = text(metric, "type");
        if kind.is_empty() {
            errors.required(&at.child("type"), "must specify a metric source type");
            continue;
        }
        let expected = SOURCES
            .iter()
            .find(|(k, _)| *k == kind)
            .map(|(_, field)| *field);
        let present: Vec<&str> = IN_ORDER.into_iter().filter(|f| has(metric, f)).collect();
        // A metric with two sources is rejected below; only one of them needs a look.
        if let Some(first) = present.first() {
            validate_metric_source(get(metric, first), &at.child(first), errors);
        }
        for extra in present.iter().filter(|f| Some(**f) != expected) {
            errors.forbidden(
                &at.child(extra),
                "must populate the given metric source only",
            );
        }
        match expected {
            Some(field) if !present.contains(&field) => {
                errors.required(
                    &at.child(field),
                    format!("must populate the given metric source for type {kind}"),
                );
            }
            Some(_) => {}
            None => {
                // Upstream reports this twice: for the type and for the source that it selects.
                errors.not_supported(&at.child("type"), kind, &known);
                errors.not_supported(&at.child("type"), kind, &known);
            }
        }
    }
    // Resource metrics come from pods. With none left, only an outside metric can start the first
    // one again.
    let has_outside_metric = all
        .iter()
        .any(|m| matches!(text(m, "type"), "Object" | "External"));
    if min == Some(0) && !has_outside_metric {
        errors
            .forbidden(path, "must specify at least one Object or External metric to support scaling to zero replicas");
    }
}

fn validate_metric_source(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (target, at) = (get(source, "target"), path.child("target"));
    match text(target, "type") {
        "" => errors.required(&at.child("type"), "must specify a metric target type"),
        "AverageValue" | "Utilization" | "Value" => {}
        other => errors.invalid(
            &at.child("type"),
            other,
            "must be either Utilization, Value, or AverageValue",
        ),
    }
    if let Some(n) = int(target, "averageUtilization").filter(|n| *n < 1) {
        errors.invalid(&at.child("averageUtilization"), n, rules::NOT_POSITIVE);
    }
    for field in ["value", "averageValue"] {
        if rules::read_quantity(target, field).is_some_and(|q| q.is_negative() || q.is_zero()) {
            errors.invalid(
                &at.child(field),
                get(target, field).clone(),
                "must be positive",
            );
        }
    }
    // Utilization is relative to requests, which only resources of pods have.
    let resource = path.to_string().to_ascii_lowercase().ends_with("resource");
    if resource {
        if text(source, "name").is_empty() {
            errors.required(&path.child("name"), "must specify a resource name");
        }
        match (
            has(target, "averageUtilization"),
            has(target, "averageValue"),
        ) {
            (true, true) => errors.forbidden(
                &at.child("averageValue"),
                "may not set both a target raw value and a target utilization",
            ),
            (false, false) => errors.required(
                &at.child("averageUtilization"),
                "must set either a target raw value or a target utilization",
            ),
            _ => {}
        }
    }
}

fn validate_behavior(rules_: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = int(rules_, "stabilizationWindowSeconds") {
        let at = path.child("stabilizationWindowSeconds");
        if n < 0 {
            errors.invalid(&at, n, "must be greater than or equal to zero");
        // Upstream's limits bound the history that the controller keeps in memory.
        } else if n > 3600 {
            errors.invalid(&at, n, "must be less than or equal to 3600");
        }
    }
    rules::validate_one_of(
        rules_,
        "selectPolicy",
        &["Disabled", "Max", "Min"],
        path,
        errors,
    );
    let at = path.child("policies");
    let policies = list(rules_, "policies");
    if policies.is_empty() {
        errors.required(&at, "must specify at least one Policy");
    }
    for (i, policy) in policies.iter().enumerate() {
        let at = at.index(i);
        if !["Percent", "Pods"].contains(&text(policy, "type")) {
            errors.not_supported(
                &at.child("type"),
                text(policy, "type"),
                &["Percent", "Pods"],
            );
        }
        for field in ["value", "periodSeconds"] {
            let n = int(policy, field).unwrap_or(0);
            if n <= 0 {
                errors.invalid(&at.child(field), n, "must be greater than zero");
            } else if field == "periodSeconds" && n > 1800 {
                errors.invalid(&at.child(field), n, "must be less than or equal to 1800");
            }
        }
    }
}
