//! ServiceCIDRs that users create.

use integration_tests::{Components, Test, find_condition};
use serde_json::{Value, json};

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

fn service(name: &str, address: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}})
}

#[tokio::test]
async fn service_cidr_in_use_is_deleted_after_its_last_address() {
    let test = Test::start(Components::All).await;
    let collection = "/apis/networking.k8s.io/v1/servicecidrs";
    let name = test.name("range");
    let object = json!({"metadata": {"name": name}, "spec": {"cidrs": ["198.51.100.0/28"]}});
    test.create(collection, &object).await;
    let path = format!("{collection}/{name}");
    let ready = test
        .wait_until(&path, "ready", |object| {
            find_condition(object, "Ready")["status"] == "True"
        })
        .await;
    assert_eq!(ready["metadata"]["finalizers"], json!([FINALIZER]));
    test.create(&test.core("services"), &service("first", "198.51.100.3"))
        .await;
    test.admin.delete(&path).await.expect_status(200);
    let held = test
        .wait_until(&path, "terminating", |object| {
            find_condition(object, "Ready")["status"] == "False"
        })
        .await;
    assert_eq!(find_condition(&held, "Ready")["reason"], "Terminating");
    // A range that is being deleted provides no new addresses.
    test.admin
        .post(&test.core("services"), &service("second", "198.51.100.4"))
        .await
        .expect_status(422);
    test.admin
        .delete(&test.core("services/first"))
        .await
        .expect_status(200);
    test.wait_until_deleted(&path).await;
}
