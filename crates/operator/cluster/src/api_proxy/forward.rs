//! Passes connections on to API servers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::servers::Servers;

/// Time to connect to one server: the machines are close to each other.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after an error of accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections at the same time. The components of a machine have some dozens.
const MAX_CONNECTIONS: usize = 4096;

/// Accepts connections until it is dropped.
pub(super) async fn accept_connections(listener: TcpListener, servers: Arc<Servers>) {
    let mut connections = JoinSet::new();
    let mut number = 0usize;
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                number = number.wrapping_add(1);
                connections.spawn(forward(stream, servers.clone(), number));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection can't be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn forward(mut client: TcpStream, servers: Arc<Servers>, number: usize) {
    let Some((mut server, lost)) = connect(&servers, number).await else {
        tracing::warn!("no API server accepts a connection");
        return;
    };
    // An end of either side ends the connection; its errors are those of the client.
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        () = lost.cancelled() => {}
    }
}

/// Connects to the first server that accepts.
async fn connect(servers: &Servers, number: usize) -> Option<(TcpStream, CancellationToken)> {
    for (name, lost) in servers.in_order(number) {
        match connect_to(&name).await {
            Ok(stream) => return Some((stream, lost)),
            Err(error) => tracing::debug!(server = name, %error, "trying the next API server"),
        }
    }
    None
}

async fn connect_to(name: &str) -> io::Result<TcpStream> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(name)).await??;
    // Requests are small, and wait for their responses.
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Starts a server that sends its letter on each connection and keeps it open.
    async fn start_server(letter: u8, tasks: &mut JoinSet<()>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let name = listener.local_addr().unwrap().to_string();
        tasks.spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(&[letter]).await.unwrap();
                open.push(stream);
            }
        });
        name
    }

    #[tokio::test]
    async fn connection_moves_from_a_server_that_fails_its_checks() {
        let mut tasks = JoinSet::new();
        let local = start_server(b'l', &mut tasks).await;
        let other = start_server(b'o', &mut tasks).await;
        let servers = Arc::new(Servers::new(
            Some(local.clone()),
            std::slice::from_ref(&other),
        ));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn(accept_connections(listener, servers.clone()));
        let open = async || {
            let mut stream = TcpStream::connect(address).await.unwrap();
            (stream.read_u8().await.unwrap(), stream)
        };
        let (letter, mut first) = open().await;
        assert_eq!(letter, b'l');
        servers.set_health(&local, false);
        assert!(first.read_u8().await.is_err(), "the connection is closed");
        let (letter, mut second) = open().await;
        assert_eq!(letter, b'o');
        servers.set_health(&local, true);
        assert_eq!(open().await.0, b'l');
        // Without a healthy server connections stay: the last one may be slow only.
        servers.set_health(&local, false);
        servers.set_health(&other, false);
        let closed = timeout(Duration::from_millis(50), second.read_u8()).await;
        assert!(closed.is_err(), "the connection stays");
        assert_eq!(open().await.0, b'l', "all are tried");
    }

    #[tokio::test]
    async fn server_that_refuses_connections_is_passed_over() {
        let mut tasks = JoinSet::new();
        let other = start_server(b'o', &mut tasks).await;
        // Bound and not listening.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let dead = socket.local_addr().unwrap().to_string();
        let servers = Servers::new(Some(dead), &[other]);
        let (mut stream, _) = connect(&servers, 0).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'o');
    }
}
