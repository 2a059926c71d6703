//! Accept loop and connection handling.

use crate::first_bytes::FirstBytes;
use base_task::Tasks;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

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
pub async fn serve<S, B>(
    listener: TcpListener,
    options: Options,
    service: S,
    shutdown: CancellationToken,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Future<Output = Result<Response<B>, S::Error>> + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let graceful = GracefulShutdown::new();
    let http = Arc::new(builder(&options));
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
                let place = room.clone().try_acquire_owned();
                if place.is_err() && !full {
                    tracing::warn!(
                        limit = options.max_connections,
                        "too many connections; new ones are closed"
                    );
                }
                full = place.is_err();
                let Ok(place) = place else { continue };
                let connection = connection(
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
    drop(listener);
    if tokio::time::timeout(options.drain, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::info!("connections were still open at the end of the drain time and are closed");
    }
}

fn builder(options: &Options) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.deadline)
        .max_buf_size(options.max_header_bytes.max(16 * 1024));
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(options.max_streams)
        .max_header_list_size(u32::try_from(options.max_header_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(15));
    http
}

async fn connection<S, B>(
    stream: TcpStream,
    addr: SocketAddr,
    options: Options,
    http: Arc<auto::Builder<TokioExecutor>>,
    service: S,
    watcher: Watcher,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Future<Output = Result<Response<B>, S::Error>> + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    // The connection works without the option too.
    let _ = stream.set_nodelay(true);
    let Some(tls) = &options.tls else {
        let peer = Peer {
            addr,
            certificates: Arc::new([]),
        };
        return drive(
            FirstBytes::new(stream, options.deadline),
            peer,
            &http,
            service,
            watcher,
        )
        .await;
    };
    let handshake = TlsAcceptor::from(tls.clone()).accept(stream);
    match tokio::time::timeout(options.deadline, handshake).await {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let certificates = shown.iter().map(|c| c.to_vec()).collect();
            let stream = FirstBytes::new(stream, options.deadline);
            drive(stream, Peer { addr, certificates }, &http, service, watcher).await;
        }
        Ok(Err(e)) => tracing::debug!(peer = %addr, error = %e, "TLS handshake failed"),
        Err(_) => tracing::debug!(peer = %addr, "TLS handshake took too long"),
    }
}

async fn drive<T, S, B>(
    io: T,
    peer: Peer,
    http: &auto::Builder<TokioExecutor>,
    service: S,
    watcher: Watcher,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Future<Output = Result<Response<B>, S::Error>> + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let addr = peer.addr;
    let with_peer = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        service.call(request)
    });
    let connection = http.serve_connection_with_upgrades(TokioIo::new(io), with_peer);
    if let Err(e) = watcher.watch(connection.into_owned()).await {
        tracing::debug!(peer = %addr, error = %e, "connection ended with an error");
    }
}
