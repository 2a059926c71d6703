//! Assembles a member from log, engine and network, either real or simulated.

use crate::raft_state_machine::RaftStateMachine;
use crate::tasks;
use anyhow::Result;
use base_task::Tasks;
use base_tls::CertificateFiles;
use kv_config::{PeerAccess, Retention};
use kv_machine::Machine;
use kv_mvcc::Hub;
use kv_raft::{Config, Directory, NodeInputs, RaftNode, Status};
use kv_rpc::{
    Jwt, Passwords, PeerRequestHandler, ServerContext, ServerLimits, SlowLimits, StoreMetrics,
    decoding_limit, grpc_request, grpc_routes,
};
use kv_transport::ClientTraffic;
use kv_wal::{Contents, Identity, Wal};
use proto_etcd::etcdserverpb;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::service::Routes;

/// Called when this member was removed from the cluster.
pub type OnRemoved = Arc<dyn Fn() + Send + Sync>;

/// Components of a member.
pub(crate) struct Parts {
    pub machine: Arc<Machine>,
    pub log: (Wal, Contents),
    pub config: Config,
    pub bounds: ServerLimits,
    pub metrics: Arc<StoreMetrics>,
    pub certificates: CertificateFiles,
    pub jwt: Option<Arc<Jwt>>,
    pub passwords: Passwords,
    pub initial: Vec<etcdserverpb::Member>,
    pub on_removed: OnRemoved,
    pub shutdown: CancellationToken,
    /// Tasks of replication: if one of them fails, replication has stopped. A group of its own: a
    /// leader that stops transfers leadership after its other tasks have ended.
    pub loops: Tasks,
}

/// Assembles a member and starts its Raft node.
pub(crate) async fn assemble_member(parts: Parts) -> Result<Arc<ServerContext>> {
    let identity = Identity {
        cluster: parts.config.cluster,
        member: parts.config.member,
    };
    let removed = |call: OnRemoved| Box::new(move || call());
    let answers = Arc::new(PeerRequestHandler {
        identity,
        core: OnceLock::new(),
        on_removed: removed(parts.on_removed.clone()),
    });
    let directory = Directory::new();
    // Before Raft starts, because its first call needs an address.
    tasks::fill_directory(
        &directory,
        &parts.machine,
        &parts.initial,
        &Status::default(),
    );
    let spool = parts.config.spool.clone();
    let glue = Arc::new(RaftStateMachine(
        parts.machine.clone(),
        parts.metrics.clone(),
    ));
    resume_installation(&glue, &spool).await?;
    let inputs = NodeInputs {
        config: parts.config,
        machine: glue,
        applied: parts.machine.subscribe_applied(),
        peer_handler: answers.clone(),
        directory: directory.clone(),
        loops: parts.loops,
    };
    let node = RaftNode::start(inputs, parts.log).await?;
    let core = Arc::new(ServerContext {
        started: tokio::time::Instant::now(),
        identity,
        hub: Hub::new(parts.machine.store().clone()),
        machine: parts.machine,
        node,
        directory,
        leader_losses: tokio::sync::watch::Sender::default(),
        jwt: parts.jwt,
        passwords: parts.passwords,
        metrics: parts.metrics,
        certificates: parts.certificates,
        // Above the limit of a request, so that a message which is too large gets etcd's error
        // instead of gRPC's.
        traffic: ClientTraffic::new(decoding_limit(parts.bounds.max_request)),
        bounds: parts.bounds,
        shutdown: parts.shutdown,
        checkpoints: tokio::sync::RwLock::default(),
        spool,
        initial: parts.initial,
        on_removed: removed(parts.on_removed),
    });
    // Set only once, here.
    let _ = answers.core.set(Arc::downgrade(&core));
    Ok(core)
}

/// Repeats an interrupted installation, before Raft reads the applied index.
async fn resume_installation(glue: &RaftStateMachine, spool: &Path) -> Result<()> {
    glue.resume(spool).await.map_err(|reason| {
        anyhow::anyhow!(
            "the state was being installed when this member ended, and can't be installed again: {reason}; remove the member, \
             empty its data folder and add it again"
        )
    })
}

/// Returns the routes for peers.
pub(crate) fn peer_routes(core: &ServerContext) -> Routes {
    Routes::builder()
        .add_service(core.node.peer_service().into_server())
        .clone()
        .routes()
        .prepare()
}

/// Handles clients' calls.
#[derive(Clone)]
pub struct ClientService {
    core: Arc<ServerContext>,
    routes: Routes,
}

impl ClientService {
    /// Handles a call.
    pub async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        grpc_request(&self.routes, &self.core, request).await
    }
}

/// Limits that a simulation reduces.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Quota of the data in bytes.
    pub quota: u64,
    /// Maximum age of a lease checkpoint.
    pub checkpoint_every: Duration,
}

/// A member without ports, for simulations: the full stack behind gRPC.
pub struct Member {
    core: Arc<ServerContext>,
    tasks: Tasks,
    #[cfg(test)]
    loops: Tasks,
}

impl Member {
    /// Starts a member.
    pub async fn start(
        machine: Arc<Machine>,
        log: (Wal, Contents),
        config: Config,
        tuning: Tuning,
        initial: Vec<etcdserverpb::Member>,
        on_removed: OnRemoved,
    ) -> Result<Member> {
        let shutdown = CancellationToken::new();
        // The defaults of the flags, but for those that a simulation reduces.
        let bounds = ServerLimits {
            max_request: 1_572_864,
            request_timeout: Duration::from_secs(5),
            min_lease_ttl: 1,
            quota: tuning.quota,
            progress_interval: Duration::from_secs(1),
            client_cert_auth: false,
            max_learners: 1,
            strict_reconfig: true,
            slow: SlowLimits {
                request: Duration::MAX,
                apply: Duration::MAX,
            },
            checkpoint_every: tuning.checkpoint_every,
            detailed_metrics: true,
            insecure_members: true,
            access: PeerAccess::Insecure,
        };
        let loops = Tasks::new(CancellationToken::new());
        let (metrics, jwt, passwords) = (Arc::default(), None, Passwords::new(4));
        let parts = Parts {
            machine,
            log,
            config,
            bounds,
            metrics,
            certificates: CertificateFiles::default(),
            jwt,
            passwords,
            initial,
            on_removed,
            shutdown: shutdown.clone(),
            loops: loops.clone(),
        };
        let core = assemble_member(parts).await?;
        let tasks = Tasks::new(shutdown);
        tasks::spawn_jobs(&core, Retention::All, &tasks)?;
        Ok(Member {
            core,
            tasks,
            #[cfg(test)]
            loops,
        })
    }

    /// Bootstraps a cluster or joins one. Waits until the cluster knows this member.
    pub async fn join(
        &self,
        begin: &BTreeSet<u64>,
        name: &str,
        client_urls: &[String],
    ) -> Result<()> {
        if !begin.is_empty() {
            self.core.node.initialize(begin).await?;
        }
        tasks::publish_member(&self.core, name, client_urls).await
    }

    /// Returns the handler of clients' calls.
    pub fn client_service(&self) -> ClientService {
        ClientService {
            core: self.core.clone(),
            routes: grpc_routes(&self.core).prepare(),
        }
    }

    /// Returns the routes for peers.
    pub fn peer_routes(&self) -> Routes {
        peer_routes(&self.core)
    }

    /// Returns this member's view of the cluster.
    pub fn status(&self) -> Status {
        self.core.node.status()
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Arc<ServerContext> {
        &self.core
    }

    #[cfg(test)]
    pub(crate) fn loops(&self) -> &Tasks {
        &self.loops
    }

    /// Returns the state machine.
    pub fn machine(&self) -> &Arc<Machine> {
        &self.core.machine
    }

    /// Stops the member's tasks.
    pub async fn stop(&self) {
        self.core.shutdown.cancel();
        self.tasks.wait(Duration::from_secs(1)).await;
    }
}
