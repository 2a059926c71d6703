//! Putting it together.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use base_task::Tasks;
use client::Client;
use hickory_proto::rr::Name;
use ipnet::IpNet;
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};

use crate::clients::Clients;
use crate::forward::Upstreams;
use crate::server::{Server, bind, serve};
use crate::view::Informed;

/// What the server is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to serve.
    pub listen: SocketAddr,
    /// The cluster's domain.
    pub domain: String,
    /// Resolvers for all other names.
    pub upstreams: Vec<SocketAddr>,
    /// Ranges of clients that are served; empty for private and loopback addresses.
    pub allow: Vec<IpNet>,
    /// Where to serve health checks.
    pub health: Option<SocketAddr>,
    /// User and group to become once the ports are bound; without it, or if not root, the process stays what it is.
    pub user: Option<u32>,
}

/// Runs until the group is told to stop.
pub async fn run(client: &Client, settings: Settings, tasks: Tasks) -> anyhow::Result<()> {
    let domain = Name::from_ascii(format!("{}.", settings.domain.trim_matches('.')))
        .with_context(|| format!("{:?} is not a domain name", settings.domain))?;
    let sockets = bind(settings.listen).await?;
    let view = Informed::start(client, &tasks);
    if let Some(address) = settings.health {
        crate::health::serve(address, view.clone(), &tasks).await?;
    }
    if let Some(user) = settings.user {
        drop_privileges(user).with_context(|| format!("can't become user {user}"))?;
    }
    let upstreams = Upstreams::new(settings.upstreams, settings.listen);
    let clients = Clients::new(settings.allow);
    let server = Arc::new(Server { view: Box::new(view.clone()), domain, upstreams, clients });
    tracing::info!(listen = %settings.listen, "serving names");
    serve(&server, sockets, &tasks);
    tokio::select! {
        () = view.synced() => tracing::info!("informers synced"),
        () = tasks.shutdown().cancelled() => {}
    }
    tasks.shutdown().cancelled().await;
    Ok(())
}

/// Gives root up for good, in all threads: user, group and no further groups, hence no capabilities.
///
/// # Errors
/// The kernel refused; the process must not go on.
pub fn drop_privileges(user: u32) -> nix::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    setgroups(&[])?;
    setgid(Gid::from_raw(user))?;
    setuid(Uid::from_raw(user))
}
