//! A proxy from a machine's loopback address to the API servers of its cluster, so that its
//! components survive the loss of any of them. TLS passes through it: it sees no request and has no
//! key.

mod admin_servers;
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

use crate::api_endpoints::load_servers;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::settings::Settings;
use servers::Servers;

/// Runs the proxy of the cluster in `data_dir` until `shutdown`.
///
/// # Errors
/// The machine has no proxy, or the port of the proxy is in use.
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
    let servers = Arc::new(Servers::new(local, joined, &load_servers(&layout)));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.ports.api_proxy));
    let listener = match take_socket(std::io::stdin().as_fd(), address)? {
        Some(listener) => listener,
        None => bind_without_supervisor(address).await?,
    };
    tracing::info!(%address, servers = servers.list().join(", "), "connecting to API servers");
    let mut tasks = JoinSet::new();
    let limit = forward::limit_connections(raise_file_limit());
    tasks.spawn(forward::accept_connections(
        listener,
        servers.clone(),
        limit,
    ));
    tasks.spawn(health::check_servers(servers.clone(), layout.clone()));
    // A worker lacks the administrator's credentials, with which the slices are changed and the
    // Nodes are read.
    if settings.control_plane.is_some() {
        let (copy, root) = (settings.clone(), layout.clone());
        tasks.spawn(admin_servers::follow_machines(copy, root));
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

/// Returns the socket that the supervisor passes as standard input; None if the input is none at
/// `address`.
fn take_socket(input: BorrowedFd<'_>, address: SocketAddr) -> Result<Option<TcpListener>> {
    let input = input.try_clone_to_owned().map(std::net::TcpListener::from);
    // Without a supervisor, standard input is a terminal, a pipe or `/dev/null`.
    let is_passed =
        |socket: &std::net::TcpListener| socket.local_addr().is_ok_and(|found| found == address);
    let Some(socket) = input.ok().filter(is_passed) else {
        return Ok(None);
    };
    // The supervisor's listener is a blocking one, and tokio requires the other mode.
    let listener = socket
        .set_nonblocking(true)
        .and_then(|()| TcpListener::from_std(socket));
    listener.map(Some).map_err(Error::io(address.to_string()))
}

/// Binds the port as long as a supervisor of an earlier release runs, which passes no socket: a new
/// release does not replace it before the machine starts again.
async fn bind_without_supervisor(address: SocketAddr) -> Result<TcpListener> {
    tracing::warn!(
        %address,
        "the supervisor is one of an earlier release and does not keep the port; replace it as \
         docs/operations/upgrade.md describes"
    );
    TcpListener::bind(address)
        .await
        .map_err(Error::io(address.to_string()))
}

/// Raises the limit of open files to the highest that the process may have; returns it. Without
/// systemd it is often 1024, which is less than the connections need.
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
    async fn socket_of_another_address_and_other_inputs_are_not_taken() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let listener = take_socket(socket.as_fd(), address).unwrap().unwrap();
        let (connected, accepted) =
            tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
        assert!(connected.is_ok() && accepted.is_ok());
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        for input in [other.as_fd(), file.as_fd()] {
            assert!(take_socket(input, address).unwrap().is_none());
        }
    }

    /// `ironclad init` with a new release while the supervisor is one of the release before.
    #[tokio::test]
    async fn proxy_of_an_earlier_supervisor_binds_its_port() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        assert!(bind_without_supervisor(address).await.is_err());
        drop(free);
        // Other tests start processes, which have all sockets for a moment.
        assert!(crate::checks::wait_until_port_free(address.port()));
        let listener = bind_without_supervisor(address).await.unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
    }
}
