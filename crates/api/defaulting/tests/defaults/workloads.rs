//! Defaults of the kinds whose controllers create pods, and of autoscalers.

use super::*;

#[test]
fn deployment_rolls_a_quarter_at_a_time() {
    let deployment = default("apps", "Deployment", json!({"spec": {}}));
    check(
        &deployment,
        &[
            ("/spec/replicas", json!(1)),
            ("/spec/revisionHistoryLimit", json!(10)),
            ("/spec/progressDeadlineSeconds", json!(600)),
            ("/spec/strategy/type", json!("RollingUpdate")),
            (
                "/spec/strategy/rollingUpdate",
                json!({"maxSurge": "25%", "maxUnavailable": "25%"}),
            ),
        ],
    );
}

#[test]
fn deployment_that_recreates_its_pods_has_no_rolling_update() {
    let spec = json!({"strategy": {"type": "Recreate"}});
    let deployment = default("apps", "Deployment", json!({"spec": spec}));
    check(
        &deployment,
        &[("/spec/strategy", json!({"type": "Recreate"}))],
    );
}

#[test]
fn daemon_set_replaces_one_pod_at_a_time() {
    let set = default("apps", "DaemonSet", json!({"spec": {}}));
    check(
        &set,
        &[
            (
                "/spec/updateStrategy/rollingUpdate",
                json!({"maxSurge": 0, "maxUnavailable": 1}),
            ),
            ("/spec/revisionHistoryLimit", json!(10)),
        ],
    );
}

#[test]
fn stateful_set_is_ordered_and_retains_its_claims() {
    let set = default(
        "apps",
        "StatefulSet",
        json!({"spec": {"volumeClaimTemplates": [{}]}}),
    );
    check(
        &set,
        &[
            ("/spec/podManagementPolicy", json!("OrderedReady")),
            ("/spec/updateStrategy/rollingUpdate/partition", json!(0)),
            (
                "/spec/persistentVolumeClaimRetentionPolicy",
                json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
            ),
            (
                "/spec/volumeClaimTemplates/0/kind",
                json!("PersistentVolumeClaim"),
            ),
            (
                "/spec/volumeClaimTemplates/0/spec/volumeMode",
                json!("Filesystem"),
            ),
        ],
    );
}

#[test]
fn replication_controller_selects_the_labels_of_its_template() {
    let template = json!({"metadata": {"labels": {"a": "b"}}});
    let controller = default(
        "",
        "ReplicationController",
        json!({"spec": {"template": template}}),
    );
    check(
        &controller,
        &[
            ("/spec/selector", json!({"a": "b"})),
            ("/metadata/labels", json!({"a": "b"})),
            ("/spec/replicas", json!(1)),
        ],
    );
}

#[test]
fn job_runs_one_pod_to_completion() {
    check(
        &job(json!({})),
        &[
            ("/spec/completions", json!(1)),
            ("/spec/parallelism", json!(1)),
            ("/spec/backoffLimit", json!(6)),
            ("/spec/completionMode", json!("NonIndexed")),
            ("/spec/suspend", json!(false)),
            ("/spec/podReplacementPolicy", json!("TerminatingOrFailed")),
        ],
    );
}

#[test]
fn job_with_parallelism_alone_is_a_work_queue() {
    check(
        &job(json!({"parallelism": 3})),
        &[
            ("/spec/completions", Value::Null),
            ("/spec/parallelism", json!(3)),
        ],
    );
}

#[test]
fn backoff_limit_per_index_lifts_the_limit_of_the_job() {
    let job = job(json!({"backoffLimitPerIndex": 1}));
    check(&job, &[("/spec/backoffLimit", json!(i32::MAX))]);
}

#[test]
fn failure_policy_replaces_pods_only_after_they_failed() {
    let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
    check(
        &job(json!({"podFailurePolicy": {"rules": [rule]}})),
        &[
            ("/spec/podReplacementPolicy", json!("Failed")),
            (
                "/spec/podFailurePolicy/rules/0/onPodConditions/0/status",
                json!("True"),
            ),
        ],
    );
}

#[test]
fn cron_job_allows_concurrency_and_keeps_three_successes_and_one_failure() {
    let cron = default(
        "batch",
        "CronJob",
        json!({"spec": {"jobTemplate": {"spec": {}}}}),
    );
    check(
        &cron,
        &[
            ("/spec/concurrencyPolicy", json!("Allow")),
            ("/spec/suspend", json!(false)),
            ("/spec/successfulJobsHistoryLimit", json!(3)),
            ("/spec/failedJobsHistoryLimit", json!(1)),
            // The job controller creates Jobs, and those are defaulted when they are created.
            ("/spec/jobTemplate/spec/backoffLimit", Value::Null),
        ],
    );
}

#[test]
fn autoscaler_targets_80_percent_of_the_cpu_request() {
    let scaler = default(
        "autoscaling",
        "HorizontalPodAutoscaler",
        json!({"spec": {}}),
    );
    check(
        &scaler,
        &[
            ("/spec/minReplicas", json!(1)),
            ("/spec/metrics/0/resource/name", json!("cpu")),
            (
                "/spec/metrics/0/resource/target/averageUtilization",
                json!(80),
            ),
        ],
    );
}

#[test]
fn autoscaler_behavior_is_completed_for_both_directions() {
    let spec = json!({"behavior": {"scaleDown": {"selectPolicy": "Min"}}});
    let scaler = default(
        "autoscaling",
        "HorizontalPodAutoscaler",
        json!({"spec": spec}),
    );
    check(
        &scaler,
        &[
            (
                "/spec/behavior/scaleUp/stabilizationWindowSeconds",
                json!(0),
            ),
            ("/spec/behavior/scaleUp/policies/0/value", json!(4)),
            ("/spec/behavior/scaleDown/selectPolicy", json!("Min")),
            ("/spec/behavior/scaleDown/policies/0/value", json!(100)),
            (
                "/spec/behavior/scaleDown/stabilizationWindowSeconds",
                Value::Null,
            ),
        ],
    );
}
