//! Creation and deletion of namespaces.

use integration_tests::{Components, Test, config_map, deployment, find_condition, pod};
use serde_json::json;

async fn start() -> Test {
    Test::start(Components::All).await
}

#[tokio::test]
async fn new_namespace_gets_an_account_and_the_root_certificate() {
    let test = start().await;
    let account = test
        .wait_until(&test.core("serviceaccounts/default"), "created", |_| true)
        .await;
    assert_eq!(account["kind"], "ServiceAccount");
    let map = test
        .wait_until(&test.core("configmaps/kube-root-ca.crt"), "created", |_| {
            true
        })
        .await;
    let certificate = map["data"]["ca.crt"].as_str().unwrap();
    assert!(
        certificate.starts_with("-----BEGIN CERTIFICATE-----"),
        "{certificate}"
    );
}

#[tokio::test]
async fn deleted_root_certificate_is_written_again() {
    let test = start().await;
    let path = test.core("configmaps/kube-root-ca.crt");
    let first = test.wait_until(&path, "created", |_| true).await;
    test.admin.delete(&path).await.expect_status(200);
    let second = test
        .wait_until(&path, "created again", |map| {
            map["metadata"]["uid"] != first["metadata"]["uid"]
        })
        .await;
    assert_eq!(second["data"], first["data"]);
}

#[tokio::test]
async fn deletion_empties_the_namespace() {
    let test = start().await;
    test.create(&test.core("configmaps"), &config_map("c"))
        .await;
    test.create(&test.core("pods"), &pod("p")).await;
    let path = test.group("apps/v1", "deployments");
    test.create(&path, &deployment("d", 2)).await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"selector": {"app": "d"}, "ports": [{"port": 80}]}});
    test.create(&test.core("services"), &service).await;
    let namespace = format!("/api/v1/namespaces/{}", test.namespace);
    test.admin.delete(&namespace).await.expect_status(200);
    test.wait_until_deleted(&namespace).await;
    for collection in [
        test.core("configmaps"),
        test.core("pods"),
        test.core("secrets"),
        test.core("services"),
        test.core("serviceaccounts"),
        path,
        test.group("discovery.k8s.io/v1", "endpointslices"),
    ] {
        assert_eq!(test.names(&collection).await, [""; 0], "{collection}");
    }
}

#[tokio::test]
async fn finalizer_of_an_object_holds_the_namespace() {
    let test = start().await;
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    test.create(&test.core("configmaps"), &held).await;
    test.create(
        &test.core("secrets"),
        &json!({"metadata": {"name": "free"}}),
    )
    .await;
    let namespace = format!("/api/v1/namespaces/{}", test.namespace);
    test.admin.delete(&namespace).await.expect_status(200);
    test.wait_until_deleted(&test.core("secrets/free")).await;
    let object = test
        .wait_until(&namespace, "held", |namespace| {
            find_condition(namespace, "NamespaceFinalizersRemaining")["status"] == "True"
        })
        .await;
    assert_eq!(object["status"]["phase"], "Terminating");
    assert_eq!(
        find_condition(&object, "NamespaceFinalizersRemaining")["message"],
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    );
    let remaining = find_condition(&object, "NamespaceContentRemaining");
    assert_eq!(
        (&remaining["status"], &remaining["reason"]),
        (&json!("True"), &json!("SomeResourcesRemain"))
    );
    let release = json!({"metadata": {"finalizers": null}});
    let path = test.core("configmaps/held");
    test.admin
        .merge_patch(&path, &release)
        .await
        .expect_status(200);
    test.wait_until_deleted(&namespace).await;
}

#[tokio::test]
async fn name_of_a_deleted_namespace_can_be_used_again() {
    let test = start().await;
    let first = test.create_namespace(&json!({})).await;
    let path = format!("/api/v1/namespaces/{first}");
    let uid = test.read(&path).await["metadata"]["uid"].clone();
    test.create(&format!("{path}/configmaps"), &config_map("old"))
        .await;
    test.admin.delete(&path).await.expect_status(200);
    test.wait_until_deleted(&path).await;
    let again = json!({"metadata": {"name": first}});
    let second = test.create("/api/v1/namespaces", &again).await;
    assert_ne!(second["metadata"]["uid"], uid);
    test.admin
        .get(&format!("{path}/configmaps/old"))
        .await
        .expect_status(404);
}
