//! Resizes of the resources of a whole pod.

use integration_tests::{Components, ReplyExt, Test, find_condition, pod_with};
use serde_json::{Value, json};

fn requests(cpu: &str) -> Value {
    json!({"resources": {"requests": {"cpu": cpu}}})
}

/// Waits until the node has allocated and applied the requests of the pod.
async fn wait_until_resized(test: &Test, cpu: &str) -> Value {
    test.wait_until(&test.core("pods/p"), cpu, |pod| {
        let status = &pod["status"];
        status["phase"] == "Running"
            && status["allocatedResources"]["cpu"] == cpu
            && status["resources"]["requests"]["cpu"] == cpu
            && ["PodResizePending", "PodResizeInProgress"]
                .iter()
                .all(|kind| find_condition(pod, kind).is_null())
    })
    .await
}

#[tokio::test]
async fn resize_of_a_pod_reaches_its_node_and_is_charged_to_its_quota() {
    let test = Test::start(Components::All).await;
    let quota =
        json!({"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "30m", "pods": "1"}}});
    test.create(&test.core("resourcequotas"), &quota).await;
    let quota = test.core("resourcequotas/q");
    test.wait_until(&quota, "counted", |quota| {
        quota["status"]["used"]["pods"] == "0"
    })
    .await;
    test.create(&test.core("pods"), &pod_with("p", &requests("10m")))
        .await;
    let before = wait_until_resized(&test, "10m").await;
    let path = test.core("pods/p/resize");
    let patch = |cpu: &str| json!({"spec": requests(cpu)});
    let resized = test.admin.merge_patch(&path, &patch("20m")).await;
    resized.expect_status(200);
    let after = wait_until_resized(&test, "20m").await;
    assert_eq!(before["spec"]["nodeName"], after["spec"]["nodeName"]);
    assert_eq!(after["status"]["containerStatuses"][0]["restartCount"], 0);
    assert_eq!(after["status"]["observedGeneration"], 2);
    let used = test.read(&quota).await["status"]["used"].clone();
    assert_eq!(used["requests.cpu"], "20m");
    let exceeded = test.admin.merge_patch(&path, &patch("40m")).await;
    exceeded.expect_reason(403, "Forbidden");
    // More than the node has.
    let impossible = test.admin.merge_patch(&path, &patch("1000000")).await;
    let impossible = impossible.expect_reason(403, "Forbidden");
    assert_eq!(
        impossible["details"]["causes"],
        json!([{"reason": "NodeCapacity"}])
    );
    let removed = json!({"spec": {"resources": null}});
    let removed = test.admin.merge_patch(&path, &removed).await;
    removed.expect_reason(422, "Invalid");
}
