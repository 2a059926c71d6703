//! The kubelet on the simulated runtime: its handling of pods, as seen from the API server and from
//! the node.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use base_task::CancellationToken;
use base_tls::rustls::version::{TLS12, TLS13};
use base_tls::rustls::{CipherSuite, SupportedProtocolVersion};
use clap::Parser;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane, Options};

const NODE: &str = "n1";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn plane_with_node() -> ControlPlane {
    plane_with_node_of(&[]).await
}

/// Starts a control plane and a node whose kubelet has these flags.
async fn plane_with_node_of(flags: &[&str]) -> ControlPlane {
    let options = Options {
        nodes: vec![NODE.to_owned()],
        ..Options::default()
    };
    let plane = ControlPlane::start_with(options).await;
    plane.start_kubelet(NODE, flags).await.unwrap();
    let admin = plane.admin();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    admin
        .post("/api/v1/namespaces/default/serviceaccounts", &account)
        .await;
    wait_for("the node", || async {
        admin.get(&format!("/api/v1/nodes/{NODE}")).await.status == 200
    })
    .await;
    plane
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

async fn create_pod(admin: &Caller, name: &str, container: Value, more: Value) {
    let mut whole = json!({"name": "c", "image": "example.com/c:1"});
    whole
        .as_object_mut()
        .unwrap()
        .extend(container.as_object().unwrap().clone());
    let mut spec =
        json!({"nodeName": NODE, "automountServiceAccountToken": false, "containers": [whole]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    admin.post(PODS, &pod).await.expect_success();
}

async fn status(admin: &Caller, name: &str) -> Value {
    admin.get(&format!("{PODS}/{name}")).await.json()["status"].clone()
}

async fn wait_for_phase(admin: &Caller, name: &str, phase: &str) {
    wait_for(&format!("{name} {phase}"), || async {
        status(admin, name).await["phase"] == phase
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_follows_a_node_object_that_was_made_anew() {
    let settings = tempfile::tempdir().unwrap();
    let text = json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "nodeLeaseDurationSeconds": 2, "nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "1s"});
    std::fs::write(settings.path().join("often.conf"), text.to_string()).unwrap();
    let plane = plane_with_node_of(&[&format!("--config-dir={}", settings.path().display())]).await;
    let admin = plane.admin();
    let node = format!("/api/v1/nodes/{NODE}");
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}");
    let owner =
        async || admin.get(&lease).await.json()["metadata"]["ownerReferences"][0]["uid"].clone();
    let first = admin.get(&node).await.json()["metadata"]["uid"].clone();
    wait_for("the Lease", || async { owner().await == first }).await;
    admin.delete(&node).await.expect_success();
    wait_for("the Lease of the new node", || async {
        let now = admin.get(&node).await.json()["metadata"]["uid"].clone();
        now.is_string() && now != first && owner().await == now
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_whose_host_port_is_taken_fails() {
    let plane = plane_with_node().await;
    let admin = plane.admin();
    let port = json!({"ports": [{"containerPort": 80, "hostPort": 8099}]});
    create_pod(&admin, "first", port.clone(), json!({})).await;
    wait_for_phase(&admin, "first", "Running").await;
    create_pod(&admin, "second", port, json!({})).await;
    wait_for_phase(&admin, "second", "Failed").await;
    assert_eq!(status(&admin, "second").await["reason"], "NodePorts");
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_may_take_more_than_half_of_the_node() {
    let plane = plane_with_node().await;
    let admin = plane.admin();
    let node = admin.get(&format!("/api/v1/nodes/{NODE}")).await.json();
    let cpus: u64 = node["status"]["allocatable"]["cpu"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let asking = |millis: u64| json!({"resources": {"requests": {"cpu": format!("{millis}m")}}});
    create_pod(&admin, "large", asking(cpus * 700), json!({})).await;
    wait_for_phase(&admin, "large", "Running").await;
    create_pod(&admin, "rest", asking(cpus * 300), json!({})).await;
    wait_for_phase(&admin, "rest", "Running").await;
    create_pod(&admin, "excess", asking(1), json!({})).await;
    wait_for_phase(&admin, "excess", "Failed").await;
    assert_eq!(status(&admin, "excess").await["reason"], "OutOfcpu");
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_image_restarts_the_container_whatever_its_policy() {
    let plane = plane_with_node().await;
    let admin = plane.admin();
    create_pod(&admin, "p", json!({}), json!({"restartPolicy": "Never"})).await;
    wait_for_phase(&admin, "p", "Running").await;
    let image = json!({"spec": {"containers": [{"name": "c", "image": "example.com/c:2"}]}});
    let path = format!("{PODS}/p");
    let kind = "application/strategic-merge-patch+json";
    admin
        .send_json(http::Method::PATCH, &path, kind, &image)
        .await
        .expect_success();
    wait_for("the new instance", || async {
        let container = status(&admin, "p").await["containerStatuses"][0].clone();
        container["restartCount"] == 1 && container["state"]["running"].is_object()
    })
    .await;
    assert_eq!(
        status(&admin, "p").await["containerStatuses"][0]["image"],
        "example.com/c:2"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn resize_reaches_a_container_whose_policy_is_to_restart() {
    let plane = plane_with_node().await;
    let admin = plane.admin();
    let resources =
        |memory: &str| json!({"requests": {"memory": memory}, "limits": {"memory": memory}});
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let container = json!({"resources": resources("64Mi"), "resizePolicy": policy});
    create_pod(&admin, "p", container, json!({})).await;
    wait_for_phase(&admin, "p", "Running").await;
    let patch = json!({"spec": {"containers": [{"name": "c", "resources": resources("96Mi")}]}});
    let kind = "application/strategic-merge-patch+json";
    admin
        .send_json(
            http::Method::PATCH,
            &format!("{PODS}/p/resize"),
            kind,
            &patch,
        )
        .await
        .expect_success();
    wait_for("the new instance", || async {
        status(&admin, "p").await["containerStatuses"][0]["restartCount"] == 1
    })
    .await;
}

const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Requests a resize to these requests of the pod itself.
async fn resize_pod(admin: &Caller, name: &str, cpu: &str) {
    let patch = json!({"spec": {"resources": {"requests": {"cpu": cpu}}}});
    let path = format!("{PODS}/{name}/resize");
    let resized = admin.send_json(http::Method::PATCH, &path, STRATEGIC, &patch);
    resized.await.expect_success();
}

fn requesting(cpu: &str) -> Value {
    json!({"resources": {"requests": {"cpu": cpu}}})
}

fn find_condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().find(|c| c["type"] == kind)
}

/// Returns whether the node has allocated and applied requests of the pod itself.
fn is_resized(status: &Value, cpu: &str) -> bool {
    status["allocatedResources"]["cpu"] == cpu
        && status["resources"]["requests"]["cpu"] == cpu
        && find_condition(status, "PodResizePending").is_none()
        && find_condition(status, "PodResizeInProgress").is_none()
}

async fn read_processors(admin: &Caller) -> u64 {
    let node = admin.get(&format!("/api/v1/nodes/{NODE}")).await.json();
    let cpus = node["status"]["allocatable"]["cpu"].as_str().unwrap();
    cpus.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn resize_of_a_pod_is_applied_without_a_restart() {
    let plane = plane_with_node().await;
    let admin = plane.admin();
    create_pod(&admin, "p", json!({}), requesting("100m")).await;
    wait_for_phase(&admin, "p", "Running").await;
    wait_for("the first size", || async {
        is_resized(&status(&admin, "p").await, "100m")
    })
    .await;
    resize_pod(&admin, "p", "200m").await;
    wait_for("the resize", || async {
        is_resized(&status(&admin, "p").await, "200m")
    })
    .await;
    let container = status(&admin, "p").await["containerStatuses"][0].clone();
    assert_eq!(container["restartCount"], 0);
    for reason in ["ResizeStarted", "ResizeCompleted"] {
        wait_for(reason, || async {
            let events = admin.get("/api/v1/namespaces/default/events").await.json();
            let events = events["items"].as_array().unwrap().clone();
            events.iter().any(|event| event["reason"] == reason)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resize_waits_for_resources_that_another_pod_has() {
    let plane = plane_with_node().await;
    let admin = plane.admin();
    let cpus = read_processors(&admin).await;
    let share = |percent: u64| format!("{}m", cpus * percent * 10);
    create_pod(&admin, "large", json!({}), requesting(&share(61))).await;
    create_pod(&admin, "small", json!({}), requesting(&share(31))).await;
    for name in ["large", "small"] {
        wait_for_phase(&admin, name, "Running").await;
    }
    resize_pod(&admin, "small", &share(71)).await;
    wait_for("the deferral", || async {
        let status = status(&admin, "small").await;
        find_condition(&status, "PodResizePending").is_some_and(|condition| {
            condition["reason"] == "Deferred"
                && condition["message"]
                    .as_str()
                    .is_some_and(|text| text.starts_with("Node didn't have enough resource: cpu"))
        })
    })
    .await;
    assert_eq!(
        status(&admin, "small").await["allocatedResources"]["cpu"],
        share(31)
    );
    // A pod that shrinks makes room as one that ends does.
    resize_pod(&admin, "large", &share(21)).await;
    wait_for("the resize", || async {
        let of_pod = status(&admin, "small").await;
        of_pod["allocatedResources"]["cpu"] == share(71)
            && find_condition(&of_pod, "PodResizePending").is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sick_container_is_restarted_though_the_runtime_fails_at_first() {
    let plane = plane_with_node().await;
    let admin = plane.admin();
    let probe = json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1});
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"simulated.ironclad/stop-failures": "2"}},
        "spec": {"nodeName": NODE, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "example.com/c:1", "livenessProbe": probe}]}});
    admin.post(PODS, &pod).await.expect_success();
    wait_for("the restart", || async {
        status(&admin, "p").await["containerStatuses"][0]["restartCount"]
            .as_u64()
            .is_some_and(|count| count > 0)
    })
    .await;
}

/// Conformance: "optional updates should be reflected in volume".
#[tokio::test(flavor = "multi_thread")]
async fn object_that_comes_while_volumes_are_made_reaches_them() {
    let plane = plane_with_node().await;
    let admin = plane.admin();
    const COUNT: usize = 12;
    let sources: Vec<Value> = (0..COUNT)
        .map(|n| json!({"configMap": {"name": format!("m{n}"), "optional": true}}))
        .collect();
    let volumes = json!({"volumes": [{"name": "v", "projected": {"sources": sources}}]});
    create_pod(&admin, "p", json!({}), volumes).await;
    for n in 0..COUNT {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")},
            "data": {format!("k{n}"): "v"}});
        admin
            .post("/api/v1/namespaces/default/configmaps", &map)
            .await
            .expect_success();
    }
    let pod = admin.get(&format!("{PODS}/p")).await.json();
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let folder = plane
        .folder()
        .join(NODE)
        .join("pods")
        .join(uid)
        .join("volumes/kubernetes.io~projected/v");
    wait_for("all objects", || async {
        (0..COUNT).all(|n| folder.join(format!("k{n}")).exists())
    })
    .await;
}

/// A standalone node with static pods.
struct Node {
    folder: tempfile::TempDir,
    stop: CancellationToken,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Node {
    async fn start(flags: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("manifests")).unwrap();
        let words = [
            "kubelet".to_owned(),
            "--simulated".to_owned(),
            "--address=127.0.0.1".to_owned(),
            "--port=0".to_owned(),
            "--healthz-port=0".to_owned(),
            format!("--hostname-override={NODE}"),
            format!("--root-dir={}", folder.path().display()),
            format!("--port-file={}", folder.path().join("port").display()),
            format!(
                "--pod-manifest-path={}",
                folder.path().join("manifests").display()
            ),
        ];
        let flags = node_kubelet::Flags::try_parse_from(words.iter().chain(flags)).unwrap();
        let settings = node_kubelet::read_settings(&flags).unwrap();
        let runtime = testkit_cri::FakeRuntime::start(&settings.root_dir)
            .await
            .unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            let endpoint = runtime.endpoint().to_owned();
            node_kubelet::run(settings, &endpoint, stopped)
                .await
                .unwrap();
        });
        Node { folder, stop }
    }

    /// Waits for the server's port.
    async fn address(&self) -> SocketAddr {
        let file = self.folder.path().join("port");
        wait_for("the server", || async { file.exists() }).await;
        let port = std::fs::read_to_string(file)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn write(&self, manifest: &Value) {
        let path = self.folder.path().join("manifests/web.yaml");
        std::fs::write(path, manifest.to_string()).unwrap();
    }

    /// Returns the logs of started containers, by the directory of their pod.
    fn logs(&self) -> Vec<PathBuf> {
        let pods = std::fs::read_dir(self.folder.path().join("logs"))
            .into_iter()
            .flatten()
            .flatten();
        pods.map(|pod| pod.path().join("c/0.log"))
            .filter(|log| log.exists())
            .collect()
    }
}

/// A client's handshake with this version and suite.
async fn negotiate(
    address: SocketAddr,
    version: &'static SupportedProtocolVersion,
    suite: CipherSuite,
) -> bool {
    let handshake = move || base_tls::testing::negotiate(address, version, suite).is_ok();
    tokio::task::spawn_blocking(handshake).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn server_offers_the_versions_and_suites_of_its_settings_and_no_others() {
    const AES_128: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    const AES_256: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    let listed =
        Node::start(&["--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384".to_owned()])
            .await;
    let address = listed.address().await;
    assert!(negotiate(address, &TLS12, AES_256).await);
    assert!(!negotiate(address, &TLS12, AES_128).await);
    let newest = Node::start(&["--tls-min-version=VersionTLS13".to_owned()]).await;
    let address = newest.address().await;
    assert!(negotiate(address, &TLS13, CipherSuite::TLS13_AES_128_GCM_SHA256).await);
    assert!(!negotiate(address, &TLS12, AES_256).await);
}

fn manifest(image: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": image}]}})
}

fn kubeconfig_of_nobody(folder: &Path) -> PathBuf {
    let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true}}],
        "users": [{"name": "c", "user": {"token": "none"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]});
    let path = folder.join("kubeconfig");
    std::fs::write(&path, text.to_string()).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn static_pod_starts_before_there_is_an_api_server() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(&[format!(
        "--kubeconfig={}",
        kubeconfig_of_nobody(folder.path()).display()
    )])
    .await;
    node.write(&manifest("example.com/apiserver:1"));
    wait_for("the static pod", || async { node.logs().len() == 1 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_manifest_replaces_its_pod() {
    let node = Node::start(&[]).await;
    node.write(&manifest("example.com/web:1"));
    wait_for("the first pod", || async { node.logs().len() == 1 }).await;
    let first = node.logs().remove(0);
    node.write(&manifest("example.com/web:2"));
    wait_for("the second pod alone", || async {
        let logs = node.logs();
        logs.len() == 1 && !logs.contains(&first)
    })
    .await;
}
