//! Binding ports, with errors that say what to do.

use std::net::SocketAddr;
use std::path::Path;
use tokio::net::TcpListener;

/// A port that can't be had.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody listens there.
    #[error("address {0} is in use: stop what listens there (ss -ltnp), or choose another port")]
    InUse(SocketAddr),
    /// Anything else.
    #[error("can't listen on {addr}")]
    Other {
        /// The address.
        addr: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Listens on `addr`; port 0 lets the kernel pick.
///
/// # Errors
/// See `ListenError`.
pub async fn bind(addr: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(addr).await.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => ListenError::InUse(addr),
        _ => ListenError::Other { addr, source },
    })
}

/// Writes the port that was got to `path`, whole or not at all.
///
/// # Errors
/// The file can't be written.
pub fn write_port_file(path: &Path, port: u16) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    std::fs::write(&temporary, format!("{port}\n"))?;
    std::fs::rename(temporary, path)
}
