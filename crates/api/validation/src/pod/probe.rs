//! Probes and lifecycle hooks.

use crate::field::{Errors, Path};
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, int, list, text};
use serde_json::Value;

const COUNTERS: [&str; 5] = [
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
];

/// Validates the three probes of a container.
pub fn validate_probes(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if !has(container, field) {
            continue;
        }
        let (probe, at) = (get(container, field), path.child(field));
        validate_probe(probe, &at, errors);
        // A failed readiness probe never ends the container, so it has no grace period and may need
        // several successes.
        if field == "readinessProbe" {
            if has(probe, "terminationGracePeriodSeconds") {
                let value = get(probe, "terminationGracePeriodSeconds").clone();
                errors.invalid(
                    &at.child("terminationGracePeriodSeconds"),
                    value,
                    "must not be set for readinessProbes",
                );
            }
            continue;
        }
        // The kubelet forgets the failures of a liveness or startup probe after one success.
        if let Some(n) = int(probe, "successThreshold").filter(|n| *n != 1) {
            errors.invalid(&at.child("successThreshold"), n, "must be 1");
        }
        rules::validate_positive(probe, "terminationGracePeriodSeconds", &at, errors);
    }
}

fn validate_probe(probe: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_handler(probe, path, errors);
    for field in COUNTERS {
        rules::validate_non_negative(probe, field, path, errors);
    }
}

/// Checks that there is exactly one handler.
fn validate_handler(handler: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut found = 0;
    for field in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        if !has(handler, field) {
            continue;
        }
        let at = path.child(field);
        // Upstream reports the handlers after the first one, so the error names the surplus.
        if found > 0 {
            errors.forbidden(&at, "may not specify more than 1 handler type");
            continue;
        }
        found += 1;
        let part = get(handler, field);
        match field {
            "exec" => {
                // The command is executed without a shell and needs at least a program.
                if list(part, "command").is_empty() {
                    errors.required(&at.child("command"), "");
                }
            }
            "httpGet" => validate_http_get(part, &at, errors),
            "tcpSocket" => {
                rules::validate_port_number_or_name(get(part, "port"), &at.child("port"), errors)
            }
            "grpc" => {
                rules::validate_port_number_or_name(get(part, "port"), &at.child("port"), errors)
            }
            _ => {
                if int(part, "seconds").unwrap_or(0) < 0 {
                    errors.invalid(&at, get(part, "seconds").clone(), "must be non-negative");
                }
            }
        }
    }
    if found == 0 {
        errors.required(path, "must specify a handler type");
    }
}

fn validate_http_get(get_: &Value, path: &Path<'_>, errors: &mut Errors) {
    if text(get_, "path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    rules::validate_port_number_or_name(get(get_, "port"), &path.child("port"), errors);
    rules::validate_one_of(get_, "scheme", &["HTTP", "HTTPS"], path, errors);
    let at = path.child("httpHeaders");
    for (i, header) in list(get_, "httpHeaders").iter().enumerate() {
        let name = text(header, "name");
        let good = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !good {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
            errors.invalid(&at.index(i).child("name"), name, detail);
        }
    }
}

/// Validates the lifecycle hooks of a container.
pub fn validate_lifecycle(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let lifecycle = get(container, "lifecycle");
    for field in ["postStart", "preStop"] {
        if has(lifecycle, field) {
            validate_handler(get(lifecycle, field), &path.child(field), errors);
        }
    }
}

/// Validates a condition type or gate name.
pub fn validate_qualified_name(value: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_each(path, value, names::qualified_name(value));
}
