//! Jobs.

use super::policies::{validate_failure_policy, validate_success_policy};
use crate::field::{Errors, Path};
use crate::pod::{self, PodOptions};
use crate::rules;
use crate::selector;
use api_meta::names;
use api_meta::tree::{
    at_mut, each_mut, equal, flag, get, has, int, list, opt_text, remove, same, text,
};
use serde_json::{Value, json};

/// Bounds of the fields that limit the length of the lists of indexes in the status.
const PARALLELISM: i64 = 100_000;
// The status lists the indexes as text, and the whole object has to stay below etcd's limit of 1.5
// MB.
const FAILED_INDEXES: i64 = 100_000;
const MANY_COMPLETIONS: i64 = 100_000;
// Failed indexes are scattered, so their list hardly compresses to intervals. More completions
// therefore leave less room for parallel ones.
const WITH_MANY_COMPLETIONS: i64 = 10_000;
// Upstream's limit, which is also that of a label's value.
const MANAGER: usize = 63;
const UID: &str = "batch.kubernetes.io/controller-uid";
const NAME: &str = "batch.kubernetes.io/job-name";
const COUNTS: [&str; 7] = [
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
];

pub(super) fn validate_new_job(object: &Value, errors: &mut Errors) {
    validate_job(object, true, &PodOptions::default(), errors);
}

fn validate_job(
    object: &Value,
    needs_prefixed_labels: bool,
    options: &PodOptions,
    errors: &mut Errors,
) {
    // Upstream reports the generated labels before the spec, so this order decides about the first
    // message.
    validate_generated_labels(object, needs_prefixed_labels, errors);
    let spec = get(object, "spec");
    validate_job_spec(spec, options, errors);
    let completions = int(spec, "completions").unwrap_or(0);
    if text(spec, "completionMode") == "Indexed" && completions > 0 {
        // The controller appends the index to the host names of the pods.
        let name = text(get(object, "metadata"), "name");
        // The last index is the longest one, so it stands for all of them.
        let longest = format!("{name}-{}", completions - 1);
        if !names::dns1123_label(&longest).is_empty() {
            let at = Path::ROOT.child("metadata");
            let detail = format!("will not able to create pod with invalid DNS label: {longest}");
            errors.invalid(&at.child("name"), name, detail);
        }
    }
}

fn validate_job_spec(spec: &Value, options: &PodOptions, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    validate_job_fields(spec, options, &path, errors);
    let (labels, at) = (get(spec, "selector"), path.child("selector"));
    if labels.is_null() {
        errors.required(&at, "");
    } else {
        let invalid_values = options.invalid_selector_values;
        selector::validate_selector_leniently(labels, invalid_values, &at, errors);
    }
    // An invalid selector is reported above. Its match would only repeat that error.
    if let Ok(compiled) = selector::compile_selector(labels) {
        let own = spec.pointer("/template/metadata/labels");
        let map = own.and_then(Value::as_object);
        if !compiled.is_some_and(|compiled| compiled.matches_map(map)) {
            let at = path.child("template");
            let at = at.child("metadata");
            let detail = "`selector` does not match template `labels`";
            errors.invalid(
                &at.child("labels"),
                own.cloned().unwrap_or(json!({})),
                detail,
            );
        }
    }
}

/// Checks that a generated selector and the labels of the pods name the job: the job would
/// otherwise adopt pods that are not its own.
fn validate_generated_labels(object: &Value, needs_prefixed_labels: bool, errors: &mut Errors) {
    let (spec, meta) = (get(object, "spec"), get(object, "metadata"));
    if flag(spec, "manualSelector") || !has(spec, "selector") {
        return;
    }
    let (uid, name) = (text(meta, "uid"), text(meta, "name"));
    if uid.is_empty() {
        errors.required(&Path::ROOT.child("metadata").child("uid"), "");
    }
    let mut expected = vec![("controller-uid", uid), ("job-name", name)];
    // Jobs created before 1.27 have the labels without a prefix only.
    if needs_prefixed_labels {
        expected.extend([(UID, uid), (NAME, name)]);
    }
    let labels = get(get(get(spec, "template"), "metadata"), "labels");
    let path = Path::ROOT.child("spec");
    let at = path.child("template");
    let at = at.child("metadata");
    let at = at.child("labels");
    for (key, value) in &expected {
        match opt_text(labels, key) {
            None => errors.required(&at.key(key), format!("must be '{value}'")),
            Some(found) if found != *value => {
                errors.invalid(&at.key(key), labels.clone(), format!("must be '{value}'"));
            }
            Some(_) => {}
        }
    }
    let expected = expected
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v.into()))
        .collect();
    // The selector is tested against the generated labels alone, so one that needs other labels is
    // rejected.
    let compiled = selector::compile_selector(get(spec, "selector"));
    if compiled.is_ok_and(|c| !c.is_some_and(|c| c.matches_map(Some(&expected)))) {
        let shown = get(spec, "selector").clone();
        errors.invalid(
            &path.child("selector"),
            shown,
            "`selector` not auto-generated",
        );
    }
}

/// Validates the common part of jobs and templates of cron jobs.
pub(super) fn validate_job_fields(
    spec: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for field in COUNTS {
        rules::validate_non_negative(spec, field, path, errors);
    }
    // Without a limit for each index, no index ever fails, and the field would have no effect.
    if has(spec, "maxFailedIndexes") && !has(spec, "backoffLimitPerIndex") {
        let at = path.child("backoffLimitPerIndex");
        errors.required(&at, "when maxFailedIndexes is specified");
    }
    if let Some(manager) = opt_text(spec, "managedBy") {
        let at = path.child("managedBy");
        if manager.is_empty() {
            errors.required(&at, "");
        } else {
            rules::validate_domain_prefixed_path(manager, &at, errors);
        }
        // A name that is too long still gets the errors of its syntax, as upstream.
        if manager.len() > MANAGER {
            errors.too_long(&at, MANAGER);
        }
    }
    validate_completion_mode(spec, path, errors);
    validate_failure_policy(spec, &path.child("podFailurePolicy"), errors);
    validate_success_policy(spec, &path.child("successPolicy"), errors);
    validate_replacement_policy(spec, path, errors);
    let at = path.child("template");
    pod::validate_pod_template(get(spec, "template"), options, &at, errors);
    validate_restart_policy(spec, &at.child("spec"), errors);
}

fn validate_restart_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("restartPolicy");
    match text(get(get(spec, "template"), "spec"), "restartPolicy") {
        // A pod that always restarts never completes, and so neither would the job.
        "" | "Always" => errors.required(&at, "valid values: \"OnFailure\", \"Never\""),
        // With OnFailure the kubelet restarts the container, and the controller never sees the exit
        // code (KEP-3329).
        "OnFailure" if has(spec, "podFailurePolicy") => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(&at, "OnFailure", detail);
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(&at, other, &["OnFailure", "Never"]),
    }
}

fn validate_replacement_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let known: &[&str] = match has(spec, "podFailurePolicy") {
        // The policy needs the final phase of a pod, which a terminating pod does not have yet.
        true => &["Failed"],
        false => &["Failed", "TerminatingOrFailed"],
    };
    rules::validate_one_of(spec, "podReplacementPolicy", known, path, errors);
}

fn validate_completion_mode(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let known = ["NonIndexed", "Indexed"];
    rules::validate_one_of(spec, "completionMode", &known, path, errors);
    match text(spec, "completionMode") {
        "Indexed" => validate_indexed_limits(spec, path, errors),
        "NonIndexed" | "" => {
            // Both count failures by index (KEP-3850).
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(n) = int(spec, field) {
                    errors.invalid(&path.child(field), n, "requires indexed completion mode");
                }
            }
        }
        _ => {}
    }
}

fn validate_indexed_limits(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let [completions, failed] = ["completions", "maxFailedIndexes"].map(|field| int(spec, field));
    // Each index is completed once, so their number must be known. Without an index, a job without
    // completions is a work queue.
    if completions.is_none() {
        errors.required(
            &path.child("completions"),
            "when completion mode is Indexed",
        );
    }
    let reason = " when completion mode is Indexed";
    limit_field(spec, "parallelism", PARALLELISM, reason, path, errors);
    let at = path.child("maxFailedIndexes");
    if let (Some(n), Some(max)) = (failed, completions)
        && n > max
    {
        errors.invalid(&at, n, "must be less than or equal to completions");
    }
    limit_field(spec, "maxFailedIndexes", FAILED_INDEXES, "", path, errors);
    // Without a limit for each index, the status lists completed indexes only, which are mostly
    // contiguous.
    let has_many = completions.is_some_and(|n| n > MANY_COMPLETIONS);
    if !has_many || !has(spec, "backoffLimitPerIndex") {
        return;
    }
    if failed.is_none() {
        let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
        errors.required(&at, detail);
    }
    let reason = format!(
        " when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
    );
    for field in ["parallelism", "maxFailedIndexes"] {
        limit_field(spec, field, WITH_MANY_COMPLETIONS, &reason, path, errors);
    }
}

fn limit_field(
    spec: &Value,
    field: &str,
    max: i64,
    reason: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(n) = int(spec, field).filter(|n| *n > max) {
        let detail = format!("must be less than or equal to {max}{reason}");
        errors.invalid(&path.child(field), n, detail);
    }
}

const FIXED: [&str; 5] = [
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
];

pub(super) fn validate_job_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (n, o, path) = (get(new, "spec"), get(old, "spec"), Path::ROOT.child("spec"));
    let mut options = pod::read_template_options(get(o, "template"));
    // The selector is immutable, so a malformed value in an old job could not be repaired.
    options.invalid_selector_values |= selector::has_invalid_values(get(o, "selector"));
    let labels = get(get(get(o, "template"), "metadata"), "labels");
    let needs_prefixed_labels = has(labels, UID) && has(labels, NAME);
    validate_job(new, needs_prefixed_labels, &options, errors);
    // Upstream validates the spec of a changed job twice, so errors occur twice. Without this
    // second pass a client would see fewer errors than from upstream.
    validate_job_spec(n, &options, errors);
    validate_completions_update(n, o, &path, errors);
    // Running pods are found with the selector. Those of the old one would be orphaned and never
    // counted.
    rules::validate_immutable(n, o, "selector", &path, errors);
    validate_template_update(n, o, old, &path, errors);
    // The controller has counted pods by these fields already. A change would reinterpret what is
    // in the status.
    for field in FIXED {
        rules::validate_immutable(n, o, field, &path, errors);
    }
}

/// Allows completions of an indexed job to change together with its parallelism: an elastic job
/// (KEP-3715).
fn validate_completions_update(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    if same(new, old, "completions") {
        return;
    }
    let at = path.child("completions");
    let shown = get(new, "completions").clone();
    // A job without indexes that has counted successes can't tell which of them a smaller number
    // keeps.
    if text(new, "completionMode") != "Indexed" {
        errors.invalid(&at, shown, rules::IMMUTABLE);
    } else if has(new, "completions") && shown != *get(new, "parallelism") {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.invalid(&at, shown, detail);
    }
}

/// Allows scheduling directives and resources in the template to change while the job is suspended
/// and has no pods.
fn validate_template_update(
    new: &Value,
    old: &Value,
    old_job: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (after, before) = (get(new, "template"), get(old, "template"));
    let at = path.child("template");
    // The old object decides: a request that suspends the job can't change the template as well.
    if !has_mutable_template(old, get(old_job, "status")) {
        if !equal(after, before) {
            errors.invalid(&at, after.clone(), rules::IMMUTABLE);
        }
        return;
    }
    // Labels and annotations may change with the scheduling directives, so metadata is not
    // compared.
    let (after, before) = (get(after, "spec"), get(before, "spec"));
    if !equal(&without_placement(after), &without_placement(before)) {
        errors.invalid(&at.child("spec"), after.clone(), rules::IMMUTABLE);
    }
}

/// Returns whether a queue controller may still place the pods of a job. Such a controller, for
/// instance Kueue, creates jobs suspended and starts them where there is room (KEP-2926).
fn has_mutable_template(spec: &Value, status: &Value) -> bool {
    let is_suspended = |condition: &Value| {
        text(condition, "type") == "Suspended" && text(condition, "status") == "True"
    };
    // A job that has run keeps its start time until the controller has suspended it.
    let is_stopped =
        !has(status, "startTime") || list(status, "conditions").iter().any(is_suspended);
    // All pods of a job are equal, so none may be left of the old template.
    flag(spec, "suspend") && is_stopped && int(status, "active").unwrap_or(0) == 0
}

/// Returns a pod's spec without node affinity, node selector, tolerations, gates and resources.
fn without_placement(spec: &Value) -> Value {
    let mut bare = spec.clone();
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        remove(&mut bare, field);
    }
    // Affinity to other pods depends on the labels, and is not a choice of the queue controller.
    if let Some(affinity) = at_mut(&mut bare, "affinity") {
        remove(affinity, "nodeAffinity");
    }
    // Resources may change while a job is suspended, so that a queue can fit it into its quota.
    for field in ["containers", "initContainers"] {
        each_mut(&mut bare, field).for_each(|container| drop(remove(container, "resources")));
    }
    bare
}
