//! Starts and stops the components.

mod kubelet;

use crate::Caller;
use crate::certificates::Certificates;
use anyhow::{Context, ensure};
use apiserver_server::ServerOptions;
use base_task::{CancellationToken, Tasks};
use base_tls::{ClientTls, client_config};
use clap::Parser;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Timeout for a component to become ready.
const START: Duration = Duration::from_secs(60);

/// Components of a control plane and their flags.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Flags of the API server besides the addresses and certificates, such as
    /// `--anonymous-auth=false`. A flag given here replaces the default one.
    pub api_server: Vec<String>,
    /// Flags of the store besides the addresses and certificates.
    pub store: Vec<String>,
    /// Names of nodes for which kubelet certificates are created.
    pub nodes: Vec<String>,
}

/// One of several API servers of a control plane.
pub struct ApiServer {
    address: SocketAddr,
    stop: CancellationToken,
}

impl ApiServer {
    /// Returns the server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends the stop signal.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

/// A running control plane; dropping it stops all its components.
pub struct ControlPlane {
    folder: tempfile::TempDir,
    certificates: Certificates,
    api: SocketAddr,
    store: SocketAddr,
    tasks: Tasks,
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.tasks.shutdown().cancel();
    }
}

impl ControlPlane {
    /// Starts a store and an API server with Node and RBAC authorization, like `ironclad`.
    ///
    /// # Panics
    /// If a part does not become ready within 60 s.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// Starts a store and an API server with these flags of the API server.
    ///
    /// # Panics
    /// If a component does not become ready within 60 s.
    pub async fn start_with_flags(flags: &[&str]) -> Self {
        Self::start_with(Options {
            api_server: flags.iter().map(|&flag| flag.to_owned()).collect(),
            ..Options::default()
        })
        .await
    }

    /// Starts a store and an API server with these options.
    ///
    /// # Panics
    /// If a component does not become ready within 60 s.
    pub async fn start_with(options: Options) -> Self {
        match Self::try_start(&options).await {
            Ok(plane) => plane,
            Err(error) => panic!("the control plane did not start: {error:#}"),
        }
    }

    /// Starts a store and an API server. Returns the error if that fails.
    ///
    /// # Errors
    /// A component rejected its flags or did not become ready within 60 s.
    pub async fn try_start(options: &Options) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("ironclad-control-plane.")
            .tempdir()?;
        let certificates = Certificates::create(&folder.path().join("pki"), &options.nodes)?;
        let tasks = Tasks::new(CancellationToken::new());
        let guard = tasks.shutdown().clone().drop_guard();
        let store = start_store(folder.path(), &certificates, &options.store, &tasks).await?;
        let api = start_api_server(
            &folder.path().join("apiserver.port"),
            &certificates,
            store,
            &options.api_server,
            &tasks,
            tasks.shutdown().clone(),
        )
        .await?;
        guard.disarm();
        let plane = Self {
            folder,
            certificates,
            api,
            store,
            tasks,
        };
        wait_until_ready(&plane.admin()).await?;
        plane.bind_kubelet_client().await?;
        Ok(plane)
    }

    /// Returns the directory of the test's files. It is deleted with the control plane.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the API server's address.
    pub fn api_address(&self) -> SocketAddr {
        self.api
    }

    /// Returns the store's client address.
    pub fn store_address(&self) -> SocketAddr {
        self.store
    }

    /// Returns the path of a certificate of the cluster's set, such as `etcd/ca`.
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.certificates.pki.crt(name)
    }

    /// Returns the path of a key of the cluster's set, such as `sa`.
    pub fn key(&self, name: &str) -> PathBuf {
        self.certificates.pki.key(name)
    }

    /// Writes the certificates that are due, such as those of a former CA, as the supervisor does.
    /// Returns their names.
    ///
    /// # Panics
    /// If a file can't be written.
    pub fn renew_certificates(&self) -> Vec<String> {
        match self.certificates.renew() {
            Ok(written) => written,
            Err(error) => panic!("the renewal: {error:#}"),
        }
    }

    /// Returns a client with all permissions.
    pub fn admin(&self) -> Caller {
        self.user("kubernetes-admin", Some("system:masters"))
    }

    /// Returns a client with a certificate for this user, in this group.
    ///
    /// # Panics
    /// If the certificate can't be made.
    pub fn user(&self, name: &str, group: Option<&str>) -> Caller {
        match self.certificates.client(name, group) {
            Ok(identity) => self.caller(Some(identity)),
            Err(error) => panic!("the certificate of {name}: {error:#}"),
        }
    }

    /// Returns a client with the identity of the kubelet of a node.
    pub fn kubelet(&self, node: &str) -> Caller {
        self.user(&format!("system:node:{node}"), Some("system:nodes"))
    }

    /// Returns a client without credentials.
    pub fn anonymous(&self) -> Caller {
        self.caller(None)
    }

    /// Returns a client that sends a bearer token.
    pub fn bearer(&self, token: &str) -> Caller {
        self.anonymous()
            .with_header("authorization", &format!("Bearer {token}"))
    }

    /// Returns a client with this certificate and key, both PEM.
    pub fn with_certificate(&self, certificate: Vec<u8>, key: Vec<u8>) -> Caller {
        self.caller(Some((certificate, key)))
    }

    fn caller(&self, identity: Option<(Vec<u8>, Vec<u8>)>) -> Caller {
        let ca = std::fs::read(self.certificate("ca")).ok();
        let tls = ClientTls {
            ca,
            identity,
            insecure: false,
            alpn: vec![b"http/1.1".to_vec()],
        };
        match client_config(&tls) {
            Ok(config) => Caller::new(self.api, config),
            Err(error) => panic!("the client's TLS: {error}"),
        }
    }

    /// Writes a kubeconfig for one identity of the cluster's set, such as `controller-manager`.
    ///
    /// # Panics
    /// If the file can't be written.
    pub fn kubeconfig(&self, identity: &str) -> PathBuf {
        match self
            .certificates
            .kubeconfig(identity, &format!("https://{}", self.api))
        {
            Ok(path) => path,
            Err(error) => panic!("the kubeconfig of {identity}: {error:#}"),
        }
    }

    /// Grants a user these rules in a namespace, or in the whole cluster if `namespace` is empty.
    ///
    /// # Panics
    /// If the role or its binding is rejected, or the server does not know them within 60 s.
    pub async fn grant(&self, user: &str, namespace: &str, rules: Value) {
        let (role, binding) = if namespace.is_empty() {
            ("ClusterRole", "ClusterRoleBinding")
        } else {
            ("Role", "RoleBinding")
        };
        let scope = if namespace.is_empty() {
            String::new()
        } else {
            format!("/namespaces/{namespace}")
        };
        let base = format!("/apis/rbac.authorization.k8s.io/v1{scope}");
        let name = format!("test-{}", user.replace(':', "-"));
        let metadata = json!({"name": name});
        let review = review_rule(user, namespace, &rules);
        let rules = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": role, "metadata": metadata, "rules": rules});
        self.admin()
            .post(&format!("{base}/{}s", role.to_lowercase()), &rules)
            .await
            .expect_success();
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": binding, "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": role, "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        });
        let plural = if namespace.is_empty() {
            "clusterrolebindings"
        } else {
            "rolebindings"
        };
        self.admin()
            .post(&format!("{base}/{plural}"), &binding)
            .await
            .expect_success();
        self.wait_until_allowed(&review).await;
    }

    /// Waits until the server allows what a SubjectAccessReview asks: it decides from its cache.
    async fn wait_until_allowed(&self, review: &Value) {
        let admin = self.admin();
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let deadline = Instant::now() + START;
        while admin.post(path, review).await.json()["status"]["allowed"] != true {
            assert!(Instant::now() < deadline, "not allowed: {review}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts another API server on the same store, with these flags besides the usual ones.
    ///
    /// # Panics
    /// If the server does not become ready within 60 s.
    pub async fn start_api_server(&self, name: &str, flags: &[&str]) -> ApiServer {
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        let stop = self.tasks.shutdown().child_token();
        let port_file = self.folder().join(format!("{name}.port"));
        let started = start_api_server(
            &port_file,
            &self.certificates,
            self.store,
            &flags,
            &self.tasks,
            stop.clone(),
        );
        let ready: anyhow::Result<ApiServer> = async {
            let address = started.await?;
            wait_until_ready(&self.admin().at(address)).await?;
            Ok(ApiServer { address, stop })
        }
        .await;
        match ready {
            Ok(server) => server,
            Err(error) => panic!("{name} did not start: {error:#}"),
        }
    }

    /// Starts the controller manager with these controllers (in the form of `--controllers`).
    ///
    /// # Panics
    /// If the flags are rejected.
    pub fn start_controllers(&self, controllers: &str) {
        self.start_controllers_with(controllers, &[]);
    }

    /// Starts the controller manager with these controllers and more flags.
    ///
    /// # Panics
    /// If the flags are rejected.
    pub fn start_controllers_with(&self, controllers: &str, more: &[&str]) {
        let pki = &self.certificates.pki;
        let mut flags = vec![
            "kube-controller-manager".to_owned(),
            format!(
                "--kubeconfig={}",
                self.kubeconfig("controller-manager").display()
            ),
            format!("--controllers={controllers}"),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials=true".to_owned(),
            "--secure-port=0".to_owned(),
            format!(
                "--service-account-private-key-file={}",
                pki.key("sa").display()
            ),
            format!("--root-ca-file={}", pki.crt("ca").display()),
            format!("--cluster-signing-cert-file={}", pki.crt("ca").display()),
            format!("--cluster-signing-key-file={}", pki.key("ca").display()),
        ];
        flags.extend(more.iter().map(|&flag| flag.to_owned()));
        let options = match controllers_manager::Options::try_parse_from(flags) {
            Ok(options) => options,
            Err(error) => panic!("flags of the controller manager: {error}"),
        };
        let stop = self.tasks.shutdown().clone();
        spawn(
            &self.tasks,
            "kube-controller-manager",
            controllers_manager::run(options, stop),
        );
    }

    /// Starts the scheduler with its default configuration.
    ///
    /// # Panics
    /// If the flags are rejected.
    pub fn start_scheduler(&self) {
        let flags = [
            "kube-scheduler".to_owned(),
            format!("--kubeconfig={}", self.kubeconfig("scheduler").display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let flags = match scheduler_core::Flags::try_parse_from(flags) {
            Ok(flags) => flags,
            Err(error) => panic!("flags of the scheduler: {error}"),
        };
        let stop = self.tasks.shutdown().clone();
        spawn(
            &self.tasks,
            "kube-scheduler",
            scheduler_core::run(flags, stop),
        );
    }

    /// Grants the API server access to kubelets, like `ironclad up`.
    async fn bind_kubelet_client(&self) -> anyhow::Result<()> {
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "ironclad:apiserver-kubelet-client"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": operator_pki::KUBELET_CLIENT}],
        });
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        let reply = self.admin().post(path, &binding).await;
        ensure!(
            reply.status == 201,
            "the binding of the kubelet client: {}",
            reply.text()
        );
        Ok(())
    }
}

async fn wait_until_ready(admin: &Caller) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let last = admin
            .send(http::Method::GET, "/readyz?verbose", &[], "")
            .await;
        if last.as_ref().is_ok_and(|reply| reply.status == 200) {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < START,
            "the API server is not ready: {:?}",
            last.map(|reply| reply.text())
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns a SubjectAccessReview for the first permission of these rules.
fn review_rule(user: &str, namespace: &str, rules: &Value) -> Value {
    let first = |field: &str| {
        let value = rules.pointer(&format!("/0/{field}/0"));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (path, resource) = (first("nonResourceURLs"), first("resources"));
    let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
    let mut spec = json!({"user": user});
    if path.is_empty() {
        spec["resourceAttributes"] = json!({"namespace": namespace, "verb": first("verbs"),
            "group": first("apiGroups"), "resource": resource, "subresource": subresource,
            "name": first("resourceNames")});
    } else {
        spec["nonResourceAttributes"] = json!({"path": path, "verb": first("verbs")});
    }
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
}

async fn start_store(
    folder: &Path,
    certificates: &Certificates,
    extra: &[String],
    tasks: &Tasks,
) -> anyhow::Result<SocketAddr> {
    let port_file = folder.join("store.port");
    let pki = &certificates.pki;
    let own = |name: &str| (pki.crt(name), pki.key(name));
    let ((server, server_key), (peer, peer_key), ca) =
        (own("etcd/server"), own("etcd/peer"), pki.crt("etcd/ca"));
    let defaults = [
        format!("--data-dir={}", folder.join("store").display()),
        "--engine=memory".to_owned(),
        "--listen-client-urls=https://127.0.0.1:0".to_owned(),
        "--listen-peer-urls=https://127.0.0.1:0".to_owned(),
        format!("--port-file={}", port_file.display()),
        format!("--cert-file={}", server.display()),
        format!("--key-file={}", server_key.display()),
        format!("--trusted-ca-file={}", ca.display()),
        "--client-cert-auth=true".to_owned(),
        format!("--peer-cert-file={}", peer.display()),
        format!("--peer-key-file={}", peer_key.display()),
        format!("--peer-trusted-ca-file={}", ca.display()),
        "--peer-client-cert-auth=true".to_owned(),
    ];
    let flags = kv_service::Flags::try_parse_from(command_line("kvstore", &defaults, extra))?;
    spawn(
        tasks,
        "kvstore",
        kv_service::run(flags, tasks.shutdown().clone()),
    );
    let port = read_port(&port_file).await.context("the store")?;
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

async fn start_api_server(
    port_file: &Path,
    certificates: &Certificates,
    store: SocketAddr,
    extra: &[String],
    tasks: &Tasks,
    stop: CancellationToken,
) -> anyhow::Result<SocketAddr> {
    let pki = &certificates.pki;
    let files = [
        ("client-ca-file", pki.crt("ca")),
        ("tls-cert-file", pki.crt("apiserver")),
        ("tls-private-key-file", pki.key("apiserver")),
        ("etcd-cafile", pki.crt("etcd/ca")),
        ("etcd-certfile", pki.crt("apiserver-etcd-client")),
        ("etcd-keyfile", pki.key("apiserver-etcd-client")),
        ("kubelet-certificate-authority", pki.crt("ca")),
        (
            "kubelet-client-certificate",
            pki.crt("apiserver-kubelet-client"),
        ),
        ("kubelet-client-key", pki.key("apiserver-kubelet-client")),
        (
            "service-account-key-file",
            pki.key("sa").with_extension("pub"),
        ),
        ("service-account-signing-key-file", pki.key("sa")),
        ("requestheader-client-ca-file", pki.crt("front-proxy-ca")),
        ("proxy-client-cert-file", pki.crt("front-proxy-client")),
        ("proxy-client-key-file", pki.key("front-proxy-client")),
    ];
    let mut defaults: Vec<String> = files
        .iter()
        .map(|(flag, path)| format!("--{flag}={}", path.display()))
        .collect();
    defaults.extend([
        format!("--etcd-servers=https://{store}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--port-file={}", port_file.display()),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
    ]);
    // The file of the other flag names the authorizers.
    if !extra
        .iter()
        .any(|flag| flag.starts_with("--authorization-config="))
    {
        defaults.push("--authorization-mode=Node,RBAC".to_owned());
    }
    let options = ServerOptions::try_parse_from(command_line("kube-apiserver", &defaults, extra))?;
    spawn(
        tasks,
        "kube-apiserver",
        apiserver_server::run(options, stop),
    );
    let port = read_port(port_file).await.context("the API server")?;
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

/// Builds a command line. A flag of `extra` replaces the default of the same name.
fn command_line(program: &str, defaults: &[String], extra: &[String]) -> Vec<String> {
    let name = |flag: &str| flag.split('=').next().unwrap_or_default().to_owned();
    let replaced = |flag: &&String| !extra.iter().any(|given| name(given) == name(flag));
    let kept = defaults.iter().filter(replaced).cloned();
    std::iter::once(program.to_owned())
        .chain(kept)
        .chain(extra.iter().cloned())
        .collect()
}

/// Runs a component in the background; its error is printed, and the wait for its readiness then
/// fails.
fn spawn(
    tasks: &Tasks,
    name: &'static str,
    component: impl Future<Output = anyhow::Result<()>> + Send + 'static,
) {
    tasks.spawn_isolated(name, async move {
        if let Err(error) = component.await {
            eprintln!("{name}: {error:#}");
        }
    });
}

/// Waits for the file in which a component writes its port.
async fn read_port(path: &Path) -> anyhow::Result<u16> {
    let begun = Instant::now();
    loop {
        if let Some(port) = tokio::fs::read_to_string(path)
            .await
            .ok()
            .and_then(|text| text.trim().parse().ok())
        {
            return Ok(port);
        }
        ensure!(
            begun.elapsed() < START,
            "did not write {} within {START:?}",
            path.display()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
