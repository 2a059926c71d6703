//! Jobs and CronJobs.

use integration_tests::{Components, Test, find_condition, has_condition, name_of};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::All).await
}

/// Returns a Job `j` that runs a command, with more fields of its spec.
fn job(command: &[&str], fields: Value) -> Value {
    let container = json!({"name": "c", "image": "example.com/c:1", "command": command});
    let mut spec = json!({"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never",
        "containers": [container], "terminationGracePeriodSeconds": 0}}});
    spec.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec})
}

async fn create(test: &Test, object: &Value) -> Value {
    test.create(&test.group("batch/v1", "jobs"), object).await
}

fn path(test: &Test) -> String {
    test.group("batch/v1", "jobs/j")
}

fn pods(test: &Test) -> String {
    test.core("pods?labelSelector=batch.kubernetes.io%2Fjob-name%3Dj")
}

async fn wait_until_condition(test: &Test, kind: &str) -> Value {
    test.wait_until(&path(test), kind, |job| has_condition(job, kind))
        .await
}

#[tokio::test]
async fn job_completes_with_its_pod() {
    let test = start().await;
    let created = create(&test, &job(&["true"], json!({}))).await;
    let uid = &created["metadata"]["uid"];
    let job = wait_until_condition(&test, "Complete").await;
    let status = &job["status"];
    assert_eq!(status["succeeded"], 1);
    assert_eq!((status.get("active"), status.get("failed")), (None, None));
    assert!(status["startTime"].is_string() && status["completionTime"].is_string());
    assert_eq!(
        find_condition(&job, "Complete")["reason"],
        "CompletionsReached"
    );
    assert!(has_condition(&job, "SuccessCriteriaMet"));
    assert_eq!(
        job["spec"]["selector"]["matchLabels"],
        json!({"batch.kubernetes.io/controller-uid": uid})
    );
    let pod = test.items(&pods(&test)).await.remove(0);
    assert_eq!(pod["status"]["phase"], "Succeeded");
    assert_eq!(pod["metadata"].get("finalizers"), None);
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["batch.kubernetes.io/controller-uid"], *uid);
    assert_eq!(
        (&labels["job-name"], &labels["controller-uid"]),
        (&json!("j"), uid)
    );
    let owner = &pod["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["blockOwnerDeletion"]),
        (&json!("Job"), &json!(true))
    );
}

#[tokio::test]
async fn running_job_counts_its_pods() {
    let test = start().await;
    let fields = json!({"completions": 2, "parallelism": 2});
    create(&test, &job(&["sleep", "600"], fields)).await;
    let job = test
        .wait_until(&path(&test), "ready", |job| job["status"]["ready"] == 2)
        .await;
    assert_eq!(job["status"]["active"], 2);
    for pod in test.items(&pods(&test)).await {
        assert_eq!(
            pod["metadata"]["finalizers"],
            json!(["batch.kubernetes.io/job-tracking"])
        );
    }
    let patch = json!({"spec": {"parallelism": 1}});
    test.admin
        .merge_patch(&path(&test), &patch)
        .await
        .expect_status(200);
    test.wait_until(&path(&test), "at one pod", |job| {
        job["status"]["active"] == 1
    })
    .await;
}

#[tokio::test]
async fn parallelism_bounds_the_pods_at_once() {
    let test = start().await;
    let all = test.core("pods");
    let version = test.version(&all).await;
    let mut watch = test
        .admin
        .watch(&format!("{all}?watch=true&resourceVersion={version}"))
        .await;
    let fields = json!({"completions": 4, "parallelism": 2});
    create(&test, &job(&["true"], fields)).await;
    let mut running = std::collections::BTreeSet::new();
    let mut finished = std::collections::BTreeSet::new();
    while finished.len() < 4 {
        let (_, pod) = watch.event().await;
        let name = name_of(&pod).to_owned();
        if pod["status"]["phase"] == "Succeeded" {
            running.remove(&name);
            finished.insert(name);
        } else {
            running.insert(name);
        }
        assert!(running.len() <= 2, "{running:?}");
    }
    assert_eq!(
        wait_until_condition(&test, "Complete").await["status"]["succeeded"],
        4
    );
}

#[tokio::test]
async fn indexed_job_numbers_its_pods() {
    let test = start().await;
    let fields = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed"});
    create(&test, &job(&["true"], fields)).await;
    let job = wait_until_condition(&test, "Complete").await;
    assert_eq!(job["status"]["completedIndexes"], "0-2");
    for (index, pod) in test.items(&pods(&test)).await.iter().enumerate() {
        let metadata = &pod["metadata"];
        let key = "batch.kubernetes.io/job-completion-index";
        assert_eq!(metadata["annotations"][key], index.to_string());
        assert_eq!(metadata["labels"][key], index.to_string());
        assert!(
            name_of(pod).starts_with(&format!("j-{index}-")),
            "{}",
            name_of(pod)
        );
        assert_eq!(pod["spec"]["hostname"], format!("j-{index}"));
    }
}

#[tokio::test]
async fn job_fails_at_its_backoff_limit() {
    let test = start().await;
    create(&test, &job(&["false"], json!({}))).await;
    let job = wait_until_condition(&test, "Failed").await;
    let condition = find_condition(&job, "Failed");
    assert_eq!(
        (&condition["reason"], &condition["message"]),
        (
            &json!("BackoffLimitExceeded"),
            &json!("Job has reached the specified backoff limit")
        )
    );
    assert!(has_condition(&job, "FailureTarget"));
    assert_eq!(job["status"]["failed"], 1);
    assert_eq!(job["status"].get("completionTime"), None);
    assert_eq!(
        test.items(&pods(&test)).await[0]["status"]["phase"],
        "Failed"
    );
}

#[tokio::test]
async fn failure_policy_fails_the_job_at_an_exit_code() {
    let test = start().await;
    let rule = json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}});
    let fields = json!({"backoffLimit": 5, "podFailurePolicy": {"rules": [rule]}});
    create(&test, &job(&["sh", "-c", "exit 42"], fields)).await;
    let job = wait_until_condition(&test, "Failed").await;
    let pod = test.items(&pods(&test)).await.remove(0);
    let condition = find_condition(&job, "Failed");
    assert_eq!(condition["reason"], "PodFailurePolicy");
    assert_eq!(
        condition["message"],
        format!(
            "Container c for pod {}/{} failed with exit code 42 matching FailJob rule at index 0",
            test.namespace,
            name_of(&pod)
        )
    );
    assert_eq!(job["status"]["failed"], 1);
}

#[tokio::test]
async fn suspended_job_has_no_pods() {
    let test = start().await;
    create(&test, &job(&["sleep", "600"], json!({"suspend": true}))).await;
    let job = wait_until_condition(&test, "Suspended").await;
    assert_eq!(find_condition(&job, "Suspended")["reason"], "JobSuspended");
    assert_eq!(job["status"].get("startTime"), None);
    assert!(test.items(&pods(&test)).await.is_empty());
    let resume = json!({"spec": {"suspend": false}});
    test.admin
        .merge_patch(&path(&test), &resume)
        .await
        .expect_status(200);
    let job = test
        .wait_until(&path(&test), "resumed", |job| job["status"]["ready"] == 1)
        .await;
    let condition = find_condition(&job, "Suspended");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("JobResumed"))
    );
    let suspend = json!({"spec": {"suspend": true}});
    test.admin
        .merge_patch(&path(&test), &suspend)
        .await
        .expect_status(200);
    test.wait_until_items(&pods(&test), "without pods", <[Value]>::is_empty)
        .await;
}

#[tokio::test]
async fn job_fails_at_its_deadline() {
    let test = start().await;
    let fields = json!({"activeDeadlineSeconds": 1, "backoffLimit": 6});
    create(&test, &job(&["sleep", "600"], fields)).await;
    let job = wait_until_condition(&test, "Failed").await;
    let condition = find_condition(&job, "Failed");
    assert_eq!(
        (&condition["reason"], &condition["message"]),
        (
            &json!("DeadlineExceeded"),
            &json!("Job was active longer than specified deadline")
        )
    );
}

#[tokio::test]
async fn finished_job_is_deleted_after_its_time_to_live() {
    let test = start().await;
    create(
        &test,
        &job(&["true"], json!({"ttlSecondsAfterFinished": 1})),
    )
    .await;
    test.wait_until_deleted(&path(&test)).await;
    test.wait_until_items(&pods(&test), "without pods", <[Value]>::is_empty)
        .await;
}

#[tokio::test]
async fn suspended_cron_job_creates_no_jobs() {
    let test = start().await;
    let template = job(&["true"], json!({}))["spec"].take();
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "cron"},
        "spec": {"schedule": "* * * * *", "suspend": true, "jobTemplate": {"spec": template}}});
    let created = test
        .create(&test.group("batch/v1", "cronjobs"), &cron)
        .await;
    assert_eq!(created["spec"]["concurrencyPolicy"], "Allow");
    assert_eq!(created["spec"]["successfulJobsHistoryLimit"], 3);
    // A Job of the same namespace completes in the meantime.
    create(&test, &job(&["true"], json!({}))).await;
    wait_until_condition(&test, "Complete").await;
    assert_eq!(test.names(&test.group("batch/v1", "jobs")).await, ["j"]);
}
