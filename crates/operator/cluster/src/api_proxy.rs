//! A proxy from a machine's loopback address to the API servers of its cluster, so that its components
//! survive the loss of any of them. TLS passes through it: it sees no request and has no key.

mod choose;
mod dns_endpoints;
mod follow;
mod forward;
mod health;
mod servers;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::settings::Settings;
use servers::Servers;

/// Runs the proxy of the cluster in `data_dir` until `shutdown`.
///
/// # Errors
/// The machine has no proxy, or the supervisor did not start this process.
pub async fn run_api_proxy(data_dir: &Path, shutdown: CancellationToken) -> Result<()> {
    let settings = Settings::load_existing(data_dir)?;
    if !settings.has_api_proxy() {
        return Err(Error::Refused(
            "this cluster has one API server, and its components connect to that".to_owned(),
        ));
    }
    let layout = Layout::for_settings(&settings);
    let local = settings
        .control_plane
        .is_some()
        .then(|| format!("127.0.0.1:{}", settings.ports.api));
    let joined = follow::find_join_server(&settings);
    let servers = Arc::new(Servers::new(local, joined, &follow::load_servers(&layout)));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.ports.api_proxy));
    let listener = take_socket(std::io::stdin().as_fd(), address)?;
    tracing::info!(%address, servers = servers.list().join(", "), "connecting to API servers");
    let mut tasks = JoinSet::new();
    let limit = forward::limit_connections(raise_file_limit());
    tasks.spawn(forward::accept_connections(
        listener,
        servers.clone(),
        limit,
    ));
    tasks.spawn(health::check_servers(servers.clone(), layout.clone()));
    if settings.control_plane.is_some() {
        let (servers, settings) = (servers.clone(), settings.clone());
        tasks.spawn(dns_endpoints::follow_machines(
            servers,
            settings,
            layout.clone(),
        ));
    }
    tasks.spawn(follow::follow_servers(servers, settings, layout));
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        // None of them ends unless it panics; the supervisor starts the proxy again.
        _ = tasks.join_next() => Err(Error::Refused("a task of the proxy failed".to_owned())),
    }
}

/// Returns the socket that the supervisor passes as standard input.
fn take_socket(input: BorrowedFd<'_>, address: SocketAddr) -> Result<TcpListener> {
    let failed = Error::io(address.to_string());
    let input = input.try_clone_to_owned().map(std::net::TcpListener::from);
    let socket = input
        .ok()
        .filter(|socket| socket.local_addr().ok() == Some(address));
    let socket = socket.ok_or_else(|| {
        Error::Refused(format!(
            "the standard input is not the socket of {address}, which the supervisor passes to the proxy; `ironclad up` or \
             `ironclad join` starts both"
        ))
    })?;
    socket
        .set_nonblocking(true)
        .and_then(|()| TcpListener::from_std(socket))
        .map_err(failed)
}

/// Raises the limit of open files to the highest that the process may have; returns it. Without systemd it is
/// often 1024, which is less than the connections need.
fn raise_file_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files stays");
            limit.current
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn socket_of_another_address_and_other_inputs_are_rejected() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let listener = take_socket(socket.as_fd(), address).unwrap();
        let (connected, accepted) =
            tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
        assert!(connected.is_ok() && accepted.is_ok());
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        for input in [other.as_fd(), file.as_fd()] {
            let error = take_socket(input, address).unwrap_err().to_string();
            assert!(error.contains("the supervisor passes"), "{error}");
        }
    }
}
