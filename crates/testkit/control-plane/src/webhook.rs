//! An HTTPS server for reviews, in the test's process.

use base_task::{CancellationToken, Tasks};
use base_tls::crypto_provider;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
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
}

/// A running server; dropping it stops it.
pub struct WebhookServer {
    address: SocketAddr,
    authority: String,
    received: Arc<Mutex<Vec<ReceivedReview>>>,
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
        match Self::try_start(names, Arc::new(handler)).await {
            Ok(server) => server,
            Err(error) => panic!("the webhook server did not start: {error:#}"),
        }
    }

    async fn try_start(names: &[&str], handler: Arc<Handler>) -> anyhow::Result<Self> {
        let (config, authority) = server_config(names)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let server = Self {
            address: listener.local_addr()?,
            authority,
            received: Arc::default(),
            tasks: Tasks::new(CancellationToken::new()),
        };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (tasks, received) = (server.tasks.clone(), server.received.clone());
        server.tasks.spawn("webhook server", async move {
            let stopped = tasks.shutdown().clone();
            let accept = accept_connections(listener, acceptor, handler, received, tasks);
            stopped.run_until_cancelled(accept).await;
        });
        Ok(server)
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

fn server_config(names: &[&str]) -> anyhow::Result<(ServerConfig, String)> {
    let (leaf, key, authority) = issue_certificate(names)?;
    let mut config = ServerConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![leaf], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((config, authority))
}

/// Returns a certificate for loopback and these names, its key, and its CA in PEM.
pub(crate) fn issue_certificate(
    names: &[&str],
) -> anyhow::Result<(CertificateDer<'static>, PrivateKeyDer<'static>, String)> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate()?;
    let ca = authority.self_signed(&ca_key)?;
    let issuer = Issuer::new(authority, ca_key);
    let key = KeyPair::generate()?;
    let all = names.iter().copied().chain(["127.0.0.1", "localhost"]);
    let leaf = CertificateParams::new(all.map(str::to_owned).collect::<Vec<_>>())?
        .signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok((leaf.der().clone(), key, ca.pem()))
}

async fn accept_connections(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    handler: Arc<Handler>,
    received: Arc<Mutex<Vec<ReceivedReview>>>,
    tasks: Tasks,
) {
    let mut number = 0;
    while let Ok((stream, _)) = listener.accept().await {
        let serve = serve_connection(
            stream,
            acceptor.clone(),
            handler.clone(),
            received.clone(),
            number,
        );
        let stopped = tasks.shutdown().clone();
        tasks.spawn_isolated("webhook connection", async move {
            stopped.run_until_cancelled(serve).await;
        });
        number += 1;
    }
}

async fn serve_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    handler: Arc<Handler>,
    received: Arc<Mutex<Vec<ReceivedReview>>>,
    connection: usize,
) {
    // Tests also connect without trust in the certificate.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let (handler, received) = (handler.clone(), received.clone());
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
            if let Ok(mut received) = received.lock() {
                received.push(ReceivedReview {
                    path: full.unwrap_or_default(),
                    review: review.clone(),
                    connection,
                    version,
                    authorization,
                });
            }
            let reply = handler(&path, &review);
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
