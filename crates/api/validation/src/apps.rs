//! Workloads of the group `apps`, and ReplicationControllers.

mod owner_selector;
mod stateful_set;
mod status;
mod strategy;
mod template;

use self::owner_selector::{SelectorMessages, validate_owner_selector};
use self::status::{StatusFields, validate_workload_status};
use self::template::{forbid_deadline, require_restart_policy, validate_replica_template};
use crate::field::{Errors, Path};
use crate::kind_rules::{Create, Rules, Update, accept_subresource};
use crate::metadata::NameRule;
use crate::pod::{self, PodOptions};
use crate::rules;
use crate::selector;
use api_meta::tree::{get, has, int, same};
use serde_json::{Value, json};

type Sub = fn(&str, &Value, &Value, &mut Errors);

const fn workload_rules(name: NameRule, create: Create, update: Update, sub: Sub) -> Rules {
    Rules {
        name,
        create,
        update,
        sub,
    }
}

pub const DEPLOYMENT: Rules = workload_rules(
    NameRule::Subdomain,
    |new, errors| validate_deployment(new, &PodOptions::default(), errors),
    |new, old, errors| {
        validate_deployment(new, &read_options(old), errors);
        validate_selector_unchanged(new, old, errors);
    },
    |sub, new, old, errors| validate_sub(&status::DEPLOYMENT, sub, new, old, errors),
);
pub const REPLICA_SET: Rules = workload_rules(
    NameRule::Subdomain,
    |new, errors| validate_replica_set(new, &PodOptions::default(), errors),
    |new, old, errors| {
        validate_replica_set(new, &read_options(old), errors);
        validate_selector_unchanged(new, old, errors);
    },
    |sub, new, old, errors| validate_sub(&status::REPLICA_SET, sub, new, old, errors),
);
pub const DAEMON_SET: Rules = workload_rules(
    NameRule::Subdomain,
    |new, errors| validate_daemon_set(new, &PodOptions::default(), errors),
    |new, old, errors| {
        validate_selector_unchanged(new, old, errors);
        // Older versions stored selectors with values that are no labels. They are immutable, so an
        // update has to accept them.
        let labels = get(get(old, "spec"), "selector");
        let mut options = read_options(old);
        options.invalid_selector_values |= selector::has_invalid_values(labels);
        validate_daemon_set(new, &options, errors);
    },
    |sub, new, old, errors| validate_sub(&status::DAEMON_SET, sub, new, old, errors),
);
pub const STATEFUL_SET: Rules = workload_rules(
    NameRule::Label,
    stateful_set::validate_new_stateful_set,
    stateful_set::validate_stateful_set_update,
    |sub, new, old, errors| validate_sub(&status::STATEFUL_SET, sub, new, old, errors),
);
pub const REPLICATION_CONTROLLER: Rules = workload_rules(
    NameRule::Subdomain,
    |new, errors| validate_replication_controller(new, &PodOptions::default(), errors),
    |new, old, errors| validate_replication_controller(new, &read_options(old), errors),
    |sub, new, old, errors| validate_sub(&status::REPLICA_SET, sub, new, old, errors),
);
pub const CONTROLLER_REVISION: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_new_revision,
    update: validate_revision_update,
    sub: accept_subresource,
};

fn read_options(old: &Value) -> PodOptions {
    pod::read_template_options(get(get(old, "spec"), "template"))
}

fn validate_sub(fields: &StatusFields, sub: &str, new: &Value, old: &Value, errors: &mut Errors) {
    match sub {
        "status" => validate_workload_status(fields, new, old, errors),
        _ => {
            let path = Path::ROOT.child("spec");
            rules::validate_non_negative(get(new, "spec"), "replicas", &path, errors);
        }
    }
}

fn validate_selector_unchanged(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    let (new, old) = (get(new, "spec"), get(old, "spec"));
    // Pods that a new selector doesn't match would be orphaned, and the controller would create all
    // replicas again.
    rules::validate_immutable(new, old, "selector", &path, errors);
}

/// Validates selector and template of a Deployment or ReplicaSet.
fn validate_selected_template(
    spec: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // Upstream says deployment for both kinds.
    let messages = SelectorMessages {
        empty: "empty selector is invalid for deployment",
        invalid: "invalid label selector",
    };
    if !validate_owner_selector(spec, messages, path, errors) {
        return;
    }
    let labels = get(spec, "selector");
    let (template, at) = (get(spec, "template"), path.child("template"));
    validate_replica_template(template, labels, "ReplicaSet", options, &at, errors);
}

fn validate_deployment(object: &Value, options: &PodOptions, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    rules::validate_non_negative(spec, "replicas", &path, errors);
    validate_selected_template(spec, options, &path, errors);
    let at = path.child("strategy");
    strategy::validate_deployment_strategy(get(spec, "strategy"), &at, errors);
    rules::validate_non_negative(spec, "minReadySeconds", &path, errors);
    rules::validate_non_negative(spec, "revisionHistoryLimit", &path, errors);
    if let Some(deadline) = int(spec, "progressDeadlineSeconds") {
        rules::validate_non_negative(spec, "progressDeadlineSeconds", &path, errors);
        // A new pod cannot be available before the deadline, so every rollout would fail.
        if deadline <= int(spec, "minReadySeconds").unwrap_or(0) {
            let detail = "must be greater than minReadySeconds";
            errors.invalid(&path.child("progressDeadlineSeconds"), deadline, detail);
        }
    }
}

fn validate_replica_set(object: &Value, options: &PodOptions, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    rules::validate_non_negative(spec, "replicas", &path, errors);
    rules::validate_non_negative(spec, "minReadySeconds", &path, errors);
    validate_selected_template(spec, options, &path, errors);
}

fn validate_replication_controller(object: &Value, options: &PodOptions, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    rules::validate_non_negative(spec, "minReadySeconds", &path, errors);
    let labels = get(spec, "selector");
    if labels.as_object().is_none_or(|map| map.is_empty()) {
        errors.required(&path.child("selector"), "");
    }
    if has(spec, "replicas") {
        rules::validate_non_negative(spec, "replicas", &path, errors);
    } else {
        errors.required(&path.child("replicas"), "");
    }
    let at = path.child("template");
    if has(spec, "template") {
        let labels = json!({"matchLabels": labels});
        let (template, kind) = (get(spec, "template"), "ReplicationController");
        validate_replica_template(template, &labels, kind, options, &at, errors);
    } else {
        errors.required(&at, "");
    }
}

fn validate_daemon_set(object: &Value, options: &PodOptions, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let (labels, at) = (get(spec, "selector"), path.child("selector"));
    let invalid_values = options.invalid_selector_values;
    selector::validate_selector_leniently(labels, invalid_values, &at, errors);
    let template_at = path.child("template");
    pod::validate_template_labels(get(spec, "template"), labels, &template_at, errors);
    if labels.is_object() && selector::is_empty_selector(labels) {
        errors.invalid(&at, json!({}), "empty selector is invalid for daemonset");
    }
    pod::validate_pod_template(get(spec, "template"), options, &template_at, errors);
    require_restart_policy(get(spec, "template"), &template_at, errors);
    forbid_deadline(get(spec, "template"), "DaemonSet", &template_at, errors);
    rules::validate_non_negative(spec, "minReadySeconds", &path, errors);
    let at = path.child("updateStrategy");
    strategy::validate_daemon_strategy(get(spec, "updateStrategy"), &at, errors);
    rules::validate_non_negative(spec, "revisionHistoryLimit", &path, errors);
}

fn validate_new_revision(object: &Value, errors: &mut Errors) {
    rules::validate_non_negative(object, "revision", &Path::ROOT, errors);
    let at = Path::ROOT.child("data");
    // Upstream decodes raw bytes here. It reports data of another type as missing, with `Required`.
    match get(object, "data") {
        Value::Null => errors.required(&at, "data is mandatory"),
        Value::Object(_) => {}
        _ => errors.required(&at, "data must be a valid JSON object"),
    }
}

fn validate_revision_update(new: &Value, old: &Value, errors: &mut Errors) {
    rules::validate_non_negative(new, "revision", &Path::ROOT, errors);
    // A rollback applies the stored revision. If its data could change, the history would be
    // worthless.
    if !same(new, old, "data") {
        let shown = get(new, "data").clone();
        errors.invalid(&Path::ROOT.child("data"), shown, rules::IMMUTABLE);
    }
}
