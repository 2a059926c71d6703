//! Transport: one connection to an API server, shared by all requests and watches.
//!
//! Over TLS with HTTP/2, a single connection carries everything. The first request opens it. It is
//! opened again after it broke, and replaced when its certificate files have changed. With servers
//! that only offer HTTP/1.1, each request has its own connection. Rejected: a pooling client. At
//! start it opens one connection for each of the dozens of watches, although one is enough.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base_task::{CancellationToken, Tasks};
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, oneshot, watch};
use tokio_rustls::TlsConnector;

use crate::config::Config;
use crate::error::{Cause, Error, Result};
use crate::readiness::{Suspicion, check_readiness};
use crate::servers::{ServerAddress, Servers};
use crate::tls::{ClientTlsFiles, ConnectionTls};
use crate::token::BearerToken;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a connection with changed certificates or to a ready server, including the request
/// that checks it. Short, because requests that another connection could carry wait for it.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between two attempts to replace a connection.
const REPLACE_RETRY: Duration = Duration::from_secs(10);
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;
const DRIVER: &str = "connection to the API server";
const CHECK: &str = "check of the API server's readiness";
/// Path that each client may read. The server rejects the request only for an invalid certificate.
const CHECKED_PATH: &str = "/version";

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
    servers: Servers,
    /// Token of the readiness checks.
    token: BearerToken,
    tls: ClientTlsFiles,
    /// [`REPLACE_TIMEOUT`], except in tests.
    replace_timeout: Duration,
    shared: Mutex<Shared>,
    /// Number of connections opened so far.
    connections: watch::Sender<u64>,
    /// Drives the connections; each ends when its last sender and its last response are dropped.
    /// The checks of the server's readiness run there, too.
    drivers: Tasks,
}

#[derive(Default)]
struct Shared {
    open: Option<SharedConnection>,
    /// Time of the last failed attempt to connect: requests that waited for it fail too.
    failed: Option<Instant>,
    /// Time of the last attempt to replace the connection, unless it succeeded.
    kept: Option<Instant>,
    /// Time of the last check of the server's readiness.
    examined: Option<Instant>,
    /// Result of the check of the open connection's server, until a request has received it: the
    /// connection to another server, if that one is to be used.
    check: Option<oneshot::Receiver<Option<OpenConnection>>>,
}

#[derive(Clone)]
struct SharedConnection {
    server: Arc<ServerAddress>,
    sender: Http2Sender,
    tls: Option<Arc<ConnectionTls>>,
    suspicion: Suspicion,
}

impl Transport {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        let tls = ClientTlsFiles::new(config.clone());
        Self::with_tls(config, tls)
    }

    fn with_tls(config: Arc<Config>, tls: ClientTlsFiles) -> Self {
        let drivers = Tasks::new(CancellationToken::new());
        Self {
            servers: Servers::new(&config.server, &config.servers),
            token: BearerToken::new(config.token.clone()),
            config,
            tls,
            replace_timeout: REPLACE_TIMEOUT,
            shared: Mutex::default(),
            connections: watch::Sender::new(0),
            drivers,
        }
    }

    /// Subscribes to new connections.
    pub(crate) fn subscribe_connections(&self) -> watch::Receiver<u64> {
        self.connections.subscribe()
    }

    /// Sends a request to the path of its URI. The extensions of the response have the
    /// [`ConnectionTls`] of its connection.
    pub(crate) async fn send_request(
        self: &Arc<Self>,
        mut request: Request<Full<Bytes>>,
        what: &str,
    ) -> Result<Response<Incoming>, SendFailure> {
        let unsent = |error| SendFailure {
            unsent: true,
            error,
        };
        let ready = self.ready_connection().await.map_err(unsent)?;
        ready.server.address_request(&mut request).map_err(unsent)?;
        let pending = ready.suspicion.begin_request();
        // The `try_` form returns the request if it was not sent; only then a retry is safe for
        // every method.
        let sent = match ready.connection {
            Connection::Http2(mut sender) => sender.try_send_request(request).await,
            Connection::Http1(mut sender) => sender.try_send_request(origin_form(request)).await,
        };
        let mut response = sent.map_err(|mut error| SendFailure {
            unsent: error.take_message().is_some(),
            error: connection_lost(what, error.into_error()),
        })?;
        pending.end(response.status());
        if let Some(tls) = ready.tls {
            response.extensions_mut().insert(tls);
        }
        Ok(response)
    }

    /// Drops the shared connection. It ends with its last response.
    pub(crate) async fn forget_connection(&self) {
        self.shared.lock().await.open = None;
    }

    /// Reads the certificate files now instead of at the first connection. Does nothing without
    /// TLS.
    pub(crate) fn load_tls(&self) -> Result<()> {
        if self.config.server.starts_with("http://") {
            return Ok(());
        }
        self.tls.read_files().map(drop)
    }

    /// Returns the certificates of new connections; `None` without TLS and before they were read.
    pub(crate) fn current_tls(&self) -> Option<Arc<ConnectionTls>> {
        self.tls.current()
    }

    /// Returns whether the certificate files have changed since `used` was read.
    pub(crate) fn has_new_tls(&self, used: Option<&ConnectionTls>) -> bool {
        let current = self.tls.current();
        used.zip(current.as_deref())
            .is_some_and(|(used, current)| !used.is_same(current))
    }

    async fn ready_connection(self: &Arc<Self>) -> Result<OpenConnection> {
        // Before the lock: a failure that happens while waiting for it applies to this caller as
        // well.
        let asked = Instant::now();
        let mut shared = self.shared.lock().await;
        // The connection stays in `shared`: if this request is cancelled while it replaces the
        // connection, the others must keep it.
        let open = shared.open.clone();
        if let Some(open) = open.filter(|open| !open.sender.is_closed()) {
            return Ok(self.keep_or_replace(&mut shared, open).await);
        }
        // Dozens of informers wait here. Without this each would run into the connect timeout, one
        // after the other.
        if shared.failed.is_some_and(|failed| failed > asked) {
            return Err(self.unreachable_error("the attempt to connect failed".into()));
        }
        shared.open = None;
        // Under the lock, so that concurrent requests open one connection and not one each.
        let connect = self.connect(REPLACE_TIMEOUT);
        let made = self.limit_time(CONNECT_TIMEOUT, connect).await;
        shared.failed = made.is_err().then(Instant::now);
        Ok(self.share_connection(&mut shared, made?))
    }

    /// Returns the open connection, or a new one if the certificate files have changed. Requests
    /// and watches in progress end on the former one, so that none fails.
    async fn keep_or_replace(
        self: &Arc<Self>,
        shared: &mut Shared,
        open: SharedConnection,
    ) -> OpenConnection {
        let is_due = |kept: Instant| kept.elapsed() >= REPLACE_RETRY;
        if self.has_new_tls(open.tls.as_deref()) && shared.kept.is_none_or(is_due) {
            // Set before the attempt: if this request is cancelled, the next one must not wait,
            // too.
            shared.kept = Some(Instant::now());
            match self.connect_checked().await {
                Ok(made) => {
                    tracing::info!("connected to the API server with the changed certificates");
                    shared.kept = None;
                    return self.share_connection(shared, made);
                }
                // The server may not accept the new certificate yet.
                Err(error) => {
                    tracing::warn!(%error, "no connection with the changed certificates; the former one stays in use");
                }
            }
        }
        if self.servers.are_several()
            && shared.check.is_none()
            && shared.examined.is_none_or(is_due)
            && open.suspicion.take()
        {
            shared.examined = Some(Instant::now());
            shared.check = Some(self.start_check(open.clone()));
        }
        if let Some(check) = &mut shared.check {
            let made = check.await.ok().flatten();
            shared.check = None;
            // If the requests before this one were cancelled, the server may have closed it.
            if let Some(made) = made.filter(|made| !made.is_closed()) {
                return self.share_connection(shared, made);
            }
        }
        OpenConnection {
            server: open.server,
            connection: Connection::Http2(open.sender),
            tls: open.tls,
            suspicion: open.suspicion,
        }
    }

    /// Starts [`Transport::leave_unready`] in a task. If the request that waits for it is
    /// cancelled, the next one receives the result: short timeouts would cancel each check.
    fn start_check(
        self: &Arc<Self>,
        open: SharedConnection,
    ) -> oneshot::Receiver<Option<OpenConnection>> {
        let (sender, receiver) = oneshot::channel();
        let transport = self.clone();
        self.drivers.spawn_isolated(CHECK, async move {
            // Without the receiver, the connection was replaced, and the new one is dropped.
            let _ = sender.send(transport.leave_unready(&open).await);
        });
        receiver
    }

    /// Returns a connection to a ready server if that of the open one is not ready. Requests in
    /// progress end on the former one, and none is repeated.
    async fn leave_unready(&self, open: &SharedConnection) -> Option<OpenConnection> {
        let ready = self.check_server(&open.sender, &open.server).await;
        let unready = ready.err()?;
        let connect = self.connect_ready(Some(&open.server.url));
        let made = self.limit_time(self.replace_timeout, connect).await;
        // Without another one, requests get the reason from the server.
        let made = made.ok()?;
        tracing::info!(%unready, server = made.server.url, "using another API server");
        Some(made)
    }

    fn share_connection(&self, shared: &mut Shared, made: OpenConnection) -> OpenConnection {
        // A check in progress is that of the former connection.
        shared.check = None;
        if let Connection::Http2(sender) = &made.connection {
            shared.open = Some(SharedConnection {
                server: made.server.clone(),
                sender: sender.clone(),
                tls: made.tls.clone(),
                suspicion: made.suspicion.clone(),
            });
            // HTTP/1.1 connections are not counted: each request opens one, so they are no sign of
            // a recovered server.
            self.connections.send_modify(|count| *count += 1);
        }
        made
    }

    /// Connects to a server that is ready. If none is within `ready_timeout`, to one that accepts
    /// the connection: its responses have the reason.
    async fn connect(&self, ready_timeout: Duration) -> Result<OpenConnection> {
        if self.servers.are_several()
            && let Ok(made) = self
                .limit_time(ready_timeout, self.connect_ready(None))
                .await
        {
            return Ok(made);
        }
        let connect = |server| open_connection(&self.config, server, &self.tls, &self.drivers);
        self.servers.connect_first(None, connect).await
    }

    /// Connects to a server that is ready, except the one with the URL `skipped`.
    async fn connect_ready(&self, skipped: Option<&str>) -> Result<OpenConnection> {
        let connect = async |server| {
            let made = open_connection(&self.config, server, &self.tls, &self.drivers).await?;
            // A connection of HTTP/1.1 carries one request.
            if let Connection::Http2(sender) = &made.connection {
                self.check_server(sender, &made.server).await?;
            }
            Ok(made)
        };
        self.servers.connect_first(skipped, connect).await
    }

    async fn check_server(&self, sender: &Http2Sender, server: &ServerAddress) -> Result<()> {
        check_readiness(sender, server, &self.config.user_agent, &self.token).await
    }

    /// Opens a connection whose client certificate the server accepts.
    async fn connect_checked(&self) -> Result<OpenConnection> {
        let connect = async {
            // Half of the time is left for a server that is not ready, if no other one is.
            let made = self.connect(self.replace_timeout / 2).await?;
            check_certificate(&self.config, &made).await?;
            Ok(made)
        };
        self.limit_time(self.replace_timeout, connect).await
    }

    async fn limit_time<T>(
        &self,
        limit: Duration,
        connect: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let connected = tokio::time::timeout(limit, connect).await;
        connected.unwrap_or_else(|_| {
            Err(self.unreachable_error(format!("no connection within {limit:?}").into()))
        })
    }

    fn unreachable_error(&self, source: Cause) -> Error {
        Error::Connect {
            server: self.servers.describe(),
            source,
        }
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

fn unreachable_server(server: &ServerAddress, source: Cause) -> Error {
    Error::Connect {
        server: server.url.clone(),
        source,
    }
}

struct OpenConnection {
    server: Arc<ServerAddress>,
    connection: Connection,
    /// Certificates and key of the handshake; `None` without TLS.
    tls: Option<Arc<ConnectionTls>>,
    suspicion: Suspicion,
}

impl OpenConnection {
    fn is_closed(&self) -> bool {
        match &self.connection {
            Connection::Http2(sender) => sender.is_closed(),
            Connection::Http1(sender) => sender.is_closed(),
        }
    }
}

/// Sends a request that the server rejects if it does not accept the client certificate. The
/// handshake does not show that: it ends before the server has verified the certificate, and API
/// servers verify it for each request.
async fn check_certificate(config: &Config, made: &OpenConnection) -> Result<()> {
    let certificate = made.tls.as_deref().and_then(ConnectionTls::certificate);
    // An HTTP/1.1 connection carries one request and is not kept.
    let (Some(_), Connection::Http2(sender)) = (certificate, &made.connection) else {
        return Ok(());
    };
    let path = PathAndQuery::from_static(CHECKED_PATH);
    let request = Request::get(made.server.url_of(&path)?)
        .header(header::USER_AGENT, &config.user_agent)
        .body(Full::default())
        .map_err(|error| Error::Config(error.to_string()))?;
    let response = sender.clone().send_request(request).await;
    let response = response.map_err(|error| unreachable_server(&made.server, error.into()))?;
    if response.status() == StatusCode::UNAUTHORIZED {
        let cause = "the server rejects the client certificate";
        return Err(unreachable_server(&made.server, cause.into()));
    }
    Ok(())
}

async fn open_connection(
    config: &Config,
    server: ServerAddress,
    files: &ClientTlsFiles,
    drivers: &Tasks,
) -> Result<OpenConnection> {
    let server = Arc::new(server);
    let stream = TcpStream::connect((server.host(), server.port()))
        .await
        .map_err(|error| unreachable_server(&server, error.into()))?;
    stream
        // Small requests must not wait for the acknowledgement of the previous one.
        .set_nodelay(true)
        .map_err(|error| unreachable_server(&server, error.into()))?;
    if !server.is_secure() {
        let connection = handshake_http1(&server, drivers, stream).await?;
        return Ok(OpenConnection {
            server,
            connection,
            tls: None,
            suspicion: Suspicion::default(),
        });
    }
    let name = config.tls_server_name.clone();
    let name = name.unwrap_or_else(|| server.host().to_owned());
    let name = ServerName::try_from(name).map_err(|error| Error::Config(error.to_string()))?;
    let tls = base_task::blocking(|| files.read_files())?;
    let stream = TlsConnector::from(tls.config.clone())
        .connect(name, stream)
        .await
        .map_err(|error| unreachable_server(&server, error.into()))?;
    // Proxies may offer HTTP/1.1 only; the choice is the server's.
    let connection = if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        handshake_http2(&server, drivers, stream).await?
    } else {
        handshake_http1(&server, drivers, stream).await?
    };
    Ok(OpenConnection {
        server,
        connection,
        tls: Some(tls),
        suspicion: Suspicion::default(),
    })
}

async fn drive_connection(connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection to the API server ended");
    }
}

async fn handshake_http2<S>(
    server: &ServerAddress,
    drivers: &Tasks,
    stream: S,
) -> Result<Connection>
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
        .map_err(|error| unreachable_server(server, error.into()))?;
    drivers.spawn_isolated(DRIVER, drive_connection(connection));
    Ok(Connection::Http2(sender))
}

async fn handshake_http1<S>(
    server: &ServerAddress,
    drivers: &Tasks,
    stream: S,
) -> Result<Connection>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable_server(server, error.into()))?;
    drivers.spawn_isolated(DRIVER, drive_connection(connection));
    Ok(Connection::Http1(sender))
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
