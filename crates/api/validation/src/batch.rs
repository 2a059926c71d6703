//! Jobs and CronJobs.

mod cron;

use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use crate::pod;
use crate::rules;
use crate::selector;
use api_meta::tree::{
    at_mut, each_mut, equal, flag, get, has, int, list, opt_text, remove, same, text,
};
use serde_json::{Value, json};

pub const JOB: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_job,
    update: validate_job_update,
    sub: |_, _, _, _| {},
};
pub const CRON_JOB: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_cron_job,
    update: |new, _, errors| validate_cron_job(new, errors),
    sub: |_, _, _, _| {},
};

const COUNTS: [&str; 7] = [
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
];

fn validate_job(object: &Value, errors: &mut Errors) {
    validate_generated_labels(object, errors);
    validate_job_spec(get(object, "spec"), errors);
}

fn validate_job_spec(spec: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    validate_job_template(spec, &path, errors);
    if has(spec, "selector") {
        selector::validate_label_selector(get(spec, "selector"), &path.child("selector"), errors);
    } else {
        errors.required(&path.child("selector"), "");
    }
    // An invalid selector is reported above. Its match would only repeat that error.
    if let Ok(Some(compiled)) = selector::compile_selector(get(spec, "selector")) {
        let labels = spec.pointer("/template/metadata/labels");
        if !compiled.matches_map(labels.and_then(Value::as_object)) {
            let at = path.child("template");
            let shown = labels.cloned().unwrap_or(json!({}));
            errors.invalid(
                &at.child("metadata").child("labels"),
                shown,
                "`selector` does not match template `labels`",
            );
        }
    }
}

/// Checks that a generated selector uses the job's UID.
fn validate_generated_labels(object: &Value, errors: &mut Errors) {
    let spec = get(object, "spec");
    if flag(spec, "manualSelector") {
        return;
    }
    let uid = text(get(object, "metadata"), "uid");
    let labels = spec
        .pointer("/selector/matchLabels")
        .and_then(Value::as_object);
    // The strategy generates the selector. Another one means that the client sent its own without
    // `manualSelector`, and the job would adopt pods that are not its own.
    let own = labels.is_some_and(|m| {
        m.len() == 1
            // Jobs created before 1.27 have the label without a prefix.
            && ["batch.kubernetes.io/controller-uid", "controller-uid"]
                .iter()
                .any(|k| m.get(*k).is_some_and(|v| v == uid))
    });
    if !own && !uid.is_empty() {
        let at = Path::ROOT.child("spec");
        errors.invalid(
            &at.child("selector"),
            get(spec, "selector").clone(),
            "`selector` not auto-generated",
        );
    }
}

/// Validates the common part of jobs and templates of cron jobs.
fn validate_job_template(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in COUNTS {
        rules::validate_non_negative(spec, field, path, errors);
    }
    validate_completion_mode(spec, path, errors);
    if let Some(manager) = opt_text(spec, "managedBy") {
        rules::validate_domain_prefixed_path(manager, &path.child("managedBy"), errors);
    }
    validate_failure_policy(spec, &path.child("podFailurePolicy"), errors);
    validate_success_policy(spec, &path.child("successPolicy"), errors);
    rules::validate_one_of(
        spec,
        "podReplacementPolicy",
        &["Failed", "TerminatingOrFailed"],
        path,
        errors,
    );
    let at = path.child("template");
    pod::validate_pod_template(get(spec, "template"), &at, errors);
    let at = at.child("spec");
    let policy = spec
        .pointer("/template/spec/restartPolicy")
        .and_then(Value::as_str)
        .unwrap_or_default();
    // A pod that always restarts never completes, and so neither would the job.
    match policy {
        "" | "Always" => {
            errors.required(
                &at.child("restartPolicy"),
                "valid values: \"OnFailure\", \"Never\"",
            );
        }
        // With OnFailure the kubelet restarts the container, and the controller never sees the exit
        // code (KEP-3329).
        "OnFailure" if has(spec, "podFailurePolicy") => {
            errors.invalid(
                &at.child("restartPolicy"),
                policy,
                "only \"Never\" is supported when podFailurePolicy is specified",
            );
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(&at.child("restartPolicy"), other, &["Never", "OnFailure"]),
    }
}

fn validate_completion_mode(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let indexed = text(spec, "completionMode") == "Indexed";
    rules::validate_one_of(
        spec,
        "completionMode",
        &["NonIndexed", "Indexed"],
        path,
        errors,
    );
    // Each index is completed once, so their number must be known. Without an index, a job without
    // completions is a work queue.
    if indexed && !has(spec, "completions") {
        errors.required(
            &path.child("completions"),
            "when completion mode is Indexed",
        );
    }
    if matches!(text(spec, "completionMode"), "NonIndexed" | "") {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            // Both count failures by index (KEP-3850).
            if let Some(n) = int(spec, field) {
                let detail = "requires indexed completion mode";
                errors.invalid(&path.child(field), n, detail);
            }
        }
    }
    if has(spec, "maxFailedIndexes") && !has(spec, "backoffLimitPerIndex") {
        errors.required(
            &path.child("backoffLimitPerIndex"),
            "when maxFailedIndexes is specified",
        );
    }
}

fn validate_failure_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules_ = list(get(spec, "podFailurePolicy"), "rules");
    let at = path.child("rules");
    // Every failed pod is compared with every rule.
    if rules_.len() > 20 {
        errors.too_many(&at, rules_.len(), 20);
    }
    let known = ["Count", "FailIndex", "FailJob", "Ignore"];
    for (i, rule) in rules_.iter().enumerate() {
        let at = at.index(i);
        match text(rule, "action") {
            "" => errors.required(
                &at.child("action"),
                "valid values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\"",
            ),
            // The action ends the retries of one index, which only exist with a limit for each.
            "FailIndex" if !has(spec, "backoffLimitPerIndex") => {
                errors.invalid(
                    &at.child("action"),
                    "FailIndex",
                    "requires the backoffLimitPerIndex to be set",
                );
            }
            action if !known.contains(&action) => {
                errors.not_supported(&at.child("action"), action, &known)
            }
            _ => {}
        }
        match (
            has(rule, "onExitCodes"),
            list(rule, "onPodConditions").is_empty(),
        ) {
            (true, false) => {
                validate_exit_codes(
                    get(rule, "onExitCodes"),
                    spec,
                    &at.child("onExitCodes"),
                    errors,
                );
                validate_pod_conditions(rule, &at.child("onPodConditions"), errors);
                errors.invalid(
                    &at,
                    rule.clone(),
                    "specifying both OnExitCodes and OnPodConditions is not supported",
                );
            }
            (true, true) => validate_exit_codes(
                get(rule, "onExitCodes"),
                spec,
                &at.child("onExitCodes"),
                errors,
            ),
            (false, true) => {
                errors.invalid(
                    &at,
                    rule.clone(),
                    "specifying one of OnExitCodes and OnPodConditions is required",
                );
            }
            (false, false) => validate_pod_conditions(rule, &at.child("onPodConditions"), errors),
        }
    }
}

fn validate_exit_codes(codes: &Value, spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let operator = text(codes, "operator");
    rules::validate_required_one_of(codes, "operator", &["In", "NotIn"], path, errors);
    if let Some(name) = opt_text(codes, "containerName") {
        let named = |field: &str| {
            spec.pointer(&format!("/template/spec/{field}"))
                .and_then(Value::as_array)
        };
        let known = ["containers", "initContainers"]
            .iter()
            .filter_map(|f| named(f))
            .flatten()
            .any(|c| text(c, "name") == name);
        if !known {
            errors.invalid(
                &path.child("containerName"),
                name,
                "must be one of the container or initContainer names in the pod template",
            );
        }
    }
    let values = list(codes, "values");
    let at = path.child("values");
    if values.is_empty() {
        errors.invalid(
            &at,
            Value::Array(Vec::new()),
            "at least one value is required",
        );
    } else if values.len() > 255 {
        errors.too_many(&at, values.len(), 255);
    }
    let mut last: Option<i64> = None;
    for (i, value) in values.iter().enumerate() {
        let n = value.as_i64().unwrap_or(0);
        // Zero is success, which no failure policy is asked about.
        if n == 0 && operator == "In" {
            errors.invalid(&at.index(i), n, "must not be 0 for the In operator");
        }
        match last {
            Some(before) if before == n => errors.duplicate(&at.index(i), n),
            // Ordered values make the list a set: equal policies are equal objects.
            Some(before) if before > n => {
                errors.invalid(&at, values.to_vec(), "must be ordered");
                break;
            }
            _ => {}
        }
        last = Some(n);
    }
}

fn validate_pod_conditions(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, condition) in list(rule, "onPodConditions").iter().enumerate() {
        let at = path.index(i);
        let kind = text(condition, "type");
        errors.invalid_each(
            &at.child("type"),
            kind,
            api_meta::names::qualified_name(kind),
        );
        rules::validate_required_one_of(
            condition,
            "status",
            &["False", "True", "Unknown"],
            &at,
            errors,
        );
    }
}

fn validate_success_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(spec, "successPolicy") {
        return;
    }
    let policy = get(spec, "successPolicy");
    if text(spec, "completionMode") != "Indexed" {
        errors.invalid(path, policy.clone(), "requires indexed completion mode");
        return;
    }
    let rules_ = list(policy, "rules");
    let at = path.child("rules");
    if rules_.is_empty() {
        errors.required(
            &at,
            "at least one rules must be specified when the successPolicy is specified",
        );
    } else if rules_.len() > 20 {
        errors.too_many(&at, rules_.len(), 20);
    }
    for (i, rule) in rules_.iter().enumerate() {
        if !has(rule, "succeededCount") && !has(rule, "succeededIndexes") {
            errors.required(
                &at.index(i),
                "at least one of succeededCount or succeededIndexes must be specified",
            );
        }
        rules::validate_positive(rule, "succeededCount", &at.index(i), errors);
    }
}

const FIXED: [&str; 5] = [
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
];

fn validate_job_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (n, o, path) = (get(new, "spec"), get(old, "spec"), Path::ROOT.child("spec"));
    validate_job(new, errors);
    // Upstream validates the spec of a changed job twice, so errors occur twice.
    // Without this second pass a client would see fewer errors than from upstream.
    validate_job_spec(n, errors);
    validate_completions_update(n, o, &path, errors);
    rules::validate_immutable(n, o, "selector", &path, errors);
    validate_template_update(n, o, old, &path, errors);
    for field in FIXED {
        rules::validate_immutable(n, o, field, &path, errors);
    }
}

/// Allows completions of an indexed job to change together with its parallelism.
fn validate_completions_update(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    if same(new, old, "completions") {
        return;
    }
    let at = path.child("completions");
    let shown = get(new, "completions").clone();
    // The number of indexes may change with the parallelism: an elastic job (KEP-3715).
    if text(new, "completionMode") != "Indexed" {
        errors.invalid(&at, shown, rules::IMMUTABLE);
    } else if get(new, "completions") != get(new, "parallelism") {
        errors.invalid(&at, shown, "must be equal to parallelism");
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
    if !has_mutable_template(old, get(old_job, "status")) {
        if !equal(after, before) {
            errors.invalid(&at, after.clone(), rules::IMMUTABLE);
        }
        return;
    }
    // Labels and annotations may change with the scheduling directives, so metadata is not compared.
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
    for field in ["containers", "initContainers"] {
        each_mut(&mut bare, field).for_each(|container| drop(remove(container, "resources")));
    }
    bare
}

// The controller appends a dash and 10 digits (minutes since 1970) to the name, and a job's name
// has at most 63 bytes.
const LONGEST_NAME: usize = 52;

fn validate_cron_job(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let name = text(get(object, "metadata"), "name");
    if name.len() > LONGEST_NAME {
        errors.invalid(
            &Path::ROOT.child("metadata").child("name"),
            name,
            "must be no more than 52 bytes",
        );
    }
    cron::validate_schedule(spec, &path, errors);
    rules::validate_non_negative(spec, "startingDeadlineSeconds", &path, errors);
    rules::validate_required_one_of(
        spec,
        "concurrencyPolicy",
        &["Allow", "Forbid", "Replace"],
        &path,
        errors,
    );
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        rules::validate_non_negative(spec, field, &path, errors);
    }
    let at = path.child("jobTemplate");
    let job = get(get(spec, "jobTemplate"), "spec");
    if has(job, "selector") {
        errors.invalid(
            &at.child("spec").child("selector"),
            get(job, "selector").clone(),
            "`selector` will be auto-generated",
        );
    }
    if flag(job, "manualSelector") {
        errors.not_supported(
            &at.child("spec").child("manualSelector"),
            true,
            &["nil", "false"],
        );
    }
    validate_job_template(job, &at.child("spec"), errors);
}
