//! An extension API server, in the test's process.

use crate::control_plane::ControlPlane;
use crate::webhook::issue_certificate;
use base_task::{CancellationToken, Tasks};
use base_tls::{crypto_provider, parse_roots};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A request that the server has received.
#[derive(Clone, Debug)]
pub struct ExtensionRequest {
    /// Request line and headers, with names in lower case.
    pub head: String,
    /// Body.
    pub body: String,
}

impl ExtensionRequest {
    /// Returns method and path.
    pub fn line(&self) -> &str {
        let line = self.head.lines().next().unwrap_or_default();
        line.trim_end_matches(" HTTP/1.1")
    }

    /// Returns the values of a header.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs
            .filter(|(found, _)| *found == name)
            .map(|(_, value)| value)
            .collect()
    }
}

/// Binds a port of `address` that no server has on loopback. Those of the control plane listen
/// there, and the kernel may choose one of their ports for another address; the API server forwards
/// no request to its own port or its store's on any address of the machine.
async fn bind_unused_port(address: IpAddr) -> std::io::Result<TcpListener> {
    loop {
        let listener = TcpListener::bind((address, 0)).await?;
        let port = listener.local_addr()?.port();
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Ok(_) => return Ok(listener),
            Err(error) => return Err(error),
        }
    }
}

type Responder = dyn Fn(&ExtensionRequest) -> String + Send + Sync;

/// A running server, which accepts only clients with a certificate of the front proxy's CA.
/// Dropping it stops it.
pub struct ExtensionServer {
    address: SocketAddr,
    authority: String,
    received: Arc<Mutex<Vec<ExtensionRequest>>>,
    tasks: Tasks,
}

impl Drop for ExtensionServer {
    fn drop(&mut self) {
        self.tasks.shutdown().cancel();
    }
}

impl ExtensionServer {
    /// Starts a server for the Service `default/ext`. `respond` returns a complete HTTP response; a
    /// connection that was upgraded returns all further bytes.
    ///
    /// # Panics
    /// If the server can't be started.
    pub async fn start(
        plane: &ControlPlane,
        respond: impl Fn(&ExtensionRequest) -> String + Send + Sync + 'static,
    ) -> Self {
        match Self::try_start(plane, Arc::new(respond)).await {
            Ok(server) => server,
            Err(error) => panic!("the extension server did not start: {error:#}"),
        }
    }

    async fn try_start(plane: &ControlPlane, respond: Arc<Responder>) -> anyhow::Result<Self> {
        let (leaf, key, authority) = issue_certificate(&["ext.default.svc"])?;
        let path = plane.certificate("front-proxy-ca");
        let roots = parse_roots(&base_tls::read_file(&path)?, &path)?;
        let provider = crypto_provider();
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients.build()?)
            .with_single_cert(vec![leaf], key)?;
        let listener = bind_unused_port(own_address()?).await?;
        let server = Self {
            address: listener.local_addr()?,
            authority,
            received: Arc::default(),
            tasks: Tasks::new(CancellationToken::new()),
        };
        let (tasks, received) = (server.tasks.clone(), server.received.clone());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        server.tasks.spawn("extension server", async move {
            let stopped = tasks.shutdown().clone();
            let accept = async {
                while let Ok((stream, _)) = listener.accept().await {
                    let (acceptor, respond) = (acceptor.clone(), respond.clone());
                    let received = received.clone();
                    let stopped = tasks.shutdown().clone();
                    tasks.spawn_isolated("extension connection", async move {
                        let serve = serve_connection(stream, acceptor, respond, received);
                        stopped.run_until_cancelled(serve).await;
                    });
                }
            };
            stopped.run_until_cancelled(accept).await;
        });
        Ok(server)
    }

    /// Returns the server's address, which is not on loopback.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the requests so far, without the API server's own ones for discovery and OpenAPI.
    ///
    /// # Panics
    /// If a responder has panicked.
    #[allow(clippy::unwrap_used)]
    pub fn received(&self) -> Vec<ExtensionRequest> {
        let all = self.received.lock().unwrap().clone();
        let own = ["system:kube-aggregator", "system:aggregator"];
        all.into_iter()
            .filter(|request| {
                !own.map(|user| vec![user])
                    .contains(&request.header("x-remote-user"))
            })
            .collect()
    }

    /// Returns the APIService `v1.ext.example.com` for this server.
    pub fn api_service(&self) -> Value {
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1.ext.example.com"}, "spec": {"group": "ext.example.com",
            "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 15,
            "caBundle": STANDARD.encode(&self.authority),
            "service": {"namespace": "default", "name": "ext", "port": 443}}})
    }

    /// Creates the Service `default/ext` with the server as its endpoint. It needs
    /// `--enable-aggregator-routing=true`.
    pub async fn create_service(&self, plane: &ControlPlane) {
        let admin = plane.admin();
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ext"},
            "spec": {"ports": [{"name": "https", "port": 443}]}});
        admin
            .post("/api/v1/namespaces/default/services", &service)
            .await
            .expect_success();
        let family = if self.address.is_ipv4() {
            "IPv4"
        } else {
            "IPv6"
        };
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "ext", "labels": {"kubernetes.io/service-name": "ext"}},
            "addressType": family,
            "ports": [{"name": "https", "port": self.address.port()}],
            "endpoints": [{"addresses": [self.address.ip().to_string()]}]});
        admin
            .post(
                "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
                &slice,
            )
            .await
            .expect_success();
    }

    /// Creates Service and APIService and waits until the condition has this reason.
    pub async fn register(&self, plane: &ControlPlane, reason: &str) {
        self.create_service(plane).await;
        let path = "/apis/apiregistration.k8s.io/v1/apiservices";
        let object = self.api_service();
        plane.admin().post(path, &object).await.expect_success();
        wait_for_reason(plane, reason).await;
    }
}

/// Waits until the APIService `v1.ext.example.com` has this reason.
async fn wait_for_reason(plane: &ControlPlane, reason: &str) {
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1.ext.example.com";
    let begun = Instant::now();
    loop {
        let found = plane.admin().get(path).await.json();
        let condition = found.pointer("/status/conditions/0").cloned();
        let condition = condition.unwrap_or_default();
        if condition.get("reason").and_then(Value::as_str) == Some(reason) {
            return;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "never {reason}: {condition}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns an address of this machine that is not on loopback: no request is forwarded to loopback.
/// The connection of a datagram socket sends no packet.
fn own_address() -> anyhow::Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect("192.0.2.1:9")?;
    Ok(socket.local_addr()?.ip())
}

async fn serve_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    respond: Arc<Responder>,
    received: Arc<Mutex<Vec<ExtensionRequest>>>,
) {
    // Tests also connect without a certificate.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream).await {
        if let Ok(mut received) = received.lock() {
            received.push(request.clone());
        }
        let response = respond(&request);
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
        let _ = stream.flush().await;
        if response.starts_with("HTTP/1.1 101") {
            let mut bytes = [0; 1024];
            while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                let _ = stream
                    .write_all(bytes.get(..read).unwrap_or_default())
                    .await;
                let _ = stream.flush().await;
            }
            return;
        }
        if response.contains("Connection: close") {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

async fn read_request(stream: &mut BufReader<TlsStream<TcpStream>>) -> Option<ExtensionRequest> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
            return None;
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(ExtensionRequest {
        head,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}
