#![allow(clippy::unwrap_used)]
use std::net::{IpAddr, Ipv4Addr};

use base_task::CancellationToken;
use tokio::net::TcpSocket;

use super::*;
use crate::zone::tests::cluster;

const SOON: Duration = Duration::from_millis(300);

async fn start(allow: &str) -> (SocketAddr, Tasks) {
    let tasks = Tasks::new(CancellationToken::new());
    let server = Server {
        view: Box::new(cluster()),
        domain: Name::from_ascii("cluster.local.").unwrap(),
        upstreams: Upstreams::new(Vec::new(), SocketAddr::from(([127, 0, 0, 1], 53))),
        clients: Clients::new(vec![allow.parse().unwrap()]),
    };
    let sockets = bind_sockets(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .unwrap();
    let address = sockets.tcp.local_addr().unwrap();
    serve_dns(&Arc::new(server), sockets, &tasks);
    (address, tasks)
}

fn question(name: &str) -> Vec<u8> {
    let mut request = Message::new(1, MessageType::Query, OpCode::Query);
    request.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    request.to_vec().unwrap()
}

async fn ask(server: SocketAddr, bytes: &[u8]) -> Option<Message> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    socket.send_to(bytes, server).await.unwrap();
    let mut buffer = [0; 4096];
    let length = timeout(SOON, socket.recv(&mut buffer)).await.ok()?.unwrap();
    Some(Message::from_vec(&buffer[..length]).unwrap())
}

async fn connect(from: [u8; 4], server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::from(from), 0)).unwrap();
    socket.connect(server).await.unwrap()
}

/// Returns the length of the response over TCP; None if the server closed the connection.
async fn ask_over(stream: &mut TcpStream) -> Option<u16> {
    let bytes = question("w.ns.svc.cluster.local.");
    let framed = [
        &u16::try_from(bytes.len()).unwrap().to_be_bytes()[..],
        &bytes,
    ]
    .concat();
    stream.write_all(&framed).await.ok()?;
    timeout(SOON, stream.read_u16()).await.ok()?.ok()
}

#[tokio::test]
async fn client_outside_the_ranges_gets_no_answer() {
    let (server, _tasks) = start("127.0.0.2/32").await;
    assert_eq!(
        ask(server, &question("w.ns.svc.cluster.local.")).await,
        None
    );
    assert_eq!(
        ask_over(&mut connect([127, 0, 0, 1], server).await).await,
        None
    );
    assert!(
        ask_over(&mut connect([127, 0, 0, 2], server).await)
            .await
            .is_some()
    );
}

#[tokio::test]
async fn one_client_cannot_take_all_connections() {
    let (server, _tasks) = start("127.0.0.0/8").await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(connect([127, 0, 0, 1], server).await);
    }
    assert!(
        ask_over(&mut connect([127, 0, 0, 2], server).await)
            .await
            .is_some()
    );
}

#[tokio::test]
async fn request_that_panics_stops_nothing_else() {
    let (server, tasks) = start("127.0.0.0/8").await;
    assert_eq!(
        ask(server, &question("planted-panic.svc.cluster.local.")).await,
        None
    );
    assert!(
        ask(server, &question("w.ns.svc.cluster.local."))
            .await
            .is_some()
    );
    assert_eq!(tasks.failure(), None);
}
