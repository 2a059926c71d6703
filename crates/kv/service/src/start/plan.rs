//! Checks the flags and opens the ports.

use crate::listen::{self, Port};
use anyhow::{Result, bail};
use kv_config::{
    CorruptionChecks, PeerAccess, Retention, ServeFlags, ServerUrl, parse_duration, parse_urls,
    tls_config,
};
use kv_raft::PeerTls;
use kv_rpc::{Jwt, ServerLimits, SlowLimits};
use kv_transport::{ConnectionOptions, Socket, socket_url, split_sockets};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

// etcd's default, so that the NOSPACE alarm comes at the size that operators know.
const DEFAULT_QUOTA: u64 = 2 << 30;

/// Default interval of etcd's lease checkpoints.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(300);

/// TLS of a listener.
pub type TlsConfig = Arc<base_tls::rustls::ServerConfig>;

/// The checked settings of the flags, and the open ports.
pub struct Plan {
    pub client_ports: Vec<Port>,
    pub client_sockets: Vec<Socket>,
    pub peer_ports: Vec<Port>,
    pub metrics_ports: Vec<Port>,
    pub client_urls: Vec<String>,
    pub peer_urls: Vec<String>,
    pub initial_cluster: String,
    pub data_dir: PathBuf,
    pub bounds: ServerLimits,
    pub connected: ConnectionOptions,
    pub checks: CorruptionChecks,
    pub jwt: Option<Arc<Jwt>>,
    pub client_tls: Option<TlsConfig>,
    pub peer_tls: Option<TlsConfig>,
    pub outgoing_tls: PeerTls,
    pub access: PeerAccess,
}

fn server_limits(flags: &ServeFlags, access: PeerAccess) -> Result<ServerLimits> {
    // etcd's rule: one lost heartbeat must not start an election.
    if flags.election_timeout < 5 * flags.heartbeat_interval {
        bail!(
            "--election-timeout {} must be at least five times --heartbeat-interval {}",
            flags.election_timeout,
            flags.heartbeat_interval
        );
    }
    let quota = match flags.quota_backend_bytes {
        0 => DEFAULT_QUOTA,
        bytes => u64::try_from(bytes).unwrap_or(u64::MAX),
    };
    Ok(ServerLimits {
        max_request: flags.max_request_bytes,
        // etcd's formula: five seconds for the disk, and two elections that may happen meanwhile.
        request_timeout: Duration::from_secs(5) + Duration::from_millis(2 * flags.election_timeout),
        // A lease must survive an election, in which nothing renews it.
        min_lease_ttl: i64::try_from((3 * flags.election_timeout / 2).div_ceil(1_000))
            .unwrap_or(2)
            .max(1),
        quota,
        progress_interval: parse_duration(
            "watch-progress-notify-interval",
            &flags.watch_progress_notify_interval,
            Duration::from_secs(1),
        )?,
        client_cert_auth: flags.client_cert_auth,
        max_learners: flags.max_learners,
        strict_reconfig: flags.strict_reconfig_check,
        slow: SlowLimits {
            request: parse_duration(
                "warning-unary-request-duration",
                &flags.warning_unary_request_duration,
                Duration::from_nanos(1),
            )?,
            apply: parse_duration(
                "warning-apply-duration",
                &flags.warning_apply_duration,
                Duration::from_nanos(1),
            )?,
        },
        checkpoint_every: CHECKPOINT_EVERY,
        detailed_metrics: flags.metrics == "extensive",
        insecure_members: flags.allow_insecure_peers,
        access,
    })
}

/// The URLs and sockets to listen on.
struct Listeners {
    /// Paths of Unix sockets for clients.
    sockets: Vec<PathBuf>,
    client: Vec<ServerUrl>,
    peer: Vec<ServerUrl>,
    /// Metrics and health.
    pages: Vec<ServerUrl>,
}

fn parse_listeners(flags: &ServeFlags) -> Result<Listeners> {
    let (sockets, client) = split_sockets("listen-client-urls", &flags.listen_client_urls)?;
    let client = parse_urls("listen-client-urls", &client)?;
    let peer = parse_urls("listen-peer-urls", &flags.listen_peer_urls)?;
    let mut pages = parse_urls("listen-metrics-urls", &flags.listen_metrics_urls)?;
    pages.extend(parse_urls(
        "listen-client-http-urls",
        &flags.listen_client_http_urls,
    )?);
    if client.is_empty() && sockets.is_empty() || peer.is_empty() {
        bail!("--listen-client-urls and --listen-peer-urls need a URL each");
    }
    Ok(Listeners {
        sockets,
        client,
        peer,
        pages,
    })
}

/// Loads the certificates of clients' and peers' listeners.
fn load_certificates(
    flags: &ServeFlags,
    listeners: &Listeners,
) -> Result<(Option<TlsConfig>, Option<TlsConfig>)> {
    // An error at the start is better than a port that fails every handshake.
    let mut client_urls = listeners.client.iter().chain(&listeners.pages);
    let secure = client_urls.any(|url| url.secure);
    if secure && (flags.cert_file.is_none() || flags.key_file.is_none()) {
        bail!(
            "https for clients (--listen-client-urls and the like) needs --cert-file and --key-file"
        );
    }
    let client_tls = tls_config(&flags.client_files()?)?;
    let peer_tls = tls_config(&flags.peer_files()?)?;
    if listeners.peer.iter().any(|url| url.secure) && peer_tls.is_none() {
        bail!("--listen-peer-urls has https, which needs --peer-cert-file and --peer-key-file");
    }
    Ok((client_tls, peer_tls))
}

/// Checks the flags, then opens all ports.
pub async fn make_plan(flags: &ServeFlags) -> Result<Plan> {
    let checks = flags.corruption.parse()?;
    flags.check_tls()?;
    let jwt = Jwt::from_flag(&flags.auth_token)?.map(Arc::new);
    let listeners = parse_listeners(flags)?;
    // Before any port opens: a peer port without mutual TLS gives access to all data.
    let access = PeerAccess::decide(flags, &listeners.peer)?;
    let bounds = server_limits(flags, access)?;
    let (client_tls, peer_tls) = load_certificates(flags, &listeners)?;
    let outgoing_tls = PeerTls::default();
    *outgoing_tls.write() = crate::peer_tls::outgoing_config(flags)?;
    // Only checked here, so that a wrong value fails before the data directory is touched.
    Retention::parse(flags)?;
    // After the checks above, so that a wrong flag opens no port, and before the URLs are
    // advertised, because port 0 is known only now.
    let client_ports = listen::bind_urls(&listeners.client).await?;
    let peer_ports = if access == PeerAccess::Closed {
        Vec::new()
    } else {
        listen::bind_urls(&listeners.peer).await?
    };
    let metrics_ports = listen::bind_urls(&listeners.pages).await?;
    let paths = listeners.sockets.iter();
    let client_sockets = paths
        .map(|path| Socket::bind(path))
        .collect::<Result<Vec<_>>>()?;
    let client_urls = client_urls(flags, bound_urls(&client_ports), &client_sockets)?;
    let bound = match access {
        // A closed port has no number, but the member's ID is derived from its URLs and must stay
        // the same once it opens.
        PeerAccess::Closed => url_texts(&listeners.peer),
        PeerAccess::Mutual | PeerAccess::Insecure => bound_urls(&peer_ports),
    };
    let peer_urls = match &flags.initial_advertise_peer_urls {
        Some(list) => url_texts(&parse_urls("initial-advertise-peer-urls", list)?),
        None => bound,
    };
    Ok(Plan {
        client_ports,
        client_sockets,
        peer_ports,
        metrics_ports,
        client_urls,
        initial_cluster: initial_cluster(flags, &peer_urls),
        peer_urls,
        data_dir: flags.data_folder(),
        bounds,
        connected: flags.connections.parse()?,
        checks,
        jwt,
        client_tls,
        peer_tls,
        outgoing_tls,
        access,
    })
}

/// Returns `--initial-cluster`, or a cluster of this member alone.
fn initial_cluster(flags: &ServeFlags, peer_urls: &[String]) -> String {
    let own = peer_urls.iter().map(|url| format!("{}={url}", flags.name));
    let own = own.collect::<Vec<_>>().join(",");
    flags.initial_cluster.clone().unwrap_or(own)
}

fn bound_urls(ports: &[Port]) -> Vec<String> {
    let mut urls: Vec<String> = ports.iter().map(|port| port.url.clone()).collect();
    urls.dedup();
    urls
}

fn url_texts(urls: &[ServerUrl]) -> Vec<String> {
    urls.iter().map(|url| url.text.clone()).collect()
}

/// Returns the advertised client URLs: those of the flag, or those of the listeners.
fn client_urls(flags: &ServeFlags, bound: Vec<String>, sockets: &[Socket]) -> Result<Vec<String>> {
    let Some(list) = &flags.advertise_client_urls else {
        return Ok(bound
            .into_iter()
            .chain(sockets.iter().map(Socket::url))
            .collect());
    };
    let (paths, others) = split_sockets("advertise-client-urls", list)?;
    let others = url_texts(&parse_urls("advertise-client-urls", &others)?);
    Ok(others
        .into_iter()
        .chain(paths.iter().map(|path| socket_url(path)))
        .collect())
}
