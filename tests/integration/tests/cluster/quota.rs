//! ResourceQuotas: usage, limits and scopes.

use integration_tests::{Components, ReplyExt, Test, deployment, find_condition, pod, pod_with};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::All).await
}

/// Creates the quota `q`, and waits until its usage is known.
async fn create_quota(test: &Test, spec: Value) {
    let quota = json!({"metadata": {"name": "q"}, "spec": spec});
    test.create(&test.core("resourcequotas"), &quota).await;
    test.wait_until(&path(test), "counted", |quota| {
        let status = &quota["status"];
        status["hard"] == quota["spec"]["hard"] && status["used"].is_object()
    })
    .await;
}

fn path(test: &Test) -> String {
    test.core("resourcequotas/q")
}

fn with_cpu(name: &str, cpu: &str) -> Value {
    let resources = json!({"requests": {"cpu": cpu}});
    let container = json!({"name": "c", "image": "example.com/c:1", "resources": resources});
    pod_with(
        name,
        &json!({"containers": [container], "nodeSelector": {"absent": "x"}}),
    )
}

#[tokio::test]
async fn usage_is_counted_and_bounded() {
    let test = start().await;
    create_quota(&test, json!({"hard": {"pods": "2", "requests.cpu": "1"}})).await;
    let pods = test.core("pods");
    test.create(&pods, &with_cpu("a", "700m")).await;
    let quota = test.read(&path(&test)).await;
    assert_eq!(
        quota["status"]["used"],
        json!({"pods": "1", "requests.cpu": "700m"})
    );
    test.admin.post(&pods, &with_cpu("b", "400m")).await.expect_failure(
        403,
        "Forbidden",
        "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=400m, used: requests.cpu=700m, limited: \
         requests.cpu=1",
    );
    test.create(&pods, &with_cpu("b", "300m")).await;
    test.admin.post(&pods, &with_cpu("c", "1m")).await.expect_failure(
        403,
        "Forbidden",
        "pods \"c\" is forbidden: exceeded quota: q, requested: pods=1,requests.cpu=1m, used: pods=2,requests.cpu=1, \
         limited: pods=2,requests.cpu=1",
    );
}

#[tokio::test]
async fn deleted_pod_releases_its_usage() {
    let test = start().await;
    create_quota(&test, json!({"hard": {"pods": "1"}})).await;
    let pods = test.core("pods");
    test.create(&pods, &with_cpu("a", "1m")).await;
    test.admin
        .post(&pods, &with_cpu("b", "1m"))
        .await
        .expect_reason(403, "Forbidden");
    test.admin
        .delete(&format!("{pods}/a"))
        .await
        .expect_status(200);
    test.wait_until(&path(&test), "released", |quota| {
        quota["status"]["used"]["pods"] == "0"
    })
    .await;
    test.create(&pods, &with_cpu("b", "1m")).await;
}

#[tokio::test]
async fn pod_has_to_request_what_a_quota_bounds() {
    let test = start().await;
    create_quota(&test, json!({"hard": {"requests.cpu": "1"}})).await;
    test.admin
        .post(&test.core("pods"), &pod("p"))
        .await
        .expect_failure(
            403,
            "Forbidden",
            "pods \"p\" is forbidden: failed quota: q: must specify requests.cpu for: c",
        );
}

#[tokio::test]
async fn dry_run_is_checked_but_not_counted() {
    let test = start().await;
    create_quota(&test, json!({"hard": {"pods": "1"}})).await;
    let dry = format!("{}?dryRun=All", test.core("pods"));
    test.admin.post(&dry, &pod("p")).await.expect_status(201);
    assert_eq!(test.read(&path(&test)).await["status"]["used"]["pods"], "0");
    test.create(&test.core("pods"), &with_cpu("a", "1m")).await;
    test.admin
        .post(&dry, &pod("p"))
        .await
        .expect_reason(403, "Forbidden");
}

#[tokio::test]
async fn one_of_concurrent_pods_takes_the_last_place() {
    let test = start().await;
    create_quota(&test, json!({"hard": {"pods": "3"}})).await;
    let mut creates = tokio::task::JoinSet::new();
    for number in 0..12 {
        let (admin, path) = (test.admin.clone(), test.core("pods"));
        let pod = with_cpu(&format!("p{number}"), "1m");
        creates.spawn(async move { admin.post(&path, &pod).await.status });
    }
    let mut statuses = creates.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses[..4], [201, 201, 201, 403], "{statuses:?}");
    assert_eq!(test.names(&test.core("pods")).await.len(), 3);
}

#[tokio::test]
async fn best_effort_scope_counts_pods_without_requests() {
    let test = start().await;
    create_quota(
        &test,
        json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]}),
    )
    .await;
    let pods = test.core("pods");
    test.create(&pods, &pod("a")).await;
    test.admin.post(&pods, &pod("b")).await.expect_failure(
        403,
        "Forbidden",
        "pods \"b\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1",
    );
    test.create(&pods, &with_cpu("c", "1m")).await;
}

#[tokio::test]
async fn objects_of_any_kind_are_counted() {
    let test = start().await;
    let hard = json!({"count/deployments.apps": "1", "services.nodeports": "0"});
    create_quota(&test, json!({"hard": hard})).await;
    let deployments = test.group("apps/v1", "deployments");
    test.create(&deployments, &deployment("a", 0)).await;
    test.admin.post(&deployments, &deployment("b", 0)).await.expect_failure(
        403,
        "Forbidden",
        "deployments.apps \"b\" is forbidden: exceeded quota: q, requested: count/deployments.apps=1, used: \
         count/deployments.apps=1, limited: count/deployments.apps=1",
    );
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    test.admin.post(&test.core("services"), &service).await.expect_failure(
        403,
        "Forbidden",
        "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: \
         services.nodeports=0, limited: services.nodeports=0",
    );
}

#[tokio::test]
async fn storage_of_claims_is_bounded() {
    let test = start().await;
    create_quota(&test, json!({"hard": {"requests.storage": "1Gi"}})).await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}}}});
    test.admin.post(&test.core("persistentvolumeclaims"), &claim).await.expect_failure(
        403,
        "Forbidden",
        "persistentvolumeclaims \"c\" is forbidden: exceeded quota: q, requested: requests.storage=2Gi, used: \
         requests.storage=0, limited: requests.storage=1Gi",
    );
}

#[tokio::test]
async fn replica_set_reports_pods_that_a_quota_rejects() {
    let test = start().await;
    create_quota(&test, json!({"hard": {"pods": "1"}})).await;
    let mut set = deployment("r", 2);
    set["kind"] = json!("ReplicaSet");
    let path = test.group("apps/v1", "replicasets");
    test.create(&path, &set).await;
    let path = format!("{path}/r");
    let set = test
        .wait_until(&path, "failing", |set| {
            find_condition(set, "ReplicaFailure").is_object()
        })
        .await;
    let condition = find_condition(&set, "ReplicaFailure");
    assert_eq!(condition["reason"], "FailedCreate");
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.ends_with(
            "is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
        ),
        "{message}"
    );
    let scale = json!({"spec": {"replicas": 1}});
    test.admin
        .merge_patch(&path, &scale)
        .await
        .expect_status(200);
    test.wait_until(&path, "at its size", |set| {
        find_condition(set, "ReplicaFailure").is_null()
    })
    .await;
}
