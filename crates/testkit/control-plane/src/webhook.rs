//! An HTTPS server for reviews, in the test's process.

use base_task::{CancellationToken, Tasks};
use base_tls::{crypto_provider, parse_roots};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use serde_json::Value;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A response of the server.
#[derive(Clone, Debug)]
pub struct WebhookReply {
    /// Status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: Bytes,
    /// Time before the response.
    pub delay: Duration,
}

impl WebhookReply {
    /// Builds a successful reply with a JSON body.
    pub fn json(body: &Value) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type", "application/json".to_owned())],
            body: body.to_string().into(),
            delay: Duration::ZERO,
        }
    }

    /// Adds a delay.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

type Handler = dyn Fn(&str, &Value) -> WebhookReply + Send + Sync;

/// A request that the server has received.
#[derive(Clone, Debug)]
pub struct ReceivedReview {
    /// Path with the query.
    pub path: String,
    /// Body.
    pub review: Value,
    /// Number of the connection, from 0.
    pub connection: usize,
    /// Protocol of the connection.
    pub version: http::Version,
    /// The header `Authorization`, empty without one.
    pub authorization: String,
    /// Client certificate of the connection in DER.
    pub client_certificate: Option<Vec<u8>>,
}

/// Client certificates that a server requests, of a CA in PEM.
#[derive(Clone, Copy, Debug)]
pub enum ClientCertificates<'a> {
    /// None.
    Ignored,
    /// A connection without one is accepted.
    Requested(&'a str),
    /// A connection without one is closed.
    Required(&'a str),
}

/// A client certificate with its key.
pub struct ClientIdentity {
    /// The certificate in PEM.
    pub certificate: String,
    /// The certificate in DER.
    pub der: Vec<u8>,
    /// The key in PEM.
    pub key: String,
    /// The certificate of the CA in PEM.
    pub authority: String,
}

impl ClientIdentity {
    /// Issues a certificate by a CA of its own.
    ///
    /// # Errors
    /// The certificate can't be made.
    pub fn issue() -> anyhow::Result<Self> {
        let (leaf, key, authority) = issue_leaf(&["client"])?;
        Ok(Self {
            certificate: leaf.pem(),
            der: leaf.der().to_vec(),
            key: key.serialize_pem(),
            authority,
        })
    }
}

/// A running server; dropping it stops it.
pub struct WebhookServer {
    address: SocketAddr,
    authority: String,
    received: Arc<Mutex<Vec<ReceivedReview>>>,
    failed_handshakes: Arc<AtomicUsize>,
    tasks: Tasks,
}

impl Drop for WebhookServer {
    fn drop(&mut self) {
        self.tasks.shutdown().cancel();
    }
}

impl WebhookServer {
    /// Starts a server on loopback with a certificate for `127.0.0.1` and these names. The handler
    /// gets the path without the query, and the review.
    ///
    /// # Panics
    /// If the server can't be started.
    pub async fn start(
        names: &[&str],
        handler: impl Fn(&str, &Value) -> WebhookReply + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(names, ClientCertificates::Ignored, handler).await
    }

    /// Starts a server as [`Self::start`] that requests client certificates.
    ///
    /// # Panics
    /// If the server can't be started.
    pub async fn start_with(
        names: &[&str],
        clients: ClientCertificates<'_>,
        handler: impl Fn(&str, &Value) -> WebhookReply + Send + Sync + 'static,
    ) -> Self {
        match Self::try_start(names, clients, Arc::new(handler)).await {
            Ok(server) => server,
            Err(error) => panic!("the webhook server did not start: {error:#}"),
        }
    }

    async fn try_start(
        names: &[&str],
        clients: ClientCertificates<'_>,
        handler: Arc<Handler>,
    ) -> anyhow::Result<Self> {
        let (config, authority) = server_config(names, clients)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let server = Self {
            address: listener.local_addr()?,
            authority,
            received: Arc::default(),
            failed_handshakes: Arc::default(),
            tasks: Tasks::new(CancellationToken::new()),
        };
        let service = Service {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            handler,
            received: server.received.clone(),
            failed_handshakes: server.failed_handshakes.clone(),
        };
        let tasks = server.tasks.clone();
        server.tasks.spawn("webhook server", async move {
            let stopped = tasks.shutdown().clone();
            let accept = accept_connections(listener, service, tasks);
            stopped.run_until_cancelled(accept).await;
        });
        Ok(server)
    }

    /// Returns the number of connections without a successful handshake so far.
    pub fn failed_handshakes(&self) -> usize {
        self.failed_handshakes.load(Ordering::Relaxed)
    }

    /// Returns the server's port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Returns the certificate of the server's CA in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the requests so far.
    ///
    /// # Panics
    /// If a handler has panicked.
    #[allow(clippy::unwrap_used)]
    pub fn received(&self) -> Vec<ReceivedReview> {
        self.received.lock().unwrap().clone()
    }
}

/// The parts of a server that its connections share.
#[derive(Clone)]
struct Service {
    acceptor: TlsAcceptor,
    handler: Arc<Handler>,
    received: Arc<Mutex<Vec<ReceivedReview>>>,
    failed_handshakes: Arc<AtomicUsize>,
}

fn server_config(
    names: &[&str],
    clients: ClientCertificates<'_>,
) -> anyhow::Result<(ServerConfig, String)> {
    let (leaf, key, authority) = issue_certificate(names)?;
    let builder = ServerConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()?;
    let builder = match client_verifier(clients)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(vec![leaf], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((config, authority))
}

fn client_verifier(
    clients: ClientCertificates<'_>,
) -> anyhow::Result<Option<Arc<dyn ClientCertVerifier>>> {
    let (pem, is_required) = match clients {
        ClientCertificates::Ignored => return Ok(None),
        ClientCertificates::Requested(pem) => (pem, false),
        ClientCertificates::Required(pem) => (pem, true),
    };
    let roots = parse_roots(pem.as_bytes(), Path::new("the CA of the clients"))?;
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto_provider());
    Ok(Some(match is_required {
        true => builder.build()?,
        false => builder.allow_unauthenticated().build()?,
    }))
}

/// Returns a certificate for loopback and these names, its key, and its CA in PEM.
pub(crate) fn issue_certificate(
    names: &[&str],
) -> anyhow::Result<(CertificateDer<'static>, PrivateKeyDer<'static>, String)> {
    let (leaf, key, authority) = issue_leaf(names)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok((leaf.der().clone(), key, authority))
}

fn issue_leaf(names: &[&str]) -> anyhow::Result<(Certificate, KeyPair, String)> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate()?;
    let ca = authority.self_signed(&ca_key)?;
    let issuer = Issuer::new(authority, ca_key);
    let key = KeyPair::generate()?;
    let all = names.iter().copied().chain(["127.0.0.1", "localhost"]);
    let leaf = CertificateParams::new(all.map(str::to_owned).collect::<Vec<_>>())?
        .signed_by(&key, &issuer)?;
    Ok((leaf, key, ca.pem()))
}

async fn accept_connections(listener: TcpListener, service: Service, tasks: Tasks) {
    let mut number = 0;
    while let Ok((stream, _)) = listener.accept().await {
        let serve = serve_connection(stream, service.clone(), number);
        let stopped = tasks.shutdown().clone();
        tasks.spawn_isolated("webhook connection", async move {
            stopped.run_until_cancelled(serve).await;
        });
        number += 1;
    }
}

async fn serve_connection(stream: TcpStream, shared: Service, connection: usize) {
    // Tests also connect without trust in the certificate.
    let Ok(stream) = shared.acceptor.accept(stream).await else {
        shared.failed_handshakes.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let peer = stream.get_ref().1.peer_certificates();
    let peer = peer
        .and_then(|chain| chain.first())
        .map(|leaf| leaf.to_vec());
    let service = service_fn(move |request: Request<Incoming>| {
        let (shared, peer) = (shared.clone(), peer.clone());
        async move {
            let path = request.uri().path().to_owned();
            let full = request.uri().path_and_query().map(ToString::to_string);
            let version = request.version();
            let authorization = request.headers().get(http::header::AUTHORIZATION);
            let authorization = authorization.and_then(|value| value.to_str().ok());
            let authorization = authorization.unwrap_or_default().to_owned();
            let body = request.into_body().collect().await;
            let body = body.map(|body| body.to_bytes()).unwrap_or_default();
            let review: Value = serde_json::from_slice(&body).unwrap_or_default();
            if let Ok(mut received) = shared.received.lock() {
                received.push(ReceivedReview {
                    path: full.unwrap_or_default(),
                    review: review.clone(),
                    connection,
                    version,
                    authorization,
                    client_certificate: peer,
                });
            }
            let reply = (shared.handler)(&path, &review);
            tokio::time::sleep(reply.delay).await;
            let mut response = Response::builder().status(reply.status);
            for (name, value) in reply.headers {
                response = response.header(name, value);
            }
            let response = response.body(Full::new(reply.body));
            Ok::<_, Infallible>(response.unwrap_or_default())
        }
    });
    // The client may close the connection at any time.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
