//! Update strategies of workloads.

use crate::field::{Errors, Path};
use crate::rules::{self, is_percent, whole_number};
use api_meta::tree::{get, has, text};
use serde_json::{Value, json};

/// Validates `strategy` of a Deployment.
pub(super) fn validate_deployment_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rolling = path.child("rollingUpdate");
    match text(strategy, "type") {
        // kubectl apply that changes the type alone leaves the defaulted rollingUpdate behind.
        // `$retainKeys` removes it.
        "Recreate" if has(strategy, "rollingUpdate") => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.forbidden(&rolling, detail);
        }
        "Recreate" => {}
        "RollingUpdate" if !has(strategy, "rollingUpdate") => {
            errors.required(&rolling, "this should be defaulted and never be nil");
        }
        "RollingUpdate" => {
            validate_rolling_update(get(strategy, "rollingUpdate"), &rolling, errors);
        }
        other => {
            let known = ["Recreate", "RollingUpdate"];
            errors.not_supported(path, json!({"type": other}), &known);
        }
    }
}

/// Returns whether a number or percentage is zero. One that can't be read counts as zero, as for
/// upstream.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) if !is_percent(text) => text.parse::<i64>().unwrap_or(0) == 0,
        other => whole_number(other) == 0,
    }
}

fn validate_rolling_update(rolling: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (surge, unavailable) = (get(rolling, "maxSurge"), get(rolling, "maxUnavailable"));
    let at = path.child("maxUnavailable");
    rules::validate_non_negative_or_percent(unavailable, &at, errors);
    rules::validate_non_negative_or_percent(surge, &path.child("maxSurge"), errors);
    // Neither a pod more nor a pod less: the rollout could never take a step.
    if is_zero(unavailable) && is_zero(surge) {
        let detail = "may not be 0 when `maxSurge` is 0";
        errors.invalid(&at, unavailable.clone(), detail);
    }
    // The surge has no upper limit, since it only adds pods.
    rules::validate_at_most_100_percent(unavailable, &at, errors);
}

/// Validates `updateStrategy` of a DaemonSet.
pub(super) fn validate_daemon_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("rollingUpdate");
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" if !has(strategy, "rollingUpdate") => errors.required(&at, ""),
        "RollingUpdate" => validate_daemon_update(get(strategy, "rollingUpdate"), &at, errors),
        other => {
            let known = ["RollingUpdate", "OnDelete"];
            errors.not_supported(path, json!({"type": other}), &known);
        }
    }
}

fn validate_daemon_update(rolling: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (surge, unavailable) = (get(rolling, "maxSurge"), get(rolling, "maxUnavailable"));
    let (surge_at, at) = (path.child("maxSurge"), path.child("maxUnavailable"));
    rules::validate_non_negative_or_percent(unavailable, &at, errors);
    rules::validate_non_negative_or_percent(surge, &surge_at, errors);
    rules::validate_at_most_100_percent(unavailable, &at, errors);
    rules::validate_at_most_100_percent(surge, &surge_at, errors);
    // A DaemonSet replaces a pod on its node either after it or beside it (KEP-1591).
    match (is_zero(unavailable), is_zero(surge)) {
        (false, false) => {
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.invalid(&surge_at, surge.clone(), detail);
        }
        (true, true) => errors.required(&at, "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

/// Validates `updateStrategy` of a StatefulSet.
pub(super) fn validate_stateful_set_strategy(
    strategy: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (rolling, at) = (get(strategy, "rollingUpdate"), path.child("rollingUpdate"));
    match text(strategy, "type") {
        "" => errors.required(path, ""),
        // Nothing is replaced until a user deletes a pod, so the parameters would have no effect.
        "OnDelete" if !rolling.is_null() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.invalid(&at, rolling.clone(), detail);
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            rules::validate_non_negative(rolling, "partition", &at, errors);
            let unavailable = get(rolling, "maxUnavailable");
            if !unavailable.is_null() {
                let at = at.child("maxUnavailable");
                rules::validate_non_negative_or_percent(unavailable, &at, errors);
                // A StatefulSet has no surge, so at least one pod has to be unavailable for a
                // rollout to proceed.
                if is_zero(unavailable) {
                    errors.invalid(&at, unavailable.clone(), "cannot be 0");
                }
                rules::validate_at_most_100_percent(unavailable, &at, errors);
            }
        }
        other => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.invalid(path, json!({"type": other}), detail);
        }
    }
}
