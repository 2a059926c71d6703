//! Probes and lifecycle hooks.

use super::context::PodContext;
use super::system::validate_stop_signal;
use crate::field::{Errors, Path};
use crate::rules;
use api_meta::tree::{get, has, int, list, text};
use serde_json::Value;

const COUNTERS: [&str; 5] = [
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
];
const OF_PROBE: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
const OF_HOOK: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];

/// Validates the three probes of a container.
pub fn validate_probes(
    container: &Value,
    context: &PodContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if !has(container, field) {
            continue;
        }
        let (probe, at) = (get(container, field), path.child(field));
        validate_handler(probe, &OF_PROBE, context, &at, errors);
        for counter in COUNTERS {
            rules::validate_non_negative(probe, counter, &at, errors);
        }
        // With zero, the container would be killed without any time to end.
        let grace = int(probe, "terminationGracePeriodSeconds");
        let grace_at = at.child("terminationGracePeriodSeconds");
        if let Some(seconds) = grace.filter(|n| *n <= 0) {
            errors.invalid(&grace_at, seconds, "must be greater than 0");
        }
        // A failed readiness probe never ends the container, so it has no grace period and may need
        // several successes.
        if field == "readinessProbe" {
            if let Some(seconds) = grace {
                errors.invalid(&grace_at, seconds, "must not be set for readinessProbes");
            }
            continue;
        }
        // The kubelet forgets the failures of a liveness or startup probe after one success.
        let successes = int(probe, "successThreshold").unwrap_or(0);
        if successes != 1 {
            errors.invalid(&at.child("successThreshold"), successes, "must be 1");
        }
    }
}

/// Checks that there is exactly one handler of the known ones.
fn validate_handler(
    handler: &Value,
    known: &[&str],
    context: &PodContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut found = 0;
    for field in known.iter().filter(|field| has(handler, field)) {
        let (part, at) = (get(handler, field), path.child(field));
        // Upstream reports the handlers after the first one, so the error names the surplus.
        if found > 0 {
            errors.forbidden(&at, "may not specify more than 1 handler type");
            continue;
        }
        found += 1;
        match *field {
            // The command is executed without a shell and needs at least a program.
            "exec" if list(part, "command").is_empty() => {
                errors.required(&at.child("command"), "");
            }
            "httpGet" => validate_http_get(part, &at, errors),
            "tcpSocket" | "grpc" => {
                rules::validate_port_number_or_name(get(part, "port"), &at.child("port"), errors);
            }
            "sleep" => validate_sleep(part, context, &at, errors),
            _ => {}
        }
    }
    if found == 0 {
        errors.required(path, "must specify a handler type");
    }
}

fn validate_sleep(sleep: &Value, context: &PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    // The sleep is a part of the grace period, and the kubelet kills the container at its end.
    let seconds = int(sleep, "seconds").unwrap_or(0);
    // A missing grace period is reported elsewhere.
    if let Some(grace) = context.grace_period
        && !(0..=grace).contains(&seconds)
    {
        let detail =
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(path, seconds, detail);
    }
}

fn validate_http_get(get_: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Defaulting sets a slash, so an empty path comes from callers without defaults.
    if text(get_, "path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    rules::validate_port_number_or_name(get(get_, "port"), &path.child("port"), errors);
    let scheme = text(get_, "scheme");
    if !matches!(scheme, "HTTP" | "HTTPS") {
        errors.not_supported(&path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    let at = path.child("httpHeaders");
    for header in list(get_, "httpHeaders") {
        let name = text(header, "name");
        // The kubelet sends the names as header fields of its own requests, so nothing else may
        // stand in them.
        let good = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !good {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
            errors.invalid(&at, name, detail);
        }
    }
}

/// Validates the lifecycle hooks of a container.
pub fn validate_lifecycle(
    container: &Value,
    context: &PodContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let lifecycle = get(container, "lifecycle");
    for field in ["postStart", "preStop"] {
        if has(lifecycle, field) {
            let at = path.child(field);
            validate_handler(get(lifecycle, field), &OF_HOOK, context, &at, errors);
        }
    }
    validate_stop_signal(lifecycle, context.system, path, errors);
}
