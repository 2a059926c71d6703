//! The sockets: UDP and TCP on one address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base_task::Tasks;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::reply::Transport;
use crate::server::{Server, Step};

/// Idle timeout of a TCP connection, and timeout of one request or response.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of requests over one TCP connection, as CoreDNS's. A client that sends more
/// connects again and competes with the others.
const MAX_CONNECTION_REQUESTS: usize = 128;
/// Maximum size of a request, in bytes. A request has one question and one or two records; what is
/// longer does not parse or is closed.
const MAX_REQUEST: usize = 4096;

/// The server's sockets, both on one address and port.
pub(crate) struct Sockets {
    tcp: TcpListener,
    udp: std::net::UdpSocket,
}

impl Sockets {
    /// Binds both sockets; port 0 picks one free port for both.
    pub async fn bind(listen: SocketAddr) -> anyhow::Result<Self> {
        let tcp = base_serve::bind_listener(listen).await?;
        // With port 0 the kernel has chosen one for TCP; UDP must have the same.
        let listen = tcp.local_addr()?;
        let udp = UdpSocket::bind(listen)
            .await
            .map_err(|error| anyhow::anyhow!("UDP port {listen} can't be listened on: {error}"))?;
        Ok(Self {
            tcp,
            udp: udp.into_std()?,
        })
    }
}

/// Serves on both sockets until shutdown.
pub(crate) fn serve_dns(server: &Arc<Server>, sockets: Sockets, tasks: &Tasks) {
    let Sockets { tcp, udp } = sockets;
    tasks.spawn_critical("dns udp", serve_udp(server.clone(), udp, tasks.clone()));
    tasks.spawn_critical("dns tcp", tcp_loop(server.clone(), tcp, tasks.clone()));
}

/// Runs the loop for UDP on a thread with its own reactor. With the shared one, each packet wakes
/// another thread of the runtime while this one responds: a third of the processor time.
async fn serve_udp(server: Arc<Server>, socket: std::net::UdpSocket, tasks: Tasks) {
    let shared = Handle::current();
    let thread = tokio::task::spawn_blocking(move || -> std::io::Result<()> {
        let reactor = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        reactor.block_on(async move {
            let socket = Arc::new(UdpSocket::from_std(socket)?);
            udp_loop(server, socket, tasks, shared).await;
            Ok(())
        })
    });
    match thread.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "the UDP socket can't be served"),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => {
                tracing::debug!(%error, "the runtime ended before the UDP socket was served")
            }
        },
    }
}

async fn udp_loop(server: Arc<Server>, socket: Arc<UdpSocket>, tasks: Tasks, shared: Handle) {
    let shutdown = tasks.shutdown().clone();
    let mut buffer = vec![0; MAX_REQUEST];
    loop {
        let received = tokio::select! {
            () = shutdown.cancelled() => return,
            received = socket.recv_from(&mut buffer) => received,
        };
        // An ICMP error of an earlier response shows up here; ignore it.
        let Ok((length, peer)) = received else {
            continue;
        };
        let Some(bytes) = buffer.get(..length).filter(|_| server.allows(peer.ip())) else {
            continue;
        };
        // Names of the cluster and cached answers are answered in this task: a task for each would
        // cost more than the lookup.
        match server.start_request(bytes, peer.ip(), Transport::Udp) {
            Step::Respond(response) => drop(socket.send_to(&response, peer).await),
            Step::Ignore => {}
            Step::Wait(forwarded) => {
                let (server, socket) = (server.clone(), socket.clone());
                let _shared = shared.enter();
                tasks.spawn_isolated("dns forward", async move {
                    if let Some(response) = server.finish_request(*forwarded).await {
                        let _ = socket.send_to(&response, peer).await;
                    }
                });
            }
        }
    }
}

async fn tcp_loop(server: Arc<Server>, listener: TcpListener, tasks: Tasks) {
    let shutdown = tasks.shutdown().clone();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            // Without file descriptors accept fails at once and would spin.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if !server.allows(peer.ip()) {
            continue;
        }
        start_connection(&server, stream, peer, &tasks);
    }
}

/// Serves a connection in a task of its own, if the client has not reached its share.
fn start_connection(
    server: &Arc<Server>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    tasks: &Tasks,
) {
    // Closed without a response: the client retries, and the other clients keep their connections.
    let Some(slot) = server.clients.admit_connection(peer.ip()) else {
        return;
    };
    let (server, shutdown) = (server.clone(), tasks.shutdown().clone());
    tasks.spawn_isolated("dns connection", async move {
        tokio::select! {
            _ = serve_connection(&server, stream, peer) => {}
            () = slot.wait_until_ended() => {}
            () = shutdown.cancelled() => {}
        }
    });
}

/// Serves requests until the client closes the connection, violates a limit, or gets no response.
async fn serve_connection(
    server: &Server,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
) -> Option<()> {
    // RFC 7766: clients may send several requests over one connection.
    for _ in 0..MAX_CONNECTION_REQUESTS {
        let request = timeout(IDLE_TIMEOUT, read_request(&mut stream))
            .await
            .ok()??;
        let response = match server.start_request(&request, peer.ip(), Transport::Tcp) {
            Step::Respond(response) => response,
            Step::Ignore => return None,
            Step::Wait(forwarded) => server.finish_request(*forwarded).await?,
        };
        let length = u16::try_from(response.len()).ok()?;
        let framed = [&length.to_be_bytes()[..], &response].concat();
        timeout(IDLE_TIMEOUT, stream.write_all(&framed))
            .await
            .ok()?
            .ok()?;
    }
    None
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let length = usize::from(stream.read_u16().await.ok()?);
    if length > MAX_REQUEST {
        return None;
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.ok()?;
    Some(bytes)
}

#[cfg(test)]
#[path = "sockets_tests.rs"]
mod tests;
