//! Workloads: apps, batch, autoscaling and policy.

use super::{Name, build, create, merge, update, write};
use serde_json::{Value, json};

const DEPLOYMENT: Name = ("apps", "Deployment");
const REPLICA_SET: Name = ("apps", "ReplicaSet");
const DAEMON_SET: Name = ("apps", "DaemonSet");
const STATEFUL_SET: Name = ("apps", "StatefulSet");
const JOB: Name = ("batch", "Job");
const CRON_JOB: Name = ("batch", "CronJob");
const AUTOSCALER: Name = ("autoscaling", "HorizontalPodAutoscaler");
const BUDGET: Name = ("policy", "PodDisruptionBudget");

fn template(policy: &str) -> Value {
    json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i:1"}]}})
}

fn workload(change: Value) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template("Always")});
    merge(&mut spec, change);
    json!({"spec": spec})
}

fn job(change: Value) -> Value {
    let mut spec = json!({"template": template("Never")});
    merge(&mut spec, change);
    json!({"spec": spec})
}

fn cron_job(change: Value) -> Value {
    let mut spec =
        json!({"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": template("Never")}}});
    merge(&mut spec, change);
    json!({"spec": spec})
}

fn autoscaler(change: Value) -> Value {
    let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    let mut spec = json!({"scaleTargetRef": target, "maxReplicas": 5});
    merge(&mut spec, change);
    json!({"spec": spec})
}

#[test]
fn replicas_are_not_negative() {
    for kind in [DEPLOYMENT, REPLICA_SET, STATEFUL_SET] {
        let message = "spec.replicas: Invalid value: -1: must be greater than or equal to 0";
        create(kind, workload(json!({"replicas": -1})), &[message]);
    }
}

#[test]
fn selector_is_required_and_not_empty() {
    create(
        DEPLOYMENT,
        workload(json!({"selector": null})),
        &[
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
        ],
    );
    create(
        DEPLOYMENT,
        workload(json!({"selector": {"matchLabels": null}})),
        &["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
    );
}

#[test]
fn template_carries_the_labels_of_the_selector() {
    for kind in [DEPLOYMENT, REPLICA_SET, DAEMON_SET, STATEFUL_SET] {
        create(
            kind,
            workload(json!({"selector": {"matchLabels": {"a": "other"}}})),
            &[
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
            ],
        );
    }
}

#[test]
fn selector_does_not_change() {
    let both = json!({"selector": {"matchLabels": {"c": "d"}},
        "template": {"metadata": {"labels": {"c": "d"}}}});
    for kind in [DEPLOYMENT, REPLICA_SET, DAEMON_SET] {
        let old = build(kind, workload(json!({})));
        update(
            kind,
            &old,
            json!({"spec": both}),
            &[
                "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\",\"c\":\"d\"}}: field is immutable",
            ],
        );
    }
}

#[test]
fn pods_of_workloads_always_restart() {
    for kind in [DEPLOYMENT, REPLICA_SET, DAEMON_SET, STATEFUL_SET] {
        create(
            kind,
            workload(json!({"template": template("Never")})),
            &[
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ],
        );
    }
}

#[test]
fn rolling_update_makes_progress() {
    let strategy =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}});
    create(
        DEPLOYMENT,
        workload(json!({"strategy": strategy})),
        &[
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        ],
    );
}

#[test]
fn max_unavailable_is_at_most_100_percent() {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "101%"}});
    create(
        DEPLOYMENT,
        workload(json!({"strategy": strategy})),
        &[
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
        ],
    );
}

#[test]
fn recreate_has_no_rolling_update() {
    let strategy = json!({"type": "Recreate", "rollingUpdate": {"maxSurge": 1}});
    create(
        DEPLOYMENT,
        workload(json!({"strategy": strategy})),
        &[
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ],
    );
}

#[test]
fn progress_deadline_is_after_the_ready_time() {
    create(
        DEPLOYMENT,
        workload(json!({"progressDeadlineSeconds": 10, "minReadySeconds": 10})),
        &["spec.progressDeadlineSeconds: Invalid value: 10: must be greater than minReadySeconds"],
    );
}

#[test]
fn daemon_set_surges_or_is_unavailable_but_not_both() {
    let strategy = |surge: i64, unavailable: i64| {
        workload(json!({"updateStrategy": {"type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}))
    };
    create(DAEMON_SET, strategy(1, 0), &[]);
    create(
        DAEMON_SET,
        strategy(1, 1),
        &[
            "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
        ],
    );
    create(
        DAEMON_SET,
        strategy(0, 0),
        &[
            "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
        ],
    );
}

#[test]
fn stateful_set_changes_a_few_fields_only() {
    let old = build(STATEFUL_SET, workload(json!({"serviceName": "s"})));
    update(
        STATEFUL_SET,
        &old,
        json!({"spec": {"replicas": 3, "minReadySeconds": 1}}),
        &[],
    );
    update(
        STATEFUL_SET,
        &old,
        json!({"spec": {"serviceName": "t"}}),
        &[
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy'",
        ],
    );
}

#[test]
fn management_policy_of_a_stateful_set_is_known() {
    create(
        STATEFUL_SET,
        workload(json!({"podManagementPolicy": "Random"})),
        &[
            "spec.podManagementPolicy: Invalid value: \"Random\": must be 'OrderedReady' or 'Parallel'",
        ],
    );
}

#[test]
fn status_counts_are_not_negative() {
    let old = build(REPLICA_SET, workload(json!({})));
    write(
        REPLICA_SET,
        "status",
        &old,
        json!({"status": {"observedGeneration": -1}}),
        &["status.observedGeneration: Invalid value: -1: must be greater than or equal to 0"],
    );
}

#[test]
fn pods_of_jobs_do_not_restart_always() {
    create(
        JOB,
        job(json!({"template": template("Always")})),
        &[
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ],
    );
}

#[test]
fn numbers_of_a_job_are_not_negative() {
    for field in [
        "parallelism",
        "completions",
        "backoffLimit",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
    ] {
        let message =
            format!("spec.{field}: Invalid value: -1: must be greater than or equal to 0");
        create(JOB, job(json!({field: -1})), &[&message]);
    }
}

#[test]
fn indexed_job_needs_completions() {
    create(
        JOB,
        job(json!({"completionMode": "Indexed", "parallelism": 2})),
        &["spec.completions: Required value: when completion mode is Indexed"],
    );
}

#[test]
fn selector_of_a_job_is_generated() {
    create(
        JOB,
        job(json!({"selector": {"matchLabels": {"a": "b"}}})),
        &[
            "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\",\"batch.kubernetes.io/controller-uid\":\"u-1\"}}: `selector` not auto-generated",
        ],
    );
}

#[test]
fn completions_and_template_of_a_job_do_not_change() {
    let old = build(JOB, job(json!({})));
    update(
        JOB,
        &old,
        json!({"spec": {"completions": 2}}),
        &["spec.completions: Invalid value: 2: field is immutable"],
    );
    update(
        JOB,
        &old,
        json!({"spec": {"template": {"spec": {"hostNetwork": true}}}}),
        &["spec.template: Invalid value: "],
    );
    update(JOB, &old, json!({"spec": {"parallelism": 3}}), &[]);
}

#[test]
fn failure_policy_needs_never_restarting_pods() {
    let rule = json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}});
    let policy = json!({"podFailurePolicy": {"rules": [rule]}});
    create(JOB, job(policy.clone()), &[]);
    let mut with_restarts = policy;
    with_restarts["template"] = template("OnFailure");
    create(
        JOB,
        job(with_restarts),
        &[
            "spec.template.spec.restartPolicy: Invalid value: \"OnFailure\": only \"Never\" is supported when podFailurePolicy is specified",
        ],
    );
}

#[test]
fn failure_policy_does_not_match_exit_code_zero_with_in() {
    let rule = json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}});
    create(
        JOB,
        job(json!({"podFailurePolicy": {"rules": [rule]}})),
        &[
            "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
        ],
    );
}

/// With a search for each value, this list would take hours: the request's size is the only other
/// limit.
#[test]
fn exit_codes_beyond_the_limit_are_counted_in_one_pass() {
    let values: Vec<i64> = (1..=1_000_000).collect();
    let rule = json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": values}});
    create(
        JOB,
        job(json!({"podFailurePolicy": {"rules": [rule]}})),
        &[
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Too many: 1000000: must have at most 255 items",
        ],
    );
}

#[test]
fn cron_job_needs_a_valid_schedule() {
    create(
        CRON_JOB,
        cron_job(json!({"schedule": ""})),
        &["spec.schedule: Required value"],
    );
    create(
        CRON_JOB,
        cron_job(json!({"schedule": "0 0 32 * *"})),
        &["spec.schedule: Invalid value: \"0 0 32 * *\": "],
    );
}

#[test]
fn time_zone_is_not_part_of_the_schedule() {
    create(
        CRON_JOB,
        cron_job(json!({"schedule": "TZ=UTC 0 * * * *"})),
        &[
            "spec.schedule: Invalid value: \"TZ=UTC 0 * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ],
    );
    create(
        CRON_JOB,
        cron_job(json!({"timeZone": "Nowhere/City"})),
        &["spec.timeZone: Invalid value: \"Nowhere/City\": "],
    );
}

#[test]
fn name_of_a_cron_job_leaves_room_for_the_suffix() {
    let mut object = cron_job(json!({}));
    object["metadata"] = json!({"name": "a".repeat(53)});
    let message = "metadata.name: Invalid value: \"aaa";
    create(CRON_JOB, object, &[message]);
}

#[test]
fn concurrency_policy_is_known() {
    create(
        CRON_JOB,
        cron_job(json!({"concurrencyPolicy": "Queue"})),
        &[
            "spec.concurrencyPolicy: Unsupported value: \"Queue\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
        ],
    );
}

#[test]
fn autoscaler_has_bounds_in_order() {
    create(
        AUTOSCALER,
        autoscaler(json!({"maxReplicas": 0})),
        &[
            "spec.maxReplicas: Required value",
            "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
        ],
    );
    create(
        AUTOSCALER,
        autoscaler(json!({"maxReplicas": -1})),
        &[
            "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1",
            "spec.maxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`",
        ],
    );
    create(
        AUTOSCALER,
        autoscaler(json!({"minReplicas": 6})),
        &["spec.maxReplicas: Invalid value: 5: must be greater than or equal to `minReplicas`"],
    );
}

#[test]
fn autoscaler_needs_a_target() {
    create(
        AUTOSCALER,
        autoscaler(json!({"scaleTargetRef": {"kind": "", "name": ""}})),
        &[
            "spec.scaleTargetRef.kind: Required value",
            "spec.scaleTargetRef.name: Required value",
        ],
    );
}

#[test]
fn disruption_budget_has_one_bound() {
    create(
        BUDGET,
        json!({"spec": {"minAvailable": 1, "maxUnavailable": 1}}),
        &["spec: Invalid value: "],
    );
    create(
        BUDGET,
        json!({"spec": {"minAvailable": "101%"}}),
        &["spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%"],
    );
    create(
        BUDGET,
        json!({"spec": {"minAvailable": -1}}),
        &["spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"],
    );
}

/// Returns the job after a status write.
fn job_with_status(spec: Value, status: Value) -> Value {
    let mut job = build(JOB, job(spec));
    job["status"] = status;
    job
}

#[test]
fn placement_and_resources_of_a_suspended_job_may_change() {
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}});
    let resources = json!({"requests": {"cpu": "1"}});
    let suspended = json!({"type": "Suspended", "status": "True"});
    for status in [
        json!({}),
        json!({"startTime": "2024-01-01T00:00:00Z", "conditions": [suspended]}),
    ] {
        let old = job_with_status(json!({"suspend": true}), status);
        for spec in [
            json!({"nodeSelector": {"a": "b"}}),
            json!({"affinity": affinity}),
            json!({"containers": [{"name": "c", "image": "i:1", "resources": resources}]}),
        ] {
            update(
                JOB,
                &old,
                json!({"spec": {"template": {"spec": spec}}}),
                &[],
            );
        }
        let image = json!({"containers": [{"name": "c", "image": "i:2"}]});
        update(
            JOB,
            &old,
            json!({"spec": {"template": {"spec": image}}}),
            &["spec.template.spec: Invalid value: "],
        );
    }
}

#[test]
fn affinity_to_pods_of_a_suspended_job_does_not_change() {
    let old = job_with_status(json!({"suspend": true}), json!({}));
    let term = json!({"topologyKey": "zone"});
    let affinity =
        json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    update(
        JOB,
        &old,
        json!({"spec": {"template": {"spec": {"affinity": affinity}}}}),
        &["spec.template.spec: Invalid value: "],
    );
}

#[test]
fn placement_of_a_job_with_pods_does_not_change() {
    let change = json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}});
    for (suspend, status) in [
        (false, json!({})),
        (true, json!({"active": 1})),
        (true, json!({"startTime": "2024-01-01T00:00:00Z"})),
    ] {
        let old = job_with_status(json!({"suspend": suspend}), status);
        update(
            JOB,
            &old,
            change.clone(),
            &["spec.template: Invalid value: "],
        );
    }
}
