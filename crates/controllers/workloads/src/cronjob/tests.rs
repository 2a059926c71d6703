#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::sync::Arc;

use controllers_runtime::describe_actions;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use serde_json::{Value, json};

use super::reconcile_cron_job;

fn cron(spec: Value, last: Option<&str>) -> CronJob {
    let mut value = json!({
        "metadata": {"name": "c", "namespace": "n", "uid": "c", "creationTimestamp": "2026-01-01T00:00:10Z"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {}}}, "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0},
        "status": {"lastScheduleTime": last},
    });
    for (k, v) in spec.as_object().unwrap() {
        value["spec"][k] = v.clone();
    }
    serde_json::from_value(value).unwrap()
}

fn job(name: &str, end: Option<&str>, started: i64) -> Arc<Job> {
    let conditions =
        end.map(|kind| json!([{"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:30Z"}]));
    Arc::new(serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": "x"}},
        "spec": {"template": {}}, "status": {"conditions": conditions, "startTime": format!("2026-01-01T00:00:0{started}Z")},
    })).unwrap())
}

fn run(cron: &CronJob, jobs: &[Arc<Job>], now: &str) -> Vec<String> {
    describe_actions(&reconcile_cron_job(cron, jobs, now.parse().unwrap()))
}

#[test]
fn starts_at_the_minute_once() {
    assert_eq!(
        run(&cron(json!({}), None), &[], "2026-01-01T00:00:40Z"),
        ["requeue 20s"]
    );
    let got = run(&cron(json!({}), None), &[], "2026-01-01T00:01:00Z");
    assert_eq!(
        got,
        ["create Job c-29453761", "status CronJob c", "requeue 60s"]
    );
    let again = run(
        &cron(json!({}), Some("2026-01-01T00:01:00Z")),
        &[],
        "2026-01-01T00:01:05Z",
    );
    assert_eq!(again, ["requeue 55s"]);
    assert!(
        run(
            &cron(json!({"suspend": true}), None),
            &[],
            "2026-01-01T00:01:00Z"
        )
        .is_empty()
    );
}

#[test]
fn concurrency() {
    let busy = [job("old", None, 1)];
    let lines = |policy: &str| {
        run(
            &cron(json!({"concurrencyPolicy": policy}), None),
            &busy,
            "2026-01-01T00:01:00Z",
        )
    };
    assert!(lines("Forbid")[0].starts_with("event JobAlreadyActive"));
    assert_eq!(
        lines("Replace")[..2],
        ["delete Job old", "create Job c-29453761"]
    );
    assert_eq!(lines("Allow")[0], "create Job c-29453761");
}

#[test]
fn missed_times() {
    let late = "2026-01-01T05:00:30Z";
    assert_eq!(
        run(
            &cron(json!({"startingDeadlineSeconds": 100}), None),
            &[],
            late
        )[0],
        "create Job c-29454060"
    );
    assert!(
        run(
            &cron(json!({"startingDeadlineSeconds": 1}), None),
            &[],
            late
        )[0]
        .starts_with("requeue")
    );
    let many = run(&cron(json!({}), None), &[], late);
    assert!(
        many[0].starts_with("event TooManyMissedTimes") && many[1] == "create Job c-29454060",
        "{many:?}"
    );
}

#[test]
fn irregular_schedule_after_a_long_downtime_starts_no_stale_job() {
    // At 00:00 and 00:01 each day: the first two runs are a minute apart, the others a day.
    let lines = |now: &str| {
        run(
            &cron(
                json!({"schedule": "0,1 0 * * *"}),
                Some("2026-01-01T00:01:00Z"),
            ),
            &[],
            now,
        )
    };
    let jobs = |now: &str| {
        lines(now)
            .into_iter()
            .filter(|l| l.starts_with("create"))
            .collect::<Vec<_>>()
    };
    assert_eq!(jobs("2026-01-22T12:00:00Z"), Vec::<String>::new());
    assert_eq!(jobs("2026-01-22T00:01:30Z"), ["create Job c-29484001"]);
}

#[test]
fn history_is_trimmed() {
    let jobs = [
        job("a", Some("Complete"), 1),
        job("b", Some("Complete"), 2),
        job("f", Some("Failed"), 3),
    ];
    let got = run(
        &cron(json!({"suspend": true}), None),
        &jobs,
        "2026-01-01T00:00:50Z",
    );
    assert_eq!(got, ["delete Job a", "delete Job f", "status CronJob c"]);
}

#[test]
fn schedule_is_read_in_the_zone_of_the_cron_job() {
    let berlin = cron(
        json!({"schedule": "0 9 * * *", "timeZone": "Europe/Berlin"}),
        Some("2026-06-01T07:00:00Z"),
    );
    let got = run(&berlin, &[], "2026-06-02T07:00:01Z");
    assert_eq!(got[0], "create Job c-29673060");
    let utc = cron(
        json!({"schedule": "0 9 * * *"}),
        Some("2026-06-01T09:00:00Z"),
    );
    assert!(run(&utc, &[], "2026-06-02T07:00:01Z")[0].starts_with("requeue"));
}

#[test]
fn unknown_time_zone_is_reported() {
    let lines = run(
        &cron(json!({"timeZone": "Mars/Base"}), None),
        &[],
        "2026-01-01T00:01:00Z",
    );
    assert!(lines[0].starts_with("event UnknownTimeZone"), "{lines:?}");
    assert!(!lines.iter().any(|l| l.starts_with("create")), "{lines:?}");
}

#[test]
fn schedule_that_cannot_be_parsed_is_reported() {
    let lines = run(
        &cron(json!({"schedule": "every day"}), None),
        &[],
        "2026-01-01T00:01:00Z",
    );
    assert!(
        lines[0].starts_with("event UnparseableSchedule"),
        "{lines:?}"
    );
}

#[test]
fn job_is_annotated_with_its_time_and_owned_by_the_cron_job() {
    let got = reconcile_cron_job(
        &cron(json!({"timeZone": "Asia/Tokyo"}), None),
        &[],
        "2026-01-01T00:01:00Z".parse().unwrap(),
    );
    let job = &got[0].as_write().unwrap().body;
    assert_eq!(
        job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"],
        "2026-01-01T09:01:00+09:00"
    );
    assert_eq!(job["metadata"]["ownerReferences"][0]["controller"], true);
}

#[test]
fn finished_jobs_leave_the_active_list() {
    let mut c = cron(json!({"suspend": true}), None);
    c.status = serde_json::from_value(json!({"active": [{"uid": "done", "name": "done"},
        {"uid": "lost", "name": "lost"}]}))
    .unwrap();
    let got = reconcile_cron_job(
        &c,
        &[job("done", Some("Complete"), 1)],
        "2026-01-01T00:00:50Z".parse().unwrap(),
    );
    let write = got
        .iter()
        .filter_map(controllers_runtime::Action::as_write)
        .find(|w| w.target.kind == "CronJob")
        .unwrap();
    let active = write.body["status"]["active"].as_array();
    assert_eq!(active.map_or(0, Vec::len), 0, "{active:?}");
}

#[test]
fn cron_job_in_deletion_starts_nothing() {
    let mut c = cron(json!({}), None);
    c.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).ok();
    assert!(run(&c, &[], "2026-01-01T00:01:00Z").is_empty());
}
