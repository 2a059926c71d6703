//! Putting it together.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use base_task::Tasks;
use client::Client;
use hickory_proto::rr::Name;
use ipnet::IpNet;

use crate::forward::Upstreams;
use crate::server::{Server, serve};
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
    /// Who may ask; empty for everybody.
    pub allow: Vec<IpNet>,
    /// Where to serve health checks.
    pub health: Option<SocketAddr>,
}

/// Runs until the group is told to stop.
pub async fn run(client: &Client, settings: Settings, tasks: Tasks) -> anyhow::Result<()> {
    let domain = Name::from_ascii(format!("{}.", settings.domain.trim_matches('.')))
        .with_context(|| format!("{:?} is not a domain name", settings.domain))?;
    let view = Informed::start(client, &tasks);
    if let Some(address) = settings.health {
        crate::health::serve(address, view.clone(), &tasks).await?;
    }
    let upstreams = Upstreams::new(settings.upstreams, settings.listen);
    let server = Arc::new(Server { view: view.clone(), domain, upstreams, allow: settings.allow });
    serve(server, settings.listen, &tasks).await?;
    tokio::select! {
        () = view.synced() => tracing::info!("the cluster is known"),
        () = tasks.shutdown().cancelled() => {}
    }
    tasks.shutdown().cancelled().await;
    Ok(())
}
