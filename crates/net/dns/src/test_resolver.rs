//! An upstream resolver for tests, on UDP and TCP.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, SOA, TXT};
use hickory_proto::rr::{Name, RData, Record};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

use crate::reply::Transport;

/// Returns the messages to send for a request, in order.
pub(crate) type Respond = dyn Fn(&Message, Transport) -> Vec<Message> + Send + Sync;

/// A running resolver.
pub(crate) struct TestResolver {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<(Transport, Message)>>>,
}

impl TestResolver {
    /// Starts a resolver that responds over UDP after `gate` is cancelled.
    pub async fn start_gated(
        gate: CancellationToken,
        respond: impl Fn(&Message, Transport) -> Vec<Message> + Send + Sync + 'static,
    ) -> Self {
        let (tcp, udp) = bind_sockets().await;
        let address = tcp.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<_>>> = Arc::default();
        let respond: Arc<Respond> = Arc::new(respond);
        drop(tokio::spawn(serve_udp(
            udp,
            requests.clone(),
            respond.clone(),
            gate,
        )));
        drop(tokio::spawn(serve_tcp(tcp, requests.clone(), respond)));
        Self { address, requests }
    }

    /// Starts a resolver.
    pub async fn start(
        respond: impl Fn(&Message, Transport) -> Vec<Message> + Send + Sync + 'static,
    ) -> Self {
        let gate = CancellationToken::new();
        gate.cancel();
        Self::start_gated(gate, respond).await
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<(Transport, Message)> {
        self.requests.lock().clone()
    }
}

/// Binds one port for both transports. A request of another test may have the port that the kernel
/// chose for TCP.
async fn bind_sockets() -> (TcpListener, Arc<UdpSocket>) {
    loop {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
            return (tcp, Arc::new(udp));
        }
    }
}

async fn serve_udp(
    socket: Arc<UdpSocket>,
    requests: Arc<Mutex<Vec<(Transport, Message)>>>,
    respond: Arc<Respond>,
    gate: CancellationToken,
) {
    let mut buffer = [0; 4096];
    while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
        let request = Message::from_vec(&buffer[..length]).unwrap();
        requests.lock().push((Transport::Udp, request.clone()));
        let (socket, respond, gate) = (socket.clone(), respond.clone(), gate.clone());
        drop(tokio::spawn(async move {
            gate.cancelled().await;
            for response in respond(&request, Transport::Udp) {
                socket
                    .send_to(&response.to_vec().unwrap(), peer)
                    .await
                    .unwrap();
            }
        }));
    }
}

async fn serve_tcp(
    listener: TcpListener,
    requests: Arc<Mutex<Vec<(Transport, Message)>>>,
    respond: Arc<Respond>,
) {
    // Kept open: without a response, a connection hangs.
    let mut silent = Vec::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        let length = stream.read_u16().await.unwrap();
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await.unwrap();
        let request = Message::from_vec(&bytes).unwrap();
        requests.lock().push((Transport::Tcp, request.clone()));
        for response in respond(&request, Transport::Tcp) {
            let bytes = response.to_vec().unwrap();
            let length = u16::try_from(bytes.len()).unwrap();
            stream.write_all(&length.to_be_bytes()).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
        }
        silent.push(stream);
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

/// Returns a response to a request.
pub(crate) fn response_to(request: &Message, code: ResponseCode) -> Message {
    let mut response = Message::response(request.metadata.id, OpCode::Query);
    response.metadata.response_code = code;
    response.metadata.recursion_available = true;
    response.queries.clone_from(&request.queries);
    response
}

/// Returns a response with address records of the requested name.
pub(crate) fn addresses(request: &Message, ttl: u32, last: &[u8]) -> Message {
    let mut response = response_to(request, ResponseCode::NoError);
    let name = request.queries[0].name();
    response.add_answers(last.iter().map(|last| address(name, ttl, *last)));
    response
}

pub(crate) fn address(name: &Name, ttl: u32, last: u8) -> Record {
    Record::from_rdata(name.clone(), ttl, RData::A(A::new(192, 0, 2, last)))
}

pub(crate) fn alias(from: &str, to: &str, ttl: u32) -> Record {
    Record::from_rdata(name(from), ttl, RData::CNAME(CNAME(name(to))))
}

pub(crate) fn text(owner: &Name, length: usize) -> Record {
    let data = TXT::new(vec!["x".repeat(length)]);
    Record::from_rdata(owner.clone(), 60, RData::TXT(data))
}

pub(crate) fn soa(zone: &str, ttl: u32, minimum: u32) -> Record {
    let data = SOA::new(name("ns."), name("mail."), 1, 1, 1, 1, minimum);
    Record::from_rdata(name(zone), ttl, RData::SOA(data))
}
