//! Apply requests that are rejected.

use super::{config_map_of, start};
use integration_tests::{PatchType, ReplyExt, config_map};
use serde_json::json;

#[tokio::test]
async fn apply_needs_a_field_manager() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let reply = test
        .admin
        .patch(PatchType::Apply, &path, &config_map("c"))
        .await;
    let status = reply.expect_causes(&[("fieldManager", "FieldValueRequired")]);
    assert_eq!(
        status["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
}

#[tokio::test]
async fn force_is_for_apply_only() {
    let test = start().await;
    test.create(&test.core("configmaps"), &config_map("c"))
        .await;
    let path = format!("{}?force=true", test.core("configmaps/c"));
    let status = test
        .admin
        .merge_patch(&path, &json!({}))
        .await
        .expect_causes(&[("force", "FieldValueForbidden")]);
    assert_eq!(
        status["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
    );
}

#[tokio::test]
async fn apply_of_managed_fields_is_a_bad_request() {
    let test = start().await;
    let mut object = config_map("c");
    object["metadata"]["managedFields"] =
        json!([{"manager": "m", "operation": "Apply", "apiVersion": "v1"}]);
    let reply = test
        .admin
        .apply(&test.core("configmaps/c"), "one", &object)
        .await;
    reply.expect_failure(400, "BadRequest", "metadata.managedFields must be nil");
}

#[tokio::test]
async fn apply_of_another_kind_or_name_is_a_bad_request() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let mut other_kind = config_map("c");
    other_kind["kind"] = json!("Secret");
    for object in [
        other_kind,
        config_map("other"),
        json!({"metadata": {"name": "c"}}),
    ] {
        let reply = test.admin.apply(&path, "one", &object).await;
        reply.expect_reason(400, "BadRequest");
    }
    test.admin.get(&path).await.expect_status(404);
}

#[tokio::test]
async fn apply_without_a_name_creates_nothing() {
    let test = start().await;
    let path = test.core("configmaps/c");
    for metadata in [json!({}), json!({"generateName": "c-"})] {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let reply = test.admin.apply(&path, "one", &object).await;
        reply.expect_failure(
            400,
            "BadRequest",
            "the name of the object (c based on URL) was undeterminable: name must be provided",
        );
    }
    test.admin.get(&path).await.expect_status(404);
    test.admin
        .apply(&path, "one", &config_map("c"))
        .await
        .expect_status(201);
    // The merged object has the name of the existing one.
    let unnamed = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "2"}});
    let reply = test.admin.apply(&path, "two", &unnamed).await;
    assert_eq!(reply.expect_status(200).json()["data"]["b"], "2");
}

#[tokio::test]
async fn field_manager_above_128_characters_is_invalid() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let reply = test
        .admin
        .apply(&path, &"m".repeat(129), &config_map("c"))
        .await;
    reply.expect_causes(&[("fieldManager", "FieldValueTooLong")]);
}

#[tokio::test]
async fn apply_with_an_old_version_conflicts() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let first = test
        .admin
        .apply(&path, "one", &config_map("c"))
        .await
        .expect_status(201)
        .json();
    test.admin
        .merge_patch(&path, &json!({"data": {"z": "1"}}))
        .await
        .expect_status(200);
    let mut object = config_map_of(json!({"a": "2"}));
    object["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"].clone();
    test.admin
        .apply(&path, "one", &object)
        .await
        .expect_reason(409, "Conflict");
}

#[tokio::test]
async fn apply_with_the_uid_of_an_absent_object_is_a_conflict() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let uid = "6f1b0b5e-6a0c-4b0e-9d8f-0c8f0f7a1c11";
    let mut named = config_map("c");
    named["metadata"]["uid"] = json!(uid);
    let mut unnamed = named.clone();
    unnamed["metadata"] = json!({"uid": uid});
    for object in [named, unnamed] {
        let reply = test.admin.apply(&path, "one", &object).await;
        let status = reply.expect_reason(409, "Conflict");
        assert!(
            status["message"].to_string().contains(&format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object"
            )),
            "{status}"
        );
    }
    test.admin.get(&path).await.expect_status(404);
}
