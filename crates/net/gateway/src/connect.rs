//! TCP connections to endpoints, and what those of both versions of HTTP share.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time to establish a connection.
pub(crate) const CONNECT: Duration = Duration::from_secs(3);
/// Time for which an idle connection is kept; shorter than that of common servers.
pub(crate) const KEEP: Duration = Duration::from_secs(30);

/// Maximum number of idle connections to an endpoint, and to all; of each version of HTTP.
pub(crate) const MAX_IDLE_OF_ENDPOINT: usize = 64;
pub(crate) const MAX_IDLE: usize = 2048;

/// Error of connecting.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The endpoint refuses or does not respond.
    #[error("can't connect")]
    Connect(#[from] std::io::Error),
    /// The endpoint does not respond in time.
    #[error("no connection within 3 s")]
    Timeout,
    /// The connection failed at once.
    #[error("the connection failed")]
    Handshake(#[from] hyper::Error),
}

/// Opens a connection.
pub(crate) async fn connect_tcp(endpoint: SocketAddr) -> Result<TcpStream, ConnectError> {
    let connecting = timeout(CONNECT, TcpStream::connect(endpoint));
    let stream = connecting.await.map_err(|_| ConnectError::Timeout)??;
    // The connection works without the option too.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}
