//! Deletion of definitions.

use super::{DEFINITIONS, definition, establish, group, instance, path_of, start, wait_for_status};
use integration_tests::{ReplyExt, find_condition, has_condition};
use serde_json::json;

#[tokio::test]
async fn instances_and_their_api_end_with_the_definition() {
    let test = start().await;
    let group = group(&test);
    let foo = definition(&group, "foos", "Foo");
    let first = establish(&test, &foo).await;
    let other = test.create_namespace(&json!({})).await;
    let foos = test.group(&format!("{group}/v1"), "foos");
    let elsewhere = format!("/apis/{group}/v1/namespaces/{other}/foos");
    test.create(&foos, &instance(&group, "Foo", "a")).await;
    test.create(&elsewhere, &instance(&group, "Foo", "b")).await;
    let version = test.version(&foos).await;
    let mut watch = test
        .admin
        .watch(&format!("{foos}?watch=true&resourceVersion={version}"))
        .await;
    let path = path_of(&foo);
    let deleted = test.admin.delete(&path).await.expect_status(200).json();
    let cleanup = "customresourcecleanup.apiextensions.k8s.io";
    assert_eq!(deleted["metadata"]["finalizers"], json!([cleanup]));
    let condition = find_condition(&deleted, "Terminating");
    assert_eq!(condition["reason"], "InstanceDeletionPending");
    assert_eq!(watch.event().await.0, "DELETED");
    test.wait_until_deleted(&path).await;
    wait_for_status(&test, &foos, 404).await;
    assert_eq!(watch.next().await, None, "the watch ends");

    let again = establish(&test, &foo).await;
    assert_ne!(again["metadata"]["uid"], first["metadata"]["uid"]);
    assert!(test.names(&foos).await.is_empty());
    assert!(test.names(&elsewhere).await.is_empty());
}

#[tokio::test]
async fn definition_waits_for_finalizers_and_admits_no_new_instances() {
    let test = start().await;
    let group = group(&test);
    let foo = definition(&group, "foos", "Foo");
    establish(&test, &foo).await;
    let foos = test.group(&format!("{group}/v1"), "foos");
    let mut held = instance(&group, "Foo", "a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    test.create(&foos, &held).await;
    let path = path_of(&foo);
    test.admin.delete(&path).await.expect_status(200);
    let waiting = test
        .wait_until(&path, "terminating", |d| {
            find_condition(d, "Terminating")["reason"] == "InstanceDeletionInProgress"
        })
        .await;
    assert!(has_condition(&waiting, "Terminating"));
    let message = format!(
        "foos.{group} \"b\" is forbidden: create not allowed while custom resource definition is terminating"
    );
    test.admin
        .post(&foos, &instance(&group, "Foo", "b"))
        .await
        .expect_failure(403, "Forbidden", &message);
    let one = format!("{foos}/a");
    test.wait_until(&one, "deleted", |o| {
        o["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    let listed = test.read(&format!("/apis/{group}/v1")).await;
    let verbs = json!(["delete", "deletecollection", "get", "list", "watch"]);
    assert_eq!(listed["resources"][0]["verbs"], verbs);
    let release = json!({"metadata": {"finalizers": null}});
    test.admin
        .merge_patch(&one, &release)
        .await
        .expect_status(200);
    test.wait_until_deleted(&path).await;
    wait_for_status(&test, &foos, 404).await;
}

#[tokio::test]
async fn definition_that_was_never_established_is_deleted() {
    let test = start().await;
    let group = group(&test);
    establish(&test, &definition(&group, "foos", "Foo")).await;
    let refused = definition(&group, "bars", "Foo");
    test.create(DEFINITIONS, &refused).await;
    test.admin
        .delete(&path_of(&refused))
        .await
        .expect_status(200);
    test.wait_until_deleted(&path_of(&refused)).await;
}
