//! Pods on kubelets with the simulated runtime.

use integration_tests::{Components, NODES, Test, find_condition, has_condition, pod, pod_with};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::All).await
}

fn with_command(name: &str, command: &[&str], fields: Value) -> Value {
    let container = json!({"name": "c", "image": "example.com/c:1", "command": command});
    let mut spec = json!({"containers": [container], "terminationGracePeriodSeconds": 1});
    spec.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    pod_with(name, &spec)
}

async fn create(test: &Test, pod: &Value) {
    test.create(&test.core("pods"), pod).await;
}

async fn wait_until_phase(test: &Test, name: &str, phase: &str) -> Value {
    let path = test.core(&format!("pods/{name}"));
    test.wait_until(&path, phase, |pod| pod["status"]["phase"] == phase)
        .await
}

#[tokio::test]
async fn pod_runs_and_reports_its_status() {
    let test = start().await;
    create(&test, &pod("p")).await;
    let pod = test
        .wait_until(&test.core("pods/p"), "ready", |pod| {
            has_condition(pod, "Ready")
        })
        .await;
    let status = &pod["status"];
    assert_eq!(status["phase"], "Running");
    for kind in [
        "PodScheduled",
        "Initialized",
        "ContainersReady",
        "PodReadyToStartContainers",
    ] {
        assert!(has_condition(&pod, kind), "{kind}: {status}");
    }
    assert_eq!(status["podIPs"], json!([{"ip": status["podIP"]}]));
    assert_eq!(status["qosClass"], "BestEffort");
    assert!(status["hostIP"].is_string() && status["startTime"].is_string());
    let container = &status["containerStatuses"][0];
    assert_eq!(
        (
            &container["name"],
            &container["ready"],
            &container["started"],
            &container["restartCount"]
        ),
        (&json!("c"), &json!(true), &json!(true), &json!(0))
    );
    assert!(container["state"]["running"]["startedAt"].is_string());
    assert!(NODES.contains(&pod["spec"]["nodeName"].as_str().unwrap()));
}

#[tokio::test]
async fn pod_succeeds_with_its_container() {
    let test = start().await;
    create(
        &test,
        &with_command("p", &["true"], json!({"restartPolicy": "Never"})),
    )
    .await;
    let pod = wait_until_phase(&test, "p", "Succeeded").await;
    let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&terminated["exitCode"], &terminated["reason"]),
        (&json!(0), &json!("Completed"))
    );
    assert_eq!(find_condition(&pod, "Ready")["reason"], "PodCompleted");
}

#[tokio::test]
async fn pod_fails_with_its_container() {
    let test = start().await;
    let command = ["sh", "-c", "exit 3"];
    create(
        &test,
        &with_command("p", &command, json!({"restartPolicy": "Never"})),
    )
    .await;
    let pod = wait_until_phase(&test, "p", "Failed").await;
    let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&terminated["exitCode"], &terminated["reason"]),
        (&json!(3), &json!("Error"))
    );
}

#[tokio::test]
async fn exited_container_is_restarted() {
    let test = start().await;
    create(&test, &with_command("p", &["false"], json!({}))).await;
    let pod = test
        .wait_until(&test.core("pods/p"), "restarted", |pod| {
            let count = &pod["status"]["containerStatuses"][0]["restartCount"];
            count.as_u64().is_some_and(|count| count >= 1)
        })
        .await;
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 1);
    assert_ne!(pod["status"]["phase"], "Failed");
}

#[tokio::test]
async fn init_containers_run_before_the_containers() {
    let test = start().await;
    let init = |name: &str, command: &str| json!({"name": name, "image": "example.com/i:1", "command": [command]});
    let fields = json!({"restartPolicy": "Never", "initContainers": [init("one", "true"), init("two", "true")]});
    create(&test, &with_command("good", &["true"], fields)).await;
    let pod = wait_until_phase(&test, "good", "Succeeded").await;
    for status in pod["status"]["initContainerStatuses"].as_array().unwrap() {
        assert_eq!(status["state"]["terminated"]["exitCode"], 0);
    }
    let fields = json!({"restartPolicy": "Never", "initContainers": [init("one", "false"), init("two", "true")]});
    create(&test, &with_command("bad", &["true"], fields)).await;
    let pod = wait_until_phase(&test, "bad", "Failed").await;
    assert!(
        pod["status"]["containerStatuses"][0]["state"]["waiting"].is_object(),
        "{pod}"
    );
    assert!(!has_condition(&pod, "Initialized"));
}

#[tokio::test]
async fn pod_waits_for_its_config_map() {
    let test = start().await;
    let container = json!({"name": "c", "image": "example.com/c:1",
        "envFrom": [{"configMapRef": {"name": "settings"}}]});
    create(&test, &pod_with("p", &json!({"containers": [container]}))).await;
    let path = test.core("pods/p");
    test.wait_until(&path, "waiting", |pod| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"]
            == "CreateContainerConfigError"
    })
    .await;
    test.create(
        &test.core("configmaps"),
        &integration_tests::config_map("settings"),
    )
    .await;
    test.wait_until(&path, "ready", |pod| has_condition(pod, "Ready"))
        .await;
}

#[tokio::test]
async fn failing_readiness_probe_keeps_the_pod_unready() {
    let test = start().await;
    let container = json!({"name": "c", "image": "example.com/c:1",
        "readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1}});
    create(&test, &pod_with("p", &json!({"containers": [container]}))).await;
    let pod = wait_until_phase(&test, "p", "Running").await;
    let condition = find_condition(&pod, "Ready");
    assert_eq!(
        (
            &condition["status"],
            &condition["reason"],
            &condition["message"]
        ),
        (
            &json!("False"),
            &json!("ContainersNotReady"),
            &json!("containers with unready status: [c]")
        )
    );
}

#[tokio::test]
async fn deleted_pod_terminates() {
    let test = start().await;
    create(&test, &with_command("p", &["sleep", "600"], json!({}))).await;
    wait_until_phase(&test, "p", "Running").await;
    let path = test.core("pods/p");
    let marked = test.admin.delete(&path).await.expect_status(200).json();
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 1);
    test.wait_until_deleted(&path).await;
}

#[tokio::test]
async fn pod_that_exceeds_its_deadline_fails() {
    let test = start().await;
    let fields = json!({"restartPolicy": "Never", "activeDeadlineSeconds": 1});
    create(&test, &with_command("p", &["sleep", "600"], fields)).await;
    let pod = wait_until_phase(&test, "p", "Failed").await;
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
    assert_eq!(
        pod["status"]["message"],
        "Pod was active on the node longer than the specified deadline"
    );
}

#[tokio::test]
async fn nodes_renew_their_leases() {
    let test = start().await;
    for node in NODES {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}");
        let lease = test.wait_until(&path, "created", |_| true).await;
        assert_eq!(lease["spec"]["holderIdentity"], node);
        assert_eq!(lease["metadata"]["ownerReferences"][0]["kind"], "Node");
        let renewed = lease["spec"]["renewTime"].clone();
        test.wait_until(&path, "renewed", |lease| {
            lease["spec"]["renewTime"] != renewed
        })
        .await;
    }
}
