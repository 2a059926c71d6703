//! Accept loop and connection handling.

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
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
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
    /// Maximum number of connections. Further ones are closed right after they are accepted.
    pub max_connections: usize,
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
            max_connections: 10_000,
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
    Arc::new(move |request| {
        // Boxed before it is captured, since each move would copy a future of kilobytes.
        let response = Box::pin(service.call(request));
        Box::pin(async move {
            let response = response.await.map_err(|error| ErasedError(error.into()))?;
            let guard = SendGuard;
            Ok(response.map(|body| {
                UnsyncBoxBody::new(body.map_err(move |error| {
                    // The guard lives as long as the body.
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

async fn accept_connections(
    listener: TcpListener,
    options: Options,
    service: ErasedService,
    shutdown: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    let http = Arc::new(http_builder(&options));
    let room = Arc::new(Semaphore::new(options.max_connections));
    let tasks = Tasks::new(shutdown.clone());
    let mut full = false;
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, addr)) => {
                // Without waiting: a full server must keep accepting, or the kernel's queue fills
                // and clients see timeouts instead of a closed connection.
                let place = room.clone().try_acquire_owned();
                if place.is_err() && !full {
                    tracing::warn!(
                        limit = options.max_connections,
                        "too many connections; new ones are closed"
                    );
                }
                // One warning for each period of overload, not one for each connection.
                full = place.is_err();
                let Ok(place) = place else { continue };
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
        // Bounds the memory that one client can occupy, together with the windows below.
        .max_concurrent_streams(options.max_streams)
        .max_header_list_size(u32::try_from(options.max_header_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024)
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
        };
        let stream = Transport::Plain(stream);
        return serve_connection(stream, options.deadline, peer, &http, service, watcher).await;
    };
    let handshake = TlsAcceptor::from(tls.clone()).accept(stream);
    match tokio::time::timeout(options.deadline, handshake).await {
        Ok(Ok(stream)) => {
            // Verified later by the server, if at all; the handshake proved only the possession of
            // the key.
            let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let certificates = shown.iter().map(|c| c.to_vec()).collect();
            let stream = Transport::Tls(Box::new(stream));
            let peer = Peer { addr, certificates };
            serve_connection(stream, options.deadline, peer, &http, service, watcher).await;
        }
        Ok(Err(e)) => tracing::debug!(peer = %addr, error = %e, "TLS handshake failed"),
        Err(_) => tracing::debug!(peer = %addr, "TLS handshake took too long"),
    }
}

async fn serve_connection(
    stream: Transport,
    deadline: Duration,
    peer: Peer,
    http: &auto::Builder<LimitedExecutor>,
    service: ErasedService,
    watcher: Watcher,
) {
    let addr = peer.addr;
    let io = FirstBytes::new(stream, deadline);
    let with_peer = service_fn(move |mut request: Request<Incoming>| {
        // Handlers need the address and certificates, and hyper passes only the request.
        request.extensions_mut().insert(peer.clone());
        service(request)
    });
    // Upgrades are needed for exec, attach and port-forward.
    let connection = http.serve_connection_with_upgrades(TokioIo::new(io), with_peer);
    // HTTP/1 responses are limited here, the streams of HTTP/2 by the executor.
    match run_limited(watcher.watch(connection.into_owned())).await {
        Some(Ok(())) => {}
        Some(Err(e)) => tracing::debug!(peer = %addr, error = %e, "connection ended with an error"),
        None => tracing::debug!(peer = %addr, "connection closed: a response was not read in time"),
    }
}
