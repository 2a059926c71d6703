use super::{Cluster, config_map, find_resource, start_cluster, user_write};
use api_kinds::Resource;
use api_meta::{ApiError, Meta, Reason};
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns a cluster with the ConfigMap `a`.
async fn start_with_map() -> (Cluster, &'static Arc<Resource>, Value) {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    let created = cluster.create(maps, config_map("a")).await.unwrap();
    (cluster, maps, created)
}

fn set_data(object: &Value, key: &str) -> Result<Value, ApiError> {
    let mut object = object.clone();
    object["data"][key] = json!("v");
    Ok(object)
}

/// Returns the stored form of the ConfigMap `a` with another client's data.
fn others_change(maps: &Arc<Resource>, created: &Value) -> Vec<u8> {
    let mut object = set_data(created, "theirs").unwrap();
    object.metadata_mut().remove("resourceVersion");
    apiserver_convert::encode_stored(maps, &object)
}

#[tokio::test]
async fn put_with_an_old_resource_version_is_a_conflict() {
    let (cluster, maps, created) = start_with_map().await;
    let first = set_data(&created, "first").unwrap();
    let updated = cluster.replace(maps, first).await.unwrap();
    assert_ne!(updated.resource_version(), created.resource_version());
    let second = set_data(&created, "second").unwrap();
    let error = cluster.replace(maps, second).await.unwrap_err();
    assert_eq!((error.reason, error.code()), (Reason::Conflict, 409));
    assert!(
        error.message.contains("the object has been modified"),
        "{error}"
    );
}

#[tokio::test]
async fn put_without_a_resource_version_is_unconditional() {
    let (cluster, maps, _) = start_with_map().await;
    for key in ["first", "second"] {
        let object = set_data(&config_map("a"), key).unwrap();
        let updated = cluster.replace(maps, object).await.unwrap();
        assert_eq!(updated["data"], json!({key: "v"}));
    }
}

#[tokio::test]
async fn put_for_another_object_of_the_same_name_is_a_conflict() {
    let (cluster, maps, created) = start_with_map().await;
    let mut object = created.clone();
    object["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    object.metadata_mut().remove("resourceVersion");
    let error = cluster.replace(maps, object).await.unwrap_err();
    assert_eq!(error.reason, Reason::Conflict);
}

#[tokio::test]
async fn name_of_the_object_must_be_that_of_the_path() {
    let (cluster, maps, _) = start_with_map().await;
    let mut write = user_write(maps, "a");
    let renamed = cluster
        .change(&mut write, true, |_| Ok(config_map("b")))
        .await;
    assert_eq!(renamed.unwrap_err().reason, Reason::BadRequest);
}

#[tokio::test]
async fn update_of_a_missing_object_is_not_found() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    let error = cluster.replace(maps, config_map("a")).await.unwrap_err();
    assert_eq!((error.reason, error.code()), (Reason::NotFound, 404));
}

#[tokio::test]
async fn update_without_a_change_writes_nothing() {
    let (cluster, maps, created) = start_with_map().await;
    let before = cluster.etcd.count_requests("txn");
    let updated = cluster.replace(maps, created.clone()).await.unwrap();
    assert_eq!(updated.resource_version(), created.resource_version());
    assert_eq!(cluster.etcd.count_requests("txn"), before);
}

/// A client removes a key that another server has just added: the lagging cache does not show it.
#[tokio::test]
async fn change_that_a_stale_cache_already_has_is_repeated_on_the_live_object() {
    let (cluster, maps, created) = start_with_map().await;
    cluster.freeze_cache().await;
    let theirs = others_change(maps, &created);
    cluster.etcd.put("/registry/configmaps/d/a", &theirs);
    let mut write = user_write(maps, "a");
    let patched = cluster
        .change(&mut write, false, |old| {
            let mut object = old.clone();
            object["data"] = Value::Null;
            Ok(object)
        })
        .await
        .unwrap();
    assert_eq!(patched.get("data"), None);
    let stored = cluster.stored(maps, "configmaps/d/a").unwrap();
    assert_eq!(stored.get("data"), None);
}

#[tokio::test]
async fn put_without_a_change_to_a_stale_object_is_a_conflict() {
    let (cluster, maps, created) = start_with_map().await;
    cluster.freeze_cache().await;
    let theirs = others_change(maps, &created);
    cluster.etcd.put("/registry/configmaps/d/a", &theirs);
    let error = cluster.replace(maps, created).await.unwrap_err();
    assert_eq!(error.reason, Reason::Conflict);
}

#[tokio::test]
async fn change_that_another_client_preceded_is_applied_to_the_new_object() {
    let (cluster, maps, created) = start_with_map().await;
    let theirs = others_change(maps, &created);
    cluster.etcd.before_txns(1, move |writes| {
        writes.put("/registry/configmaps/d/a", &theirs)
    });
    let mut write = user_write(maps, "a");
    let patched = cluster
        .change(&mut write, false, |old| set_data(old, "ours"))
        .await
        .unwrap();
    assert_eq!(patched["data"], json!({"theirs": "v", "ours": "v"}));
    let stored = cluster.stored(maps, "configmaps/d/a").unwrap();
    assert_eq!(stored["data"], patched["data"]);
}

#[tokio::test]
async fn put_that_another_client_preceded_is_a_conflict() {
    let (cluster, maps, created) = start_with_map().await;
    let theirs = others_change(maps, &created);
    cluster.etcd.before_txns(1, move |writes| {
        writes.put("/registry/configmaps/d/a", &theirs)
    });
    let object = set_data(&created, "ours").unwrap();
    let error = cluster.replace(maps, object).await.unwrap_err();
    assert_eq!(error.reason, Reason::Conflict);
    let stored = cluster.stored(maps, "configmaps/d/a").unwrap();
    assert_eq!(stored["data"], json!({"theirs": "v"}));
}

#[tokio::test]
async fn change_that_fails_on_a_stale_cache_is_repeated_on_the_live_object() {
    let (cluster, maps, created) = start_with_map().await;
    cluster.freeze_cache().await;
    let theirs = others_change(maps, &created);
    let revision = cluster.etcd.put("/registry/configmaps/d/a", &theirs);
    let mut object = set_data(&created, "ours").unwrap();
    object["metadata"]["resourceVersion"] = json!(revision.to_string());
    let updated = cluster.replace(maps, object).await.unwrap();
    assert_eq!(updated["data"], json!({"ours": "v"}));
}

#[tokio::test]
async fn object_that_the_cache_does_not_show_yet_is_updated() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    cluster.freeze_cache().await;
    let object = set_data(&config_map("a"), "x").unwrap();
    cluster.etcd.put(
        "/registry/configmaps/d/a",
        &apiserver_convert::encode_stored(maps, &object),
    );
    let mut write = user_write(maps, "a");
    let patched = cluster
        .change(&mut write, false, |old| set_data(old, "y"))
        .await;
    assert_eq!(patched.unwrap()["data"], json!({"x": "v", "y": "v"}));
}

#[tokio::test]
async fn update_keeps_metadata_that_the_client_omits() {
    let (cluster, maps, created) = start_with_map().await;
    let object = set_data(&config_map("a"), "x").unwrap();
    let updated = cluster.replace(maps, object).await.unwrap();
    for field in ["uid", "creationTimestamp"] {
        assert_eq!(updated.meta_str(field), created.meta_str(field), "{field}");
    }
}

#[tokio::test]
async fn client_can_not_undo_a_requested_deletion() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/x"]);
    cluster.create(maps, object).await.unwrap();
    let deleted = cluster.delete(maps, "a", json!({})).await.unwrap().object;
    let mut object = set_data(&deleted, "x").unwrap();
    object.metadata_mut().remove("deletionTimestamp");
    let updated = cluster.replace(maps, object).await.unwrap();
    assert_eq!(
        updated.meta_str("deletionTimestamp"),
        deleted.meta_str("deletionTimestamp")
    );
}

#[tokio::test]
async fn removal_of_the_last_finalizer_removes_the_object() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/x", "example.com/y"]);
    cluster.create(maps, object).await.unwrap();
    let mut object = cluster.delete(maps, "a", json!({})).await.unwrap().object;
    object["metadata"]["finalizers"] = json!(["example.com/y"]);
    let mut object = cluster.replace(maps, object).await.unwrap();
    assert!(cluster.etcd.get("/registry/configmaps/d/a").is_some());
    object.metadata_mut().remove("finalizers");
    cluster.replace(maps, object).await.unwrap();
    assert_eq!(cluster.etcd.get("/registry/configmaps/d/a"), None);
}

#[tokio::test]
async fn dry_run_of_an_update_stores_nothing() {
    let (cluster, maps, created) = start_with_map().await;
    let mut write = user_write(maps, "a");
    write.dry_run = true;
    let changed = cluster
        .change(&mut write, false, |old| set_data(old, "x"))
        .await
        .unwrap();
    assert_eq!(changed["data"], json!({"x": "v"}));
    assert_eq!(changed.resource_version(), created.resource_version());
    let stored = cluster.stored(maps, "configmaps/d/a").unwrap();
    assert_eq!(stored.get("data"), None);
}

#[tokio::test]
async fn resource_version_that_is_no_number_is_rejected() {
    let (cluster, maps, mut object) = start_with_map().await;
    object["metadata"]["resourceVersion"] = json!("abc");
    let error = cluster.replace(maps, object).await.unwrap_err();
    assert!(error.message.contains("\"abc\""), "{error}");
}
