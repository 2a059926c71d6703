//! Accept loop of the client ports. It differs from `base_serve`'s in accepting Unix sockets and
//! legacy authorities.

use crate::calls::Calls;
use crate::connection::Connection;
use crate::legacy_authority::LegacyAuthorityReader;
use crate::memory_budget::Budget;
use crate::sockets::Socket;
use base_serve::{ConnectionEnd, FirstBytes, Peer, drive_coalesced};
use base_tls::rustls::ServerConfig;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::{JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;

/// Timeout for a TLS handshake, the first bytes, or the headers of a request.
const DEADLINE: Duration = Duration::from_secs(10);
/// Time for open requests to finish after shutdown is requested.
const DRAIN: Duration = Duration::from_secs(2);

/// Limits of a client connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Maximum number of concurrent streams.
    pub streams: u32,
    /// Interval and timeout of keep-alive pings.
    pub pings: Option<(Duration, Duration)>,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        ConnectionOptions {
            streams: 20_000,
            pings: Some((Duration::from_secs(30), Duration::from_secs(20))),
        }
    }
}

/// A client port or a Unix socket.
pub enum Listener {
    /// A TCP port.
    Port(TcpListener),
    /// A Unix socket.
    Socket(Socket),
}

enum Stream {
    Port(TcpStream),
    Socket(UnixStream),
}

impl Listener {
    async fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Listener::Port(listener) => Stream::Port(listener.accept().await?.0),
            Listener::Socket(socket) => Stream::Socket(socket.listener.accept().await?.0),
        })
    }
}

/// Serves until `shutdown`.
pub async fn serve_listener<S>(
    listener: Listener,
    tls: Option<Arc<ServerConfig>>,
    service: S,
    memory_budget: Arc<Budget>,
    connected: ConnectionOptions,
    shutdown: CancellationToken,
) where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let graceful = GracefulShutdown::new();
    let http = Arc::new(http_builder(connected));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
            // A set keeps the tasks that have ended until they are joined.
            Some(ended) = connections.join_next() => {
                log_panic(ended);
                continue;
            }
        };
        match accepted {
            Ok(stream) => {
                let (tls, http, service) = (tls.clone(), http.clone(), service.clone());
                connections.spawn(serve_connection(
                    stream,
                    tls,
                    http,
                    service,
                    memory_budget.connection(),
                    graceful.watcher(),
                ));
            }
            Err(error) => {
                // Out of file descriptors, or the peer has closed the connection already. The
                // delay keeps the first case from using a processor until a descriptor is free.
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    // Closed before the drain, so that clients which reconnect find another member.
    drop(listener);
    // The connections that are left then are closed with the set.
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
}

/// A connection that panics ends alone.
fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a client's connection panicked; its requests are abandoned");
    }
}

fn http_builder(connected: ConnectionOptions) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(DEADLINE)
        // HTTP/1 serves small pages only; hyper would buffer up to 400 KiB for a connection.
        .max_buf_size(64 << 10);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(connected.streams)
        .max_header_list_size(64 << 10)
        // gRPC clients ignore the date, and encoding it costs a comparison per response.
        .auto_date_header(false)
        // The standard's window of 64 KiB would cost a large put a round trip for each 64 KiB.
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(8 << 20)
        .keep_alive_interval(connected.pings.map(|(interval, _)| interval));
    if let Some((_, timeout)) = connected.pings {
        http.http2().keep_alive_timeout(timeout);
    }
    http
}

async fn serve_connection<S>(
    stream: Stream,
    tls: Option<Arc<ServerConfig>>,
    http: Arc<auto::Builder<TokioExecutor>>,
    service: S,
    memory_budget: Arc<Budget>,
    watcher: Watcher,
) where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let stream = match stream {
        Stream::Port(stream) => stream,
        Stream::Socket(stream) => {
            // The process at the other end has no address.
            let addr = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
            let connection = Connection::without_certificate(addr, memory_budget);
            return drive_connection(stream, connection, &http, service, watcher).await;
        }
    };
    // Writes are coalesced already, so Nagle's algorithm could only delay them. A socket that
    // refuses the option still works.
    let _ = stream.set_nodelay(true);
    let Ok(addr) = stream.peer_addr() else { return };
    let Some(tls) = tls else {
        let connection = Connection::without_certificate(addr, memory_budget);
        return drive_connection(stream, connection, &http, service, watcher).await;
    };
    if tokio::time::timeout(DEADLINE, is_plain_http(&stream))
        .await
        .unwrap_or(true)
    {
        return refuse_plain(stream).await;
    }
    match tokio::time::timeout(DEADLINE, TlsAcceptor::from(tls).accept(stream)).await {
        Ok(Ok(stream)) => {
            let session = stream.get_ref().1;
            let shown = session.peer_certificates().unwrap_or_default();
            let peer = Peer {
                addr,
                certificates: shown.iter().map(|shown| shown.to_vec()).collect(),
                server_name: session.server_name().map(Arc::from),
            };
            let connection = Connection {
                peer,
                memory_budget,
            };
            drive_connection(stream, connection, &http, service, watcher).await;
        }
        Ok(Err(error)) => tracing::debug!(peer = %addr, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(peer = %addr, "TLS handshake took too long"),
    }
}

/// Returns whether the first byte is not that of a TLS handshake.
async fn is_plain_http(stream: &TcpStream) -> bool {
    const HANDSHAKE: u8 = 0x16;
    let mut first = [0];
    // Peeked, because the TLS library must read this byte too.
    let seen = stream.peek(&mut first).await;
    !(matches!(seen, Ok(1)) && first == [HANDSHAKE])
}

/// Responds in plain text to a plain text request, with the text of Go's servers.
async fn refuse_plain(mut stream: TcpStream) {
    let answer =
        "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    // The client may have closed the connection.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn drive_connection<T, S>(
    io: T,
    from: Connection,
    http: &auto::Builder<TokioExecutor>,
    service: S,
    watcher: Watcher,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let addr = from.peer.addr;
    // hyper waits for HTTP/2's preface without a timer, so the deadline is below it.
    let io = LegacyAuthorityReader::new(FirstBytes::new(io, DEADLINE));
    let calls = Calls::default();
    let counted = calls.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(from.clone());
        counted.clone().count_until_response(service.call(request))
    });
    let work = |io| {
        watcher.watch(
            http.serve_connection(TokioIo::new(io), service)
                .into_owned(),
        )
    };
    match drive_coalesced(io, calls, work).await {
        ConnectionEnd::Ended(Ok(())) => {}
        ConnectionEnd::Ended(Err(error)) => {
            tracing::debug!(peer = %addr, %error, "connection ended");
        }
        ConnectionEnd::PeerClosed(error) => {
            tracing::debug!(peer = %addr, %error, "a response can't be sent");
        }
        ConnectionEnd::Unread => {
            tracing::debug!(peer = %addr, "connection closed: a response was not read in time");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn connections_are_closed_at_the_end_of_the_drain_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let never = service_fn(|_: Request<Incoming>| {
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let stop = CancellationToken::new();
        let serving = serve_listener(
            Listener::Port(listener),
            None,
            never,
            Budget::new(),
            ConnectionOptions::default(),
            stop.clone(),
        );
        let client = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream
                .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            stop.cancel();
            stream.read(&mut [0]).await
        };
        let (closed, ()) = tokio::time::timeout(2 * DRAIN, async { tokio::join!(client, serving) })
            .await
            .unwrap();
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    }
}
