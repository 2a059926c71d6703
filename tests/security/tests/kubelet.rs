//! Attacks on a node: by clients of the kubelet's server, and by pods that request more than they
//! may have.

#![allow(clippy::unwrap_used, missing_docs)]

use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane, Options};

const NODE: &str = "n1";

async fn plane_with_node() -> (ControlPlane, std::net::SocketAddr) {
    let options = Options {
        nodes: vec![NODE.to_owned()],
        ..Options::default()
    };
    let plane = ControlPlane::start_with(options).await;
    let address = plane.start_kubelet(NODE, &[]).await.unwrap();
    let admin = plane.admin();
    wait_for("the node", || async {
        admin.get(&format!("/api/v1/nodes/{NODE}")).await.status == 200
    })
    .await;
    (plane, address)
}

async fn wait_for<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let begun = Instant::now();
    while !condition().await {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{what} did not come within 30 s"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn create_namespace(admin: &Caller, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    admin
        .post("/api/v1/namespaces", &namespace)
        .await
        .expect_success();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    admin
        .post(
            &format!("/api/v1/namespaces/{name}/serviceaccounts"),
            &account,
        )
        .await
        .expect_success();
}

/// Creates a pod that is bound to the node without the scheduler.
fn pod(name: &str, more: Value) -> Value {
    let mut spec = json!({"nodeName": NODE, "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "example.com/c:1"}]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

async fn phase(admin: &Caller, path: &str) -> String {
    let pod = admin.get(path).await.json();
    pod["status"]["phase"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// A user who may only read `nodes/proxy`, as monitoring does, can't run commands, in any spelling
/// of the path.
#[tokio::test(flavor = "multi_thread")]
async fn reader_of_nodes_proxy_cannot_run_commands_at_the_kubelet() {
    let (plane, address) = plane_with_node().await;
    let rules = json!([{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]}]);
    plane.grant("monitor", "", rules).await;
    let monitor = plane.user("monitor", None).at(address);
    monitor.get("/pods").await.expect_status(200);

    let upgrade = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "v4.channel.k8s.io"),
    ];
    for word in [
        "exec",
        "%65xec",
        "e%78ec",
        "run",
        "%72un",
        "/run",
        "attach",
        "%61ttach",
        "portForward",
    ] {
        for method in [Method::GET, Method::POST] {
            let path = format!("/{word}/default/p/c?command=id&cmd=id&output=1");
            let reply = monitor
                .send(method.clone(), &path, &upgrade, "")
                .await
                .unwrap();
            assert_eq!(reply.status, 403, "{method} {path}: {}", reply.text());
        }
    }
    // The API server's own certificate has all permissions, and `get nodes/proxy` uses it.
    let admin = plane.admin().at(address);
    admin
        .get("/run/default/p/c?cmd=id")
        .await
        .expect_status(405);
    admin
        .get("/%72un/default/p/c?cmd=id")
        .await
        .expect_status(405);
}

/// A claim's `volumeName` is chosen by its creator and proves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn volume_of_another_namespace_is_not_mounted() {
    let (plane, _) = plane_with_node().await;
    let admin = plane.admin();
    let data = plane.folder().join("data");
    std::fs::create_dir(&data).unwrap();
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "pv-a",
            "resources": {"requests": {"storage": "1Gi"}}}});
    let volumes =
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let mut uids = Vec::new();
    for namespace in ["a", "b"] {
        create_namespace(&admin, namespace).await;
        let base = format!("/api/v1/namespaces/{namespace}");
        let made = admin
            .post(&format!("{base}/persistentvolumeclaims"), &claim)
            .await
            .expect_success()
            .json();
        uids.push(made["metadata"]["uid"].clone());
    }
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-a"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": data},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "a", "name": "data",
                "uid": uids[0]}}});
    admin
        .post("/api/v1/persistentvolumes", &volume)
        .await
        .expect_success();
    let bound = json!({"status": {"phase": "Bound"}});
    admin
        .merge_patch(
            "/api/v1/namespaces/a/persistentvolumeclaims/data/status",
            &bound,
        )
        .await
        .expect_success();
    // The pod of the volume's owner gives the node read access to the volume.
    admin
        .post("/api/v1/namespaces/a/pods", &pod("owner", volumes.clone()))
        .await
        .expect_success();
    wait_for("the owner's pod", || async {
        phase(&admin, "/api/v1/namespaces/a/pods/owner").await == "Running"
    })
    .await;

    admin
        .post("/api/v1/namespaces/b/pods", &pod("thief", volumes))
        .await
        .expect_success();
    let refused = |why: &'static str| {
        let admin = admin.clone();
        async move {
            wait_for(why, || async {
                admin
                    .get("/api/v1/namespaces/b/events")
                    .await
                    .text()
                    .contains(why)
            })
            .await;
        }
    };
    refused("is not bound").await;
    admin
        .merge_patch(
            "/api/v1/namespaces/b/persistentvolumeclaims/data/status",
            &bound,
        )
        .await
        .expect_success();
    refused("does not belong to claim").await;
    assert_eq!(
        phase(&admin, "/api/v1/namespaces/b/pods/thief").await,
        "Pending"
    );
}

/// A pod that requests a protection which this node lacks is rejected, instead of running without
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn pod_that_asks_for_a_user_namespace_does_not_run_as_the_nodes_root() {
    let (plane, _) = plane_with_node().await;
    let admin = plane.admin();
    create_namespace(&admin, "a").await;
    let path = "/api/v1/namespaces/a/pods";
    admin
        .post(path, &pod("p", json!({"hostUsers": false})))
        .await
        .expect_success();
    wait_for("the refusal", || async {
        phase(&admin, &format!("{path}/p")).await == "Failed"
    })
    .await;
    let status = admin.get(&format!("{path}/p")).await.json()["status"].clone();
    assert_eq!(status["reason"], "PodFeatureUnsupported", "{status}");
    assert!(
        status["message"].as_str().unwrap().contains("hostUsers"),
        "{status}"
    );
    wait_for("the event", || async {
        admin
            .get("/api/v1/namespaces/a/events")
            .await
            .text()
            .contains("PodFeatureUnsupported")
    })
    .await;
}
