//! Assembles and runs the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use base_task::Tasks;
use client::Client;
use hickory_proto::rr::Name;
use ipnet::IpNet;
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};

use crate::answer_cache::AnswerCache;
use crate::clients::Clients;
use crate::forwarder::Forwarder;
use crate::health::serve_health;
use crate::metrics::Metrics;
use crate::search_path::SearchPaths;
use crate::server::Server;
use crate::sockets::{Sockets, serve_dns};
use crate::stub_domain::{StubDomain, sort_stub_domains};
use crate::view::{Extras, InformerView};

/// The server's settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Listen address.
    pub listen: SocketAddr,
    /// DNS domain of the cluster.
    pub domain: String,
    /// Resolvers of names outside of the cluster and of all stub domains.
    pub upstreams: Vec<SocketAddr>,
    /// Domains with resolvers of their own.
    pub stub_domains: Vec<StubDomain>,
    /// Maximum time for which answers of resolvers are cached; if None, they are not.
    pub cache_ttl: Option<Duration>,
    /// Ranges of allowed clients; empty for private and loopback addresses.
    pub allow: Vec<IpNet>,
    /// If set, addresses of the cluster's nodes are allowed, too.
    pub allow_nodes: bool,
    /// Listen address of health checks and metrics.
    pub health: Option<SocketAddr>,
    /// If set, the first name of a pod's search path is answered for the whole path.
    pub search_paths: Option<SearchPaths>,
    /// User and group to switch to once the ports are bound; if None, or if the process is not
    /// root, it keeps its user.
    pub user: Option<u32>,
}

/// Runs until shutdown.
pub async fn run(client: &Client, settings: Settings, tasks: Tasks) -> anyhow::Result<()> {
    let domain = Name::from_ascii(format!("{}.", settings.domain.trim_matches('.')))
        .with_context(|| format!("{:?} is not a domain name", settings.domain))?;
    let stub_domains = sort_stub_domains(settings.stub_domains, &domain)?;
    // Before the privileges are dropped: port 53 needs them.
    let sockets = Sockets::bind(settings.listen).await?;
    let health = match settings.health {
        Some(address) => Some(base_serve::bind_listener(address).await?),
        None => None,
    };
    if settings.user.is_some() {
        // Read as root: the first connection is opened after root has been dropped.
        client.load_credentials()?;
    }
    // Started at once: syncing takes longer than everything else.
    let extras = Extras {
        pods: settings.search_paths.is_some(),
        nodes: settings.allow_nodes,
    };
    let view = InformerView::start(client, &tasks, extras);
    let cache = settings.cache_ttl.map(AnswerCache::new);
    let forwarder = Forwarder::new(settings.upstreams, stub_domains, settings.listen, cache);
    let metrics = Metrics::new(settings.listen, forwarder.domains());
    let server = Arc::new(Server {
        view: Box::new(view.clone()),
        domain,
        forwarder,
        clients: Clients::new(settings.allow),
        search_paths: settings.search_paths,
        metrics,
    });
    if let Some(listener) = health {
        serve_health(listener, client, &server, &tasks);
    }
    // After all sockets are bound, and before the first packet of a pod is parsed.
    if let Some(user) = settings.user {
        drop_privileges(user).with_context(|| format!("can't become user {user}"))?;
        // Checked now, because the first renewal, months later, would fail otherwise.
        base_task::blocking(|| client.config().check_files())
            .with_context(|| format!("user {user} can't read the files of the kubeconfig"))?;
    }
    tracing::info!(listen = %settings.listen, "serving names");
    // Serves before the informers have synced: names outside of the zone can be forwarded.
    serve_dns(&server, sockets, &tasks);
    tokio::select! {
        () = view.wait_until_synced() => tracing::info!("informers synced"),
        () = tasks.shutdown().cancelled() => {}
    }
    tasks.shutdown().cancelled().await;
    Ok(())
}

/// Drops root permanently, in all threads: user, group and supplementary groups, and with them all
/// capabilities.
///
/// # Errors
/// The kernel rejected a call; the process must not continue.
pub fn drop_privileges(user: u32) -> nix::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    // The order matters: without root neither the groups nor the group id can be changed.
    setgroups(&[])?;
    setgid(Gid::from_raw(user))?;
    setuid(Uid::from_raw(user))
}
