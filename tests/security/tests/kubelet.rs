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
            begun.elapsed() < Duration::from_secs(60),
            "{what} did not come within 60 s"
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

/// Pods that ask for a user namespace and unmask /proc in a container of each kind.
fn unmasked_pods() -> Vec<(&'static str, Value)> {
    let unmasked = json!([{"name": "u", "image": "example.com/c:1",
        "securityContext": {"procMount": "Unmasked"}}]);
    ["initContainers", "containers"]
        .map(|list| (list, json!({"hostUsers": false, list: unmasked})))
        .into()
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

/// Returns the status of a pod once it has failed.
async fn wait_for_failure(admin: &Caller, path: &str) -> Value {
    wait_for("the refusal", || async {
        phase(admin, path).await == "Failed"
    })
    .await;
    admin.get(path).await.json()["status"].clone()
}

fn is_refused_for_user_namespace(status: &Value) -> bool {
    let message = status["message"].as_str().unwrap_or_default();
    status["reason"] == "PodFeatureUnsupported" && message.contains("hostUsers")
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
    let status = wait_for_failure(&admin, &format!("{path}/p")).await;
    assert!(is_refused_for_user_namespace(&status), "{status}");
    wait_for("the event", || async {
        admin
            .get("/api/v1/namespaces/a/events")
            .await
            .text()
            .contains("PodFeatureUnsupported")
    })
    .await;
}

/// Pod Security admits an unmasked /proc with `hostUsers: false`: no such container may start.
#[tokio::test(flavor = "multi_thread")]
async fn pod_that_unmasks_proc_is_refused_with_each_kind_of_container() {
    let (plane, _) = plane_with_node().await;
    let admin = plane.admin();
    create_namespace(&admin, "a").await;
    let path = "/api/v1/namespaces/a/pods";
    for (list, spec) in unmasked_pods() {
        let name = list.to_lowercase();
        admin.post(path, &pod(&name, spec)).await.expect_success();
        // An ephemeral container is added before the node refuses the pod, or not at all.
        let debug = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "example.com/d:1",
            "securityContext": {"procMount": "Unmasked"}}]}});
        let ephemeral = format!("{path}/{name}/ephemeralcontainers");
        let added = admin.merge_patch(&ephemeral, &debug).await;
        assert!(matches!(added.status, 200 | 422), "{}", added.text());
        let status = wait_for_failure(&admin, &format!("{path}/{name}")).await;
        assert!(is_refused_for_user_namespace(&status), "{list}: {status}");
        let started = "/status/containerStatuses/0/containerID";
        let object = admin.get(&format!("{path}/{name}")).await.json();
        assert_eq!(object.pointer(started), None, "{list}: {object}");
    }
}

/// Other clients than the kubelet may write a status. One that looks as if a kubelet had admitted
/// the pod does not skip the node's checks.
#[tokio::test(flavor = "multi_thread")]
async fn status_of_another_client_does_not_skip_the_nodes_checks() {
    let options = Options {
        nodes: vec![NODE.to_owned()],
        ..Options::default()
    };
    let plane = ControlPlane::start_with(options).await;
    let admin = plane.admin();
    create_namespace(&admin, "a").await;
    let path = "/api/v1/namespaces/a/pods";
    let sysctl = json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}});
    for (name, spec) in [("p", json!({"hostUsers": false})), ("s", sysctl)] {
        admin.post(path, &pod(name, spec)).await.expect_success();
        let status = json!({"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}});
        let status_path = format!("{path}/{name}/status");
        admin
            .merge_patch(&status_path, &status)
            .await
            .expect_success();
    }
    plane.start_kubelet(NODE, &[]).await.unwrap();
    let status = wait_for_failure(&admin, &format!("{path}/p")).await;
    assert!(is_refused_for_user_namespace(&status), "{status}");
    let status = wait_for_failure(&admin, &format!("{path}/s")).await;
    assert_eq!(status["reason"], "SysctlForbidden", "{status}");
}

/// A manifest on the node's disk passes no admission of the API server.
#[tokio::test(flavor = "multi_thread")]
async fn static_pod_that_unmasks_proc_is_refused() {
    let options = Options {
        nodes: vec![NODE.to_owned()],
        ..Options::default()
    };
    let plane = ControlPlane::start_with(options).await;
    let admin = plane.admin();
    let folder = plane.folder().join("manifests");
    std::fs::create_dir(&folder).unwrap();
    for (list, spec) in unmasked_pods() {
        let mut manifest = pod(&list.to_lowercase(), spec);
        let spec = manifest["spec"].as_object_mut().unwrap();
        spec.remove("automountServiceAccountToken");
        std::fs::write(folder.join(format!("{list}.json")), manifest.to_string()).unwrap();
    }
    let flag = format!("--pod-manifest-path={}", folder.display());
    plane.start_kubelet(NODE, &[&flag]).await.unwrap();
    for (list, _) in unmasked_pods() {
        let name = format!("{}-{NODE}", list.to_lowercase());
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        let status = wait_for_failure(&admin, &path).await;
        assert!(is_refused_for_user_namespace(&status), "{list}: {status}");
    }
}
