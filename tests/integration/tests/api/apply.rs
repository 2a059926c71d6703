//! Server-side apply and field ownership.

mod lists;
mod requests;
mod reset;
mod subresources;

use integration_tests::{Components, ReplyExt, Test, config_map};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

fn config_map_of(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data})
}

/// Returns the fields that a manager owns.
fn fields_of<'a>(object: &'a Value, manager: &str, operation: &str) -> Option<&'a Value> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    let entry = entries.iter().find(|e| {
        e["manager"] == manager && e["operation"] == operation && e.get("subresource").is_none()
    });
    entry.map(|entry| &entry["fieldsV1"])
}

#[tokio::test]
async fn apply_creates_and_owns_what_it_set() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let reply = test
        .admin
        .apply(&path, "one", &config_map_of(json!({"a": "1"})))
        .await;
    let object = reply.expect_status(201).json();
    assert_eq!(object["data"], json!({"a": "1"}));
    let entry = &object["metadata"]["managedFields"][0];
    assert_eq!(
        (
            &entry["manager"],
            &entry["operation"],
            &entry["apiVersion"],
            &entry["fieldsType"]
        ),
        (
            &json!("one"),
            &json!("Apply"),
            &json!("v1"),
            &json!("FieldsV1")
        )
    );
    assert_eq!(entry["fieldsV1"], json!({"f:data": {"f:a": {}}}));
}

#[tokio::test]
async fn same_apply_again_changes_nothing() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = config_map_of(json!({"a": "1"}));
    let first = test
        .admin
        .apply(&path, "one", &object)
        .await
        .expect_status(201)
        .json();
    let second = test
        .admin
        .apply(&path, "one", &object)
        .await
        .expect_status(200)
        .json();
    assert_eq!(first, second);
}

#[tokio::test]
async fn apply_of_another_managers_fields_conflicts() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = config_map_of(json!({"a": "1", "b": "1"}));
    test.admin
        .apply(&path, "one", &object)
        .await
        .expect_status(201);
    let reply = test
        .admin
        .apply(&path, "two", &config_map_of(json!({"a": "2", "b": "2"})))
        .await;
    let status = reply.expect_failure(
        409,
        "Conflict",
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b",
    );
    assert_eq!(
        status["details"]["causes"],
        json!([
            {"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.a"},
            {"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.b"},
        ])
    );
    let reply = test
        .admin
        .apply(&path, "two", &config_map_of(json!({"a": "2"})))
        .await;
    reply.expect_failure(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"one\": .data.a",
    );
    assert_eq!(test.read(&path).await["data"], json!({"a": "1", "b": "1"}));
}

#[tokio::test]
async fn forced_apply_takes_ownership() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = config_map_of(json!({"a": "1", "b": "1"}));
    test.admin
        .apply(&path, "one", &object)
        .await
        .expect_status(201);
    let reply = test
        .admin
        .force_apply(&path, "two", &config_map_of(json!({"a": "2"})))
        .await;
    let object = reply.expect_status(200).json();
    assert_eq!(object["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(
        fields_of(&object, "one", "Apply"),
        Some(&json!({"f:data": {"f:b": {}}}))
    );
    assert_eq!(
        fields_of(&object, "two", "Apply"),
        Some(&json!({"f:data": {"f:a": {}}}))
    );
}

#[tokio::test]
async fn field_left_out_by_its_only_owner_is_removed() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = config_map_of(json!({"a": "1", "b": "2"}));
    test.admin
        .apply(&path, "one", &object)
        .await
        .expect_status(201);
    let reply = test
        .admin
        .apply(&path, "one", &config_map_of(json!({"b": "2"})))
        .await;
    assert_eq!(reply.expect_status(200).json()["data"], json!({"b": "2"}));
}

#[tokio::test]
async fn shared_field_is_removed_with_its_last_owner() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = config_map_of(json!({"a": "1"}));
    let empty = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    test.admin
        .apply(&path, "one", &object)
        .await
        .expect_status(201);
    test.admin
        .apply(&path, "two", &object)
        .await
        .expect_status(200);
    let kept = test
        .admin
        .apply(&path, "one", &empty)
        .await
        .expect_status(200)
        .json();
    assert_eq!(kept["data"], json!({"a": "1"}));
    let removed = test
        .admin
        .apply(&path, "two", &empty)
        .await
        .expect_status(200)
        .json();
    assert_eq!(removed.get("data"), None);
}

#[tokio::test]
async fn update_takes_the_fields_that_it_changes() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = config_map_of(json!({"a": "1", "b": "1"}));
    let mut object = test
        .admin
        .apply(&path, "one", &object)
        .await
        .expect_status(201)
        .json();
    object["data"]["a"] = json!("9");
    let reply = test
        .admin
        .put(&format!("{path}?fieldManager=editor"), &object)
        .await;
    let updated = reply.expect_status(200).json();
    assert_eq!(
        fields_of(&updated, "editor", "Update"),
        Some(&json!({"f:data": {"f:a": {}}}))
    );
    assert_eq!(
        fields_of(&updated, "one", "Apply"),
        Some(&json!({"f:data": {"f:b": {}}}))
    );
    let reply = test
        .admin
        .apply(&path, "one", &config_map_of(json!({"a": "1", "b": "1"})))
        .await;
    let status = reply.expect_reason(409, "Conflict");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("Apply failed with 1 conflict: conflict with \"editor\" using v1"),
        "{message}"
    );
}

#[tokio::test]
async fn manager_of_an_update_is_the_clients_program() {
    let test = start().await;
    let client = test
        .admin
        .with_header("user-agent", "tool/v1.2 (linux/amd64) x");
    let reply = client
        .post(&test.core("configmaps"), &config_map("c"))
        .await;
    let object = reply.expect_status(201).json();
    assert_eq!(
        fields_of(&object, "tool", "Update"),
        Some(&json!({"f:data": {".": {}, "f:a": {}}}))
    );
}
