//! Metrics of HorizontalPodAutoscalers.

use super::reference::{VersionRule, validate_reference};
use crate::field::{Errors, Path};
use crate::pod::validate_container_resource_name;
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, int, text};
use serde_json::Value;

/// Types of metrics and the field of each.
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

/// Validates `metrics`. `spec_path` is that of the autoscaler's spec.
pub(super) fn validate_metrics(
    all: &[Value],
    min: Option<i64>,
    rule: VersionRule,
    spec_path: &Path<'_>,
    errors: &mut Errors,
) {
    let path = spec_path.child("metrics");
    for (i, metric) in all.iter().enumerate() {
        validate_metric(metric, rule, &path.index(i), errors);
    }
    // Resource metrics come from pods. With none left, only an outside metric can start the first
    // one again.
    let is_outside = |metric: &Value| matches!(text(metric, "type"), "Object" | "External");
    if min == Some(0) && !all.iter().any(is_outside) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(&path, detail);
    }
}

fn validate_metric(metric: &Value, rule: VersionRule, path: &Path<'_>, errors: &mut Errors) {
    let (kind, at) = (text(metric, "type"), path.child("type"));
    let known = SOURCES.map(|(kind, _)| kind);
    if kind.is_empty() {
        errors.required(&at, "must specify a metric source type");
    }
    // An empty type is reported as missing and as unsupported, as upstream.
    if !known.contains(&kind) {
        errors.not_supported(&at, kind, &known);
    }
    let present: Vec<&str> = IN_ORDER.into_iter().filter(|f| has(metric, f)).collect();
    if let Some(first) = present.first() {
        validate_source(first, get(metric, first), rule, &path.child(first), errors);
    }
    let expected = SOURCES
        .iter()
        .find(|(k, _)| *k == kind)
        .map(|(_, field)| *field);
    match expected {
        Some(field) if !present.contains(&field) => {
            let detail = "must populate information for the given metric source";
            errors.required(&path.child(field), detail);
        }
        Some(_) => {}
        // Upstream reports this twice: for the type and for the source that it selects.
        None => errors.not_supported(&at, kind, &known),
    }
    // A single source of another type has been reported as missing above, so it isn't reported
    // again.
    if present.len() > 1 {
        for extra in present.iter().filter(|field| Some(**field) != expected) {
            let detail = "must populate the given metric source only";
            errors.forbidden(&path.child(extra), detail);
        }
    }
}

fn validate_source(
    kind: &str,
    source: &Value,
    rule: VersionRule,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    match kind {
        "object" => {
            let at = path.child("describedObject");
            validate_reference(get(source, "describedObject"), rule, &at, errors);
            validate_identifier(source, path, errors);
        }
        "external" | "pods" => validate_identifier(source, path, errors),
        _ => validate_resource_name(kind, source, path, errors),
    }
    let (target, at) = (get(source, "target"), path.child("target"));
    validate_target(target, &at, errors);
    let (value, average, utilization) = (
        has(target, "value"),
        has(target, "averageValue"),
        has(target, "averageUtilization"),
    );
    let average_at = at.child("averageValue");
    match kind {
        "object" if !value && !average => {
            errors.required(
                &average_at,
                "must set either a target value or averageValue",
            );
        }
        "external" if !value && !average => {
            let detail = "must set either a target value for metric or a per-pod target";
            errors.required(&average_at, detail);
        }
        "external" if value && average => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&at.child("value"), detail);
        }
        "pods" if !average => {
            errors.required(&average_at, "must specify a positive target averageValue");
        }
        // Utilization is relative to requests, which only resources of pods have.
        "resource" | "containerResource" => match (utilization, average) {
            (false, false) => {
                let detail = "must set either a target raw value or a target utilization";
                errors.required(&at.child("averageUtilization"), detail);
            }
            (true, true) => {
                let detail = "may not set both a target raw value and a target utilization";
                errors.forbidden(&average_at, detail);
            }
            _ => {}
        },
        _ => {}
    }
}

fn validate_resource_name(kind: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, at) = (text(source, "name"), path.child("name"));
    if name.is_empty() {
        errors.required(&at, "must specify a resource name");
    } else if kind == "containerResource" {
        validate_container_resource_name(name, &at, errors);
    }
    if kind == "containerResource" {
        let (container, at) = (text(source, "container"), path.child("container"));
        if container.is_empty() {
            errors.required(&at, "must specify a container");
        } else {
            errors.invalid_each(&at, container, names::dns1123_label(container));
        }
    }
}

fn validate_identifier(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, at) = (text(get(source, "metric"), "name"), path.child("metric"));
    if name.is_empty() {
        errors.required(&at.child("name"), "must specify a metric name");
    } else {
        // The name becomes a segment of the URL of the metrics API, so it must not lead to another
        // path.
        errors.invalid_each(&at.child("name"), name, names::path_segment(name));
    }
}

fn validate_target(target: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (kind, at) = (text(target, "type"), path.child("type"));
    if kind.is_empty() {
        errors.required(&at, "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(
            &at,
            kind,
            "must be either Utilization, Value, or AverageValue",
        );
    }
    // The current value is divided by the target, so zero has no meaning.
    for field in ["value", "averageValue"] {
        if rules::read_quantity(target, field).is_some_and(|q| q.is_negative() || q.is_zero()) {
            let shown = get(target, field).clone();
            errors.invalid(&path.child(field), shown, "must be positive");
        }
    }
    if let Some(n) = int(target, "averageUtilization").filter(|n| *n < 1) {
        errors.invalid(
            &path.child("averageUtilization"),
            n,
            "must be greater than 0",
        );
    }
}
