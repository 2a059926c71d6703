//! Updates of objects and of their subresources.

use integration_tests::{Components, ReplyExt, Test, config_map, deployment, grant_rule, pod};
use serde_json::json;

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

#[tokio::test]
async fn update_replaces_the_object() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut object = test.create(&path, &config_map("c")).await;
    object["data"] = json!({"b": "2"});
    let updated = test
        .admin
        .put(&format!("{path}/c"), &object)
        .await
        .expect_status(200)
        .json();
    assert_eq!(updated["data"], json!({"b": "2"}));
    assert_eq!(updated["metadata"]["uid"], object["metadata"]["uid"]);
    assert_ne!(
        updated["metadata"]["resourceVersion"],
        object["metadata"]["resourceVersion"]
    );
    assert_eq!(test.read(&format!("{path}/c")).await, updated);
}

#[tokio::test]
async fn update_without_a_change_keeps_the_resource_version() {
    let test = start().await;
    let path = test.core("configmaps");
    let object = test.create(&path, &config_map("c")).await;
    let updated = test
        .admin
        .put(&format!("{path}/c"), &object)
        .await
        .expect_status(200)
        .json();
    assert_eq!(
        updated["metadata"]["resourceVersion"],
        object["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn update_of_an_absent_object_is_not_found() {
    let test = start().await;
    let reply = test
        .admin
        .put(&test.core("configmaps/c"), &config_map("c"))
        .await;
    reply.expect_failure(404, "NotFound", "configmaps \"c\" not found");
}

#[tokio::test]
async fn update_of_an_absent_lease_creates_it() {
    let test = start().await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}});
    let path = test.group("coordination.k8s.io/v1", "leases/l");
    let reply = test.admin.put(&path, &lease).await;
    let created = reply.expect_status(201).json();
    // An update with the identity of a deleted object creates no other one.
    test.admin.delete(&path).await.expect_status(200);
    let reply = test.admin.put(&path, &created).await;
    reply.expect_reason(409, "Conflict");
    test.admin.get(&path).await.expect_status(404);
}

#[tokio::test]
async fn create_by_an_update_needs_the_right_to_create() {
    let test = start().await;
    let (user, client) = test.connect_user("updater").await;
    let rule = grant_rule("coordination.k8s.io", &["leases"], &["update", "get"]);
    test.grant(&user, &[rule]).await;
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    let path = test.group("coordination.k8s.io/v1", "leases/l");
    client.put(&path, &lease).await.expect_failure(
        403,
        "Forbidden",
        &format!(
            "leases.coordination.k8s.io \"l\" is forbidden: User \"{user}\" cannot create resource \"leases\" in API \
             group \"coordination.k8s.io\" in the namespace \"{}\"",
            test.namespace
        ),
    );
}

#[tokio::test]
async fn update_under_another_name_is_a_bad_request() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut object = test.create(&path, &config_map("c")).await;
    object["metadata"]["name"] = json!("other");
    let reply = test.admin.put(&format!("{path}/c"), &object).await;
    reply.expect_failure(
        400,
        "BadRequest",
        "the name of the object (other) does not match the name on the URL (c)",
    );
}

#[tokio::test]
async fn update_with_another_uid_conflicts() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut object = test.create(&path, &config_map("c")).await;
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    let other = "00000000-0000-4000-8000-000000000000";
    object["metadata"]["uid"] = json!(other);
    let reply = test.admin.put(&format!("{path}/c"), &object).await;
    let status = reply.expect_reason(409, "Conflict");
    let message = status["message"].as_str().unwrap();
    // Upstream's message has the key in the store, too.
    let part =
        format!("Precondition failed: UID in precondition: {other}, UID in object meta: {uid}");
    assert!(
        message.starts_with("Operation cannot be fulfilled on configmaps \"c\": ")
            && message.ends_with(&part),
        "{message}"
    );
}

#[tokio::test]
async fn immutable_config_map_rejects_changes_of_its_data() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut object = config_map("c");
    object["immutable"] = json!(true);
    test.create(&path, &object).await;
    let change = json!({"data": {"a": "2"}});
    let reply = test.admin.merge_patch(&format!("{path}/c"), &change).await;
    let status = reply.expect_causes(&[("data", "FieldValueForbidden")]);
    assert_eq!(
        status["message"],
        "ConfigMap \"c\" is invalid: data: Forbidden: field is immutable when `immutable` is set"
    );
    let change = json!({"metadata": {"labels": {"x": "y"}}});
    test.admin
        .merge_patch(&format!("{path}/c"), &change)
        .await
        .expect_status(200);
}

#[tokio::test]
async fn generation_counts_changes_of_the_spec_only() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments");
    let created = test.create(&path, &deployment("d", 0)).await;
    assert_eq!(created["metadata"]["generation"], 1);
    let path = format!("{path}/d");
    let labels = json!({"metadata": {"labels": {"x": "y"}}});
    let labelled = test
        .admin
        .merge_patch(&path, &labels)
        .await
        .expect_status(200)
        .json();
    assert_eq!(labelled["metadata"]["generation"], 1);
    let scaled = json!({"spec": {"replicas": 1}});
    let scaled = test
        .admin
        .merge_patch(&path, &scaled)
        .await
        .expect_status(200)
        .json();
    assert_eq!(scaled["metadata"]["generation"], 2);
}

#[tokio::test]
async fn status_is_written_through_its_subresource_only() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments");
    let mut object = deployment("d", 0);
    object["status"] = json!({"replicas": 3});
    let created = test.create(&path, &object).await;
    assert_eq!(created["status"], json!({}));
    let path = format!("{path}/d");
    let change = json!({"spec": {"replicas": 5}, "status": {"observedGeneration": 1}});
    let written = test
        .admin
        .merge_patch(&format!("{path}/status"), &change)
        .await
        .expect_status(200)
        .json();
    assert_eq!(written["spec"]["replicas"], 0);
    assert_eq!(written["status"]["observedGeneration"], 1);
    let change = json!({"status": {"observedGeneration": 9}});
    let written = test
        .admin
        .merge_patch(&path, &change)
        .await
        .expect_status(200)
        .json();
    assert_eq!(written["status"]["observedGeneration"], 1);
}

#[tokio::test]
async fn scale_reads_and_writes_replicas() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments");
    let created = test.create(&path, &deployment("d", 2)).await;
    let scale_path = format!("{path}/d/scale");
    let mut scale = test.read(&scale_path).await;
    assert_eq!(
        (&scale["apiVersion"], &scale["kind"]),
        (&json!("autoscaling/v1"), &json!("Scale"))
    );
    assert_eq!(scale["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(scale["spec"], json!({"replicas": 2}));
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "app=d"}));
    scale["spec"]["replicas"] = json!(4);
    test.admin.put(&scale_path, &scale).await.expect_status(200);
    assert_eq!(test.read(&format!("{path}/d")).await["spec"]["replicas"], 4);
    let negative = json!({"spec": {"replicas": -1}});
    let reply = test.admin.merge_patch(&scale_path, &negative).await;
    reply.expect_causes(&[("spec.replicas", "FieldValueInvalid")]);
}

#[tokio::test]
async fn binding_assigns_a_pod_once() {
    let test = start().await;
    let path = test.core("pods");
    test.create(&path, &pod("p")).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "absent-node"}});
    let bind = format!("{path}/p/binding");
    let status = test.create(&bind, &binding).await;
    assert_eq!(status["status"], "Success");
    let bound = test.read(&format!("{path}/p")).await;
    assert_eq!(bound["spec"]["nodeName"], "absent-node");
    let condition = &bound["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("PodScheduled"), &json!("True"))
    );
    test.admin.post(&bind, &binding).await.expect_failure(
        409,
        "Conflict",
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"absent-node\"",
    );
}
