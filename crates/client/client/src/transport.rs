//! Transport: one connection to the API server, shared by all requests and watches.
//!
//! Over TLS with HTTP/2, a single connection carries everything. It is opened when it is first
//! needed, and again after it broke. With servers that only offer HTTP/1.1, each request has its
//! own connection. Rejected: a pooling client, because at start it opens one connection for each of
//! the dozens of watches before it learns that one is enough.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base_task::{CancellationToken, Tasks};
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, watch};
use tokio_rustls::TlsConnector;

use crate::config::Config;
use crate::error::{Cause, Error, Result};
use crate::tls;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;
const DRIVER: &str = "connection to the API server";

type Http2Sender = http2::SendRequest<Full<Bytes>>;

enum Connection {
    Http2(Http2Sender),
    Http1(http1::SendRequest<Full<Bytes>>),
}

/// A failed request that may or may not have reached the server.
pub(crate) struct SendFailure {
    /// Nothing was sent, so a retry is safe.
    pub(crate) unsent: bool,
    pub(crate) error: Error,
}

pub(crate) struct Transport {
    config: Arc<Config>,
    shared: Mutex<Shared>,
    /// Number of connections opened so far.
    connections: watch::Sender<u64>,
    /// Drives the connections; each ends when its last sender and its last response are dropped.
    drivers: Tasks,
}

#[derive(Default)]
struct Shared {
    sender: Option<Http2Sender>,
    /// Time of the last failed attempt to connect: requests that waited for it fail too.
    failed: Option<Instant>,
}

impl Transport {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        let drivers = Tasks::new(CancellationToken::new());
        Self {
            config,
            shared: Mutex::default(),
            connections: watch::Sender::new(0),
            drivers,
        }
    }

    /// Subscribes to new connections.
    pub(crate) fn subscribe_connections(&self) -> watch::Receiver<u64> {
        self.connections.subscribe()
    }

    pub(crate) async fn send_request(
        &self,
        request: Request<Full<Bytes>>,
        what: &str,
    ) -> Result<Response<Incoming>, SendFailure> {
        let connection = self.ready_connection().await.map_err(|error| SendFailure {
            unsent: true,
            error,
        })?;
        match connection {
            Connection::Http2(mut sender) => {
                // The `try_` form returns the request if it was not sent; only then a retry is safe
                // for every method.
                let sent = sender.try_send_request(request).await;
                sent.map_err(|mut error| SendFailure {
                    unsent: error.take_message().is_some(),
                    error: connection_lost(what, error.into_error()),
                })
            }
            Connection::Http1(mut sender) => {
                let sent = sender.try_send_request(origin_form(request)).await;
                sent.map_err(|mut error| SendFailure {
                    unsent: error.take_message().is_some(),
                    error: connection_lost(what, error.into_error()),
                })
            }
        }
    }

    /// Drops the shared connection. It ends with its last response.
    pub(crate) async fn forget_connection(&self) {
        self.shared.lock().await.sender = None;
    }

    async fn ready_connection(&self) -> Result<Connection> {
        // Before the lock: a failure that happens while waiting for it applies to this caller as
        // well.
        let asked = Instant::now();
        let mut shared = self.shared.lock().await;
        if let Some(sender) = shared.sender.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(Connection::Http2(sender.clone()));
        }
        // Dozens of informers wait here. Without this each would run into the connect timeout, one
        // after the other.
        if shared.failed.is_some_and(|failed| failed > asked) {
            return Err(self.unreachable_error("the attempt to connect failed".into()));
        }
        shared.sender = None;
        // Under the lock, so that concurrent requests open one connection and not one each.
        let made = self.connect_in_time().await;
        shared.failed = made.is_err().then(Instant::now);
        if let Ok(Connection::Http2(sender)) = &made {
            shared.sender = Some(sender.clone());
            // HTTP/1.1 connections are not counted: each request opens one, so they are no sign of
            // a recovered server.
            self.connections.send_modify(|count| *count += 1);
        }
        made
    }

    async fn connect_in_time(&self) -> Result<Connection> {
        let connected = tokio::time::timeout(
            CONNECT_TIMEOUT,
            open_connection(&self.config, &self.drivers),
        )
        .await;
        connected.unwrap_or_else(|_| {
            Err(self.unreachable_error(format!("no connection within {CONNECT_TIMEOUT:?}").into()))
        })
    }

    fn unreachable_error(&self, source: Cause) -> Error {
        unreachable_server(&self.config, source)
    }
}

/// Converts a request to HTTP/1.1's form: the path in the request line, the authority in the header
/// `Host`.
fn origin_form(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    let host = request
        .uri()
        .authority()
        .and_then(|host| host.as_str().parse().ok());
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .parse::<Uri>();
    // hyper's HTTP/1 connection writes the URI as it is. Servers expect a path, and the host in a
    // header.
    if let (Some(host), Ok(path)) = (host, path) {
        request.headers_mut().insert(http::header::HOST, host);
        *request.uri_mut() = path;
    }
    request
}

fn connection_lost(what: &str, error: hyper::Error) -> Error {
    Error::Connection {
        what: what.to_owned(),
        source: error.into(),
    }
}

fn unreachable_server(config: &Config, source: Cause) -> Error {
    Error::Connect {
        server: config.server.clone(),
        source,
    }
}

async fn open_connection(config: &Config, drivers: &Tasks) -> Result<Connection> {
    let bad = || Error::Config(format!("{:?} is not an address of a server", config.server));
    let uri: Uri = config.server.parse().map_err(|_| bad())?;
    let host = uri
        .host()
        .ok_or_else(bad)?
        .trim_matches(['[', ']'])
        .to_owned();
    let secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(bad()),
    };
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream = TcpStream::connect((host.as_str(), port))
        .await
        .map_err(|error| unreachable_server(config, error.into()))?;
    stream
        // Small requests must not wait for the acknowledgement of the previous one.
        .set_nodelay(true)
        .map_err(|error| unreachable_server(config, error.into()))?;
    if !secure {
        return handshake_http1(config, drivers, stream).await;
    }
    let name = config.tls_server_name.clone().unwrap_or(host);
    let name = ServerName::try_from(name).map_err(|error| Error::Config(error.to_string()))?;
    let connector = TlsConnector::from(tls::client_config(config)?);
    let stream = connector
        .connect(name, stream)
        .await
        .map_err(|error| unreachable_server(config, error.into()))?;
    // Proxies may offer HTTP/1.1 only; the choice is the server's.
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        handshake_http2(config, drivers, stream).await
    } else {
        handshake_http1(config, drivers, stream).await
    }
}

async fn drive_connection(connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection to the API server ended");
    }
}

async fn handshake_http2<S>(config: &Config, drivers: &Tasks, stream: S) -> Result<Connection>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        // HTTP/2's default of 64 KiB per connection would let one list of a large cluster stall all
        // watches.
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // Detects a server that vanished without closing, like client-go's HTTP/2 health check. TCP
        // alone would take 15 minutes.
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(false);
    let (sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable_server(config, error.into()))?;
    drivers.spawn_isolated(DRIVER, drive_connection(connection));
    Ok(Connection::Http2(sender))
}

async fn handshake_http1<S>(config: &Config, drivers: &Tasks, stream: S) -> Result<Connection>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable_server(config, error.into()))?;
    drivers.spawn_isolated(DRIVER, drive_connection(connection));
    Ok(Connection::Http1(sender))
}
