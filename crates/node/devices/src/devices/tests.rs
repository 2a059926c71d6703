#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::os::unix::net::UnixListener as StdListener;

use proto_plugins::dra::v1::dra_plugin_server::{DraPlugin, DraPluginServer};
use proto_plugins::dra::v1::{
    Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use proto_plugins::dra::v1beta1;
use proto_plugins::registration::registration_server::{Registration, RegistrationServer};
use proto_plugins::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::*;

/// A driver's plugin that records its calls.
#[derive(Clone, Default)]
struct Fake {
    info: PluginInfo,
    calls: Arc<Mutex<Vec<String>>>,
    fails: Arc<Mutex<bool>>,
}

impl Fake {
    fn record(&self, call: &str, claims: &[Claim]) -> String {
        let names: Vec<_> = claims.iter().map(|claim| claim.name.clone()).collect();
        self.calls
            .lock()
            .push(format!("{call} {}", names.join(" ")));
        let fails = *self.fails.lock();
        if fails {
            "broken".to_owned()
        } else {
            String::new()
        }
    }

    fn prepare(&self, request: NodePrepareResourcesRequest) -> NodePrepareResourcesResponse {
        let error = self.record("prepare", &request.claims);
        let device = |claim: &Claim, request: &str| Device {
            request_names: vec![request.to_owned()],
            cdi_device_ids: vec![format!("d/gpu={}-{request}", claim.name)],
            ..Device::default()
        };
        let claims = request.claims.iter().map(|claim| {
            let devices = vec![device(claim, "r"), device(claim, "s/sub")];
            let error = error.clone();
            (
                claim.uid.clone(),
                NodePrepareResourceResponse { devices, error },
            )
        });
        NodePrepareResourcesResponse {
            claims: claims.collect(),
        }
    }

    fn unprepare(&self, request: NodeUnprepareResourcesRequest) -> NodeUnprepareResourcesResponse {
        let error = self.record("unprepare", &request.claims);
        let claims = request.claims.into_iter();
        let claims = claims.map(|claim| {
            let error = error.clone();
            (claim.uid, NodeUnprepareResourceResponse { error })
        });
        NodeUnprepareResourcesResponse {
            claims: claims.collect(),
        }
    }
}

#[tonic::async_trait]
impl Registration for Fake {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        let text = format!("registered {} {}", status.plugin_registered, status.error);
        self.calls.lock().push(text.trim().to_owned());
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

macro_rules! serve_plugin {
    ($service:path) => {
        #[tonic::async_trait]
        impl $service for Fake {
            async fn node_prepare_resources(
                &self,
                request: Request<NodePrepareResourcesRequest>,
            ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
                Ok(Response::new(self.prepare(request.into_inner())))
            }

            async fn node_unprepare_resources(
                &self,
                request: Request<NodeUnprepareResourcesRequest>,
            ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
                Ok(Response::new(self.unprepare(request.into_inner())))
            }
        }
    };
}

serve_plugin!(DraPlugin);
serve_plugin!(v1beta1::dra_plugin_server::DraPlugin);

/// A node with a registration folder.
struct Node {
    folder: TempDir,
    devices: Devices,
}

fn start_node() -> Node {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("plugins")).unwrap();
    let devices = open(&folder);
    Node { folder, devices }
}

fn open(folder: &TempDir) -> Devices {
    Devices::open(&folder.path().join("claims.json")).unwrap()
}

impl Node {
    /// Starts a plugin and registers it; returns it.
    async fn start_plugin(&self, info: PluginInfo) -> Fake {
        self.start_plugin_at("d.sock", info).await
    }

    async fn start_plugin_at(&self, name: &str, info: PluginInfo) -> Fake {
        let fake = Fake {
            info,
            ..Fake::default()
        };
        let socket = self.folder.path().join("plugins").join(name);
        let incoming = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
        let beta = v1beta1::dra_plugin_server::DraPluginServer::new(fake.clone());
        let server = tonic::transport::Server::builder()
            .add_service(RegistrationServer::new(fake.clone()))
            .add_service(DraPluginServer::new(fake.clone()))
            .add_service(beta);
        #[allow(clippy::disallowed_methods)]
        tokio::spawn(server.serve_with_incoming(incoming));
        self.scan().await;
        fake
    }

    async fn scan(&self) -> bool {
        let folder = self.folder.path().join("plugins");
        self.devices.plugins().scan_folder(&folder).await
    }
}

fn info(kind: &str, version: &str) -> PluginInfo {
    PluginInfo {
        r#type: kind.to_owned(),
        name: "d.example.com".to_owned(),
        endpoint: String::new(),
        supported_versions: vec![version.to_owned()],
    }
}

/// Returns the pod `uid`, which uses the claim `c` by the entry `gpu`.
fn pod(uid: &str) -> Pod {
    let object = json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid},
        "spec": {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}});
    serde_json::from_value(object).unwrap()
}

/// Returns the claim `c`, reserved for these pods.
fn claim(pods: &[&str]) -> ResourceClaim {
    let reserved: Vec<Value> = pods
        .iter()
        .map(|uid| json!({"resource": "pods", "name": uid, "uid": uid}))
        .collect();
    let result = json!({"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"});
    let object = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "claim"}, "spec": {},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}});
    serde_json::from_value(object).unwrap()
}

/// Returns a container that uses the entry `gpu`, or one request of it.
fn container(request: Option<&str>) -> Container {
    let object =
        json!({"name": "c", "resources": {"claims": [{"name": "gpu", "request": request}]}});
    serde_json::from_value(object).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_prepared_for_its_first_pod_and_released_after_the_last() {
    for version in ["v1.DRAPlugin", "v1beta1.DRAPlugin"] {
        let node = start_node();
        let plugin = node.start_plugin(info("DRAPlugin", version)).await;
        let both = claim(&["a", "b"]);
        for uid in ["a", "b"] {
            assert!(!node.devices.is_prepared(&pod(uid)));
            node.devices
                .prepare_pod(&pod(uid), std::slice::from_ref(&both))
                .await
                .unwrap();
            assert!(node.devices.is_prepared(&pod(uid)));
        }
        let cdi = |request| {
            node.devices
                .list_cdi_devices(&pod("a"), &container(request))
                .unwrap()
        };
        assert_eq!(cdi(None), ["d/gpu=c-r", "d/gpu=c-s/sub"]);
        assert_eq!(cdi(Some("r")), ["d/gpu=c-r"]);
        assert_eq!(cdi(Some("s")), ["d/gpu=c-s/sub"]);
        node.devices.release_pod("a").await.unwrap();
        assert!(
            node.devices
                .list_cdi_devices(&pod("a"), &container(None))
                .is_err()
        );
        node.devices.release_pod("b").await.unwrap();
        node.devices.release_pod("b").await.unwrap();
        assert!(node.devices.list_pods().is_empty());
        let calls = plugin.calls.lock().clone();
        assert_eq!(
            calls,
            ["registered true", "prepare c", "unprepare c"],
            "{version}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_kubelet_knows_what_is_prepared() {
    let mut node = start_node();
    let plugin = node.start_plugin(info("DRAPlugin", "v1.DRAPlugin")).await;
    node.devices
        .prepare_pod(&pod("a"), &[claim(&["a"])])
        .await
        .unwrap();
    node.devices = open(&node.folder);
    node.scan().await;
    assert!(node.devices.is_prepared(&pod("a")));
    node.devices.release_pod("a").await.unwrap();
    assert_eq!(plugin.calls.lock().last().unwrap(), "unprepare c");
    assert!(open(&node.folder).list_pods().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_calls_are_reported_and_may_be_repeated() {
    let node = start_node();
    let plugin = node.start_plugin(info("DRAPlugin", "v1.DRAPlugin")).await;
    *plugin.fails.lock() = true;
    let claims = [claim(&["a"])];
    let error = node
        .devices
        .prepare_pod(&pod("a"), &claims)
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "DRA driver d.example.com: broken");
    // The plugin may have done a part of the work.
    assert!(node.devices.release_pod("a").await.is_err());
    assert!(node.devices.list_pods().contains("a"));
    *plugin.fails.lock() = false;
    node.devices.prepare_pod(&pod("a"), &claims).await.unwrap();
    node.devices.release_pod("a").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_must_be_allocated_and_reserved_and_its_driver_registered() {
    let node = start_node();
    let free: ResourceClaim = serde_json::from_value(
        json!({"metadata": {"name": "c", "namespace": "ns", "uid": "claim"}, "spec": {}}),
    )
    .unwrap();
    for (claim, want) in [
        (free, "ResourceClaim ns/c: no devices are allocated"),
        (
            claim(&["b"]),
            "ResourceClaim ns/c: the claim is not reserved for the pod",
        ),
        (
            claim(&["a"]),
            "DRA driver d.example.com is not registered: start its plugin on this node",
        ),
    ] {
        let error = node
            .devices
            .prepare_pod(&pod("a"), &[claim])
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), want);
        // No plugin was called, so that the pod can be deleted.
        assert!(node.devices.list_pods().is_empty());
        node.devices.release_pod("a").await.unwrap();
    }
}

/// A node with the plugins of the drivers `d` and `e`.
async fn start_node_with_two_drivers() -> (Node, [Fake; 2]) {
    let node = start_node();
    let first = node.start_plugin(info("DRAPlugin", "v1.DRAPlugin")).await;
    let mut other = info("DRAPlugin", "v1.DRAPlugin");
    other.name = "e.example.com".to_owned();
    let second = node.start_plugin_at("e.sock", other).await;
    (node, [first, second])
}

/// Returns the claim `c` with a device of each driver.
fn claim_of_both(pods: &[&str]) -> [ResourceClaim; 1] {
    let mut claim = serde_json::to_value(claim(pods)).unwrap();
    let results = &mut claim["status"]["allocation"]["devices"]["results"];
    let mut second = results[0].clone();
    second["driver"] = json!("e.example.com");
    results.as_array_mut().unwrap().push(second);
    [serde_json::from_value(claim).unwrap()]
}

fn count_calls(plugin: &Fake, call: &str) -> usize {
    let calls = plugin.calls.lock();
    calls.iter().filter(|known| *known == call).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_released_once_if_its_pods_leave_at_the_same_time() {
    let (node, plugins) = start_node_with_two_drivers().await;
    for uid in ["a", "b"] {
        let claims = claim_of_both(&["a", "b"]);
        node.devices.prepare_pod(&pod(uid), &claims).await.unwrap();
    }
    let lock = node.devices.lock_of("e.example.com");
    let held = lock.lock().await;
    let unblock = async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        drop(held);
    };
    let (first, second, ()) = tokio::join!(
        node.devices.release_pod("a"),
        node.devices.release_pod("b"),
        unblock
    );
    first.unwrap();
    second.unwrap();
    assert!(node.devices.list_pods().is_empty());
    for plugin in &plugins {
        assert_eq!(count_calls(plugin, "unprepare c"), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_that_begins_during_a_release_keeps_the_claim_and_releases_it_itself() {
    let (node, [first, second]) = start_node_with_two_drivers().await;
    let claims = claim_of_both(&["a", "b"]);
    node.devices.prepare_pod(&pod("a"), &claims).await.unwrap();
    let lock = node.devices.lock_of("e.example.com");
    let held = lock.lock().await;
    let begin = async {
        while count_calls(&first, "unprepare c") == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let unblock = async {
            while count_calls(&first, "prepare c") < 2 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            drop(held);
        };
        let pod = pod("b");
        tokio::join!(node.devices.prepare_pod(&pod, &claims), unblock).0
    };
    let (released, prepared) = tokio::join!(node.devices.release_pod("a"), begin);
    released.unwrap();
    prepared.unwrap();
    assert!(node.devices.is_prepared(&pod("b")));
    assert_eq!(count_calls(&second, "unprepare c"), 0);
    node.devices.release_pod("b").await.unwrap();
    assert_eq!(count_calls(&first, "unprepare c"), 2);
    assert_eq!(count_calls(&second, "unprepare c"), 1);
}

#[test]
fn pod_that_leaves_beside_a_leaving_one_is_the_last_one_too() {
    let mut claim = ClaimState::default();
    claim.pods.extend(["a".to_owned(), "b".to_owned()]);
    assert!(!leave(&mut claim, "a"));
    assert!(leave(&mut claim, "b"));
    claim.pods.insert("c".to_owned());
    assert!(!has_no_users(&claim));
    assert!(leave(&mut claim, "c"));
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_with_a_mistake_is_refused_with_the_reason() {
    let mut named = info("DRAPlugin", "v1.DRAPlugin");
    named.name = "../d".to_owned();
    let mut relative = info("DRAPlugin", "v1.DRAPlugin");
    relative.endpoint = "d.sock".to_owned();
    for (info, part) in [
        (info("DRAPlugin", "v9.DRAPlugin"), "none of the services"),
        (named, "no name of a driver"),
        (relative, "no absolute path"),
    ] {
        let node = start_node();
        let plugin = node.start_plugin(info).await;
        let status = plugin.calls.lock().last().cloned().unwrap();
        assert!(
            status.starts_with("registered false") && status.contains(part),
            "{status}"
        );
        assert!(node.devices.plugins().list("d.example.com").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_is_forgotten_with_its_socket() {
    let node = start_node();
    node.start_plugin(info("DRAPlugin", "v1.DRAPlugin")).await;
    assert_eq!(node.devices.plugins().list("d.example.com").len(), 1);
    std::fs::remove_file(node.folder.path().join("plugins/d.sock")).unwrap();
    assert!(!node.scan().await);
    assert!(node.devices.plugins().list("d.example.com").is_empty());
    // Restarted, with a socket of the same name.
    let again = node.start_plugin(info("DRAPlugin", "v1.DRAPlugin")).await;
    assert_eq!(*again.calls.lock(), ["registered true"]);
    // A socket without a listener.
    drop(StdListener::bind(node.folder.path().join("plugins/dead.sock")).unwrap());
    assert!(node.scan().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_plugin_of_a_driver_is_called() {
    let node = start_node();
    let of = || info("DRAPlugin", "v1.DRAPlugin");
    let old = node.start_plugin_at("z.sock", of()).await;
    let new = node.start_plugin_at("a.sock", of()).await;
    let claims = [claim(&["a"])];
    node.devices.prepare_pod(&pod("a"), &claims).await.unwrap();
    assert_eq!(count_calls(&old, "prepare c"), 0);
    assert_eq!(count_calls(&new, "prepare c"), 1);
    // One that ended without removing its registration.
    let mut ended = of();
    ended.endpoint = "/nonexistent/d.sock".to_owned();
    node.start_plugin_at("b.sock", ended).await;
    assert_eq!(node.devices.plugins().list("d.example.com").len(), 3);
    node.devices.release_pod("a").await.unwrap();
    assert_eq!(count_calls(&new, "unprepare c"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_of_another_kind_is_left_alone() {
    let node = start_node();
    let plugin = node.start_plugin(info("CSIPlugin", "1.0.0")).await;
    assert!(!node.scan().await);
    assert!(plugin.calls.lock().is_empty());
    assert!(node.devices.plugins().list("d.example.com").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_with_other_devices_waits_for_the_release_of_the_former_ones() {
    let node = start_node();
    node.start_plugin(info("DRAPlugin", "v1.DRAPlugin")).await;
    node.devices
        .prepare_pod(&pod("a"), &[claim(&["a"])])
        .await
        .unwrap();
    let mut moved = serde_json::to_value(claim(&["b"])).unwrap();
    moved["status"]["allocation"]["devices"]["results"][0]["device"] = json!("y");
    let moved = [serde_json::from_value(moved).unwrap()];
    let error = node
        .devices
        .prepare_pod(&pod("b"), &moved)
        .await
        .unwrap_err();
    let want = "ResourceClaim ns/c: its former devices are not released yet";
    assert_eq!(error.to_string(), want);
    node.devices.release_pod("a").await.unwrap();
    node.devices.prepare_pod(&pod("b"), &moved).await.unwrap();
}

#[test]
fn damaged_file_is_an_error_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("claims.json");
    std::fs::write(&file, "{").unwrap();
    let error = Devices::open(&file).unwrap_err().to_string();
    assert!(
        error.contains("drain the node, then remove the file"),
        "{error}"
    );
}
