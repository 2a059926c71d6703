//! Lifecycle of objects on a running API server, as far as several components must agree.

#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{ControlPlane, Options};

const NAMESPACE: &str = "/api/v1/namespaces/default";

fn service(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test(flavor = "multi_thread")]
async fn service_that_ends_with_its_finalizer_releases_address_and_port() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let mut object = service(
        "held",
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]}),
    );
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let path = format!("{NAMESPACE}/services");
    let held = admin.post(&path, &object).await.expect_success().json();
    let address = held["spec"]["clusterIP"].as_str().unwrap().to_owned();
    admin.delete(&format!("{path}/held")).await.expect_success();
    admin.get(&format!("{path}/held")).await.expect_success();
    admin
        .merge_patch(
            &format!("{path}/held"),
            &json!({"metadata": {"finalizers": null}}),
        )
        .await
        .expect_success();
    admin.get(&format!("{path}/held")).await.expect_status(404);
    admin
        .get(&format!("/apis/networking.k8s.io/v1/ipaddresses/{address}"))
        .await
        .expect_status(404);
    let again = json!({"type": "NodePort", "clusterIP": address, "ports": [{"port": 80, "nodePort": 30123}]});
    admin
        .post(&path, &service("again", again))
        .await
        .expect_success();
}

#[tokio::test(flavor = "multi_thread")]
async fn eviction_keeps_the_clients_resource_version_precondition() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    admin
        .post(&format!("{NAMESPACE}/serviceaccounts"), &account)
        .await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]}});
    let pod = admin
        .post(&format!("{NAMESPACE}/pods"), &pod)
        .await
        .expect_success()
        .json();
    let evict = |version: &str| {
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
            "deleteOptions": {"preconditions": {"resourceVersion": version}}})
    };
    let path = format!("{NAMESPACE}/pods/p/eviction");
    admin.post(&path, &evict("1")).await.expect_status(409);
    let version = pod["metadata"]["resourceVersion"].as_str().unwrap();
    admin.post(&path, &evict(version)).await.expect_success();
}

#[tokio::test(flavor = "multi_thread")]
async fn status_writes_leave_labels_of_deployments_and_owners_of_pods_alone() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let labels = json!({"app": "d"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]}}}});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    admin.post(path, &deployment).await.expect_success();
    let change =
        json!({"metadata": {"labels": {"app": "other"}}, "status": {"observedGeneration": 1}});
    let reply = admin
        .merge_patch(&format!("{path}/d/status"), &change)
        .await
        .expect_success()
        .json();
    assert_eq!(reply["metadata"]["labels"], labels);
    assert_eq!(reply["status"]["observedGeneration"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn single_stack_service_releases_its_second_address() {
    let ranges = "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112".to_owned();
    let plane = ControlPlane::start_with(Options {
        api_server: vec![ranges],
        ..Options::default()
    })
    .await;
    let admin = plane.admin();
    let path = format!("{NAMESPACE}/services");
    let dual = service(
        "dual",
        json!({"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]}),
    );
    let dual = admin.post(&path, &dual).await.expect_success().json();
    let addresses = dual["spec"]["clusterIPs"].as_array().unwrap().clone();
    assert_eq!(addresses.len(), 2, "{dual}");
    let single = json!({"spec": {"ipFamilyPolicy": "SingleStack"}});
    let single = admin
        .merge_patch(&format!("{path}/dual"), &single)
        .await
        .expect_success()
        .json();
    assert_eq!(single["spec"]["clusterIPs"], json!([addresses[0]]));
    assert_eq!(single["spec"]["ipFamilies"].as_array().unwrap().len(), 1);
    let record = |address: &Value| {
        format!(
            "/apis/networking.k8s.io/v1/ipaddresses/{}",
            address.as_str().unwrap()
        )
    };
    admin.get(&record(&addresses[0])).await.expect_success();
    admin.get(&record(&addresses[1])).await.expect_status(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn list_goes_on_in_the_present_after_compaction() {
    let often = "--etcd-compaction-interval=500ms".to_owned();
    let plane = ControlPlane::start_with(Options {
        api_server: vec![often],
        ..Options::default()
    })
    .await;
    let admin = plane.admin();
    let path = format!("{NAMESPACE}/configmaps");
    for name in ["a", "b", "c"] {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        admin.post(&path, &object).await.expect_success();
    }
    let page = admin
        .get(&format!("{path}?limit=1"))
        .await
        .expect_success()
        .json();
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    let deadline = Instant::now() + Duration::from_secs(60);
    let expired = loop {
        let reply = admin.get(&format!("{path}?limit=1&continue={token}")).await;
        if reply.status == 410 {
            break reply.json();
        }
        assert!(
            Instant::now() < deadline,
            "the page never expires: {}",
            reply.text()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert_eq!(expired["reason"], "Expired");
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let rest = admin
        .get(&format!("{path}?limit=9&continue={token}"))
        .await
        .expect_success()
        .json();
    let names: Vec<&str> = rest["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| o["metadata"]["name"].as_str().unwrap())
        .collect();
    let first = page["items"][0]["metadata"]["name"].as_str().unwrap();
    assert!(
        !names.contains(&first) && names.ends_with(&["c"]),
        "{first} {names:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn administrative_access_to_devices_needs_a_labelled_namespace() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let labels = json!({"resource.kubernetes.io/admin-access": "true"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monitors", "labels": labels}});
    admin
        .post("/api/v1/namespaces", &namespace)
        .await
        .expect_success();
    let request =
        json!({"name": "r", "exactly": {"deviceClassName": "c.example.com", "adminAccess": true}});
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [request]}}});
    let path =
        |namespace: &str| format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims");
    admin
        .post(&path("default"), &claim)
        .await
        .expect_status(422);
    admin.post(&path("monitors"), &claim).await.expect_success();
}
