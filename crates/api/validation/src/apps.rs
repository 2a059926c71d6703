//! Workloads of the group `apps`, and ReplicationControllers.

use crate::dispatch::{Rules, no_sub};
use crate::field::{Errors, Path};
use crate::metadata::NameRule;
use crate::pod;
use crate::rules::{self, whole};
use crate::selector;
use crate::tree::{equal, get, has, int, same, text};
use serde_json::{Value, json};

const fn workload(create: crate::dispatch::Create, update: crate::dispatch::Update) -> Rules {
    Rules {
        name: NameRule::Subdomain,
        create,
        update,
        sub: status,
    }
}

pub const DEPLOYMENT: Rules = workload(deployment, |new, old, errors| {
    deployment(new, errors);
    immutable_selector(new, old, errors);
});
pub const REPLICA_SET: Rules = workload(replica_set, |new, old, errors| {
    replica_set(new, errors);
    immutable_selector(new, old, errors);
});
pub const DAEMON_SET: Rules = workload(daemon_set, |new, old, errors| {
    daemon_set(new, errors);
    immutable_selector(new, old, errors);
});
pub const STATEFUL_SET: Rules = Rules {
    name: NameRule::Label,
    create: stateful_set,
    update: update_stateful_set,
    sub: status,
};
pub const REPLICATION_CONTROLLER: Rules = workload(replication_controller, |new, _, errors| {
    replication_controller(new, errors)
});
pub const CONTROLLER_REVISION: Rules = Rules {
    name: NameRule::Subdomain,
    create: revision,
    update: update_revision,
    sub: no_sub,
};

fn status(_: &str, new: &Value, _: &Value, errors: &mut Errors) {
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
        rules::non_negative(status, field, &path, errors);
    }
}

fn immutable_selector(new: &Value, old: &Value, errors: &mut Errors) {
    rules::immutable(
        get(new, "spec"),
        get(old, "spec"),
        "selector",
        &Path::ROOT.child("spec"),
        errors,
    );
}

/// Checks that the selector exists and is not empty, then that the template matches it.
fn selected(spec: &Value, what: &str, path: &Path<'_>, errors: &mut Errors) {
    let labels = get(spec, "selector");
    let at = path.child("selector");
    if labels.is_null() {
        errors.required(&at, "");
    } else {
        selector::validate(labels, &at, errors);
        if selector::is_empty(labels) {
            errors.invalid(
                &at,
                json!({}),
                format!("empty selector is invalid for {what}"),
            );
        }
        if what != "daemonset" && selector::compile(labels).is_err() {
            errors.invalid(&at, labels.clone(), "invalid label selector");
        }
    }
}

/// Validates the template, unless the selector is invalid: then only that is reported.
fn readable_template(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if selector::compile(get(spec, "selector")).is_ok() {
        pod::for_replicas(
            get(spec, "template"),
            get(spec, "selector"),
            &path.child("template"),
            errors,
        );
    }
}

fn deployment(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    rules::non_negative(spec, "replicas", &path, errors);
    selected(spec, "deployment", &path, errors);
    readable_template(spec, &path, errors);
    strategy(get(spec, "strategy"), &path.child("strategy"), errors);
    rules::non_negative(spec, "minReadySeconds", &path, errors);
    rules::non_negative(spec, "revisionHistoryLimit", &path, errors);
    if let Some(deadline) = int(spec, "progressDeadlineSeconds") {
        rules::non_negative(spec, "progressDeadlineSeconds", &path, errors);
        if deadline <= int(spec, "minReadySeconds").unwrap_or(0) {
            errors.invalid(
                &path.child("progressDeadlineSeconds"),
                deadline,
                "must be greater than minReadySeconds",
            );
        }
    }
}

fn strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let known = ["Recreate", "RollingUpdate"];
    let rolling = path.child("rollingUpdate");
    match text(strategy, "type") {
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
        "RollingUpdate" => rolling_update(get(strategy, "rollingUpdate"), &rolling, errors),
        other => errors.not_supported(path, json!({"type": other}), &known),
    }
}

fn rolling_update(rolling: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (surge, unavailable) = (get(rolling, "maxSurge"), get(rolling, "maxUnavailable"));
    let at = path.child("maxUnavailable");
    rules::non_negative_or_percent(unavailable, &at, errors);
    rules::non_negative_or_percent(surge, &path.child("maxSurge"), errors);
    let good = |v: &Value| v.is_i64() || v.as_str().is_some_and(|s| s.ends_with('%'));
    if good(unavailable) && good(surge) && whole(unavailable) == 0 && whole(surge) == 0 {
        errors.invalid(
            &at,
            unavailable.clone(),
            "may not be 0 when `maxSurge` is 0",
        );
    }
    rules::at_most_100_percent(unavailable, &at, errors);
}

fn replica_set(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    rules::non_negative(spec, "replicas", &path, errors);
    rules::non_negative(spec, "minReadySeconds", &path, errors);
    selected(spec, "deployment", &path, errors);
    readable_template(spec, &path, errors);
}

fn replication_controller(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    rules::non_negative(spec, "minReadySeconds", &path, errors);
    let labels = get(spec, "selector");
    if labels.as_object().is_none_or(|m| m.is_empty()) && has(spec, "template") {
        errors.required(&path.child("selector"), "");
    }
    rules::non_negative(spec, "replicas", &path, errors);
    if has(spec, "template") {
        let as_selector = json!({"matchLabels": labels});
        pod::for_replicas(
            get(spec, "template"),
            &as_selector,
            &path.child("template"),
            errors,
        );
    } else {
        errors.required(&path.child("template"), "");
    }
}

fn daemon_set(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    selected(spec, "daemonset", &path, errors);
    pod::for_replicas(
        get(spec, "template"),
        get(spec, "selector"),
        &path.child("template"),
        errors,
    );
    rules::non_negative(spec, "minReadySeconds", &path, errors);
    daemon_strategy(
        get(spec, "updateStrategy"),
        &path.child("updateStrategy"),
        errors,
    );
    rules::non_negative(spec, "revisionHistoryLimit", &path, errors);
}

fn daemon_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("rollingUpdate");
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" if !has(strategy, "rollingUpdate") => errors.required(&at, ""),
        "RollingUpdate" => {
            let rolling = get(strategy, "rollingUpdate");
            let (surge, unavailable) = (get(rolling, "maxSurge"), get(rolling, "maxUnavailable"));
            rules::non_negative_or_percent(unavailable, &at.child("maxUnavailable"), errors);
            rules::non_negative_or_percent(surge, &at.child("maxSurge"), errors);
            match (whole(unavailable), whole(surge)) {
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
            rules::at_most_100_percent(unavailable, &at.child("maxUnavailable"), errors);
            rules::at_most_100_percent(surge, &at.child("maxSurge"), errors);
        }
        other => errors.not_supported(path, json!({"type": other}), &["RollingUpdate", "OnDelete"]),
    }
}

fn stateful_set(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    match text(spec, "podManagementPolicy") {
        "" => errors.required(&path.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.invalid(&path.child("podManagementPolicy"), other, detail);
        }
    }
    set_strategy(
        get(spec, "updateStrategy"),
        &path.child("updateStrategy"),
        errors,
    );
    let policy = get(spec, "persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        let at = path.child("persistentVolumeClaimRetentionPolicy");
        rules::one_of(policy, field, &["Retain", "Delete"], &at, errors);
    }
    rules::non_negative(spec, "replicas", &path, errors);
    rules::non_negative(spec, "minReadySeconds", &path, errors);
    rules::non_negative(
        get(spec, "ordinals"),
        "start",
        &path.child("ordinals"),
        errors,
    );
    let service = text(spec, "serviceName");
    if !service.is_empty() {
        errors.invalid_each(
            &path.child("serviceName"),
            service,
            api_meta::names::dns1123_subdomain(service),
        );
    }
    selected(spec, "statefulset", &path, errors);
    if selector::compile(get(spec, "selector")).is_ok() {
        readable_template(spec, &path, errors);
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
    let at = path.child("volumeClaimTemplates");
    for (i, claim) in crate::tree::list(spec, "volumeClaimTemplates")
        .iter()
        .enumerate()
    {
        crate::storage::claim_template(get(claim, "spec"), &at.index(i).child("spec"), errors);
    }
}

fn set_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
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
            rules::non_negative(rolling, "partition", &at, errors);
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

fn update_stateful_set(new: &Value, old: &Value, errors: &mut Errors) {
    stateful_set(new, errors);
    let rest = |v: &Value| {
        let mut spec = get(v, "spec").clone();
        for field in SET_MUTABLE {
            crate::tree::remove(&mut spec, field);
        }
        spec
    };
    if !equal(&rest(new), &rest(old)) {
        errors.forbidden(&Path::ROOT.child("spec"), SET_UPDATE);
    }
}

fn revision(object: &Value, errors: &mut Errors) {
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

fn update_revision(new: &Value, old: &Value, errors: &mut Errors) {
    revision(new, errors);
    if !same(new, old, "data") {
        errors.invalid(
            &Path::ROOT.child("data"),
            get(new, "data").clone(),
            rules::IMMUTABLE,
        );
    }
}
