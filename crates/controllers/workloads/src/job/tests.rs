#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe;
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
        let actions = reconcile(&job, &pods, now.parse().unwrap());
        let text = describe(&actions);
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

fn indexed(spec: Value) -> Job {
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
    notes.insert(retry::COUNTED.to_owned(), counted.to_string());
    notes.insert(retry::IGNORED.to_owned(), ignored.to_string());
    pod
}

/// Returns the annotations of the pods that the actions create.
fn created(actions: &[Action]) -> Vec<Value> {
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
    let j = indexed(json!({"podFailurePolicy": rule}));
    let pods = [
        failed_before(pod("p", "Failed", Some(0), true, 42), 0, 1),
        pod("q", "Running", Some(1), true, 0),
    ];
    let got = created(&reconcile(
        &j,
        &pods,
        "2026-01-01T00:10:00Z".parse().unwrap(),
    ));
    assert_eq!(got.len(), 1);
    assert_eq!(got[0][retry::COUNTED], "0");
    assert_eq!(got[0][retry::IGNORED], "2");
}

#[test]
fn last_failed_pod_of_an_index_keeps_its_finalizer_until_the_next_one_exists() {
    let j = indexed(json!({}));
    let failed = pod("p", "Failed", Some(0), true, 1);
    let other = pod("q", "Running", Some(1), true, 0);
    let early = reconcile(
        &j,
        &[failed.clone(), other.clone()],
        "2026-01-01T00:00:01Z".parse().unwrap(),
    );
    assert!(
        !describe(&early).contains(&"patch Pod p".to_owned()),
        "{early:?}"
    );
    let next = failed_before(pod("r", "Running", Some(0), true, 0), 1, 0);
    let (j, lines) = settle(j, vec![failed, other, next], "2026-01-01T00:00:20Z");
    assert!(lines.contains(&"patch Pod p".to_owned()), "{lines:?}");
    assert_eq!(j.status.unwrap().failed, Some(1));
}

#[test]
fn failed_pod_of_an_open_index_is_counted_when_the_job_ends() {
    let j = indexed(json!({"activeDeadlineSeconds": 1}));
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
