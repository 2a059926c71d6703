//! Events of the core group and of `events.k8s.io`, which are two forms of one object.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules::IMMUTABLE;
use api_meta::names;
use api_meta::tree::{get, has, int, same, text};
use serde_json::Value;

/// Rules of events of the core group.
pub const EVENT: Rules = Rules {
    name: NameRule::PathSegment,
    create: |object, errors| validate_event(object, &CORE, errors),
    update: |new, _, errors| validate_event(new, &CORE, errors),
    sub: accept_subresource,
};
/// Rules of events of the group `events.k8s.io`.
pub const SERIES_EVENT: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_new_series_event,
    update: validate_series_event_update,
    sub: accept_subresource,
};

/// Names of the fields in one form.
struct Form {
    involved: &'static str,
    controller: &'static str,
    message: &'static str,
}

const CORE: Form = Form {
    involved: "involvedObject",
    controller: "reportingComponent",
    message: "message",
};
const SERIES: Form = Form {
    involved: "regarding",
    controller: "reportingController",
    message: "note",
};

/// Validates what both forms have in common. Recorders of old releases omit the time and get the
/// old, lenient rules.
fn validate_event(object: &Value, form: &Form, errors: &mut Errors) {
    let involved = text(get(object, form.involved), "namespace");
    let own = text(get(object, "metadata"), "namespace");
    let is_new = has(object, "eventTime");
    let matches = match (is_new, involved) {
        (true, "") => ["default", "kube-system"].contains(&own),
        (true, _) => true,
        (false, "") => ["default", ""].contains(&own),
        (false, involved) => involved == own,
    };
    if !matches {
        let path = Path::ROOT.child("involvedObject");
        errors.invalid(
            &path.child("namespace"),
            involved,
            "does not match event.namespace",
        );
    }
    if is_new {
        validate_recorded_fields(object, form, errors);
    }
}

fn validate_recorded_fields(object: &Value, form: &Form, errors: &mut Errors) {
    let root = Path::ROOT;
    let name = text(object, form.controller);
    let at = root.child(form.controller);
    if name.is_empty() {
        errors.required(&at, "");
    }
    errors.invalid_each(&at, name, names::qualified_name(name));
    for field in ["reportingInstance", "action", "reason"] {
        let value = text(object, field);
        if value.is_empty() {
            errors.required(&root.child(field), "");
        }
        if value.len() > 128 {
            errors.invalid(&root.child(field), "", "can have at most 128 characters");
        }
    }
    if text(object, form.message).len() > 1024 {
        let detail = "can have at most 1024 characters";
        errors.invalid(&root.child("message"), "", detail);
    }
}

fn validate_new_series_event(object: &Value, errors: &mut Errors) {
    validate_event(object, &SERIES, errors);
    validate_event_series(object, errors);
    if !has(object, "eventTime") {
        errors.required(&Path::ROOT.child("eventTime"), "");
    }
    let kind = text(object, "type");
    if !["Normal", "Warning"].contains(&kind) {
        let detail = format!("has invalid value: {kind}");
        errors.invalid(&Path::ROOT.child("type"), "", detail);
    }
    for (field, path) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
    ] {
        if has(object, field) && get(object, field) != 0 {
            errors.invalid(&Path::ROOT.child(path), "", "needs to be unset");
        }
    }
    let source = get(object, "deprecatedSource");
    if !text(source, "component").is_empty() || !text(source, "host").is_empty() {
        errors.invalid(&Path::ROOT.child("source"), "", "needs to be unset");
    }
}

fn validate_event_series(object: &Value, errors: &mut Errors) {
    let (series, path) = (get(object, "series"), Path::ROOT.child("series"));
    if series.is_null() {
        return;
    }
    if int(series, "count").unwrap_or(0) < 2 {
        errors.invalid(&path.child("count"), "", "should be at least 2");
    }
    if !has(series, "lastObservedTime") {
        errors.required(&path.child("lastObservedTime"), "");
    }
}

/// Fields of the form `events.k8s.io` that never change, with upstream's paths.
const FIXED: [(&str, &str); 14] = [
    ("regarding", "involvedObject"),
    ("reason", "reason"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    // Upstream validates the reason twice.
    ("reason", "reason"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

/// Recorders count repetitions in the series; what an event says does not change.
fn validate_series_event_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_event(new, &SERIES, errors);
    if !same(new, old, "series") {
        validate_event_series(new, errors);
    }
    for (field, path) in FIXED {
        if !same(new, old, field) {
            errors.invalid(&Path::ROOT.child(path), get(new, field).clone(), IMMUTABLE);
        }
    }
}
