//! A resolver that knows every name.

use std::net::{Ipv4Addr, SocketAddr};

use hickory_proto::op::{Message, OpCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// As long as many names of the Internet; servers cache them for 30 s.
const TTL: u32 = 300;

/// Answers every request over UDP with one address, in the background.
pub async fn spawn_resolver(
    listen: SocketAddr,
    background: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(listen).await?;
    background.spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            if let Some(response) = buffer.get(..length).and_then(respond) {
                let _ = socket.send_to(&response, peer).await;
            }
        }
    });
    Ok(())
}

fn respond(request: &[u8]) -> Option<Vec<u8>> {
    let request = Message::from_vec(request).ok()?;
    let mut response = Message::response(request.metadata.id, OpCode::Query);
    response.metadata.recursion_available = true;
    let name = request.queries.first()?.name().clone();
    let data = RData::A(A::from(Ipv4Addr::new(192, 0, 2, 1)));
    response.add_answer(Record::from_rdata(name, TTL, data));
    response.queries = request.queries;
    response.to_vec().ok()
}
