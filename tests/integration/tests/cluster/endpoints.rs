//! Services and their EndpointSlices.

use integration_tests::{Components, Test, name_of, pod_with};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::All).await
}

/// Creates a pod with the label `app: web` and a port; returns it when it is ready.
async fn create_pod(test: &Test, name: &str, container: Value) -> Value {
    let mut whole = json!({"name": "c", "image": "example.com/c:1", "ports": [{"name": "http", "containerPort": 8080}]});
    whole
        .as_object_mut()
        .unwrap()
        .extend(container.as_object().unwrap().clone());
    let mut pod = pod_with(name, &json!({"containers": [whole]}));
    pod["metadata"]["labels"] = json!({"app": "web"});
    test.create(&test.core("pods"), &pod).await;
    let path = test.core(&format!("pods/{name}"));
    test.wait_until(&path, "running", |pod| pod["status"]["podIP"].is_string())
        .await
}

async fn create_service(test: &Test, spec: Value) -> Value {
    let service = json!({"metadata": {"name": "web"}, "spec": spec});
    test.create(&test.core("services"), &service).await
}

fn slices(test: &Test) -> String {
    test.group(
        "discovery.k8s.io/v1",
        "endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dweb",
    )
}

/// Returns the addresses of the ready endpoints of slices, sorted.
fn ready_addresses(slices: &[Value]) -> Vec<String> {
    let endpoints = slices
        .iter()
        .flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    let mut addresses: Vec<String> = endpoints
        .filter(|endpoint| endpoint["conditions"]["ready"] == true)
        .map(|endpoint| endpoint["addresses"][0].as_str().unwrap().to_owned())
        .collect();
    addresses.sort();
    addresses
}

fn address_of(pod: &Value) -> String {
    pod["status"]["podIP"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn slice_has_the_ready_pods_of_the_selector() {
    let test = start().await;
    let service = create_service(
        &test,
        json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}),
    )
    .await;
    let pods = [
        create_pod(&test, "a", json!({})).await,
        create_pod(&test, "b", json!({})).await,
    ];
    let mut expected: Vec<String> = pods.iter().map(address_of).collect();
    expected.sort();
    let slices = test
        .wait_until_items(&slices(&test), "with both pods", |slices| {
            ready_addresses(slices) == expected
        })
        .await;
    let slice = &slices[0];
    assert_eq!(slice["addressType"], "IPv4");
    assert_eq!(
        slice["ports"],
        json!([{"name": "", "port": 8080, "protocol": "TCP"}])
    );
    assert_eq!(
        slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"],
        "endpointslice-controller.k8s.io"
    );
    assert_eq!(
        slice["metadata"]["ownerReferences"][0]["uid"],
        service["metadata"]["uid"]
    );
    let endpoint = &slice["endpoints"][0];
    assert_eq!(
        endpoint["conditions"],
        json!({"ready": true, "serving": true, "terminating": false})
    );
    assert_eq!(endpoint["targetRef"]["kind"], "Pod");
    assert!(endpoint["nodeName"].is_string());
}

#[tokio::test]
async fn unready_pod_is_no_ready_endpoint() {
    let test = start().await;
    create_service(
        &test,
        json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}),
    )
    .await;
    let probe = json!({"readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1}});
    create_pod(&test, "unready", probe).await;
    let ready = create_pod(&test, "ready", json!({})).await;
    let expected = [address_of(&ready)];
    let slices = test
        .wait_until_items(&slices(&test), "with the pods", |slices| {
            ready_addresses(slices) == expected
                && slices
                    .iter()
                    .any(|s| s["endpoints"].as_array().is_some_and(|e| e.len() == 2))
        })
        .await;
    let endpoints = slices[0]["endpoints"].as_array().unwrap();
    let unready = endpoints
        .iter()
        .find(|e| e["targetRef"]["name"] == "unready")
        .unwrap();
    assert_eq!(
        unready["conditions"],
        json!({"ready": false, "serving": false, "terminating": false})
    );
}

#[tokio::test]
async fn unready_pods_are_published_on_request() {
    let test = start().await;
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}], "publishNotReadyAddresses": true});
    create_service(&test, spec).await;
    let probe = json!({"readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1}});
    let pod = create_pod(&test, "unready", probe).await;
    let expected = [address_of(&pod)];
    test.wait_until_items(&slices(&test), "with the pod", |slices| {
        ready_addresses(slices) == expected
    })
    .await;
}

#[tokio::test]
async fn deleted_pod_leaves_the_slice() {
    let test = start().await;
    create_service(
        &test,
        json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}),
    )
    .await;
    let pod = create_pod(&test, "a", json!({})).await;
    let expected = [address_of(&pod)];
    test.wait_until_items(&slices(&test), "with the pod", |slices| {
        ready_addresses(slices) == expected
    })
    .await;
    let path = test.core("pods/a?gracePeriodSeconds=0");
    test.admin.delete(&path).await.expect_status(200);
    test.wait_until_items(&slices(&test), "empty", |slices| {
        ready_addresses(slices).is_empty()
            && slices
                .iter()
                .all(|s| s["endpoints"].as_array().is_none_or(Vec::is_empty))
    })
    .await;
}

#[tokio::test]
async fn changed_selector_chooses_other_pods() {
    let test = start().await;
    create_service(
        &test,
        json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}),
    )
    .await;
    create_pod(&test, "a", json!({})).await;
    let other = create_pod(&test, "b", json!({})).await;
    let label = json!({"metadata": {"labels": {"app": "other"}}});
    test.admin
        .merge_patch(&test.core("pods/b"), &label)
        .await
        .expect_status(200);
    let selector = json!({"spec": {"selector": {"app": "other"}}});
    let path = test.core("services/web");
    test.admin
        .merge_patch(&path, &selector)
        .await
        .expect_status(200);
    let expected = [address_of(&other)];
    test.wait_until_items(&slices(&test), "with the other pod", |slices| {
        ready_addresses(slices) == expected
    })
    .await;
}

#[tokio::test]
async fn slices_are_deleted_with_the_service() {
    let test = start().await;
    create_service(
        &test,
        json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}),
    )
    .await;
    test.wait_until_items(&slices(&test), "created", |slices| !slices.is_empty())
        .await;
    test.admin
        .delete(&test.core("services/web"))
        .await
        .expect_status(200);
    test.wait_until_items(&slices(&test), "deleted", <[Value]>::is_empty)
        .await;
}

#[tokio::test]
async fn service_without_a_selector_has_no_slices() {
    let test = start().await;
    create_service(&test, json!({"ports": [{"port": 80}]})).await;
    let with_selector = json!({"metadata": {"name": "other"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    test.create(&test.core("services"), &with_selector).await;
    let other = test.group(
        "discovery.k8s.io/v1",
        "endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dother",
    );
    test.wait_until_items(&other, "created", |slices| !slices.is_empty())
        .await;
    assert!(test.items(&slices(&test)).await.is_empty());
}

#[tokio::test]
async fn headless_service_has_a_labelled_slice_and_no_address() {
    let test = start().await;
    let spec = json!({"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}]});
    let service = create_service(&test, spec).await;
    assert_eq!(service["spec"]["clusterIPs"], json!(["None"]));
    let pod = create_pod(&test, "a", json!({})).await;
    let expected = [address_of(&pod)];
    let slices = test
        .wait_until_items(&slices(&test), "with the pod", |slices| {
            ready_addresses(slices) == expected
        })
        .await;
    assert_eq!(
        slices[0]["metadata"]["labels"]["service.kubernetes.io/headless"],
        ""
    );
}

#[tokio::test]
async fn endpoints_object_mirrors_the_pods() {
    let test = start().await;
    create_service(&test, json!({"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]})).await;
    let pod = create_pod(&test, "a", json!({})).await;
    let endpoints = test
        .wait_until(&test.core("endpoints/web"), "with the pod", |endpoints| {
            endpoints["subsets"][0]["addresses"][0]["ip"] == pod["status"]["podIP"]
        })
        .await;
    assert_eq!(
        endpoints["subsets"][0]["ports"],
        json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
    );
    assert_eq!(
        endpoints["subsets"][0]["addresses"][0]["targetRef"]["name"],
        name_of(&pod)
    );
}
