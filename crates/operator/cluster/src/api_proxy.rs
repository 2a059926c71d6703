//! A proxy from a machine's loopback address to the API servers of its cluster, so that its components
//! survive the loss of any of them. TLS passes through it: it sees no request and has no key.

mod choose;
mod dns;
mod follow;
mod forward;
mod health;
mod servers;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

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
    let servers = Arc::new(Servers::new(
        local,
        &follow::load_servers(&settings, &layout),
    ));
    // On the loopback address only: the proxy passes on what it receives without a check.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.ports.api_proxy));
    let listener = TcpListener::bind(address)
        .await
        .map_err(Error::io(address.to_string()))?;
    tracing::info!(%address, servers = servers.list().join(", "), "connecting to API servers");
    let mut tasks = JoinSet::new();
    tasks.spawn(forward::accept_connections(listener, servers.clone()));
    tasks.spawn(health::check_servers(servers.clone(), layout.clone()));
    if settings.control_plane.is_some() {
        let (servers, settings) = (servers.clone(), settings.clone());
        tasks.spawn(dns::follow_machines(servers, settings, layout.clone()));
    }
    tasks.spawn(follow::follow_servers(servers, settings, layout));
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        // None of them ends unless it panics; the supervisor starts the proxy again.
        _ = tasks.join_next() => Err(Error::Refused("a task of the proxy failed".to_owned())),
    }
}
