//! Workloads of the group `apps`, and ReplicationControllers.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::pod;
use crate::rules::{self, whole_number};
use crate::selector;
use api_meta::tree::{equal, get, has, int, same, text};
use serde_json::{Value, json};

const fn workload_rules(
    create: crate::kind_rules::Create,
    update: crate::kind_rules::Update,
) -> Rules {
    Rules {
        name: NameRule::Subdomain,
        create,
        update,
        sub: validate_status_update,
    }
}

pub const DEPLOYMENT: Rules = workload_rules(validate_deployment, |new, old, errors| {
    validate_deployment(new, errors);
    validate_selector_unchanged(new, old, errors);
});
pub const REPLICA_SET: Rules = workload_rules(validate_replica_set, |new, old, errors| {
    validate_replica_set(new, errors);
    validate_selector_unchanged(new, old, errors);
});
pub const DAEMON_SET: Rules = workload_rules(validate_daemon_set, |new, old, errors| {
    validate_daemon_set(new, errors);
    validate_selector_unchanged(new, old, errors);
});
pub const STATEFUL_SET: Rules = Rules {
    name: NameRule::Label,
    create: validate_stateful_set,
    update: validate_stateful_set_update,
    sub: validate_status_update,
};
pub const REPLICATION_CONTROLLER: Rules =
    workload_rules(validate_replication_controller, |new, _, errors| {
        validate_replication_controller(new, errors)
    });
pub const CONTROLLER_REVISION: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_revision,
    update: validate_revision_update,
    sub: accept_subresource,
};

fn validate_status_update(_: &str, new: &Value, _: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("status");
    let status = get(new, "status");
    for field in [
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "updatedReplicas",
        "fullyLabeledReplicas",
        "unavailableReplicas",
        "observedGeneration",
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
    ] {
        rules::validate_non_negative(status, field, &path, errors);
    }
}

fn validate_selector_unchanged(new: &Value, old: &Value, errors: &mut Errors) {
    rules::validate_immutable(
        get(new, "spec"),
        get(old, "spec"),
        "selector",
        &Path::ROOT.child("spec"),
        errors,
    );
}

/// Checks that the selector exists and is not empty, then that the template matches it.
fn validate_selected_template(spec: &Value, what: &str, path: &Path<'_>, errors: &mut Errors) {
    let labels = get(spec, "selector");
    let at = path.child("selector");
    // Without a selector the controller would not find its pods again. It is no longer defaulted
    // from the template since apps/v1.
    if labels.is_null() {
        errors.required(&at, "");
    } else {
        selector::validate_label_selector(labels, &at, errors);
        if selector::is_empty_selector(labels) {
            errors.invalid(
                &at,
                json!({}),
                format!("empty selector is invalid for {what}"),
            );
        }
        // For a DaemonSet, upstream does not report that its selector cannot be compiled.
        if what != "daemonset" && selector::compile_selector(labels).is_err() {
            errors.invalid(&at, labels.clone(), "invalid label selector");
        }
    }
}

/// Validates the template, unless the selector is invalid: then only that is reported.
fn validate_template_readable(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Errors of the template would hide that of the selector.
    if selector::compile_selector(get(spec, "selector")).is_ok() {
        pod::validate_replica_template(
            get(spec, "template"),
            get(spec, "selector"),
            &path.child("template"),
            errors,
        );
    }
}

fn validate_deployment(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    rules::validate_non_negative(spec, "replicas", &path, errors);
    validate_selected_template(spec, "deployment", &path, errors);
    validate_template_readable(spec, &path, errors);
    validate_deployment_strategy(get(spec, "strategy"), &path.child("strategy"), errors);
    rules::validate_non_negative(spec, "minReadySeconds", &path, errors);
    rules::validate_non_negative(spec, "revisionHistoryLimit", &path, errors);
    if let Some(deadline) = int(spec, "progressDeadlineSeconds") {
        rules::validate_non_negative(spec, "progressDeadlineSeconds", &path, errors);
        // A new pod cannot be available before the deadline, so every rollout would fail.
        if deadline <= int(spec, "minReadySeconds").unwrap_or(0) {
            errors.invalid(
                &path.child("progressDeadlineSeconds"),
                deadline,
                "must be greater than minReadySeconds",
            );
        }
    }
}

fn validate_deployment_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let known = ["Recreate", "RollingUpdate"];
    let rolling = path.child("rollingUpdate");
    match text(strategy, "type") {
        // kubectl apply that changes the type alone leaves the defaulted rollingUpdate behind.
        // `$retainKeys` removes it.
        "Recreate" if has(strategy, "rollingUpdate") => {
            errors.forbidden(
                &rolling,
                "may not be specified when strategy `type` is 'Recreate'",
            );
        }
        "Recreate" => {}
        "RollingUpdate" if !has(strategy, "rollingUpdate") => {
            errors.required(&rolling, "this should be defaulted and never be nil");
        }
        "RollingUpdate" => {
            validate_rolling_update(get(strategy, "rollingUpdate"), &rolling, errors)
        }
        other => errors.not_supported(path, json!({"type": other}), &known),
    }
}

fn validate_rolling_update(rolling: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (surge, unavailable) = (get(rolling, "maxSurge"), get(rolling, "maxUnavailable"));
    let at = path.child("maxUnavailable");
    rules::validate_non_negative_or_percent(unavailable, &at, errors);
    rules::validate_non_negative_or_percent(surge, &path.child("maxSurge"), errors);
    let good = |v: &Value| v.is_i64() || v.as_str().is_some_and(|s| s.ends_with('%'));
    // Neither a pod more nor a pod less: the rollout could never take a step.
    if good(unavailable)
        && good(surge)
        && whole_number(unavailable) == 0
        && whole_number(surge) == 0
    {
        errors.invalid(
            &at,
            unavailable.clone(),
            "may not be 0 when `maxSurge` is 0",
        );
    }
    rules::validate_at_most_100_percent(unavailable, &at, errors);
}

fn validate_replica_set(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    rules::validate_non_negative(spec, "replicas", &path, errors);
    rules::validate_non_negative(spec, "minReadySeconds", &path, errors);
    validate_selected_template(spec, "deployment", &path, errors);
    validate_template_readable(spec, &path, errors);
}

fn validate_replication_controller(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    rules::validate_non_negative(spec, "minReadySeconds", &path, errors);
    let labels = get(spec, "selector");
    if labels.as_object().is_none_or(|m| m.is_empty()) && has(spec, "template") {
        errors.required(&path.child("selector"), "");
    }
    rules::validate_non_negative(spec, "replicas", &path, errors);
    if has(spec, "template") {
        let as_selector = json!({"matchLabels": labels});
        pod::validate_replica_template(
            get(spec, "template"),
            &as_selector,
            &path.child("template"),
            errors,
        );
    } else {
        errors.required(&path.child("template"), "");
    }
}

fn validate_daemon_set(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    validate_selected_template(spec, "daemonset", &path, errors);
    pod::validate_replica_template(
        get(spec, "template"),
        get(spec, "selector"),
        &path.child("template"),
        errors,
    );
    rules::validate_non_negative(spec, "minReadySeconds", &path, errors);
    validate_daemon_strategy(
        get(spec, "updateStrategy"),
        &path.child("updateStrategy"),
        errors,
    );
    rules::validate_non_negative(spec, "revisionHistoryLimit", &path, errors);
}

fn validate_daemon_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("rollingUpdate");
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" if !has(strategy, "rollingUpdate") => errors.required(&at, ""),
        "RollingUpdate" => {
            let rolling = get(strategy, "rollingUpdate");
            let (surge, unavailable) = (get(rolling, "maxSurge"), get(rolling, "maxUnavailable"));
            rules::validate_non_negative_or_percent(
                unavailable,
                &at.child("maxUnavailable"),
                errors,
            );
            rules::validate_non_negative_or_percent(surge, &at.child("maxSurge"), errors);
            // A DaemonSet replaces a pod on its node either after it or beside it (KEP-1591).
            match (whole_number(unavailable), whole_number(surge)) {
                (u, s) if u != 0 && s != 0 => {
                    errors.invalid(
                        &at.child("maxSurge"),
                        surge.clone(),
                        "may not be set when maxUnavailable is non-zero",
                    );
                }
                (0, 0) => errors.required(
                    &at.child("maxUnavailable"),
                    "cannot be 0 when maxSurge is 0",
                ),
                _ => {}
            }
            rules::validate_at_most_100_percent(unavailable, &at.child("maxUnavailable"), errors);
            rules::validate_at_most_100_percent(surge, &at.child("maxSurge"), errors);
        }
        other => errors.not_supported(path, json!({"type": other}), &["RollingUpdate", "OnDelete"]),
    }
}

fn validate_stateful_set(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    match text(spec, "podManagementPolicy") {
        "" => errors.required(&path.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.invalid(&path.child("podManagementPolicy"), other, detail);
        }
    }
    validate_stateful_set_strategy(
        get(spec, "updateStrategy"),
        &path.child("updateStrategy"),
        errors,
    );
    let policy = get(spec, "persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        let at = path.child("persistentVolumeClaimRetentionPolicy");
        rules::validate_one_of(policy, field, &["Retain", "Delete"], &at, errors);
    }
    rules::validate_non_negative(spec, "replicas", &path, errors);
    rules::validate_non_negative(spec, "minReadySeconds", &path, errors);
    rules::validate_non_negative(
        get(spec, "ordinals"),
        "start",
        &path.child("ordinals"),
        errors,
    );
    // Pods that need no stable DNS name need no Service.
    let service = text(spec, "serviceName");
    if !service.is_empty() {
        errors.invalid_each(
            &path.child("serviceName"),
            service,
            api_meta::names::dns1123_subdomain(service),
        );
    }
    validate_selected_template(spec, "statefulset", &path, errors);
    if selector::compile_selector(get(spec, "selector")).is_ok() {
        validate_template_readable(spec, &path, errors);
    } else {
        let at = path.child("template");
        let at = at.child("spec");
        let pod = get(get(spec, "template"), "spec");
        if text(pod, "restartPolicy") != "Always" {
            errors.not_supported(
                &at.child("restartPolicy"),
                text(pod, "restartPolicy"),
                &["Always"],
            );
        }
        if has(pod, "activeDeadlineSeconds") {
            errors.forbidden(
                &at.child("activeDeadlineSeconds"),
                "activeDeadlineSeconds in StatefulSet is not Supported",
            );
        }
    }
    validate_claim_templates(spec, &path.child("volumeClaimTemplates"), errors);
}

fn validate_claim_templates(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    for (i, claim) in api_meta::tree::list(spec, "volumeClaimTemplates")
        .iter()
        .enumerate()
    {
        crate::claim::validate_claim_template_spec(
            get(claim, "spec"),
            &at.index(i).child("spec"),
            errors,
        );
    }
}

fn validate_stateful_set_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("rollingUpdate");
    match text(strategy, "type") {
        "" => errors.required(path, ""),
        "OnDelete" => {
            if has(strategy, "rollingUpdate") {
                let shown = get(strategy, "rollingUpdate").clone();
                errors.invalid(
                    &at,
                    shown,
                    "only allowed for updateStrategy 'RollingUpdate'",
                );
            }
        }
        "RollingUpdate" => {
            let rolling = get(strategy, "rollingUpdate");
            rules::validate_non_negative(rolling, "partition", &at, errors);
        }
        other => errors.invalid(
            path,
            json!({"type": other}),
            "must be 'RollingUpdate' or 'OnDelete'",
        ),
    }
}

const SET_UPDATE: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
const SET_MUTABLE: [&str; 7] = [
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
];

fn validate_stateful_set_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_stateful_set(new, errors);
    let rest = |v: &Value| {
        let mut spec = get(v, "spec").clone();
        for field in SET_MUTABLE {
            api_meta::tree::remove(&mut spec, field);
        }
        spec
    };
    // Claims and identities of existing pods follow from the other fields.
    if !equal(&rest(new), &rest(old)) {
        errors.forbidden(&Path::ROOT.child("spec"), SET_UPDATE);
    }
}

fn validate_revision(object: &Value, errors: &mut Errors) {
    if int(object, "revision").unwrap_or(0) < 0 {
        errors.invalid(
            &Path::ROOT.child("revision"),
            get(object, "revision").clone(),
            rules::NEGATIVE,
        );
    }
    if !has(object, "data") {
        errors.required(&Path::ROOT.child("data"), "data is mandatory");
    }
}

fn validate_revision_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_revision(new, errors);
    if !same(new, old, "data") {
        errors.invalid(
            &Path::ROOT.child("data"),
            get(new, "data").clone(),
            rules::IMMUTABLE,
        );
    }
}
