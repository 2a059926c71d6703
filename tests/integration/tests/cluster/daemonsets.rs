//! DaemonSets.

use integration_tests::{Components, NODES, Test, deployment, name_of};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::All).await
}

fn daemon_set() -> Value {
    let mut object = deployment("ds", 0);
    object["kind"] = json!("DaemonSet");
    object["spec"].as_object_mut().unwrap().remove("replicas");
    object
}

async fn create(test: &Test, object: &Value) {
    test.create(&test.group("apps/v1", "daemonsets"), object)
        .await;
}

fn path(test: &Test) -> String {
    test.group("apps/v1", "daemonsets/ds")
}

fn pods(test: &Test) -> String {
    test.core("pods?labelSelector=app%3Dds")
}

/// Waits until the status has observed the spec and has these fields.
async fn wait_until_status(test: &Test, fields: Value) -> Value {
    test.wait_until(&path(test), &format!("at {fields}"), |object| {
        let status = &object["status"];
        status["observedGeneration"] == object["metadata"]["generation"]
            && fields
                .as_object()
                .unwrap()
                .iter()
                .all(|(name, value)| status.get(name).unwrap_or(&json!(0)) == value)
    })
    .await
}

async fn patch_image(test: &Test, image: &str) {
    let patch =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    test.admin
        .merge_patch(&path(test), &patch)
        .await
        .expect_status(200);
}

#[tokio::test]
async fn daemon_set_runs_one_pod_on_each_node() {
    let test = start().await;
    create(&test, &daemon_set()).await;
    let object = wait_until_status(
        &test,
        json!({"desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberReady": 2, "numberAvailable": 2,
            "updatedNumberScheduled": 2}),
    )
    .await;
    assert_eq!(object["status"]["numberMisscheduled"], 0);
    let items = test.items(&pods(&test)).await;
    let mut nodes: Vec<&str> = items
        .iter()
        .map(|p| p["spec"]["nodeName"].as_str().unwrap())
        .collect();
    nodes.sort_unstable();
    assert_eq!(nodes, NODES);
    for pod in &items {
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "DaemonSet");
        assert!(pod["metadata"]["labels"]["controller-revision-hash"].is_string());
        let affinity = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(
            affinity["nodeSelectorTerms"][0]["matchFields"],
            json!([{"key": "metadata.name", "operator": "In", "values": [pod["spec"]["nodeName"]]}])
        );
        let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
        for key in [
            "not-ready",
            "unreachable",
            "disk-pressure",
            "memory-pressure",
            "pid-pressure",
            "unschedulable",
        ] {
            let key = format!("node.kubernetes.io/{key}");
            assert!(
                tolerations.iter().any(|t| t["key"] == key.as_str()),
                "{key}"
            );
        }
    }
}

#[tokio::test]
async fn changed_node_selector_moves_the_pods() {
    let test = start().await;
    let mut object = daemon_set();
    object["spec"]["template"]["spec"]["nodeSelector"] =
        json!({"kubernetes.io/hostname": NODES[0]});
    create(&test, &object).await;
    wait_until_status(
        &test,
        json!({"desiredNumberScheduled": 1, "numberReady": 1}),
    )
    .await;
    let selector = json!({"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": NODES[1]}}}}});
    test.admin
        .merge_patch(&path(&test), &selector)
        .await
        .expect_status(200);
    test.wait_until_items(&pods(&test), "moved", |pods| {
        pods.len() == 1 && pods[0]["spec"]["nodeName"] == NODES[1]
    })
    .await;
    let selector = json!({"spec": {"template": {"spec": {"nodeSelector": {"absent": "x"}}}}});
    test.admin
        .merge_patch(&path(&test), &selector)
        .await
        .expect_status(200);
    wait_until_status(
        &test,
        json!({"desiredNumberScheduled": 0, "currentNumberScheduled": 0}),
    )
    .await;
    test.wait_until_items(&pods(&test), "deleted", <[Value]>::is_empty)
        .await;
}

#[tokio::test]
async fn rolling_update_replaces_the_pods() {
    let test = start().await;
    create(&test, &daemon_set()).await;
    wait_until_status(&test, json!({"numberAvailable": 2})).await;
    patch_image(&test, "example.com/c:2").await;
    wait_until_status(
        &test,
        json!({"updatedNumberScheduled": 2, "numberAvailable": 2}),
    )
    .await;
    let items = test.items(&pods(&test)).await;
    let images: Vec<&Value> = items
        .iter()
        .map(|p| &p["spec"]["containers"][0]["image"])
        .collect();
    assert_eq!(images, ["example.com/c:2", "example.com/c:2"]);
}

#[tokio::test]
async fn on_delete_keeps_pods_until_they_are_deleted() {
    let test = start().await;
    let mut object = daemon_set();
    object["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    create(&test, &object).await;
    wait_until_status(
        &test,
        json!({"numberReady": 2, "updatedNumberScheduled": 2}),
    )
    .await;
    let names = test.names(&pods(&test)).await;
    patch_image(&test, "example.com/c:2").await;
    wait_until_status(
        &test,
        json!({"updatedNumberScheduled": 0, "numberReady": 2}),
    )
    .await;
    assert_eq!(test.names(&pods(&test)).await, names);
    let one = test.core(&format!("pods/{}", names[0]));
    test.admin.delete(&one).await.expect_status(200);
    wait_until_status(
        &test,
        json!({"updatedNumberScheduled": 1, "numberReady": 2}),
    )
    .await;
}

#[tokio::test]
async fn templates_are_kept_as_controller_revisions() {
    let test = start().await;
    let mut object = daemon_set();
    object["spec"]["template"]["spec"]["nodeSelector"] = json!({"absent": "x"});
    create(&test, &object).await;
    let revisions = test.group("apps/v1", "controllerrevisions");
    let numbers = |items: &[Value]| {
        let mut numbers: Vec<u64> = items
            .iter()
            .map(|r| r["revision"].as_u64().unwrap())
            .collect();
        numbers.sort_unstable();
        numbers
    };
    test.wait_until_items(&revisions, "one revision", |items| numbers(items) == [1])
        .await;
    patch_image(&test, "example.com/c:2").await;
    let items = test
        .wait_until_items(&revisions, "two revisions", |items| {
            numbers(items) == [1, 2]
        })
        .await;
    for revision in &items {
        assert_eq!(revision["metadata"]["ownerReferences"][0]["name"], "ds");
        assert!(name_of(revision).starts_with("ds-"));
    }
    // The first template again is the first revision under a new number.
    patch_image(&test, "example.com/c:1").await;
    test.wait_until_items(&revisions, "the revision again", |items| {
        numbers(items) == [2, 3]
    })
    .await;
}
