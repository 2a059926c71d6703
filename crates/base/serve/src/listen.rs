//! Binds ports, with errors that name a remedy.

use std::net::SocketAddr;
use std::path::Path;
use tokio::net::TcpListener;

/// Error of binding a port.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process listens on the port.
    #[error("address {0} is in use: stop what listens there (ss -ltnp), or choose another port")]
    InUse(SocketAddr),
    /// Any other error.
    #[error("can't listen on {addr}")]
    Other {
        /// The address.
        addr: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
}

/// Listens on `addr`; port 0 lets the kernel pick.
///
/// # Errors
/// See `ListenError`.
pub async fn bind_listener(addr: SocketAddr) -> Result<TcpListener, ListenError> {
    // tokio sets SO_REUSEADDR: a restarted component can bind its port while old connections are in
    // TIME_WAIT.
    TcpListener::bind(addr)
        .await
        .map_err(|source| match source.kind() {
            std::io::ErrorKind::AddrInUse => ListenError::InUse(addr),
            _ => ListenError::Other { addr, source },
        })
}

/// Writes the bound port to `path` atomically.
///
/// # Errors
/// Writing the file fails.
pub fn write_port_file(path: &Path, port: u16) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    std::fs::write(&temporary, format!("{port}\n"))?;
    std::fs::rename(temporary, path)
}
