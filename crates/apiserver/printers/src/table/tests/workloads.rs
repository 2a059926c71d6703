use super::*;

fn job_status(conditions: Value, deleted: bool) -> Value {
    let mut object = json!({"spec": {"completions": 1}, "status": {"conditions": conditions}});
    if deleted {
        object["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:01:00Z");
    }
    cells("batch", "v1", "jobs", object)[1].clone()
}

#[test]
fn job_status_is_its_most_final_condition() {
    let of = |kinds: &[&str]| {
        let conditions = kinds
            .iter()
            .map(|kind| json!({"type": kind, "status": "True"}));
        job_status(conditions.collect(), false)
    };
    assert_eq!(of(&[]), "Running");
    assert_eq!(of(&["Complete", "SuccessCriteriaMet"]), "Complete");
    assert_eq!(of(&["Failed", "FailureTarget"]), "Failed");
    assert_eq!(of(&["Suspended"]), "Suspended");
    assert_eq!(of(&["FailureTarget"]), "FailureTarget");
    assert_eq!(of(&["SuccessCriteriaMet"]), "SuccessCriteriaMet");
    assert_eq!(
        job_status(json!([{"type": "Failed", "status": "False"}]), false),
        "Running"
    );
    assert_eq!(
        job_status(json!([{"type": "Suspended", "status": "True"}]), true),
        "Terminating"
    );
}

#[test]
fn job_without_completions_shows_its_parallelism() {
    for (spec, expect) in [
        (json!({"completions": 5, "parallelism": 2}), "3/5"),
        (json!({"parallelism": 4}), "3/1 of 4"),
        (json!({"parallelism": 1}), "3/1"),
        (json!({}), "3/1"),
    ] {
        let row = cells(
            "batch",
            "v1",
            "jobs",
            json!({"spec": spec, "status": {"succeeded": 3}}),
        );
        assert_eq!(row[2], expect, "{spec}");
    }
}

#[test]
fn job_duration_ends_with_its_completion() {
    let duration =
        |status: Value| cells("batch", "v1", "jobs", json!({"status": status}))[3].clone();
    assert_eq!(duration(json!({})), "");
    assert_eq!(
        duration(json!({"startTime": "2024-01-01T00:00:40Z"})),
        "60s"
    );
    let completed =
        json!({"startTime": "2024-01-01T00:00:40Z", "completionTime": "2024-01-01T00:00:45Z"});
    assert_eq!(duration(completed), "5s");
}

#[test]
fn cron_job_row_shows_schedule_suspension_and_last_run() {
    let spec = json!({"schedule": "0 * * * *", "timeZone": "Europe/Oslo", "suspend": true});
    let status = json!({"active": [{}, {}], "lastScheduleTime": "2024-01-01T00:01:00Z"});
    let row = cells(
        "batch",
        "v1",
        "cronjobs",
        json!({"spec": spec, "status": status}),
    );
    assert_eq!(
        row[..7],
        [
            json!("x"),
            json!("0 * * * *"),
            json!("Europe/Oslo"),
            json!("True"),
            json!(2),
            json!("40s"),
            json!("100s")
        ]
    );
    let row = cells(
        "batch",
        "v1",
        "cronjobs",
        json!({"spec": {"schedule": "@daily", "suspend": false}}),
    );
    assert_eq!(
        row[2..6],
        [json!("<none>"), json!("False"), json!(0), json!("<none>")]
    );
}

#[test]
fn daemon_set_row_counts_nodes() {
    let status = json!({"desiredNumberScheduled": 4, "currentNumberScheduled": 3, "numberReady": 2,
        "updatedNumberScheduled": 1, "numberAvailable": 2});
    let spec = json!({"template": {"spec": {"nodeSelector": {"disk": "ssd"}, "containers": []}}, "selector": {"matchLabels": {"a": "b"}}});
    let row = cells(
        "apps",
        "v1",
        "daemonsets",
        json!({"spec": spec, "status": status}),
    );
    assert_eq!(
        Value::from(row),
        json!(["x", 4, 3, 2, 1, 2, "disk=ssd", "100s", "", "", "a=b"])
    );
}

#[test]
fn disruption_budget_shows_the_bound_that_is_set() {
    let row = |spec: Value| {
        cells(
            "policy",
            "v1",
            "poddisruptionbudgets",
            json!({"spec": spec, "status": {"disruptionsAllowed": 1}}),
        )
    };
    assert_eq!(
        row(json!({"minAvailable": "50%"}))[1..4],
        [json!("50%"), json!("N/A"), json!(1)]
    );
    assert_eq!(
        row(json!({"maxUnavailable": 2}))[1..4],
        [json!("N/A"), json!("2"), json!(1)]
    );
}

#[test]
fn autoscaler_shows_two_metrics_and_counts_the_rest() {
    let resource = |name: &str, target: Value| json!({"type": "Resource", "resource": {"name": name, "target": target}});
    let external = json!({"type": "External", "external": {"target": {"averageValue": "30"}}});
    let metrics = json!([
        resource("cpu", json!({"averageUtilization": 80})),
        external,
        resource("memory", json!({"averageValue": "1Gi"}))
    ]);
    let current = json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 55}}}]);
    let spec = json!({"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 2, "maxReplicas": 9, "metrics": metrics});
    let object = json!({"spec": spec, "status": {"currentMetrics": current, "currentReplicas": 4}});
    let row = cells("autoscaling", "v2", "horizontalpodautoscalers", object);
    assert_eq!(
        Value::from(row),
        json!([
            "x",
            "Deployment/d",
            "cpu: 55%/80%, <unknown>/30 (avg) + 1 more...",
            "2",
            9,
            4,
            "100s"
        ])
    );
}

#[test]
fn controller_revision_names_its_controller_with_group() {
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true});
    let row = |owners: Value| {
        cells(
            "apps",
            "v1",
            "controllerrevisions",
            json!({"metadata": {"name": "r", "ownerReferences": owners}, "revision": 3}),
        )
    };
    assert_eq!(
        row(json!([owner]))[1..3],
        [json!("statefulset.apps/web"), json!(3)]
    );
    assert_eq!(row(json!([]))[1], "<none>");
}
