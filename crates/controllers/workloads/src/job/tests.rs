#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe_actions;
use serde_json::{Value, json};

fn job(spec: Value) -> Job {
    let mut value = json!({
        "metadata": {"name": "j", "namespace": "n", "uid": "j"},
        "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "selector": {"matchLabels": {"job": "j"}},
            "template": {"metadata": {"labels": {"job": "j"}}, "spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}}},
    });
    for (k, v) in spec.as_object().unwrap() {
        value["spec"][k] = v.clone();
    }
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, phase: &str, index: Option<usize>, tracked: bool, code: i32) -> Arc<Pod> {
    let finished = "2026-01-01T00:00:00Z";
    Arc::new(serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"job": "j"},
            "finalizers": if tracked { json!([TRACKING]) } else { json!(null) },
            "annotations": index.map(|i| json!({"batch.kubernetes.io/job-completion-index": i.to_string()})),
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]},
        "status": {"phase": phase, "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "finishedAt": finished}}}]},
    })).unwrap())
}

/// Reconciles until nothing changes, applying status writes and finalizer removals; returns the Job
/// and all lines.
fn settle(mut job: Job, mut pods: Vec<Arc<Pod>>, now: &str) -> (Job, Vec<String>) {
    let mut lines = Vec::new();
    for _ in 0..8 {
        let actions = reconcile_job(&job, &pods, now.parse().unwrap());
        let text = describe_actions(&actions);
        for action in &actions {
            match action {
                Action::Write(w) if w.target.kind == "Job" => {
                    job = serde_json::from_value(w.body.clone()).unwrap()
                }
                Action::Batch(all) => {
                    for w in all {
                        let find = pods.iter().position(|p| p.name() == w.target.name);
                        match (&w.verb, find) {
                            (controllers_runtime::Verb::Strategic(_), Some(i)) => {
                                let mut p = pods[i].as_ref().clone();
                                p.metadata.finalizers = None;
                                pods[i] = Arc::new(p);
                            }
                            (controllers_runtime::Verb::Delete, Some(i)) => {
                                let mut p = pods[i].as_ref().clone();
                                p.status.get_or_insert_default().phase = Some("Failed".to_owned());
                                pods[i] = Arc::new(p);
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        let stop = text
            .iter()
            .all(|l| l.starts_with("requeue") || l.starts_with("create"));
        lines.extend(text);
        if stop {
            break;
        }
    }
    (job, lines)
}

fn reason(job: &Job, kind: &str) -> String {
    let all = job.status.clone().unwrap().conditions.unwrap_or_default();
    all.into_iter()
        .find(|c| c.type_ == kind && c.status == "True")
        .and_then(|c| c.reason)
        .unwrap_or_default()
}

#[test]
fn completes_and_counts_once() {
    let (j, lines) = settle(
        job(json!({})),
        vec![pod("p", "Succeeded", None, true, 0)],
        "2026-01-01T00:00:01Z",
    );
    let status = j.status.clone().unwrap();
    assert_eq!(
        (status.succeeded, status.failed, status.active),
        (Some(1), None, None)
    );
    assert_eq!(
        (reason(&j, "Complete"), reason(&j, "SuccessCriteriaMet")),
        ("CompletionsReached".into(), "CompletionsReached".into())
    );
    assert!(lines.contains(&"event Completed Job completed".to_owned()));
    assert_eq!(
        status.uncounted_terminated_pods.unwrap_or_default(),
        Default::default()
    );
}

#[test]
fn fails_beyond_the_limit() {
    let (j, _) = settle(
        job(json!({})),
        vec![pod("p", "Failed", None, true, 1)],
        "2026-01-01T00:00:01Z",
    );
    assert_eq!(
        (reason(&j, "Failed"), reason(&j, "FailureTarget")),
        ("BackoffLimitExceeded".into(), "BackoffLimitExceeded".into())
    );
    assert_eq!(j.status.unwrap().failed, Some(1));
}

#[test]
fn retries_after_a_delay() {
    let j = job(json!({"backoffLimit": 3}));
    let failed = vec![pod("p", "Failed", None, false, 1)];
    let (_, early) = settle(j.clone(), failed.clone(), "2026-01-01T00:00:04Z");
    assert!(
        early.contains(&"requeue 6s".to_owned()) && !early.iter().any(|l| l.starts_with("create")),
        "{early:?}"
    );
    let (_, late) = settle(j, failed, "2026-01-01T00:00:11Z");
    assert!(late.contains(&"create Pod j-".to_owned()), "{late:?}");
}

#[test]
fn indexes_are_told_apart() {
    let spec = json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 0, "backoffLimit": 2147483647});
    let pods = (0..4)
        .map(|i| {
            pod(
                &format!("p{i}"),
                if i == 1 { "Failed" } else { "Succeeded" },
                Some(i),
                true,
                i32::from(i == 1),
            )
        })
        .collect();
    let (j, _) = settle(job(spec), pods, "2026-01-01T00:00:01Z");
    let status = j.status.clone().unwrap();
    assert_eq!(
        (
            status.completed_indexes.as_deref(),
            status.failed_indexes.as_deref()
        ),
        (Some("0,2,3"), Some("1"))
    );
    assert_eq!(reason(&j, "Failed"), "FailedIndexes");
}

#[test]
fn policies_decide() {
    let rule = |action: &str| json!({"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [42]}}]});
    let failed = || vec![pod("p", "Failed", None, true, 42)];
    let (j, _) = settle(
        job(json!({"backoffLimit": 5, "podFailurePolicy": rule("FailJob")})),
        failed(),
        "2026-01-01T00:00:01Z",
    );
    assert_eq!(reason(&j, "Failed"), "PodFailurePolicy");
    let (j, lines) = settle(
        job(json!({"podFailurePolicy": rule("Ignore")})),
        failed(),
        "2026-01-01T00:00:20Z",
    );
    assert_eq!(
        (reason(&j, "Failed"), j.status.unwrap().failed),
        (String::new(), None)
    );
    assert!(lines.contains(&"create Pod j-".to_owned()));
    let spec = json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "successPolicy": {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}});
    let (j, lines) = settle(
        job(spec),
        vec![
            pod("a", "Succeeded", Some(0), true, 0),
            pod("b", "Running", Some(1), true, 0),
        ],
        "2026-01-01T00:00:01Z",
    );
    assert_eq!(
        (
            reason(&j, "SuccessCriteriaMet"),
            j.status.unwrap().completed_indexes
        ),
        ("SuccessPolicy".into(), Some("0".into()))
    );
    assert!(lines.contains(&"delete Pod b".to_owned()));
}

#[test]
fn suspension_stops_without_counting() {
    let (j, lines) = settle(
        job(json!({"suspend": true})),
        vec![pod("p", "Running", None, true, 0)],
        "2026-01-01T00:00:01Z",
    );
    assert_eq!(reason(&j, "Suspended"), "JobSuspended");
    assert!(lines.contains(&"delete Pod p".to_owned()));
    assert_eq!(
        (
            j.status.clone().unwrap().failed,
            j.status.unwrap().start_time
        ),
        (None, None)
    );
}

#[test]
fn deadline_ends_it() {
    let mut j = job(json!({"activeDeadlineSeconds": 3}));
    j.status = serde_json::from_value(json!({"startTime": "2026-01-01T00:00:00Z"})).unwrap();
    let (j, _) = settle(
        j,
        vec![pod("p", "Running", None, true, 0)],
        "2026-01-01T00:00:04Z",
    );
    assert_eq!(reason(&j, "Failed"), "DeadlineExceeded");
}

fn indexed_job(spec: Value) -> Job {
    let mut all = json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
        "backoffLimit": 2147483647});
    for (k, v) in spec.as_object().unwrap() {
        all[k] = v.clone();
    }
    job(all)
}

fn failed_before(mut pod: Arc<Pod>, counted: i64, ignored: i64) -> Arc<Pod> {
    let notes = Arc::make_mut(&mut pod)
        .metadata
        .annotations
        .get_or_insert_default();
    notes.insert(failures::COUNTED.to_owned(), counted.to_string());
    notes.insert(failures::IGNORED.to_owned(), ignored.to_string());
    pod
}

/// Returns the annotations of the pods that the actions create.
fn created_annotations(actions: &[Action]) -> Vec<Value> {
    let batches = actions.iter().filter_map(|a| {
        if let Action::Batch(all) = a {
            Some(all)
        } else {
            None
        }
    });
    let writes = batches
        .flatten()
        .filter(|w| w.verb == controllers_runtime::Verb::Create);
    writes
        .map(|w| w.body["metadata"]["annotations"].clone())
        .collect()
}

#[test]
fn ignored_failure_does_not_count_against_the_limit_of_its_index() {
    let rule =
        json!({"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}]});
    let j = indexed_job(json!({"podFailurePolicy": rule}));
    let pods = [
        failed_before(pod("p", "Failed", Some(0), true, 42), 0, 1),
        pod("q", "Running", Some(1), true, 0),
    ];
    let got = created_annotations(&reconcile_job(
        &j,
        &pods,
        "2026-01-01T00:10:00Z".parse().unwrap(),
    ));
    assert_eq!(got.len(), 1);
    assert_eq!(got[0][failures::COUNTED], "0");
    assert_eq!(got[0][failures::IGNORED], "2");
}

#[test]
fn last_failed_pod_of_an_index_keeps_its_finalizer_until_the_next_one_exists() {
    let j = indexed_job(json!({}));
    let failed = pod("p", "Failed", Some(0), true, 1);
    let other = pod("q", "Running", Some(1), true, 0);
    let early = reconcile_job(
        &j,
        &[failed.clone(), other.clone()],
        "2026-01-01T00:00:01Z".parse().unwrap(),
    );
    assert!(
        !describe_actions(&early).contains(&"patch Pod p".to_owned()),
        "{early:?}"
    );
    let next = failed_before(pod("r", "Running", Some(0), true, 0), 1, 0);
    let (j, lines) = settle(j, vec![failed, other, next], "2026-01-01T00:00:20Z");
    assert!(lines.contains(&"patch Pod p".to_owned()), "{lines:?}");
    assert_eq!(j.status.unwrap().failed, Some(1));
}

#[test]
fn failed_pod_of_an_open_index_is_counted_when_the_job_ends() {
    let j = indexed_job(json!({"activeDeadlineSeconds": 1}));
    let mut j = j;
    j.status = serde_json::from_value(json!({"startTime": "2026-01-01T00:00:00Z"})).unwrap();
    let (j, _) = settle(
        j,
        vec![pod("p", "Failed", Some(0), true, 1)],
        "2026-01-01T00:00:04Z",
    );
    assert_eq!(reason(&j, "Failed"), "DeadlineExceeded");
    assert_eq!(j.status.unwrap().failed, Some(1));
}

fn now(seconds: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    time::seconds_after(start, seconds)
}

fn names(actions: &[Action], verb: &str) -> usize {
    let lines = describe_actions(actions);
    lines.iter().filter(|l| l.starts_with(verb)).count()
}

#[test]
fn parallelism_and_remaining_completions_bound_the_active_pods() {
    for (completions, parallelism, expect) in [
        (json!(5), 2, 2),
        (json!(2), 5, 2),
        (json!(5), 0, 0),
        (json!(null), 3, 3),
    ] {
        let j = job(json!({"completions": completions, "parallelism": parallelism}));
        let got = reconcile_job(&j, &[], now(1));
        assert_eq!(names(&got, "create"), expect, "{completions} {parallelism}");
    }
}

#[test]
fn surplus_pods_are_deleted_when_parallelism_shrinks() {
    let j = job(json!({"parallelism": 1, "completions": 5, "backoffLimit": 6}));
    let pods = [
        pod("a", "Running", None, true, 0),
        pod("b", "Pending", None, true, 0),
        pod("c", "Running", None, true, 0),
    ];
    assert_eq!(names(&reconcile_job(&j, &pods, now(1)), "delete"), 2);
}

#[test]
fn work_queue_with_a_success_starts_no_further_pods() {
    let j = job(json!({"completions": null, "parallelism": 3}));
    let pods = [
        pod("a", "Succeeded", None, true, 0),
        pod("b", "Running", None, true, 0),
    ];
    let got = reconcile_job(&j, &pods, now(1));
    assert_eq!(names(&got, "create"), 0);
    let (j, _) = settle(
        job(json!({"completions": null, "parallelism": 1})),
        vec![pod("a", "Succeeded", None, true, 0)],
        "2026-01-01T00:00:01Z",
    );
    assert_eq!(reason(&j, "Complete"), "CompletionsReached");
}

#[test]
fn back_off_doubles_up_to_ten_minutes() {
    for (failures, expect) in [(1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (30, 600)] {
        let j = job(json!({"backoffLimit": 100}));
        let pods: Vec<_> = (0..failures)
            .map(|i| pod(&format!("p{i}"), "Failed", None, false, 1))
            .collect();
        let got = describe_actions(&reconcile_job(&j, &pods, now(0)));
        assert!(
            got.contains(&format!("requeue {expect}s")),
            "{failures}: {got:?}"
        );
    }
}

#[test]
fn terminating_pods_are_replaced_unless_only_failed_pods_are() {
    let terminating = || {
        let mut found = pod("a", "Running", None, true, 0).as_ref().clone();
        found.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).ok();
        Arc::new(found)
    };
    for (policy, expect) in [("TerminatingOrFailed", 1), ("Failed", 0)] {
        let j = job(json!({"backoffLimit": 6, "podReplacementPolicy": policy}));
        let got = reconcile_job(&j, &[terminating()], now(100));
        assert_eq!(names(&got, "create"), expect, "{policy}");
    }
}

#[test]
fn restarts_in_place_count_against_the_limit_with_on_failure() {
    let restarted = |count: i32| {
        let mut found = pod("a", "Running", None, true, 0).as_ref().clone();
        let status = found.status.as_mut().unwrap();
        let containers = status.container_statuses.as_mut().unwrap();
        containers[0].restart_count = count;
        Arc::new(found)
    };
    for (limit, restarts, fails) in [(0, 0, false), (0, 1, true), (3, 2, false), (3, 3, true)] {
        let mut j = job(json!({"backoffLimit": limit}));
        let template = &mut j.spec.as_mut().unwrap().template;
        template.spec.as_mut().unwrap().restart_policy = Some("OnFailure".to_owned());
        let (j, _) = settle(j, vec![restarted(restarts)], "2026-01-01T00:00:01Z");
        let failed = reason(&j, "FailureTarget") == "BackoffLimitExceeded";
        assert_eq!(failed, fails, "limit {limit}, restarts {restarts}");
    }
}

#[test]
fn failure_policy_matches_exit_codes_and_conditions() {
    let codes = |operator: &str, values: Value| {
        json!({"action": "FailJob",
        "onExitCodes": {"operator": operator, "values": values}})
    };
    for (rule, code, fails) in [
        (codes("In", json!([1, 2])), 2, true),
        (codes("In", json!([1, 2])), 3, false),
        (codes("NotIn", json!([1, 2])), 3, true),
        (codes("NotIn", json!([1, 2])), 1, false),
        (
            json!({"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}),
            1,
            true,
        ),
        (
            json!({"action": "FailJob", "onPodConditions": [{"type": "Other"}]}),
            1,
            false,
        ),
    ] {
        let mut failed = pod("p", "Failed", None, true, code).as_ref().clone();
        failed.status.as_mut().unwrap().conditions =
            serde_json::from_value(json!([{"type": "DisruptionTarget", "status": "True"}]))
                .unwrap();
        let j = job(json!({"backoffLimit": 5, "podFailurePolicy": {"rules": [rule]}}));
        let (j, _) = settle(j, vec![Arc::new(failed)], "2026-01-01T00:00:01Z");
        assert_eq!(reason(&j, "Failed") == "PodFailurePolicy", fails, "{rule}");
    }
}

#[test]
fn first_matching_rule_of_the_failure_policy_decides() {
    let on = |action: &str| {
        json!({"action": action,
        "onExitCodes": {"operator": "In", "values": [42]}})
    };
    let j = job(json!({"backoffLimit": 5,
        "podFailurePolicy": {"rules": [on("Ignore"), on("FailJob")]}}));
    let failed = vec![pod("p", "Failed", None, true, 42)];
    let (j, _) = settle(j, failed, "2026-01-01T00:00:20Z");
    assert_eq!(reason(&j, "Failed"), "");
}

#[test]
fn fail_index_fails_only_its_index() {
    let j = job(
        json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed",
        "backoffLimitPerIndex": 5, "backoffLimit": 2147483647,
        "podFailurePolicy": {"rules": [{"action": "FailIndex",
            "onExitCodes": {"operator": "In", "values": [42]}}]}}),
    );
    let pods = vec![
        pod("a", "Failed", Some(0), true, 42),
        pod("b", "Running", Some(1), true, 0),
    ];
    let (j, lines) = settle(j, pods, "2026-01-01T00:00:20Z");
    assert_eq!(j.status.unwrap().failed_indexes.as_deref(), Some("0"));
    assert!(!lines.iter().any(|l| l.starts_with("delete")), "{lines:?}");
}

#[test]
fn job_fails_when_too_many_indexes_failed() {
    let j = job(
        json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed",
        "backoffLimitPerIndex": 0, "maxFailedIndexes": 1, "backoffLimit": 2147483647}),
    );
    let pods = (0..3)
        .map(|i| pod(&format!("p{i}"), "Failed", Some(i), true, 1))
        .collect();
    let (j, _) = settle(j, pods, "2026-01-01T00:00:20Z");
    assert_eq!(reason(&j, "Failed"), "MaxFailedIndexesExceeded");
}

#[test]
fn success_policy_is_met_by_count_and_by_indexes() {
    for (rule, done, met) in [
        (json!({"succeededCount": 2}), vec![0, 3], true),
        (json!({"succeededCount": 2}), vec![3], false),
        (json!({"succeededIndexes": "0-1"}), vec![0, 1], true),
        (json!({"succeededIndexes": "0-1"}), vec![0, 2], false),
        (
            json!({"succeededIndexes": "0-2", "succeededCount": 1}),
            vec![2],
            true,
        ),
    ] {
        let j = job(
            json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed",
            "successPolicy": {"rules": [rule]}}),
        );
        let pods = done
            .iter()
            .map(|i| pod(&format!("p{i}"), "Succeeded", Some(*i), true, 0))
            .collect();
        let (j, _) = settle(j, pods, "2026-01-01T00:00:01Z");
        let got = reason(&j, "SuccessCriteriaMet") == "SuccessPolicy";
        assert_eq!(got, met, "{rule} {done:?}");
    }
}

#[test]
fn indexed_job_creates_the_lowest_missing_indexes() {
    let j = job(json!({"completions": 5, "parallelism": 2, "completionMode": "Indexed"}));
    let pods = [pod("a", "Succeeded", Some(1), true, 0)];
    let got = created_annotations(&reconcile_job(&j, &pods, now(1)));
    let indexes: Vec<_> = got
        .iter()
        .map(|a| a["batch.kubernetes.io/job-completion-index"].clone())
        .collect();
    assert_eq!(indexes, ["0", "2"]);
}

#[test]
fn second_pod_of_an_index_is_deleted() {
    let j = job(json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed"}));
    let pods = [
        pod("a", "Running", Some(0), true, 0),
        pod("b", "Running", Some(0), true, 0),
    ];
    let Some(Action::Batch(deleted)) = reconcile_job(&j, &pods, now(1))
        .into_iter()
        .find(|a| matches!(a, Action::Batch(_)))
    else {
        panic!("nothing is deleted")
    };
    assert_eq!(deleted.len(), 1);
}

#[test]
fn resumed_job_starts_its_deadline_again() {
    let mut j = job(json!({"activeDeadlineSeconds": 5}));
    j.status = serde_json::from_value(json!({"conditions": [{"type": "Suspended",
        "status": "True", "reason": "JobSuspended"}]}))
    .unwrap();
    let got = reconcile_job(&j, &[], now(3600));
    let write = got
        .iter()
        .filter_map(Action::as_write)
        .find(|w| w.target.kind == "Job")
        .unwrap();
    assert_eq!(write.body["status"]["startTime"], "2026-01-01T01:00:00Z");
    assert_eq!(write.body["status"]["conditions"][0]["status"], "False");
}

#[test]
fn finalizer_is_removed_only_after_the_status_records_the_pod() {
    let got = describe_actions(&reconcile_job(
        &job(json!({})),
        &[pod("p", "Succeeded", None, true, 0)],
        now(1),
    ));
    let status = got.iter().position(|l| l == "status Job j").unwrap();
    let release = got.iter().position(|l| l == "patch Pod p").unwrap();
    assert!(status < release, "{got:?}");
}

#[test]
fn finished_job_only_releases_its_pods() {
    let mut j = job(json!({"parallelism": 3}));
    j.status = serde_json::from_value(json!({"conditions": [{"type": "Complete",
        "status": "True"}]}))
    .unwrap();
    let pods = [pod("p", "Succeeded", None, true, 0)];
    let got = describe_actions(&reconcile_job(&j, &pods, now(1)));
    assert_eq!(got, ["patch Pod p"]);
}

#[test]
fn job_of_another_manager_is_left_alone() {
    let j = job(json!({"managedBy": "example.com/queue"}));
    assert!(reconcile_job(&j, &[], now(1)).is_empty());
    let own = job(json!({"managedBy": "kubernetes.io/job-controller"}));
    assert!(!reconcile_job(&own, &[], now(1)).is_empty());
}
