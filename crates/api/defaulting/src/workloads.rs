//! Workloads: templates and rollout strategies.

use crate::pod::default_workload_template;
use crate::volumes::default_claim_spec;
use api_meta::tree::{at_mut, each_mut, fill, fill_text, get, has, make, set, text};
use serde_json::{Value, json};

/// Sets the defaults of a kind of the groups `apps` and `batch`.
pub fn default_workload(kind: &str, object: &mut Value) {
    match kind {
        "Job" => return default_job(object),
        "CronJob" => return default_cron_job(object),
        // A revision is an immutable snapshot, whose data defaulting must not change.
        "ControllerRevision" => return,
        _ => {}
    }
    let Some(spec) = make(object, "spec") else {
        return;
    };
    match kind {
        "Deployment" => default_deployment(spec),
        "ReplicaSet" => fill(spec, "replicas", 1),
        "StatefulSet" => default_stateful_set(spec),
        "DaemonSet" => default_daemon_set(spec),
        _ => return,
    }
    default_workload_template(spec);
}

fn default_deployment(spec: &mut Value) {
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "progressDeadlineSeconds", 600);
    let Some(strategy) = make(spec, "strategy") else {
        return;
    };
    fill_text(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = make(strategy, "rollingUpdate")
    {
        fill(rolling, "maxUnavailable", "25%");
        fill(rolling, "maxSurge", "25%");
    }
}

fn default_daemon_set(spec: &mut Value) {
    fill(spec, "revisionHistoryLimit", 10);
    let Some(strategy) = make(spec, "updateStrategy") else {
        return;
    };
    fill_text(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = make(strategy, "rollingUpdate")
    {
        fill(rolling, "maxUnavailable", 1);
        fill(rolling, "maxSurge", 0);
    }
}

fn default_stateful_set(spec: &mut Value) {
    fill_text(spec, "podManagementPolicy", "OrderedReady");
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    if let Some(strategy) = make(spec, "updateStrategy") {
        // A partition is only defaulted together with the type, so that an explicit type without
        // one remains as it is.
        if text(strategy, "type").is_empty() {
            set(strategy, "type", "RollingUpdate");
            if let Some(rolling) = make(strategy, "rollingUpdate") {
                fill(rolling, "partition", 0);
            }
        }
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = at_mut(strategy, "rollingUpdate")
        {
            fill(rolling, "partition", 0);
        }
    }
    // Data outlives the set unless the user asks for its deletion.
    if let Some(policy) = make(spec, "persistentVolumeClaimRetentionPolicy") {
        fill_text(policy, "whenDeleted", "Retain");
        fill_text(policy, "whenScaled", "Retain");
    }
    for claim in each_mut(spec, "volumeClaimTemplates") {
        fill_text(claim, "apiVersion", "v1");
        fill_text(claim, "kind", "PersistentVolumeClaim");
        default_claim_spec(claim);
        if let Some(status) = make(claim, "status") {
            fill_text(status, "phase", "Pending");
        }
    }
}

/// Sets labels and selector of a ReplicationController from its template.
pub fn default_replication_controller(object: &mut Value) {
    // Unlike the workloads of `apps/v1`, a ReplicationController may omit the selector, which is
    // then that of its template.
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    if let Some(labels) = labels.filter(|l| l.as_object().is_some_and(|m| !m.is_empty())) {
        if get(get(object, "metadata"), "labels")
            .as_object()
            .is_none_or(|m| m.is_empty())
            && let Some(meta) = make(object, "metadata")
        {
            set(meta, "labels", labels.clone());
        }
        if let Some(spec) = make(object, "spec")
            && get(spec, "selector")
                .as_object()
                .is_none_or(|m| m.is_empty())
        {
            set(spec, "selector", labels);
        }
    }
    let Some(spec) = make(object, "spec") else {
        return;
    };
    fill(spec, "replicas", 1);
    if has(spec, "template") {
        default_workload_template(spec);
    }
}

fn default_job(object: &mut Value) {
    let labels = object
        .pointer("/spec/template/metadata/labels")
        .cloned()
        .filter(|l| l != &json!({}));
    if let Some(labels) = labels
        && get(get(object, "metadata"), "labels")
            .as_object()
            .is_none_or(|m| m.is_empty())
        && let Some(meta) = make(object, "metadata")
    {
        set(meta, "labels", labels);
    }
    let Some(spec) = make(object, "spec") else {
        return;
    };
    // With one of them alone the job is a work queue or a fixed count, and the other has its own
    // default.
    if !has(spec, "completions") && !has(spec, "parallelism") {
        set(spec, "completions", 1);
        set(spec, "parallelism", 1);
    }
    fill(spec, "parallelism", 1);
    let per_index = has(spec, "backoffLimitPerIndex");
    fill(
        spec,
        "backoffLimit",
        // With a limit for each index, the limit of the job is out of the way (KEP-3850).
        if per_index { i64::from(i32::MAX) } else { 6 },
    );
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    fill(spec, "manualSelector", false);
    // A failure policy needs the final phase of a pod, which a terminating pod does not have yet
    // (KEP-3939).
    let policy = if has(spec, "podFailurePolicy") {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    fill(spec, "podReplacementPolicy", policy);
    default_job_template(spec);
}

/// Sets the defaults of the common part of jobs and templates of cron jobs.
fn default_job_template(spec: &mut Value) {
    if let Some(policy) = at_mut(spec, "podFailurePolicy") {
        for rule in each_mut(policy, "rules") {
            each_mut(rule, "onPodConditions").for_each(|c| fill_text(c, "status", "True"));
        }
    }
    default_workload_template(spec);
}

fn default_cron_job(object: &mut Value) {
    let Some(spec) = make(object, "spec") else {
        return;
    };
    fill_text(spec, "concurrencyPolicy", "Allow");
    fill(spec, "suspend", false);
    fill(spec, "successfulJobsHistoryLimit", 3);
    fill(spec, "failedJobsHistoryLimit", 1);
    let Some(template) = make(spec, "jobTemplate") else {
        return;
    };
    make(template, "metadata");
    if let Some(spec) = make(template, "spec") {
        default_job_template(spec);
    }
}
