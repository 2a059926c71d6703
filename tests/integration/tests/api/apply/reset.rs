//! Owners that a client resets.

use super::{config_map_of, fields_of, start};
use integration_tests::{ReplyExt, config_map};
use serde_json::json;

#[tokio::test]
async fn managed_fields_are_cleared_by_an_empty_entry() {
    let test = start().await;
    let path = test.core("configmaps/c");
    test.admin
        .apply(&path, "one", &config_map("c"))
        .await
        .expect_status(201);
    let patch = json!({"metadata": {"managedFields": [{}]}});
    let cleared = test
        .admin
        .merge_patch(&path, &patch)
        .await
        .expect_status(200)
        .json();
    assert_eq!(cleared["metadata"].get("managedFields"), None);
    let reply = test
        .admin
        .force_apply(&path, "two", &config_map_of(json!({"a": "2"})))
        .await;
    let applied = reply.expect_status(200).json();
    assert!(
        fields_of(&applied, "before-first-apply", "Update").is_some(),
        "{applied}"
    );
    assert_eq!(
        fields_of(&applied, "two", "Apply"),
        Some(&json!({"f:data": {"f:a": {}}}))
    );
}
