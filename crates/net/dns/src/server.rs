//! The sockets: UDP and TCP on one address.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use base_task::Tasks;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::clients::Clients;
use crate::forward::Upstreams;
use crate::reply::{Reply, build_reply, empty_response, encode_message};
use crate::zone::View;

/// Idle timeout of a TCP connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// State that responses need.
pub struct Server {
    pub view: Box<dyn View>,
    pub domain: Name,
    pub upstreams: Upstreams,
    pub clients: Clients,
}

impl Server {
    /// Returns the response if it is available at once, or the request if it must be forwarded. A
    /// panic fails only this request.
    fn respond_locally(
        &self,
        bytes: &[u8],
        udp: bool,
    ) -> Result<Option<Vec<u8>>, Box<(Message, Reply)>> {
        catch_unwind(AssertUnwindSafe(|| {
            self.respond_locally_unguarded(bytes, udp)
        }))
        .unwrap_or_else(|_| {
            tracing::error!("answering a request panicked; the request is dropped");
            Ok(None)
        })
    }

    fn respond_locally_unguarded(
        &self,
        bytes: &[u8],
        udp: bool,
    ) -> Result<Option<Vec<u8>>, Box<(Message, Reply)>> {
        let Ok(request) = Message::from_vec(bytes) else {
            return Ok(None);
        };
        match build_reply(
            self.view.as_ref(),
            &self.domain,
            &request,
            self.view.has_synced(),
        ) {
            Reply::Ready(message) => Ok(encode_message(&request, *message, udp)),
            Reply::Ignore => Ok(None),
            other => Err(Box::new((request, other))),
        }
    }

    async fn respond_by_upstream(
        &self,
        bytes: &[u8],
        pending: (Message, Reply),
        udp: bool,
    ) -> Option<Vec<u8>> {
        let (request, reply) = pending;
        match reply {
            Reply::Forward => match self.upstreams.forward_request(bytes, udp).await {
                Some(response) => Some(response),
                None => encode_message(
                    &request,
                    empty_response(&request, ResponseCode::ServFail),
                    udp,
                ),
            },
            Reply::Follow(mut message, target, kind) => {
                self.follow_alias(&mut message, target, kind).await;
                encode_message(&request, *message, udp)
            }
            Reply::Ready(_) | Reply::Ignore => None,
        }
    }

    /// Adds the target's records to an alias. If no resolver responds, the alias alone is still
    /// correct.
    async fn follow_alias(&self, message: &mut Message, target: Name, kind: RecordType) {
        let mut question = Message::new(rand::random(), MessageType::Query, OpCode::Query);
        // A new request: the client's own one asks for the alias and not for its target.
        question.metadata.recursion_desired = true;
        question.add_query(Query::query(target, kind));
        let Ok(bytes) = question.to_vec() else { return };
        let response = self
            .upstreams
            .forward_request(&bytes, true)
            .await
            .and_then(|bytes| Message::from_vec(&bytes).ok());
        if let Some(response) = response {
            message.add_answers(response.answers);
        }
    }
}

/// The server's sockets, both on one address and port.
pub struct Sockets {
    tcp: TcpListener,
    udp: UdpSocket,
}

/// Binds both sockets; port 0 picks one free port for both.
pub async fn bind_sockets(listen: SocketAddr) -> anyhow::Result<Sockets> {
    let tcp = base_serve::bind_listener(listen).await?;
    // With port 0 the kernel has chosen one for TCP; UDP must have the same.
    let listen = tcp.local_addr()?;
    let udp = UdpSocket::bind(listen)
        .await
        .map_err(|error| anyhow::anyhow!("UDP port {listen} can't be listened on: {error}"))?;
    Ok(Sockets { tcp, udp })
}

/// Serves on both sockets until shutdown.
pub fn serve_dns(server: &Arc<Server>, sockets: Sockets, tasks: &Tasks) {
    let Sockets { tcp, udp } = sockets;
    tasks.spawn_critical(
        "dns udp",
        udp_loop(server.clone(), Arc::new(udp), tasks.clone()),
    );
    tasks.spawn_critical("dns tcp", tcp_loop(server.clone(), tcp, tasks.clone()));
}

async fn udp_loop(server: Arc<Server>, socket: Arc<UdpSocket>, tasks: Tasks) {
    let shutdown = tasks.shutdown().clone();
    // Requests are small; a longer one is cut off, does not parse and gets no response.
    let mut buffer = vec![0; 4096];
    loop {
        let received = tokio::select! {
            () = shutdown.cancelled() => return,
            received = socket.recv_from(&mut buffer) => received,
        };
        // An ICMP error of an earlier response shows up here; ignore it.
        let Ok((length, peer)) = received else {
            continue;
        };
        let Some(bytes) = buffer
            .get(..length)
            .filter(|_| server.clients.allows(peer.ip()))
        else {
            continue;
        };
        // Names of the cluster are answered in this task: a task for each would cost more than the
        // lookup.
        match server.respond_locally(bytes, true) {
            Ok(Some(response)) => drop(socket.send_to(&response, peer).await),
            Ok(None) => {}
            Err(pending) => {
                let (server, socket, bytes) = (server.clone(), socket.clone(), bytes.to_vec());
                tasks.spawn_isolated("dns forward", async move {
                    if let Some(response) = server.respond_by_upstream(&bytes, *pending, true).await
                    {
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
        if !server.clients.allows(peer.ip()) {
            continue;
        }
        // Closed without a response: the client retries, and the other clients keep their
        // connections.
        let Some(slot) = server.clients.admit(peer.ip()) else {
            continue;
        };
        let (server, shutdown) = (server.clone(), shutdown.clone());
        tasks.spawn_isolated("dns connection", async move {
            let _slot = slot;
            tokio::select! {
                _ = serve_connection(&server, stream) => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
}

async fn serve_connection(server: &Server, mut stream: TcpStream) -> Option<()> {
    loop {
        // RFC 7766: clients may send several requests over one connection.
        let length = timeout(IDLE_TIMEOUT, stream.read_u16()).await.ok()?.ok()?;
        let mut bytes = vec![0; usize::from(length)];
        timeout(IDLE_TIMEOUT, stream.read_exact(&mut bytes))
            .await
            .ok()?
            .ok()?;
        let response = match server.respond_locally(&bytes, false) {
            Ok(response) => response?,
            Err(pending) => server.respond_by_upstream(&bytes, *pending, false).await?,
        };
        let length = u16::try_from(response.len()).ok()?;
        let framed = [&length.to_be_bytes()[..], &response].concat();
        timeout(IDLE_TIMEOUT, stream.write_all(&framed))
            .await
            .ok()?
            .ok()?;
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
