//! Starts a member's components in the order of their dependencies, and stops them in reverse
//! order.

use crate::blocking_engine::BlockingEngine;
use crate::bootstrap::{self, Bootstrap};
use crate::corruption;
use crate::listen::{self, PeerSide, Port};
use crate::member::{self, OnRemoved, Parts};
use crate::rebuild::RebuildOptions;
use crate::tasks;
use anyhow::{Context, Result, bail};
use base_task::{CancellationToken, Tasks};
use kv_config::{
    CorruptionChecks, EngineKind, Flags, PeerAccess, RECEIVED_DIR, Retention, STATE_DIR,
    ServeFlags, ServerUrl, Subcommand, WAL_DIR, initial_members, parse_duration, parse_urls,
    tls_config, with_auto_tls,
};
use kv_engine::{Engine, EngineError, Kind, MemoryEngine};
use kv_machine::Options;
use kv_raft::{Clock, Config, PeerTls, PeerTrust};
use kv_rpc::{
    Jwt, Passwords, ServerContext, ServerLimits, SlowLimits, StoreMetrics, is_responding,
};
use kv_transport::{ConnectionOptions, Listener, Socket, socket_url, split_sockets};
use kv_wal::{Contents, DataFolder, Identity, Wal};
use proto_etcd::etcdserverpb::Member;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

// etcd's default, so that the NOSPACE alarm comes at the size that operators know.
const DEFAULT_QUOTA: u64 = 2 << 30;
/// Default interval of etcd's lease checkpoints.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(300);

/// Runs the command that the flags select.
pub async fn run(flags: Flags, shutdown: CancellationToken) -> Result<()> {
    let flags = flags.effective()?;
    match flags.command {
        Some(Subcommand::Snapshot(command)) => kv_offline::run_snapshot_command(command),
        Some(Subcommand::Check { data_dir, work_dir }) => {
            kv_offline::check_folder(&data_dir, &work_dir.unwrap_or_else(std::env::temp_dir))
        }
        None => serve_member(flags.serve, shutdown).await,
    }
}

/// The checked settings of the flags.
struct Plan {
    client_ports: Vec<Port>,
    client_sockets: Vec<Socket>,
    peer_ports: Vec<Port>,
    metrics_ports: Vec<Port>,
    client_urls: Vec<String>,
    peer_urls: Vec<String>,
    initial_cluster: String,
    data_dir: PathBuf,
    bounds: ServerLimits,
    connected: ConnectionOptions,
    checks: CorruptionChecks,
    jwt: Option<Arc<Jwt>>,
    client_tls: Option<Arc<base_tls::rustls::ServerConfig>>,
    peer_tls: Option<Arc<base_tls::rustls::ServerConfig>>,
    outgoing_tls: PeerTls,
    access: PeerAccess,
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

async fn make_plan(flags: &ServeFlags) -> Result<Plan> {
    let checks = flags.corruption.parse()?;
    flags.check_tls()?;
    let jwt = Jwt::from_flag(&flags.auth_token)?.map(Arc::new);
    let (paths, client) = split_sockets("listen-client-urls", &flags.listen_client_urls)?;
    let client = parse_urls("listen-client-urls", &client)?;
    let peer = parse_urls("listen-peer-urls", &flags.listen_peer_urls)?;
    let mut pages = parse_urls("listen-metrics-urls", &flags.listen_metrics_urls)?;
    pages.extend(parse_urls(
        "listen-client-http-urls",
        &flags.listen_client_http_urls,
    )?);
    if client.is_empty() && paths.is_empty() || peer.is_empty() {
        bail!("--listen-client-urls and --listen-peer-urls need a URL each");
    }
    // Before any port opens: a peer port without mutual TLS gives access to all data.
    let access = PeerAccess::decide(flags, &peer)?;
    let bounds = server_limits(flags, access)?;
    // An error at the start is better than a port that fails every handshake.
    let secure = client.iter().chain(&pages).any(|url| url.secure);
    if secure && (flags.cert_file.is_none() || flags.key_file.is_none()) {
        bail!(
            "https for clients (--listen-client-urls and the like) needs --cert-file and --key-file"
        );
    }
    let client_tls = tls_config(&flags.client_files()?)?;
    let peer_tls = tls_config(&flags.peer_files()?)?;
    if peer.iter().any(|url| url.secure) && peer_tls.is_none() {
        bail!("--listen-peer-urls has https, which needs --peer-cert-file and --peer-key-file");
    }
    let outgoing_tls = PeerTls::default();
    *outgoing_tls.write() = crate::peer_tls::outgoing_config(flags)?;
    let names = |ports: &[Port]| {
        let mut names: Vec<String> = ports.iter().map(|port| port.url.clone()).collect();
        names.dedup();
        names
    };
    // Only checked here, so that a wrong value fails before the data directory is touched.
    Retention::parse(flags)?;
    // After the checks above, so that a wrong flag opens no port, and before the URLs are
    // advertised, because port 0 is known only now.
    let client_ports = listen::bind_urls(&client).await?;
    let peer_ports = if access == PeerAccess::Closed {
        Vec::new()
    } else {
        listen::bind_urls(&peer).await?
    };
    let metrics_ports = listen::bind_urls(&pages).await?;
    let client_sockets = paths
        .iter()
        .map(|path| Socket::bind(path))
        .collect::<Result<Vec<_>>>()?;
    let client_urls = client_urls(flags, names(&client_ports), &client_sockets)?;
    let bound = match access {
        // A closed port has no number, but the member's ID is derived from its URLs and must stay
        // the same once it opens.
        PeerAccess::Closed => url_texts(&peer),
        PeerAccess::Mutual | PeerAccess::Insecure => names(&peer_ports),
    };
    let peer_urls = match &flags.initial_advertise_peer_urls {
        Some(list) => url_texts(&parse_urls("initial-advertise-peer-urls", list)?),
        None => bound,
    };
    let own = peer_urls
        .iter()
        .map(|url| format!("{}={url}", flags.name))
        .collect::<Vec<_>>()
        .join(",");
    let initial_cluster = flags.initial_cluster.clone().unwrap_or(own);
    Ok(Plan {
        client_ports,
        client_sockets,
        peer_ports,
        metrics_ports,
        client_urls,
        peer_urls,
        initial_cluster,
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

fn open_engine(flags: &ServeFlags, path: &Path) -> Result<Arc<dyn Engine>, EngineError> {
    Ok(match flags.engine {
        EngineKind::Memory => Arc::new(MemoryEngine::default()),
        EngineKind::Auto => kv_engine::open_engine(path, None, flags.engine_cache_bytes)?,
        EngineKind::Fjall => {
            kv_engine::open_engine(path, Some(Kind::Fjall), flags.engine_cache_bytes)?
        }
        EngineKind::Sled => {
            kv_engine::open_engine(path, Some(Kind::Sled), flags.engine_cache_bytes)?
        }
    })
}

async fn identify_member(
    flags: &ServeFlags,
    plan: &Plan,
    folder: &mut DataFolder,
) -> Result<Bootstrap> {
    if let Some(identity) = folder.identity() {
        let members = initial_members(&plan.initial_cluster, &flags.initial_cluster_token)?;
        bootstrap::check_cluster(flags, folder.path(), identity, &members, &plan.outgoing_tls)
            .await?;
        if flags.force_new_cluster {
            return force_new_cluster(flags, plan, folder, identity);
        }
        // Otherwise the directory decides, and the flags of the initial cluster have no effect, as
        // in etcd.
        let begin = bootstrap::unfinished_bootstrap(flags, identity, &members);
        return Ok(Bootstrap {
            identity,
            members,
            begin,
        });
    }
    let first = bootstrap::first_start(
        flags,
        &plan.initial_cluster,
        &plan.peer_urls,
        &plan.outgoing_tls,
    )
    .await?;
    folder.set_identity(first.identity)?;
    Ok(first)
}

/// Makes this member the only one of its cluster, without contacting the others.
fn force_new_cluster(
    flags: &ServeFlags,
    plan: &Plan,
    folder: &DataFolder,
    identity: Identity,
) -> Result<Bootstrap> {
    let me = Member {
        id: identity.member,
        name: flags.name.clone(),
        peer_ur_ls: plan.peer_urls.clone(),
        ..Member::default()
    };
    kv_offline::force_new_cluster(folder, identity, me.clone())?;
    Ok(Bootstrap {
        identity,
        members: vec![me],
        begin: BTreeSet::new(),
    })
}

async fn serve_member(flags: ServeFlags, shutdown: CancellationToken) -> Result<()> {
    let flags = with_auto_tls(flags)?;
    // The directory is opened first, because its errors are the most useful ones.
    let mut plan = make_plan(&flags).await?;
    if flags.wal_dir.is_some() {
        tracing::warn!("--wal-dir has no effect: the log is in the data directory");
    }
    // Opening it locks the directory against a second process, before anything is read or written.
    let mut folder = DataFolder::open(&plan.data_dir)?;
    let tasks = Tasks::new(shutdown.clone());
    // Closed after the transfer of leadership: a member that no peer reaches does not learn that it
    // succeeded.
    let peers = CancellationToken::new();
    // Closes the peer port too if the start fails below.
    let _closed = peers.clone().drop_guard();
    let routes = Arc::new(OnceLock::new());
    for port in std::mem::take(&mut plan.peer_ports) {
        tasks.spawn_critical(
            "peers",
            listen::serve_peers(
                port,
                plan.peer_tls.clone(),
                routes.clone(),
                flags.peer_cert_allowed_cn.clone(),
                peers.clone(),
            ),
        );
    }
    // Before `identify_member`, which claims the directory.
    let new = folder.identity().is_none();
    let bootstrap = identify_member(&flags, &plan, &mut folder).await?;
    let (core, leave) = build_member(&flags, &plan, &folder, &bootstrap, &shutdown).await?;
    // Set only once, here.
    let _ = routes.set(PeerSide {
        routes: member::peer_routes(&core),
        directory: core.directory.clone(),
    });
    crate::peer_tls::follow_files(&flags, plan.outgoing_tls.clone(), &tasks);
    tasks::spawn_jobs(&core, Retention::parse(&flags)?, &tasks)?;
    tasks::spawn_upkeep(&core, plan.checks, &tasks);
    for port in std::mem::take(&mut plan.metrics_ports) {
        tasks.spawn_critical(
            "pages",
            listen::serve_pages(
                port,
                plan.client_tls.clone(),
                core.clone(),
                shutdown.clone(),
            ),
        );
    }
    // After the peer port serves: the first election needs the other members.
    begin_membership(&core, &bootstrap).await?;
    let result = tokio::select! {
        // Clients are served only then: a port that is open means a member that can answer.
        ready = wait_until_ready(&core, &flags.name, &plan, new) => ready,
        () = shutdown.cancelled() => Ok(()),
    };
    if result.is_ok() && !shutdown.is_cancelled() {
        announce_ports(&flags, &plan)?;
        for (url, listener, tls) in client_listeners(&mut plan) {
            tracing::info!(url, "ready to serve client requests");
            tasks.spawn_critical(
                "clients",
                listen::serve_clients(
                    listener,
                    tls,
                    plan.connected,
                    core.clone(),
                    shutdown.clone(),
                ),
            );
        }
        shutdown.cancelled().await;
    }
    // Read before the stop, which ends replication as well.
    let stopped = core.node.status().stopped;
    stop_member(&core, &tasks, &peers).await;
    if let Some(reason) = stopped {
        bail!("replication has stopped: {reason}; start the member again");
    }
    if let Some(failure) = tasks.failure() {
        return Err(failure.into());
    }
    if let Some(reason) = leave.get() {
        bail!("{reason}");
    }
    result
}

type TlsConfig = Arc<base_tls::rustls::ServerConfig>;

/// Takes what clients connect to out of the plan: URL, listener, and TLS.
fn client_listeners(plan: &mut Plan) -> Vec<(String, Listener, Option<TlsConfig>)> {
    let tls = plan.client_tls.clone();
    let ports = std::mem::take(&mut plan.client_ports).into_iter();
    let ports = ports.map(|port| {
        (
            port.url,
            Listener::Port(port.listener),
            tls.clone().filter(|_| port.secure),
        )
    });
    let sockets = std::mem::take(&mut plan.client_sockets).into_iter();
    ports
        .chain(sockets.map(|socket| (socket.url(), Listener::Socket(socket), None)))
        .collect()
}

/// Returns when the member may serve.
async fn wait_until_ready(
    core: &Arc<ServerContext>,
    name: &str,
    plan: &Plan,
    new: bool,
) -> Result<()> {
    // An empty member can't differ from the others.
    if plan.checks.initial && !new {
        corruption::check_first(core).await?;
    }
    tasks::publish_member(core, name, &plan.client_urls).await
}

fn announce_ports(flags: &ServeFlags, plan: &Plan) -> Result<()> {
    let (Some(file), Some(port)) = (&flags.port_file, plan.client_ports.first()) else {
        return Ok(());
    };
    let number = port.listener.local_addr()?.port();
    base_serve::write_port_file(file, number)
        .with_context(|| format!("--port-file {}", file.display()))
}

async fn begin_membership(core: &ServerContext, bootstrap: &Bootstrap) -> Result<()> {
    // A member that joins gets its membership from the leader; initializing it would start another
    // cluster.
    if !bootstrap.begin.is_empty() {
        core.node.initialize(&bootstrap.begin).await?;
    }
    Ok(())
}

type LeaveRequest = Arc<OnceLock<&'static str>>;

async fn build_member(
    flags: &ServeFlags,
    plan: &Plan,
    folder: &DataFolder,
    bootstrap: &Bootstrap,
    shutdown: &CancellationToken,
) -> Result<(Arc<ServerContext>, LeaveRequest)> {
    let metrics = Arc::new(StoreMetrics::default());
    let identity = bootstrap.identity;
    let sync_micros = Arc::new(AtomicU64::new(0));
    let (wal, contents) = open_log(folder, &metrics, &sync_micros)?;
    let on_store = {
        let metrics = metrics.clone();
        Arc::new(move |took| metrics.engine_write.observe_duration(took))
    };
    let options = Options {
        member: identity.member,
        max_txn_ops: flags.max_txn_ops,
        max_learners: flags.max_learners,
        value_cache: flags.value_cache_bytes,
        // Writes of the engine block, and would delay heartbeats on the runtime's threads.
        own_thread: true,
        token_ttl: Duration::from_secs(flags.auth_token_ttl),
        on_store,
        slow_apply: plan.bounds.slow.apply,
    };
    let others = bootstrap
        .members
        .iter()
        // By name as well: the flags of a member that joined later give it another ID than the
        // cluster did.
        .filter(|member| member.id != identity.member && member.name != flags.name);
    let around = RebuildOptions {
        folder,
        identity,
        others: others
            .flat_map(|member| member.peer_ur_ls.clone())
            .collect(),
        tls: &plan.outgoing_tls,
        purged: RebuildOptions::purged(&contents),
    };
    let state = folder.create_subfolder(STATE_DIR)?;
    let slow_disk = sync_micros.clone();
    let open = || {
        Ok(Arc::new(BlockingEngine::new(
            open_engine(flags, &state)?,
            slow_disk.clone(),
        )) as Arc<dyn Engine>)
    };
    let machine = tokio::select! {
        opened = around.machine(&open, options) => opened?,
        () = shutdown.cancelled() => bail!("stopped before the state was rebuilt"),
    };
    let owner = machine.with_members(|members| {
        members
            .get(identity.member)
            .map(|member| member.name.clone())
    });
    // With --force-new-cluster the others are about to be removed.
    if !flags.force_new_cluster {
        plan.access
            .check_members(machine.with_members(|members| members.list().len()))?;
    }
    bootstrap::check_member(
        flags,
        folder.path(),
        identity,
        &bootstrap.members,
        owner.as_deref(),
    )?;
    let leave: LeaveRequest = Arc::default();
    let config = Config {
        cluster: identity.cluster,
        member: identity.member,
        heartbeat: Duration::from_millis(flags.heartbeat_interval),
        election_timeout: Duration::from_millis(flags.election_timeout),
        snapshot_entries: flags.snapshot_count,
        spool: folder.create_subfolder(RECEIVED_DIR)?,
        tls: plan.outgoing_tls.clone(),
        trust: peer_trust(plan.access),
        max_command: flags.max_request_bytes,
        dial: None,
        sync_micros,
        clock: Clock::boot(),
    };
    let parts = Parts {
        machine,
        log: (wal, contents),
        config,
        bounds: plan.bounds.clone(),
        metrics,
        jwt: plan.jwt.clone(),
        passwords: Passwords::new(flags.bcrypt_cost),
        initial: bootstrap.members.clone(),
        on_removed: on_removed(leave.clone(), shutdown.clone()),
        shutdown: shutdown.clone(),
        loops: Tasks::new(CancellationToken::new()),
    };
    Ok((member::assemble_member(parts).await?, leave))
}

/// Returns the proof that replication requires.
fn peer_trust(access: PeerAccess) -> PeerTrust {
    match access {
        PeerAccess::Mutual | PeerAccess::Closed => PeerTrust::Certificate,
        PeerAccess::Insecure => PeerTrust::Unverified,
    }
}

fn on_removed(leave: LeaveRequest, shutdown: CancellationToken) -> OnRemoved {
    Arc::new(move || {
        let reason = "this member has been removed from the cluster for good; to use the machine again, empty its data folder and \
                      add it as a new member";
        // Both the log and a peer may report the removal; only the first report stops the member.
        if leave.set(reason).is_ok() {
            tracing::error!("this member has been removed from the cluster");
            shutdown.cancel();
        }
    })
}

fn open_log(
    folder: &DataFolder,
    metrics: &Arc<StoreMetrics>,
    sync_micros: &Arc<AtomicU64>,
) -> Result<(Wal, Contents)> {
    let (metrics, micros) = (metrics.clone(), sync_micros.clone());
    let observer = Arc::new(move |took: Duration| {
        metrics.wal_sync.observe_duration(took);
        let took = took.as_micros() as u64;
        let before = micros.load(Ordering::Relaxed);
        // A moving average, so that a single slow sync does not change how the engine is called.
        micros.store((before * 15 + took) / 16, Ordering::Relaxed);
    });
    let (wal, contents) = Wal::open(&folder.create_subfolder(WAL_DIR)?, observer)?;
    if let Some(bytes) = contents.torn {
        tracing::warn!(
            bytes,
            "the log ended in a write that was never acknowledged; it is cut off"
        );
    }
    Ok((wal, contents))
}

/// Returns the voter that takes over from this leader: of those that answer, the one with most of
/// the log.
async fn choose_transferee(core: &ServerContext) -> Option<u64> {
    const ANSWERS: Duration = Duration::from_millis(500);
    let status = core.node.status();
    let others = status
        .voters
        .iter()
        .copied()
        .filter(|id| *id != core.identity.member && tasks::is_reached(core, *id));
    // A follower has no leadership to transfer.
    let others: Vec<u64> = others.filter(|_| status.leading).collect();
    // One that has just stopped still counts as reached.
    let asked = others
        .into_iter()
        .map(|id| async move { is_responding(core, id, ANSWERS).await.then_some(id) });
    let there = futures::future::join_all(asked).await.into_iter().flatten();
    // It has least to catch up with, so it campaigns soonest.
    there.max_by_key(|id| status.matched.get(id).copied().unwrap_or_default())
}

async fn stop_member(core: &Arc<ServerContext>, tasks: &Tasks, peers: &CancellationToken) {
    // Client ports close first: a transfer blocks proposals, and new ones could only time out.
    core.shutdown.cancel();
    // A leader that goes hands over first, so that the others need not wait for a timeout.
    if let Some(heir) = choose_transferee(core).await {
        let _ = core
            .node
            .transfer_leadership(heir, Duration::from_secs(3))
            .await;
    }
    // Open until here: votes for the transferee and the result of the transfer pass through it.
    peers.cancel();
    tasks.wait(Duration::from_secs(5)).await;
    core.node.shutdown().await;
    // Only saves replay at the next start; the log has everything.
    if let Err(error) = core.machine.flush().await {
        tracing::warn!(%error, "the state is not flushed; the log has what is missing");
    }
    tracing::info!("stopped");
}
