//! Cascading deletion by owner references.

use integration_tests::{Components, Test, config_map, deployment, wait_for};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::All).await
}

async fn create_owner(test: &Test) -> Value {
    test.create(&test.core("configmaps"), &config_map("owner"))
        .await
}

fn reference_to(owner: &Value, blocks: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks})
}

/// Creates a ConfigMap with these owners; returns its path.
async fn create_dependent(test: &Test, name: &str, owners: Value) -> String {
    let mut object = config_map(name);
    object["metadata"]["ownerReferences"] = owners;
    test.create(&test.core("configmaps"), &object).await;
    test.core(&format!("configmaps/{name}"))
}

async fn delete_owner(test: &Test, policy: &str) {
    let options = json!({"propagationPolicy": policy});
    let path = test.core("configmaps/owner");
    test.admin
        .delete_with(&path, &options)
        .await
        .expect_status(200);
}

#[tokio::test]
async fn background_deletion_deletes_the_owner_first() {
    let test = start().await;
    let owner = create_owner(&test).await;
    let dependent = create_dependent(&test, "d", json!([reference_to(&owner, false)])).await;
    delete_owner(&test, "Background").await;
    test.admin
        .get(&test.core("configmaps/owner"))
        .await
        .expect_status(404);
    test.wait_until_deleted(&dependent).await;
}

#[tokio::test]
async fn foreground_deletion_waits_for_blocking_dependents() {
    let test = start().await;
    let owner = create_owner(&test).await;
    let dependent = create_dependent(&test, "d", json!([reference_to(&owner, true)])).await;
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    test.admin
        .merge_patch(&dependent, &hold)
        .await
        .expect_status(200);
    delete_owner(&test, "Foreground").await;
    test.wait_until(&dependent, "deleted", |object| {
        object["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    let path = test.core("configmaps/owner");
    let waiting = test.read(&path).await;
    assert_eq!(
        waiting["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    let release = json!({"metadata": {"finalizers": null}});
    test.admin
        .merge_patch(&dependent, &release)
        .await
        .expect_status(200);
    test.wait_until_deleted(&path).await;
}

#[tokio::test]
async fn orphaned_dependents_lose_their_reference() {
    let test = start().await;
    let owner = create_owner(&test).await;
    let dependent = create_dependent(&test, "d", json!([reference_to(&owner, false)])).await;
    delete_owner(&test, "Orphan").await;
    test.wait_until_deleted(&test.core("configmaps/owner"))
        .await;
    let object = test.read(&dependent).await;
    assert_eq!(object["metadata"].get("ownerReferences"), None);
    assert_eq!(object["metadata"].get("deletionTimestamp"), None);
}

#[tokio::test]
async fn dependent_with_another_owner_stays() {
    let test = start().await;
    let owner = create_owner(&test).await;
    let other = test
        .create(&test.core("configmaps"), &config_map("other"))
        .await;
    let owners = json!([reference_to(&owner, false), reference_to(&other, false)]);
    let dependent = create_dependent(&test, "d", owners).await;
    delete_owner(&test, "Background").await;
    let object = test
        .wait_until(&dependent, "with one owner", |object| {
            object["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|owners| owners.len() == 1)
        })
        .await;
    assert_eq!(object["metadata"]["ownerReferences"][0]["name"], "other");
}

#[tokio::test]
async fn dependent_of_an_owner_that_never_existed_is_deleted() {
    let test = start().await;
    let absent =
        json!({"metadata": {"name": "absent", "uid": "00000000-0000-4000-8000-000000000000"}});
    let dependent = create_dependent(&test, "d", json!([reference_to(&absent, false)])).await;
    test.wait_until_deleted(&dependent).await;
}

#[tokio::test]
async fn owner_of_another_uid_is_absent() {
    let test = start().await;
    let mut owner = create_owner(&test).await;
    owner["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    let dependent = create_dependent(&test, "d", json!([reference_to(&owner, false)])).await;
    test.wait_until_deleted(&dependent).await;
    test.read(&test.core("configmaps/owner")).await;
}

#[tokio::test]
async fn deployment_is_deleted_with_all_it_created() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments");
    test.create(&path, &deployment("d", 2)).await;
    let pods = test.core("pods");
    test.wait_until_items(&pods, "created", |pods| pods.len() == 2)
        .await;
    test.admin
        .delete(&format!("{path}/d"))
        .await
        .expect_status(200);
    for collection in [test.group("apps/v1", "replicasets"), pods] {
        wait_for("the collection is empty", async || {
            test.names(&collection).await.is_empty()
        })
        .await;
    }
}

#[tokio::test]
async fn foreground_deletion_of_a_deployment_ends_with_the_deployment() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments");
    test.create(&path, &deployment("d", 1)).await;
    let pods = test.core("pods");
    test.wait_until_items(&pods, "created", |pods| pods.len() == 1)
        .await;
    let options = json!({"propagationPolicy": "Foreground"});
    let one = format!("{path}/d");
    test.admin
        .delete_with(&one, &options)
        .await
        .expect_status(200);
    test.wait_until_deleted(&one).await;
    assert_eq!(test.names(&pods).await, [""; 0]);
    assert_eq!(
        test.names(&test.group("apps/v1", "replicasets")).await,
        [""; 0]
    );
}
