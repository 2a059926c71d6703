//! A control plane, the gateway with the rights of `deploy/gateway`, and curl.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base_task::{CancellationToken, Tasks};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Parser;
use integration_tests::wait_for;
use net_gateway::{Flags, Gateway};
use serde::Deserialize;
use serde_json::{Value, json};
use testkit_control_plane::ControlPlane;

use crate::backends::start_server;

/// Address in the statuses.
pub(crate) const ADDRESS: &str = "192.0.2.80";

/// A running gateway.
pub(crate) struct Setting {
    pub(crate) plane: ControlPlane,
    pub(crate) tasks: Tasks,
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    /// True once the gateway has ended.
    pub(crate) has_ended: Arc<AtomicBool>,
    kubeconfig: PathBuf,
}

impl Drop for Setting {
    fn drop(&mut self) {
        self.tasks.shutdown().cancel();
    }
}

/// A response to curl.
#[derive(Debug, PartialEq)]
pub(crate) struct CurlResponse {
    pub(crate) status: u16,
    /// Status line and headers, in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl CurlResponse {
    /// Returns the first line of the body: the name of the server.
    pub(crate) fn server(&self) -> &str {
        self.body.lines().next().unwrap_or_default()
    }

    /// Returns whether the body has this line.
    pub(crate) fn has_line(&self, line: &str) -> bool {
        self.body.lines().any(|found| found == line)
    }
}

impl Setting {
    /// Starts a control plane and the gateway, without the kinds of the Gateway API.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts the gateway with these flags in addition.
    pub(crate) async fn start_with(flags: &[&str]) -> Self {
        let plane = ControlPlane::start().await;
        apply_manifest(&plane, "gateway.yaml").await;
        let kubeconfig = write_kubeconfig(&plane).await;
        let tasks = Tasks::new(CancellationToken::new());
        let mut setting = Self {
            plane,
            tasks,
            http: ([0; 4], 0).into(),
            https: ([0; 4], 0).into(),
            has_ended: Arc::default(),
            kubeconfig,
        };
        setting.add_gateway(flags).await;
        setting
    }

    /// Starts a gateway, another one if there is one already. Requests are sent to the last one.
    pub(crate) async fn add_gateway(&mut self, flags: &[&str]) {
        let own = [
            "ironclad-gateway",
            "--http-listen=127.0.0.1:0",
            "--https-listen=127.0.0.1:0",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--shutdown-delay=0s",
            "--drain-timeout=5s",
        ];
        let more = [
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--publish-address={ADDRESS}"),
        ];
        // A flag of the test takes the place of the setting's.
        let is_kept = |word: &&str| {
            let name = word.split('=').next().unwrap_or_default();
            !flags
                .iter()
                .any(|flag| flag.split('=').next() == Some(name))
        };
        let own = own.iter().copied().filter(is_kept);
        let words = own.chain(more.iter().map(String::as_str));
        let flags = Flags::try_parse_from(words.chain(flags.iter().copied())).unwrap();
        let gateway = Gateway::bind(flags).await.unwrap();
        (self.http, self.https) = gateway.addresses().unwrap();
        let (stop, has_ended) = (self.tasks.shutdown().clone(), self.has_ended.clone());
        self.tasks.spawn("gateway", async move {
            gateway.serve(stop).await.unwrap();
            has_ended.store(true, Ordering::Release);
        });
    }

    pub(crate) async fn add_gateway_api(&self) {
        apply_manifest(&self.plane, "gateway-api.yaml").await;
    }

    pub(crate) async fn create(&self, object: Value) {
        create_object(&self.plane, object).await;
    }

    pub(crate) async fn create_namespace(&self, name: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"team": name}}});
        self.create(object).await;
    }

    /// Starts a server and creates a Service for it, with the port `web` 80.
    pub(crate) async fn add_backend(&self, namespace: &str, name: &str) -> SocketAddr {
        let address = start_server(name, &self.tasks).await;
        self.add_service(namespace, name).await;
        self.add_endpoint(namespace, name, address, true).await;
        address
    }

    pub(crate) async fn add_service(&self, namespace: &str, name: &str) {
        self.create(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"ports": [{"name": "web", "port": 80}]}}))
            .await;
    }

    pub(crate) async fn add_endpoint(
        &self,
        namespace: &str,
        service: &str,
        address: SocketAddr,
        ready: bool,
    ) {
        self.create(
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"generateName": format!("{service}-"), "namespace": namespace,
                "labels": {"kubernetes.io/service-name": service}},
            "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" }, "ports": [{"name": "web", "port": address.port()}],
            "endpoints": [{"addresses": [address.ip().to_string()],
                "conditions": {"ready": ready, "serving": ready}}]}),
        )
        .await;
    }

    /// Sends a request with curl. Connections to any host are made to the gateway.
    pub(crate) async fn curl(&self, arguments: &[&str]) -> CurlResponse {
        let mut command = tokio::process::Command::new("curl");
        command
            .args(["-sS", "-i", "--max-time", "20", "--noproxy", "*"])
            .args(["--connect-to", &format!(":80:{}", self.http)])
            .args(["--connect-to", &format!(":443:{}", self.https)])
            .args(arguments);
        let output = command.output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        CurlResponse {
            status: status.unwrap_or_default(),
            head: head.to_lowercase(),
            body: match body {
                "" => String::from_utf8_lossy(&output.stderr).into_owned(),
                body => body.to_owned(),
            },
        }
    }

    /// Repeats a request until the response passes.
    pub(crate) async fn wait_for(
        &self,
        arguments: &[&str],
        passes: impl Fn(&CurlResponse) -> bool,
    ) -> CurlResponse {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let response = self.curl(arguments).await;
            if passes(&response) {
                return response;
            }
            let late = tokio::time::Instant::now() > deadline;
            assert!(!late, "{arguments:?}: {response:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a server responds.
    pub(crate) async fn wait_for_server(&self, url: &str, server: &str) -> CurlResponse {
        let is_there =
            |response: &CurlResponse| response.status == 200 && response.server() == server;
        self.wait_for(&[url], is_there).await
    }

    /// Waits until an object has what the test expects, and returns it.
    pub(crate) async fn wait_for_object(
        &self,
        path: &str,
        what: &str,
        passes: impl Fn(&Value) -> bool,
    ) -> Value {
        let admin = self.plane.admin();
        wait_for(&format!("{path}: {what}"), async || {
            passes(&admin.get(path).await.json())
        })
        .await;
        admin.get(path).await.json()
    }
}

/// Returns the condition of a type.
pub(crate) fn condition<'a>(conditions: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let all = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == kind);
    let field = |name: &str| {
        found
            .and_then(|found| found[name].as_str())
            .unwrap_or_default()
    };
    (field("status"), field("reason"))
}

async fn apply_manifest(plane: &ControlPlane, name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/gateway");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    for document in serde_yaml::Deserializer::from_str(&text) {
        let object = Value::deserialize(document).unwrap();
        if !object.is_null() {
            create_object(plane, object).await;
        }
    }
}

async fn create_object(plane: &ControlPlane, object: Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let root = match version.as_str() {
        "v1" => "/api/v1".to_owned(),
        version => format!("/apis/{version}"),
    };
    let plural = match kind.as_str() {
        "IngressClass" => "ingressclasses".to_owned(),
        "GatewayClass" => "gatewayclasses".to_owned(),
        "Ingress" => "ingresses".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let path = match text(&object["metadata"]["namespace"]).as_str() {
        "" => format!("{root}/{plural}"),
        namespace => format!("{root}/namespaces/{namespace}/{plural}"),
    };
    let admin = plane.admin();
    wait_for(&format!("{path} exists"), async || {
        // The kinds of a new definition are served a moment later.
        let reply = admin.post(&path, &object).await;
        assert!(
            reply.status == 404 || reply.status < 300,
            "{path}: {}",
            reply.text()
        );
        reply.status < 300
    })
    .await;
}

/// Writes the kubeconfig of the manifest's service account.
async fn write_kubeconfig(plane: &ControlPlane) -> PathBuf {
    let path = "/api/v1/namespaces/ironclad-gateway/serviceaccounts/ironclad-gateway/token";
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600}});
    let token = plane
        .admin()
        .post(path, &request)
        .await
        .expect_success()
        .json();
    let authority = std::fs::read(plane.certificate("ca")).unwrap();
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": format!("https://{}", plane.api_address()),
            "certificate-authority-data": STANDARD.encode(authority)}}],
        "users": [{"name": "x", "user": {"token": token["status"]["token"]}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]});
    let file = plane.folder().join("gateway.kubeconfig");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    file
}
