//! A member's part in the cluster: what the services ask of it.

use crate::clock::Clock;
use crate::elector;
use crate::forward::{self, Forwarded};
use crate::lease::Lease;
use crate::log_store::LogStore;
use crate::network::Network;
use crate::pb;
use crate::peer::{Answerer, Directory};
use crate::promise::Promise;
use crate::propose::{self, Origin, Proposal};
use crate::server::PeerService;
use crate::shared::{Shared, heartbeats};
use crate::state::{State, StateMachine};
use crate::transport::{Dial, JOINING, PeerTls, Transport};
use crate::trust::PeerTrust;
use crate::types::Raft;
use base_task::Tasks;
use bytes::Bytes;
use kv_wal::{Contents, Wal};
use openraft::{ChangeMembers, EmptyNode, SnapshotPolicy};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// How a member takes part.
#[derive(Clone)]
pub struct Config {
    /// Cluster.
    pub cluster: u64,
    /// This member.
    pub member: u64,
    /// Between heartbeats.
    pub heartbeat: Duration,
    /// Without a leader before an election; stretched where the disk is slow.
    pub election_timeout: Duration,
    /// Entries between two snapshots, after which the log is cut.
    pub snapshot_entries: u64,
    /// Folder for what is received.
    pub spool: PathBuf,
    /// TLS towards other members.
    pub tls: PeerTls,
    /// The proof that is asked of callers, and of the addresses that are called.
    pub trust: PeerTrust,
    /// Bytes of the largest command.
    pub max_command: usize,
    /// Reaches other members by other means than the network; for simulations.
    pub dial: Option<Dial>,
    /// How long a sync of the log takes lately, in microseconds.
    pub sync_micros: Arc<AtomicU64>,
    /// What the leader's lease is measured with.
    pub clock: Clock,
}

/// Why something can't be done.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Nobody leads, or it is not known who.
    #[error("no leader")]
    NoLeader,
    /// Somebody else leads.
    #[error("not leader")]
    NotLeader,
    /// It took too long.
    #[error("timed out")]
    TimedOut,
    /// The log or the state can't be read.
    #[error("{0}")]
    Storage(String),
    /// openraft refused or has stopped.
    #[error("{0}")]
    Raft(String),
}

/// What a member knows of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Term.
    pub term: u64,
    /// Leader, if known.
    pub leader: Option<u64>,
    /// Whether this member leads.
    pub leading: bool,
    /// Last entry in the log.
    pub last_index: u64,
    /// Last applied entry.
    pub applied: u64,
    /// Last entry known to be committed.
    pub committed: u64,
    /// Voters.
    pub voters: BTreeSet<u64>,
    /// Members without a vote.
    pub learners: BTreeSet<u64>,
    /// Voters once the change of membership that is under way is over.
    pub coming_voters: BTreeSet<u64>,
    /// On the leader: up to where each member's log is known to be the same.
    pub matched: BTreeMap<u64, u64>,
    /// Commands proposed and not yet applied.
    pub pending: u64,
    /// Commands that came to nothing.
    pub failed: u64,
    /// Heartbeats that this member, leading, sent much too late.
    pub late_heartbeats: u64,
    /// Why it does not run any more.
    pub stopped: Option<String>,
}

/// A member's part in the cluster.
#[derive(Clone)]
pub struct Node {
    pub(crate) shared: Arc<Shared>,
    forwards: mpsc::UnboundedSender<Forwarded>,
    reads: mpsc::UnboundedSender<oneshot::Sender<Option<u64>>>,
}

fn stopping() -> NodeError {
    NodeError::Raft("this member is stopping".to_owned())
}

fn raft_config(config: &Config) -> Result<Arc<openraft::Config>, NodeError> {
    let election = u64::try_from(config.election_timeout.as_millis()).unwrap_or(1_000).max(20);
    let raft = openraft::Config {
        cluster_name: format!("{:x}", config.cluster),
        // openraft gives up a call after a heartbeat interval; heartbeats themselves are sent from here.
        heartbeat_interval: election / 2,
        election_timeout_min: election,
        election_timeout_max: election + 1,
        install_snapshot_timeout: 3_600_000,
        max_payload_entries: 512,
        replication_lag_threshold: u64::MAX / 4,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_entries.max(1)),
        max_in_snapshot_log_to_keep: config.snapshot_entries.clamp(1, 5_000),
        purge_batch_size: 1,
        enable_elect: false,
        enable_heartbeat: false,
        ..openraft::Config::default()
    };
    Ok(Arc::new(raft.validate().map_err(|e| NodeError::Raft(e.to_string()))?))
}

impl Node {
    /// Starts from a log and a state. `applied` follows the state machine. Replication has stopped when one of its `loops` has.
    pub async fn start(
        config: Config,
        (wal, contents): (Wal, Contents),
        machine: Arc<dyn StateMachine>,
        applied: watch::Receiver<u64>,
        answerer: Arc<dyn Answerer>,
        directory: Arc<Directory>,
        loops: Tasks,
    ) -> Result<Node, NodeError> {
        let log = LogStore::new(wal, &contents, applied.clone(), config.sync_micros.clone())
            .map_err(|e| NodeError::Storage(e.to_string()))?;
        drop(contents);
        let transport = Arc::new(Transport::new(&config, directory));
        let lease = Arc::new(Lease::new(config.clock.clone()));
        let standing = Arc::default();
        let removed = answerer.clone();
        let network = Network {
            transport: transport.clone(),
            lease: lease.clone(),
            machine: machine.clone(),
            committed: log.committed.clone(),
            standing: Arc::clone(&standing),
            on_removed: Arc::new(move || removed.removed()),
        };
        let committed = log.committed.clone();
        let state = State { machine: machine.clone() };
        let raft = Raft::new(config.member, raft_config(&config)?, network, log, state)
            .await
            .map_err(|e| NodeError::Storage(e.to_string()))?;
        let (proposals, proposed) = mpsc::unbounded_channel();
        let (forwards, forwarded) = mpsc::unbounded_channel();
        let (reads, asked) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            member: config.member,
            raft: raft.clone(),
            transport,
            machine: machine.clone(),
            answerer,
            lease,
            promise: Promise::new(),
            proposals,
            spool: config.spool.clone(),
            standing,
            config,
            committed,
            applied,
            leadership: Mutex::new(None),
            changes: tokio::sync::Mutex::default(),
            held: watch::Sender::new(None),
            counters: Arc::default(),
            loops,
        });
        let (held, counters) = (shared.held.subscribe(), shared.counters.clone());
        shared.loops.spawn_critical("proposals", propose::run(raft, machine, proposed, held, counters));
        shared.loops.spawn_critical("forwarded commands", forward::commands(shared.clone(), forwarded));
        shared.loops.spawn_critical("read indexes", forward::read_indexes(shared.clone(), asked));
        shared.loops.spawn_critical("elections", elector::run(shared.clone()));
        shared.loops.spawn_critical("heartbeats", heartbeats(shared.clone()));
        Ok(Node { shared, forwards, reads })
    }

    /// Begins a new cluster of these voters. Each of them does the same.
    pub async fn initialize(&self, voters: &BTreeSet<u64>) -> Result<(), NodeError> {
        if self.is_initialized().await? {
            return Ok(());
        }
        let nodes: BTreeMap<u64, EmptyNode> = voters.iter().map(|id| (*id, EmptyNode {})).collect();
        self.shared.raft.initialize(nodes).await.map_err(|e| NodeError::Raft(e.to_string()))
    }

    /// Whether there is anything in the log.
    pub async fn is_initialized(&self) -> Result<bool, NodeError> {
        self.shared.raft.is_initialized().await.map_err(|e| NodeError::Raft(e.to_string()))
    }

    /// Proposes an encoded command. The answer comes from the state machine, or it is told that the command is lost.
    pub fn propose(&self, command: Bytes, request: u64) -> Result<(), NodeError> {
        let leader = self.shared.leader().ok_or(NodeError::NoLeader)?;
        if leader == self.shared.member {
            return self.propose_here(command, request);
        }
        self.forwards.send(Forwarded { command, request }).map_err(|_| stopping())
    }

    /// Proposes an encoded command as the leader; if somebody else leads, nothing is proposed.
    pub fn propose_leading(&self, command: Bytes, request: u64) -> Result<(), NodeError> {
        if self.shared.leading() { self.propose_here(command, request) } else { Err(NodeError::NotLeader) }
    }

    fn propose_here(&self, command: Bytes, request: u64) -> Result<(), NodeError> {
        let proposal = Proposal { commands: command, origin: Origin::Here(request) };
        self.shared.proposals.send(proposal).map_err(|_| stopping())
    }

    /// Returns when a read of this member's state sees everything that was acknowledged before the call.
    pub async fn read_barrier(&self, timeout: Duration) -> Result<(), NodeError> {
        let index = match self.shared.certain() {
            Some(index) => index,
            None => tokio::time::timeout(timeout, self.ask_index()).await.map_err(|_| NodeError::TimedOut)??,
        };
        let mut applied = self.shared.applied.clone();
        if *applied.borrow() >= index {
            return Ok(());
        }
        match tokio::time::timeout(timeout, applied.wait_for(|applied| *applied >= index)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(stopping()),
            Err(_) => Err(NodeError::TimedOut),
        }
    }

    /// Whether a read of this member's state sees everything acknowledged before the call already, without waiting.
    pub fn is_current(&self) -> bool {
        self.shared.certain().is_some_and(|index| *self.shared.applied.borrow() >= index)
    }

    async fn ask_index(&self) -> Result<u64, NodeError> {
        loop {
            let (sender, receiver) = oneshot::channel();
            self.reads.send(sender).map_err(|_| stopping())?;
            if let Some(index) = receiver.await.map_err(|_| stopping())? {
                return Ok(index);
            }
            // No leader, or one that is not sure yet.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What is known of the cluster.
    pub fn status(&self) -> Status {
        let stopped = self.reason();
        let server = self.shared.server();
        let data = self.shared.raft.data_metrics();
        let data = data.borrow();
        let membership = server.membership_config.membership();
        let matched = data.replication.iter().flatten();
        Status {
            term: server.vote.leader_id.term,
            leader: server.current_leader,
            leading: server.state.is_leader(),
            last_index: data.last_log.map_or(0, |id| id.index),
            applied: *self.shared.applied.borrow(),
            committed: self.shared.committed.load(Ordering::Acquire),
            voters: membership.voter_ids().collect(),
            learners: membership.learner_ids().collect(),
            coming_voters: membership.get_joint_config().last().cloned().unwrap_or_default(),
            matched: matched.map(|(id, last)| (*id, last.map_or(0, |id| id.index))).collect(),
            pending: self.shared.counters.pending.load(Ordering::Relaxed),
            failed: self.shared.counters.failed.load(Ordering::Relaxed),
            late_heartbeats: self.shared.counters.late_heartbeats.load(Ordering::Relaxed),
            stopped,
        }
    }

    /// Returns when replication has stopped, with the reason. It does not go on by itself.
    pub async fn stopped(&self) -> String {
        // These change rarely and end with replication; the complete metrics, which have the reason, change with each entry.
        let mut server = self.shared.raft.server_metrics();
        let core = async { while server.changed().await.is_ok() {} };
        tokio::select! {
            () = core => {}
            () = self.shared.loops.shutdown().cancelled() => {}
        }
        self.reason().unwrap_or_else(|| "it was told to".to_owned())
    }

    /// Returns why replication does not run any more.
    fn reason(&self) -> Option<String> {
        let failed = self.shared.loops.failure().map(|failure| failure.to_string());
        failed.or_else(|| self.shared.raft.metrics().borrow().running_state.as_ref().err().map(ToString::to_string))
    }

    /// Term, without the rest of the status.
    pub fn term(&self) -> u64 {
        self.shared.term()
    }

    /// Whether this member leads, and a quorum has said so lately.
    pub fn leads_for_certain(&self) -> bool {
        self.shared.certain().is_some()
    }

    /// Follows changes of leader, term and membership.
    pub async fn changed(&self, known: (u64, Option<u64>)) {
        let mut metrics = self.shared.raft.server_metrics();
        if metrics.wait_for(|m| (m.vote.leader_id.term, m.current_leader) != known).await.is_err() {
            // Replication has stopped: nothing changes any more.
            std::future::pending::<()>().await;
        }
    }

    /// Adds a member without a vote, or makes sure that it is one.
    pub async fn add_learner(&self, id: u64) -> Result<(), NodeError> {
        let _turn = self.shared.changes.lock().await;
        let added = self.shared.raft.add_learner(id, EmptyNode {}, false).await;
        added.map(drop).map_err(|e| NodeError::Raft(e.to_string()))
    }

    /// Gives a learner its vote.
    pub async fn promote(&self, id: u64) -> Result<(), NodeError> {
        self.change(ChangeMembers::AddVoterIds(BTreeSet::from([id])), true).await
    }

    /// Removes a member.
    pub async fn remove(&self, id: u64) -> Result<(), NodeError> {
        if self.status().voters.contains(&id) {
            self.change(ChangeMembers::RemoveVoters(BTreeSet::from([id])), false).await?;
        }
        if self.status().learners.contains(&id) {
            self.change(ChangeMembers::RemoveNodes(BTreeSet::from([id])), false).await?;
        }
        Ok(())
    }

    async fn change(&self, change: ChangeMembers<u64, EmptyNode>, retain: bool) -> Result<(), NodeError> {
        let _turn = self.shared.changes.lock().await;
        let changed = self.shared.raft.change_membership(change, retain).await;
        changed.map(drop).map_err(|e| NodeError::Raft(e.to_string()))
    }

    /// Asks the services of another member.
    pub async fn ask(&self, id: u64, kind: u32, body: Bytes, timeout: Duration) -> Result<Option<Bytes>, NodeError> {
        let mut client = self.shared.transport.client(id).map_err(|e| NodeError::Raft(e.to_string()))?;
        let request = self.shared.transport.request(id, pb::AskRequest { kind, body }, Some(timeout));
        let answer = client.ask(request).await.map_err(|status| {
            self.shared.refused(id, &status);
            NodeError::Raft(status.to_string())
        })?;
        let answer = answer.into_inner();
        Ok(answer.answered.then_some(answer.body))
    }

    /// Asks somebody at a URL who is not known yet.
    pub async fn ask_url(url: &str, tls: PeerTls, kind: u32, body: Bytes) -> Result<Option<Bytes>, NodeError> {
        let failed = |e: &dyn std::fmt::Display| NodeError::Raft(e.to_string());
        let mut client = Transport::client_at(url, tls).map_err(|e| failed(&e))?;
        let mut request = tonic::Request::new(pb::AskRequest { kind, body });
        request.set_timeout(Duration::from_secs(3));
        request.metadata_mut().insert(JOINING, tonic::metadata::MetadataValue::from_static("1"));
        let answer = client.ask(request).await.map_err(|status| failed(&status))?.into_inner();
        Ok(answer.answered.then_some(answer.body))
    }

    /// The service for other members.
    pub fn peer_service(&self) -> PeerService {
        PeerService::new(self.shared.clone())
    }

    /// Stops; the log is closed when everything that uses it is gone.
    pub async fn shutdown(&self) {
        self.shared.loops.shutdown().cancel();
        if let Err(e) = self.shared.raft.shutdown().await {
            tracing::warn!(error = %e, "replication did not end well");
        }
    }
}
