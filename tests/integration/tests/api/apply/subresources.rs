//! Apply through status and scale.

use super::{fields_of, start};
use integration_tests::{ReplyExt, deployment};
use serde_json::{Value, json};

fn scale_of(replicas: i64) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"},
        "spec": {"replicas": replicas}})
}

#[tokio::test]
async fn fields_of_status_are_kept_apart() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments/d");
    test.admin
        .apply(&path, "one", &deployment("d", 0))
        .await
        .expect_status(201);
    let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "status": {"observedGeneration": 1}});
    let reply = test
        .admin
        .apply(&format!("{path}/status"), "one", &status)
        .await;
    let object = reply.expect_status(200).json();
    assert_eq!(object["status"]["observedGeneration"], 1);
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let subresources: Vec<Option<&str>> = entries
        .iter()
        .filter(|e| e["manager"] == "one")
        .map(|e| e.get("subresource").and_then(Value::as_str))
        .collect();
    assert_eq!(subresources, [None, Some("status")]);
}

#[tokio::test]
async fn apply_of_a_scale_owns_the_replicas_of_the_deployment() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments/d");
    let scale = format!("{path}/scale");
    test.admin
        .apply(&scale, "hpa", &scale_of(1))
        .await
        .expect_status(404);
    test.admin
        .apply(&path, "one", &deployment("d", 0))
        .await
        .expect_status(201);
    let reply = test.admin.apply(&scale, "hpa", &scale_of(3)).await;
    let status = reply.expect_failure(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas",
    );
    assert_eq!(status["details"]["causes"][0]["field"], ".spec.replicas");
    let reply = test.admin.force_apply(&scale, "hpa", &scale_of(3)).await;
    let object = reply.expect_status(200).json();
    assert_eq!(
        (&object["kind"], &object["spec"]["replicas"]),
        (&json!("Scale"), &json!(3))
    );
    let object = test.read(&path).await;
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let owner = entries.iter().find(|e| e["manager"] == "hpa").unwrap();
    assert_eq!(
        (
            &owner["operation"],
            &owner["apiVersion"],
            &owner["subresource"],
            &owner["fieldsV1"]
        ),
        (
            &json!("Apply"),
            &json!("apps/v1"),
            &json!("scale"),
            &json!({"f:spec": {"f:replicas": {}}})
        )
    );
    let one = fields_of(&object, "one", "Apply").unwrap();
    assert_eq!(one["f:spec"].get("f:replicas"), None);
    let reply = test.admin.apply(&path, "one", &deployment("d", 0)).await;
    reply.expect_failure(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\": .spec.replicas",
    );
}

#[tokio::test]
async fn apply_of_a_scale_checks_type_uid_and_version() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments/d");
    test.admin
        .apply(&path, "one", &deployment("d", 0))
        .await
        .expect_status(201);
    let scale = format!("{path}/scale");
    for (field, value, code) in [
        ("uid", "00000000-0000-0000-0000-000000000000", 409),
        ("resourceVersion", "1", 409),
        ("name", "other", 400),
    ] {
        let mut body = scale_of(0);
        body["metadata"][field] = json!(value);
        let reply = test.admin.apply(&scale, "one", &body).await;
        assert_eq!(reply.status, code, "{field}: {}", reply.json());
    }
    let reply = test.admin.apply(&scale, "one", &deployment("d", 0)).await;
    reply.expect_reason(400, "BadRequest");
}

#[tokio::test]
async fn apply_through_status_ignores_other_fields() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments/d");
    test.admin
        .apply(&path, "one", &deployment("d", 0))
        .await
        .expect_status(201);
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "labels": {"l": "1"}, "annotations": {"n": "1"}},
        "spec": {"replicas": 7}, "status": {"observedGeneration": 1}});
    let reply = test
        .admin
        .apply(&format!("{path}/status"), "two", &body)
        .await;
    let object = reply.expect_status(200).json();
    assert_eq!(object["spec"]["replicas"], 0);
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let own = entries.iter().find(|e| e["manager"] == "two").unwrap();
    assert_eq!(own["subresource"], "status");
    assert_eq!(
        own["fieldsV1"],
        json!({"f:metadata": {"f:annotations": {"f:n": {}}}, "f:status": {"f:observedGeneration": {}}})
    );
    // The status through the object itself is neither stored nor owned.
    let mut body = deployment("d", 0);
    body["status"] = json!({"observedGeneration": 9});
    let reply = test.admin.apply(&path, "one", &body).await;
    let object = reply.expect_status(200).json();
    assert_eq!(object["status"]["observedGeneration"], 1);
    assert_eq!(
        fields_of(&object, "one", "Apply").unwrap().get("f:status"),
        None
    );
}

#[tokio::test]
async fn owners_are_not_changed_through_a_subresource() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments/d");
    test.admin
        .apply(&path, "one", &deployment("d", 0))
        .await
        .expect_status(201);
    let patch = json!({"metadata": {"managedFields": [{}]}});
    let reply = test
        .admin
        .merge_patch(&format!("{path}/status"), &patch)
        .await;
    let object = reply.expect_status(200).json();
    assert!(fields_of(&object, "one", "Apply").is_some(), "{object}");
}
