//! Starts a member's components in the order of their dependencies, and stops them in reverse
//! order.

mod plan;

use crate::blocking_engine::BlockingEngine;
use crate::bootstrap::{self, Bootstrap};
use crate::corruption;
use crate::listen::{self, PeerSide};
use crate::member::{self, OnRemoved, Parts};
use crate::rebuild::RebuildOptions;
use crate::tasks;
use anyhow::{Context, Result, bail};
use base_task::{CancellationToken, Tasks};
use base_tls::CertificateFiles;
use futures::future::BoxFuture;
use kv_config::{
    EngineKind, Flags, PeerAccess, RECEIVED_DIR, Retention, STATE_DIR, ServeFlags, Subcommand,
    WAL_DIR, initial_members, with_auto_tls,
};
use kv_engine::{Engine, EngineError, Kind, MemoryEngine};
use kv_machine::{Machine, Options};
use kv_raft::{Clock, Config, PeerTrust};
use kv_rpc::{Passwords, ServerContext, StoreMetrics, is_responding};
use kv_transport::Listener;
use kv_wal::{Contents, DataFolder, Identity, Wal};
use plan::{Plan, TlsConfig, make_plan};
use proto_etcd::etcdserverpb::Member;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Minimum number of entries that stay in the log. A member in step lacks the last few, and a
/// snapshot in their place would take the results of its clients' requests away.
const MIN_KEPT_ENTRIES: u64 = 100;

/// Runs the command that the flags select.
///
/// The future is boxed, so that its code is compiled here and not once more in the program.
pub fn run(flags: Flags, shutdown: CancellationToken) -> BoxFuture<'static, Result<()>> {
    Box::pin(run_command(flags, shutdown))
}

async fn run_command(flags: Flags, shutdown: CancellationToken) -> Result<()> {
    let flags = flags.effective()?;
    match flags.command {
        Some(Subcommand::Snapshot(command)) => kv_offline::run_snapshot_command(command),
        Some(Subcommand::Check { data_dir, work_dir }) => {
            kv_offline::check_folder(&data_dir, &work_dir.unwrap_or_else(std::env::temp_dir))
        }
        None => serve_member(flags.serve, shutdown).await,
    }
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
    let routes = serve_peers(&flags, &mut plan, &tasks, &peers);
    // Before `identify_member`, which claims the directory.
    let new = folder.identity().is_none();
    let bootstrap = identify_member(&flags, &plan, &mut folder).await?;
    let inputs = MemberInputs {
        flags: &flags,
        plan: &plan,
        folder: &folder,
        bootstrap: &bootstrap,
    };
    let (core, leave) = inputs.build_member(&shutdown).await?;
    // Set only once, here.
    let _ = routes.set(PeerSide {
        routes: member::peer_routes(&core),
        directory: core.directory.clone(),
    });
    crate::peer_tls::follow_files(&flags, plan.outgoing_tls.clone(), &core, &tasks);
    tasks::spawn_jobs(&core, Retention::parse(&flags)?, &tasks)?;
    tasks::spawn_upkeep(&core, plan.checks, &tasks);
    serve_pages(&core, &mut plan, &tasks, &shutdown);
    // After the peer port serves: the first election needs the other members.
    begin_membership(&core, &bootstrap).await?;
    let result = tokio::select! {
        // Clients are served only then: a port that is open means a member that can answer.
        ready = wait_until_ready(&core, &flags.name, &plan, new) => ready,
        () = shutdown.cancelled() => Ok(()),
    };
    if result.is_ok() && !shutdown.is_cancelled() {
        announce_ports(&flags, &plan)?;
        serve_clients(&core, &mut plan, &tasks, &shutdown);
        shutdown.cancelled().await;
    }
    // Read before the stop, which ends replication as well.
    let stopped = core.node.status().stopped;
    stop_member(&core, &tasks, &peers).await;
    check_end(stopped, &tasks, &leave)?;
    result
}

/// Returns the failure that ended the member, if there is one.
fn check_end(stopped: Option<String>, tasks: &Tasks, leave: &LeaveRequest) -> Result<()> {
    if let Some(reason) = stopped {
        bail!("replication has stopped: {reason}; start the member again");
    }
    if let Some(failure) = tasks.failure() {
        return Err(failure.into());
    }
    if let Some(reason) = leave.get() {
        bail!("{reason}");
    }
    Ok(())
}

/// Serves the peer ports. Requests wait until the returned routes are set.
fn serve_peers(
    flags: &ServeFlags,
    plan: &mut Plan,
    tasks: &Tasks,
    peers: &CancellationToken,
) -> Arc<OnceLock<PeerSide>> {
    let routes = Arc::<OnceLock<_>>::default();
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
    routes
}

/// Serves metrics and health.
fn serve_pages(
    core: &Arc<ServerContext>,
    plan: &mut Plan,
    tasks: &Tasks,
    shutdown: &CancellationToken,
) {
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
}

fn serve_clients(
    core: &Arc<ServerContext>,
    plan: &mut Plan,
    tasks: &Tasks,
    shutdown: &CancellationToken,
) {
    for (url, listener, tls) in client_listeners(plan) {
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
}

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

/// Inputs from which a member is built.
struct MemberInputs<'a> {
    flags: &'a ServeFlags,
    plan: &'a Plan,
    folder: &'a DataFolder,
    bootstrap: &'a Bootstrap,
}

impl MemberInputs<'_> {
    async fn build_member(
        &self,
        shutdown: &CancellationToken,
    ) -> Result<(Arc<ServerContext>, LeaveRequest)> {
        let metrics = Arc::new(StoreMetrics::default());
        let sync_micros = Arc::new(AtomicU64::new(0));
        let (wal, contents) = open_log(self.folder, &metrics, &sync_micros)?;
        let around = RebuildOptions {
            folder: self.folder,
            identity: self.bootstrap.identity,
            others: self.other_peer_urls(),
            tls: &self.plan.outgoing_tls,
            purged: RebuildOptions::purged(&contents),
        };
        let state = self.folder.create_subfolder(STATE_DIR)?;
        let slow_disk = sync_micros.clone();
        let open = || {
            let engine = BlockingEngine::new(open_engine(self.flags, &state)?, slow_disk.clone());
            Ok(Arc::new(engine) as Arc<dyn Engine>)
        };
        // A rebuild may fetch the state from another member, and a stop must not wait for it.
        let machine = tokio::select! {
            opened = around.machine(&open, self.machine_options(&metrics)) => opened?,
            () = shutdown.cancelled() => bail!("stopped before the state was rebuilt"),
        };
        self.check_members(&machine)?;
        let leave: LeaveRequest = Arc::default();
        let parts = Parts {
            machine,
            log: (wal, contents),
            config: self.raft_config(sync_micros)?,
            bounds: self.plan.bounds.clone(),
            metrics,
            certificates: CertificateFiles::new(self.flags.list_certificate_files()),
            jwt: self.plan.jwt.clone(),
            passwords: Passwords::new(self.flags.bcrypt_cost),
            initial: self.bootstrap.members.clone(),
            on_removed: on_removed(leave.clone(), shutdown.clone()),
            shutdown: shutdown.clone(),
            loops: Tasks::new(CancellationToken::new()),
        };
        Ok((member::assemble_member(parts).await?, leave))
    }

    fn machine_options(&self, metrics: &Arc<StoreMetrics>) -> Options {
        let metrics = metrics.clone();
        Options {
            member: self.bootstrap.identity.member,
            max_txn_ops: self.flags.max_txn_ops,
            max_learners: self.flags.max_learners,
            value_cache: self.flags.value_cache_bytes,
            // Writes of the engine block, and would delay heartbeats on the runtime's threads.
            own_thread: true,
            token_ttl: Duration::from_secs(self.flags.auth_token_ttl),
            on_store: Arc::new(move |took| metrics.engine_write.observe_duration(took)),
            slow_apply: self.plan.bounds.slow.apply,
        }
    }

    fn raft_config(&self, sync_micros: Arc<AtomicU64>) -> Result<Config> {
        let identity = self.bootstrap.identity;
        Ok(Config {
            cluster: identity.cluster,
            member: identity.member,
            heartbeat: Duration::from_millis(self.flags.heartbeat_interval),
            election_timeout: Duration::from_millis(self.flags.election_timeout),
            snapshot_entries: self.flags.snapshot_count,
            kept_entries: self.flags.snapshot_catchup_entries.max(MIN_KEPT_ENTRIES),
            spool: self.folder.create_subfolder(RECEIVED_DIR)?,
            tls: self.plan.outgoing_tls.clone(),
            trust: peer_trust(self.plan.access),
            max_command: self.flags.max_request_bytes,
            dial: None,
            sync_micros,
            clock: Clock::boot(),
        })
    }

    /// Returns the peer URLs of all other members.
    fn other_peer_urls(&self) -> Vec<String> {
        let own = self.bootstrap.identity.member;
        let members = self.bootstrap.members.iter();
        // By name as well: the flags of a member that joined later give it another ID than the
        // cluster did.
        let others = members.filter(|member| member.id != own && member.name != self.flags.name);
        others
            .flat_map(|member| member.peer_ur_ls.clone())
            .collect()
    }

    /// Checks that this member and the others may be members of the cluster that the state records.
    fn check_members(&self, machine: &Machine) -> Result<()> {
        let identity = self.bootstrap.identity;
        let owner = machine.with_members(|members| {
            members
                .get(identity.member)
                .map(|member| member.name.clone())
        });
        // With --force-new-cluster the others are about to be removed.
        if !self.flags.force_new_cluster {
            self.plan
                .access
                .check_members(machine.with_members(|members| members.list().len()))?;
        }
        bootstrap::check_member(
            self.flags,
            self.folder.path(),
            identity,
            &self.bootstrap.members,
            owner.as_deref(),
        )
    }
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
