//! The sockets: UDP and TCP on one address.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base_task::Tasks;
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use ipnet::IpNet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::forward::Upstreams;
use crate::reply::{Reply, encode, reply, respond};
use crate::view::Informed;

/// TCP connections at once, and how long one may be silent.
const CONNECTIONS: usize = 256;
const SILENCE: Duration = Duration::from_secs(10);

/// Everything that an answer needs.
pub struct Server {
    pub view: Informed,
    pub domain: Name,
    pub upstreams: Upstreams,
    pub allow: Vec<IpNet>,
}

impl Server {
    fn allowed(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.allow.is_empty() || self.allow.iter().any(|net| net.contains(&peer))
    }

    /// What can be answered at once, or the request when it takes asking others.
    fn quick(&self, bytes: &[u8], peer: IpAddr, udp: bool) -> Result<Option<Vec<u8>>, Box<(Message, Reply)>> {
        let Ok(request) = Message::from_vec(bytes) else { return Ok(None) };
        if !self.allowed(peer) {
            return Ok(encode(&request, respond(&request, ResponseCode::Refused), udp));
        }
        match reply(&self.view, &self.domain, &request, self.view.has_synced()) {
            Reply::Ready(message) => Ok(encode(&request, *message, udp)),
            Reply::Ignore => Ok(None),
            other => Err(Box::new((request, other))),
        }
    }

    async fn slow(&self, bytes: &[u8], pending: (Message, Reply), udp: bool) -> Option<Vec<u8>> {
        let (request, reply) = pending;
        match reply {
            Reply::Forward => match self.upstreams.ask(bytes, udp).await {
                Some(answer) => Some(answer),
                None => encode(&request, respond(&request, ResponseCode::ServFail), udp),
            },
            Reply::Follow(mut message, target, kind) => {
                self.follow(&mut message, target, kind).await;
                encode(&request, *message, udp)
            }
            Reply::Ready(_) | Reply::Ignore => None,
        }
    }

    /// Adds what an alias leads to. If nobody knows, the alias alone is still right.
    async fn follow(&self, message: &mut Message, target: Name, kind: RecordType) {
        let mut question = Message::new();
        question.set_id(rand::random()).set_recursion_desired(true).add_query(Query::query(target, kind));
        let Ok(bytes) = question.to_vec() else { return };
        let answer = self.upstreams.ask(&bytes, true).await.and_then(|bytes| Message::from_vec(&bytes).ok());
        if let Some(mut answer) = answer {
            message.add_answers(answer.take_answers());
        }
    }
}

/// Serves on both sockets until the group is told to stop.
pub async fn serve(server: Arc<Server>, listen: SocketAddr, tasks: &Tasks) -> anyhow::Result<()> {
    let tcp = base_serve::bind(listen).await?;
    let listen = tcp.local_addr()?;
    let udp = Arc::new(
        UdpSocket::bind(listen)
            .await
            .map_err(|error| anyhow::anyhow!("UDP port {listen} can't be listened on: {error}"))?,
    );
    tracing::info!(%listen, "serving names");
    tasks.spawn("dns udp", udp_loop(Arc::clone(&server), udp, tasks.clone()));
    tasks.spawn("dns tcp", tcp_loop(server, tcp, tasks.clone()));
    Ok(())
}

async fn udp_loop(server: Arc<Server>, socket: Arc<UdpSocket>, tasks: Tasks) {
    let shutdown = tasks.shutdown().clone();
    let mut buffer = vec![0; 4096];
    loop {
        let received = tokio::select! {
            () = shutdown.cancelled() => return,
            received = socket.recv_from(&mut buffer) => received,
        };
        // An ICMP error of an earlier answer shows up here; it concerns nobody any more.
        let Ok((length, peer)) = received else { continue };
        let Some(bytes) = buffer.get(..length) else { continue };
        match server.quick(bytes, peer.ip(), true) {
            Ok(Some(answer)) => drop(socket.send_to(&answer, peer).await),
            Ok(None) => {}
            Err(pending) => {
                let (server, socket, bytes) = (Arc::clone(&server), Arc::clone(&socket), bytes.to_vec());
                tasks.spawn("dns forward", async move {
                    if let Some(answer) = server.slow(&bytes, *pending, true).await {
                        let _ = socket.send_to(&answer, peer).await;
                    }
                });
            }
        }
    }
}

async fn tcp_loop(server: Arc<Server>, listener: TcpListener, tasks: Tasks) {
    let shutdown = tasks.shutdown().clone();
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
        let (server, shutdown) = (Arc::clone(&server), shutdown.clone());
        tasks.spawn("dns connection", async move {
            let _place = place;
            tokio::select! {
                _ = connection(&server, stream, peer) => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
}

async fn connection(server: &Server, mut stream: TcpStream, peer: SocketAddr) -> Option<()> {
    loop {
        let length = timeout(SILENCE, stream.read_u16()).await.ok()?.ok()?;
        let mut bytes = vec![0; usize::from(length)];
        timeout(SILENCE, stream.read_exact(&mut bytes)).await.ok()?.ok()?;
        let answer = match server.quick(&bytes, peer.ip(), false) {
            Ok(answer) => answer?,
            Err(pending) => server.slow(&bytes, *pending, false).await?,
        };
        let length = u16::try_from(answer.len()).ok()?;
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        timeout(SILENCE, stream.write_all(&framed)).await.ok()?.ok()?;
    }
}
