//! StatefulSets.

use integration_tests::{Components, Test, deployment, has_condition, name_of};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::All).await
}

fn stateful_set(replicas: u32) -> Value {
    let mut object = deployment("web", replicas);
    object["kind"] = json!("StatefulSet");
    object["spec"]["serviceName"] = json!("web");
    object
}

async fn create(test: &Test, object: &Value) -> Value {
    test.create(&test.group("apps/v1", "statefulsets"), object)
        .await
}

fn path(test: &Test) -> String {
    test.group("apps/v1", "statefulsets/web")
}

fn pods(test: &Test) -> String {
    test.core("pods?labelSelector=app%3Dweb")
}

async fn patch_spec(test: &Test, spec: Value) {
    let reply = test
        .admin
        .merge_patch(&path(test), &json!({"spec": spec}))
        .await;
    reply.expect_status(200);
}

async fn patch_image(test: &Test, image: &str) {
    let containers = json!([{"name": "c", "image": image}]);
    patch_spec(
        test,
        json!({"template": {"spec": {"containers": containers}}}),
    )
    .await;
}

/// Waits until these pods, and no others, are ready.
async fn wait_until_ready(test: &Test, names: &[&str]) -> Vec<Value> {
    test.wait_until_items(&pods(test), "ready", |pods| {
        pods.iter().map(name_of).eq(names.iter().copied())
            && pods.iter().all(|pod| has_condition(pod, "Ready"))
    })
    .await
}

#[tokio::test]
async fn pods_are_created_in_the_order_of_their_numbers() {
    let test = start().await;
    let all = test.core("pods");
    let version = test.version(&all).await;
    let query = format!("watch=true&resourceVersion={version}&labelSelector=app%3Dweb");
    let mut watch = test.admin.watch(&format!("{all}?{query}")).await;
    create(&test, &stateful_set(3)).await;
    let mut ready: Vec<String> = Vec::new();
    while ready.len() < 3 {
        let (kind, pod) = watch.event().await;
        if kind == "ADDED" {
            assert_eq!(
                name_of(&pod),
                format!("web-{}", ready.len()),
                "ready: {ready:?}"
            );
        } else if has_condition(&pod, "Ready") && !ready.contains(&name_of(&pod).to_owned()) {
            ready.push(name_of(&pod).to_owned());
        }
    }
    assert_eq!(ready, ["web-0", "web-1", "web-2"]);
}

#[tokio::test]
async fn pod_has_a_stable_identity() {
    let test = start().await;
    let set = create(&test, &stateful_set(1)).await;
    let pod = wait_until_ready(&test, &["web-0"]).await.remove(0);
    assert_eq!(
        (&pod["spec"]["hostname"], &pod["spec"]["subdomain"]),
        (&json!("web-0"), &json!("web"))
    );
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "web-0");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "0");
    assert_eq!(
        pod["metadata"]["ownerReferences"][0]["uid"],
        set["metadata"]["uid"]
    );
    let one = test.core("pods/web-0");
    test.admin.delete(&one).await.expect_status(200);
    let uid = pod["metadata"]["uid"].clone();
    test.wait_until(&one, "created again", |pod| {
        pod["metadata"]["uid"] != uid && has_condition(pod, "Ready")
    })
    .await;
}

#[tokio::test]
async fn scale_down_deletes_the_highest_numbers() {
    let test = start().await;
    create(&test, &stateful_set(3)).await;
    wait_until_ready(&test, &["web-0", "web-1", "web-2"]).await;
    patch_spec(&test, json!({"replicas": 1})).await;
    wait_until_ready(&test, &["web-0"]).await;
    test.wait_until(&path(&test), "scaled", |set| set["status"]["replicas"] == 1)
        .await;
}

#[tokio::test]
async fn unready_pod_holds_the_next_one_back() {
    let test = start().await;
    let mut object = stateful_set(2);
    object["spec"]["template"]["spec"]["nodeSelector"] = json!({"absent": test.namespace});
    create(&test, &object).await;
    test.wait_until_items(&pods(&test), "created", |pods| pods.len() == 1)
        .await;
    test.wait_until(&path(&test), "observed", |set| {
        set["status"]["replicas"] == 1
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(test.names(&pods(&test)).await, ["web-0"]);
}

#[tokio::test]
async fn parallel_management_creates_all_pods_at_once() {
    let test = start().await;
    let mut object = stateful_set(3);
    object["spec"]["podManagementPolicy"] = json!("Parallel");
    object["spec"]["template"]["spec"]["nodeSelector"] = json!({"absent": test.namespace});
    create(&test, &object).await;
    test.wait_until_items(&pods(&test), "created", |pods| pods.len() == 3)
        .await;
}

#[tokio::test]
async fn update_starts_with_the_highest_number() {
    let test = start().await;
    create(&test, &stateful_set(2)).await;
    wait_until_ready(&test, &["web-0", "web-1"]).await;
    let all = test.core("pods");
    let version = test.version(&all).await;
    let query = format!("watch=true&resourceVersion={version}&labelSelector=app%3Dweb");
    let mut watch = test.admin.watch(&format!("{all}?{query}")).await;
    patch_image(&test, "example.com/c:2").await;
    let mut added = Vec::new();
    while added.len() < 2 {
        let (kind, pod) = watch.event().await;
        if kind == "ADDED" {
            assert_eq!(pod["spec"]["containers"][0]["image"], "example.com/c:2");
            added.push(name_of(&pod).to_owned());
        }
    }
    assert_eq!(added, ["web-1", "web-0"]);
    test.wait_until(&path(&test), "updated", |set| {
        let status = &set["status"];
        status["currentRevision"] == status["updateRevision"] && status["updatedReplicas"] == 2
    })
    .await;
}

#[tokio::test]
async fn partition_keeps_lower_numbers_at_the_old_revision() {
    let test = start().await;
    let mut object = stateful_set(2);
    object["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    create(&test, &object).await;
    wait_until_ready(&test, &["web-0", "web-1"]).await;
    patch_image(&test, "example.com/c:2").await;
    let image = |pod: &Value| pod["spec"]["containers"][0]["image"].clone();
    test.wait_until(&test.core("pods/web-1"), "updated", |pod| {
        image(pod) == "example.com/c:2" && has_condition(pod, "Ready")
    })
    .await;
    assert_eq!(
        image(&test.read(&test.core("pods/web-0")).await),
        "example.com/c:1"
    );
    patch_spec(
        &test,
        json!({"updateStrategy": {"rollingUpdate": {"partition": 0}}}),
    )
    .await;
    test.wait_until(&test.core("pods/web-0"), "updated", |pod| {
        image(pod) == "example.com/c:2"
    })
    .await;
}

#[tokio::test]
async fn each_pod_has_its_claim() {
    let test = start().await;
    let mut object = stateful_set(2);
    object["spec"]["podManagementPolicy"] = json!("Parallel");
    object["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec":
        {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    create(&test, &object).await;
    let claims = test.core("persistentvolumeclaims");
    let claims = test
        .wait_until_items(&claims, "claims", |claims| claims.len() == 2)
        .await;
    let names: Vec<&str> = claims.iter().map(name_of).collect();
    assert_eq!(names, ["data-web-0", "data-web-1"]);
    let items = test
        .wait_until_items(&pods(&test), "pods", |pods| pods.len() == 2)
        .await;
    for pod in &items {
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        let claim = format!("data-{}", name_of(pod));
        assert!(
            volumes
                .iter()
                .any(|v| v["persistentVolumeClaim"]["claimName"] == claim.as_str()),
            "{volumes:?}"
        );
    }
}
