//! A proxy from a machine's loopback address to the API servers of its cluster, so that its components
//! survive the loss of any of them. TLS passes through it: it sees no request and has no key.

mod choose;
mod dns_endpoints;
mod follow;
mod forward;
mod health;
mod servers;

use std::net::{Ipv4Addr, SocketAddr};
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
/// The machine has no proxy, or its port is in use.
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
    // On the loopback address only: the proxy passes on what it receives without a check.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.ports.api_proxy));
    let listener = TcpListener::bind(address)
        .await
        .map_err(Error::io(address.to_string()))?;
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
