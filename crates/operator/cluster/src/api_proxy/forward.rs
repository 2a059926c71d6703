//! Passes connections on to API servers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::servers::Servers;

/// Time to connect to one server: the machines are close to each other.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which one direction of a connection may outlive the other. A client that ignores the
/// end of the server would occupy its place without a limit.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after an error of accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections at the same time. The components of a machine have some dozens.
const MAX_CONNECTIONS: usize = 4096;
/// Open files for anything else: health checks, the watch, the log.
const OTHER_FILES: u64 = 64;

/// Returns the number of connections at the same time, of which each has two open files.
pub(super) fn limit_connections(open_files: Option<u64>) -> usize {
    let Some(open_files) = open_files else {
        return MAX_CONNECTIONS;
    };
    let possible = open_files.saturating_sub(OTHER_FILES) / 2;
    usize::try_from(possible)
        .unwrap_or(MAX_CONNECTIONS)
        .clamp(1, MAX_CONNECTIONS)
}

/// Accepts connections until it is dropped.
pub(super) async fn accept_connections(listener: TcpListener, servers: Arc<Servers>, limit: usize) {
    let mut connections = JoinSet::new();
    let mut number = 0usize;
    loop {
        // A JoinSet keeps the results of ended tasks until they are taken.
        while connections.try_join_next().is_some() {}
        // Further clients wait in the kernel's backlog instead of failing for lack of open files.
        if connections.len() >= limit {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                number = number.wrapping_add(1);
                connections.spawn(forward_connection(stream, servers.clone(), number));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection can't be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn forward_connection(client: TcpStream, servers: Arc<Servers>, number: usize) {
    let Some((server, lost)) = connect_server(&servers, number).await else {
        tracing::warn!("no API server accepts a connection");
        return;
    };
    tokio::select! {
        () = copy_both(client, server) => {}
        () = lost.cancelled() => {}
    }
}

/// Copies in both directions. After the end of one, the other has [`HALF_CLOSED_TIMEOUT`] to end.
/// Errors are those of client and server, which notice them too.
async fn copy_both(mut client: TcpStream, mut server: TcpStream) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let request = copy_to_end(&mut from_client, &mut to_server);
    let response = copy_to_end(&mut from_server, &mut to_client);
    tokio::pin!(request, response);
    tokio::select! {
        () = &mut request => {
            let _ = timeout(HALF_CLOSED_TIMEOUT, response).await;
        }
        () = &mut response => {
            let _ = timeout(HALF_CLOSED_TIMEOUT, request).await;
        }
    }
}

async fn copy_to_end(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) {
    let _ = copy(from, to).await;
    // Passes on that one direction has ended: in TLS 1.3 the other may continue (RFC 8446, section
    // 6.1).
    let _ = to.shutdown().await;
}

/// Connects to the first server that accepts.
async fn connect_server(
    servers: &Servers,
    number: usize,
) -> Option<(TcpStream, CancellationToken)> {
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
    use tokio::io::AsyncReadExt;

    use super::super::servers::CheckResult::{Failed, Passed};
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
            None,
            std::slice::from_ref(&other),
        ));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn(accept_connections(listener, servers.clone(), 16));
        let open = async || {
            let mut stream = TcpStream::connect(address).await.unwrap();
            (stream.read_u8().await.unwrap(), stream)
        };
        let (letter, mut first) = open().await;
        assert_eq!(letter, b'l');
        servers.record_checks(&local, &[Failed]);
        servers.record_checks(&other, &[Passed]);
        servers.record_checks(&local, &[Failed]);
        assert!(first.read_u8().await.is_err(), "the connection is closed");
        let (letter, mut second) = open().await;
        assert_eq!(letter, b'o');
        servers.record_checks(&local, &[Passed]);
        assert_eq!(open().await.0, b'l');
        // Without a healthy server connections stay: the last one may be slow only.
        servers.record_checks(&local, &[Failed; 2]);
        servers.record_checks(&other, &[Failed; 2]);
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
        let servers = Servers::new(Some(dead), None, &[other]);
        let (mut stream, _) = connect_server(&servers, 0).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'o');
    }

    /// The paused clock advances as soon as every task waits.
    #[tokio::test(start_paused = true)]
    async fn connection_ends_soon_after_one_of_its_directions() {
        for server_ends in [true, false] {
            let connect = async || {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
                (near.unwrap(), far.unwrap().0)
            };
            let ((mut client, from_client), (to_server, mut server)) =
                (connect().await, connect().await);
            let began = tokio::time::Instant::now();
            // Only one of both ends; the other ignores it.
            let ending = if server_ends {
                &mut server
            } else {
                &mut client
            };
            ending.shutdown().await.unwrap();
            copy_both(from_client, to_server).await;
            let elapsed = began.elapsed();
            assert_eq!(elapsed.as_secs(), HALF_CLOSED_TIMEOUT.as_secs());
        }
    }

    #[test]
    fn connections_fit_into_the_limit_of_open_files() {
        for (files, expected) in [
            (None, MAX_CONNECTIONS),
            (Some(1_048_576), MAX_CONNECTIONS),
            (Some(1024), 480),
            (Some(10), 1),
        ] {
            assert_eq!(limit_connections(files), expected, "{files:?}");
        }
    }
}
