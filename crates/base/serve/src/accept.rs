//! Accept loop and connection handling.

use crate::activity::{Activity, ConnectionHandle, OpenRequest};
use crate::coalescing::{ConnectionEnd, drive_coalesced};
use crate::fair_places::{FairPlaces, Place, identify_client};
use crate::first_bytes::FirstBytes;
use crate::send_limit::{LimitedExecutor, SendGuard, run_limited};
use crate::transport::Transport;
use base_task::Tasks;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use std::error::Error;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

type BoxError = Box<dyn Error + Send + Sync>;
type ErasedBody = UnsyncBoxBody<Bytes, ErasedError>;
type ResponseFuture =
    Pin<Box<dyn Future<Output = Result<Response<ErasedBody>, ErasedError>> + Send>>;
type ErasedService = Arc<dyn Fn(Request<Incoming>) -> ResponseFuture + Send + Sync>;

/// An error of a service or body. A type of its own, because the compiler can't prove that a future
/// is `Send` which converts the boxed error itself.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct ErasedError(BoxError);

/// The remote end of a connection; an extension of every request.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Remote address.
    pub addr: SocketAddr,
    /// DER certificates of the peer, leaf first; empty over plain TCP.
    pub certificates: Arc<[Vec<u8>]>,
    /// Name of the server in the TLS handshake (SNI), if the peer sent one.
    pub server_name: Option<Arc<str>>,
}

/// Bytes that a connection of HTTP/2 keeps in memory for a client that sends without a response, or
/// does not read.
#[derive(Clone, Copy, Debug)]
pub struct Http2Buffers {
    /// Bytes of a request's body that a client may send ahead of the service.
    pub stream_window: u32,
    /// The same for all requests of a connection.
    pub connection_window: u32,
    /// Bytes of a response that wait for the client. The body is polled for another frame until as
    /// many wait, and that frame waits in addition.
    pub send: usize,
}

impl Default for Http2Buffers {
    fn default() -> Self {
        Http2Buffers {
            stream_window: 256 * 1024,
            connection_window: 1024 * 1024,
            // Several parts of a list. 400 KiB save no processor time, and 32 lists at once would
            // take 13 MB.
            send: 64 * 1024,
        }
    }
}

/// A server's part of the connections that several servers may have together.
#[derive(Clone, Debug)]
pub struct ServerShare {
    /// Connections of all of these servers.
    pub places: FairPlaces<u16>,
    /// The same connections by client: one alone must not use up those of every server.
    pub clients: FairPlaces<IpAddr>,
    /// The server among them; several may have one number.
    pub server: u16,
}

/// Limits and deadlines of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// TLS configuration; `None` serves plain text.
    pub tls: Option<Arc<ServerConfig>>,
    /// Timeout for the TLS handshake, the first bytes and a request's headers.
    pub deadline: Duration,
    /// Maximum total size of headers in bytes.
    pub max_header_bytes: usize,
    /// Maximum number of concurrent streams per HTTP/2 connection. All watches of a component share
    /// one connection.
    pub max_streams: u32,
    /// Buffers of HTTP/2 connections.
    pub buffers: Http2Buffers,
    /// Maximum number of connections. Further ones are closed right after they are accepted.
    pub max_connections: usize,
    /// Limits the connections of a client (see [`identify_client`]) to as many as are still free.
    pub share_connections: bool,
    /// Limits the connections together with those of other servers.
    pub server_share: Option<ServerShare>,
    /// Time without a request after which a connection is closed: after one to two times this
    /// value. `None` keeps idle connections of HTTP/2 open.
    pub idle: Option<Duration>,
    /// Time for open requests to finish after shutdown is requested.
    pub drain: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            tls: None,
            deadline: Duration::from_secs(10),
            max_header_bytes: 64 * 1024,
            max_streams: 1000,
            buffers: Http2Buffers::default(),
            max_connections: 10_000,
            share_connections: false,
            server_share: None,
            idle: None,
            drain: Duration::from_secs(10),
        }
    }
}

/// Serves until `shutdown`, then lets open requests finish within `options.drain`.
pub async fn serve_http<S, B>(
    listener: TcpListener,
    options: Options,
    service: S,
    shutdown: CancellationToken,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Future<Output = Result<Response<B>, S::Error>> + Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    box_accept_loop(listener, options, erase_types(service), shutdown).await;
}

/// Hides the types of a service and its bodies.
///
/// hyper's connection is compiled again for every service, body and stream type, in each crate that
/// serves. Two allocations and two indirect calls per request avoid that.
fn erase_types<S, B>(service: S) -> ErasedService
where
    S: Service<Request<Incoming>, Response = Response<B>> + Send + Sync + 'static,
    S::Future: Future<Output = Result<Response<B>, S::Error>> + Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Arc::new(move |request: Request<Incoming>| {
        let connection = request.extensions().get::<ConnectionHandle>();
        let version = request.version();
        let open = connection.map(|connection| OpenRequest::begin(connection.0.clone(), version));
        // Boxed before it is captured, since each move would copy a future of kilobytes.
        let response = Box::pin(service.call(request));
        Box::pin(async move {
            let response = response.await.map_err(|error| ErasedError(error.into()))?;
            let guard = (SendGuard, open);
            Ok(response.map(|body| {
                UnsyncBoxBody::new(body.map_err(move |error| {
                    // The guards live as long as the body.
                    let _ = &guard;
                    ErasedError(error.into())
                }))
            }))
        })
    })
}

/// Boxes the accept loop here, because the code of an `async fn` is compiled in every crate that
/// awaits it.
fn box_accept_loop(
    listener: TcpListener,
    options: Options,
    service: ErasedService,
    shutdown: CancellationToken,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(accept_connections(listener, options, service, shutdown))
}

/// Limit of the connections, with those in use.
struct ConnectionLimit {
    limit: usize,
    total: Arc<Semaphore>,
    shares: Option<FairPlaces<IpAddr>>,
    server: Option<ServerShare>,
    is_full: bool,
}

/// The place of a connection, until it is dropped.
struct ConnectionPlace {
    _total: OwnedSemaphorePermit,
    _share: Option<Place<IpAddr>>,
    _server: Option<Place<u16>>,
}

impl ConnectionLimit {
    fn new(options: &Options) -> Self {
        let limit = options.max_connections;
        let shares = match &options.server_share {
            Some(share) => Some(share.clients.clone()),
            None => options.share_connections.then(|| FairPlaces::new(limit)),
        };
        Self {
            limit,
            total: Arc::new(Semaphore::new(limit)),
            shares,
            server: options.server_share.clone(),
            is_full: false,
        }
    }

    fn take(&mut self, peer: SocketAddr) -> Option<ConnectionPlace> {
        let total = self.total.clone().try_acquire_owned();
        if total.is_err() && !self.is_full {
            let limit = self.limit;
            tracing::warn!(limit, "too many connections; new ones are closed");
        }
        // One warning for each period of overload, not one for each connection.
        self.is_full = total.is_err();
        let (total, client) = (total.ok()?, identify_client(peer.ip()));
        let share = self.shares.as_ref().map(|shares| shares.take(client));
        if matches!(share, Some(None)) {
            tracing::debug!(%peer, "too many connections of this client");
            return None;
        }
        let server = self.server.as_ref();
        let server = server.map(|server| server.places.take(server.server));
        if matches!(server, Some(None)) {
            tracing::debug!(%peer, "too many connections of this server");
            return None;
        }
        Some(ConnectionPlace {
            _total: total,
            _share: share.flatten(),
            _server: server.flatten(),
        })
    }
}

async fn accept_connections(
    listener: TcpListener,
    options: Options,
    service: ErasedService,
    shutdown: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    let http = Arc::new(http_builder(&options));
    let mut places = ConnectionLimit::new(&options);
    let tasks = Tasks::new(shutdown.clone());
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, addr)) => {
                // Without waiting: a full server must keep accepting, or the kernel's queue fills
                // and clients see timeouts instead of a closed connection.
                let Some(place) = places.take(addr) else {
                    continue;
                };
                let connection = handle_connection(
                    stream,
                    addr,
                    options.clone(),
                    http.clone(),
                    service.clone(),
                    graceful.watcher(),
                );
                tasks.spawn_isolated("connection", async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(e) => {
                // Out of file descriptors, or the peer has closed the connection already: waits for
                // other connections to end.
                tracing::warn!(error = %e, "accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    // Before the drain: new connections are refused at once, so that clients turn to another
    // server.
    drop(listener);
    drain_connections(graceful, options.drain).await;
}

async fn drain_connections(graceful: GracefulShutdown, time: Duration) {
    if tokio::time::timeout(time, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::info!("connections were still open at the end of the drain time and are closed");
    }
}

fn http_builder(options: &Options) -> auto::Builder<LimitedExecutor> {
    let mut http = auto::Builder::new(LimitedExecutor);
    http.http1()
        .timer(TokioTimer::new())
        // Against clients that send headers byte by byte to occupy connections.
        .header_read_timeout(options.deadline)
        .max_buf_size(options.max_header_bytes.max(16 * 1024));
    http.http2()
        .timer(TokioTimer::new())
        // Bounds the memory that one client can occupy, together with the buffers below.
        .max_concurrent_streams(options.max_streams)
        .max_header_list_size(u32::try_from(options.max_header_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(options.buffers.stream_window)
        .initial_connection_window_size(options.buffers.connection_window)
        .max_send_buf_size(options.buffers.send)
        // Finds clients that vanished without closing. Their watches would be served until the
        // kernel gives up.
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(15));
    http
}

async fn handle_connection(
    stream: TcpStream,
    addr: SocketAddr,
    options: Options,
    http: Arc<auto::Builder<LimitedExecutor>>,
    service: ErasedService,
    watcher: Watcher,
) {
    // The connection works without the option too.
    let _ = stream.set_nodelay(true);
    let Some(tls) = &options.tls else {
        let peer = Peer {
            addr,
            certificates: Arc::new([]),
            server_name: None,
        };
        let stream = Transport::Plain(stream);
        return serve_connection(stream, &options, peer, &http, service, watcher).await;
    };
    let handshake = TlsAcceptor::from(tls.clone()).accept(stream);
    match tokio::time::timeout(options.deadline, handshake).await {
        Ok(Ok(stream)) => {
            // Verified later by the server, if at all; the handshake proved only the possession of
            // the key.
            let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let certificates = shown.iter().map(|c| c.to_vec()).collect();
            let server_name = stream.get_ref().1.server_name().map(Arc::from);
            let stream = Transport::Tls(Box::new(stream));
            let peer = Peer {
                addr,
                certificates,
                server_name,
            };
            serve_connection(stream, &options, peer, &http, service, watcher).await;
        }
        Ok(Err(e)) => tracing::debug!(peer = %addr, error = %e, "TLS handshake failed"),
        Err(_) => tracing::debug!(peer = %addr, "TLS handshake took too long"),
    }
}

async fn serve_connection(
    stream: Transport,
    options: &Options,
    peer: Peer,
    http: &auto::Builder<LimitedExecutor>,
    service: ErasedService,
    watcher: Watcher,
) {
    let addr = peer.addr;
    let io = FirstBytes::new(stream, options.deadline);
    let activity = Arc::new(Activity::default());
    let handle = ConnectionHandle(activity.clone());
    let with_peer: PeerService = Box::new(move |mut request: Request<Incoming>| {
        // Handlers need the address and certificates, and hyper passes only the request.
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(handle.clone());
        service(request)
    });
    let connection = drive_http(io, http, with_peer, watcher, activity.clone());
    let ended = tokio::select! {
        ended = connection => ended,
        () = activity.wait_until_idle(options.idle) => {
            tracing::debug!(peer = %addr, "connection closed: it had no request for some time");
            return;
        }
        () = activity.wait_until_closed() => ConnectionEnd::Unread,
    };
    match ended {
        ConnectionEnd::Ended(Some(Ok(()))) => {}
        ConnectionEnd::Ended(Some(Err(e))) => {
            tracing::debug!(peer = %addr, error = %e, "connection ended with an error");
        }
        ConnectionEnd::PeerClosed(e) => {
            tracing::debug!(peer = %addr, error = %e, "a response can't be sent");
        }
        ConnectionEnd::Ended(None) | ConnectionEnd::Unread => {
            tracing::debug!(peer = %addr, "connection closed: a response was not read in time");
        }
    }
}

type PeerService = Box<dyn Fn(Request<Incoming>) -> ResponseFuture + Send + Sync>;
/// The result of a connection; `None` if a response was not sent before its deadline.
type HttpResult = Option<Result<(), BoxError>>;
type ConnectionFuture = Pin<Box<dyn Future<Output = ConnectionEnd<HttpResult>> + Send>>;

/// Serves the requests of a connection. Not an `async fn`, in which the compiler can't prove that
/// the future of a connection is `Send`.
fn drive_http(
    io: FirstBytes<Transport>,
    http: &auto::Builder<LimitedExecutor>,
    service: PeerService,
    watcher: Watcher,
    activity: Arc<Activity>,
) -> ConnectionFuture {
    let work = |io| {
        // Upgrades are needed for exec, attach and port-forward.
        let connection = http.serve_connection_with_upgrades(TokioIo::new(io), service_fn(service));
        // HTTP/1 responses are limited here, the streams of HTTP/2 by the executor.
        run_limited(watcher.watch(connection.into_owned()))
    };
    Box::pin(drive_coalesced(io, activity, work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_share_connections_leave_some_for_each_other() {
        let (places, clients) = (FairPlaces::new(100), FairPlaces::new(100));
        let start = |server| {
            ConnectionLimit::new(&Options {
                server_share: Some(ServerShare {
                    places: places.clone(),
                    clients: clients.clone(),
                    server,
                }),
                ..Options::default()
            })
        };
        let fill = |limit: &mut ConnectionLimit, client: u8| -> Vec<ConnectionPlace> {
            let client = SocketAddr::from(([127, 0, 0, client], 1));
            std::iter::from_fn(|| limit.take(client)).collect()
        };
        let of_first = fill(&mut start(1), 1);
        assert_eq!(of_first.len(), 50);
        let again = fill(&mut start(1), 2);
        assert_eq!(again.len(), 0, "another port of the first");
        let again = fill(&mut start(2), 1);
        assert_eq!(again.len(), 0, "the same client at another server");
        assert_eq!(fill(&mut start(2), 2).len(), 25);
        drop(of_first);
        assert_eq!(fill(&mut start(1), 1).len(), 50);
    }
}
