//! A member's part in the cluster: what the services ask of it.

use crate::clock::Clock;
use crate::elector;
use crate::forward::{self, Forwarded};
use crate::lease::Lease;
use crate::log_store::LogStore;
use crate::network::Network;
use crate::pb;
use crate::peer::{Answerer, Directory};
use crate::promise::{Passing, Promise, Reason};
use crate::propose::{self, Counters, Origin, Proposal};
use crate::server::PeerService;
use crate::state::{State, StateMachine};
use crate::transport::{Dial, JOINING, PeerTls, REMOVED, Transport};
use crate::types::{LogId, Raft, Server, Vote};
use bytes::Bytes;
use kv_wal::{Contents, Wal};
use openraft::{ChangeMembers, EmptyNode, SnapshotPolicy};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

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

pub(crate) struct Shared {
    pub member: u64,
    pub raft: Raft,
    pub transport: Arc<Transport>,
    pub machine: Arc<dyn StateMachine>,
    pub answerer: Arc<dyn Answerer>,
    pub lease: Arc<Lease>,
    pub proposals: mpsc::UnboundedSender<Proposal>,
    pub spool: PathBuf,
    pub promise: Arc<Promise>,
    pub standing: Arc<Mutex<Option<pb::Transfer>>>,
    config: Config,
    committed: Arc<AtomicU64>,
    applied: watch::Receiver<u64>,
    /// Vote of this leadership, and the index from which on it may answer reads.
    leadership: Mutex<Option<(Vote, u64)>>,
    counters: Arc<Counters>,
}

/// A member's part in the cluster.
#[derive(Clone)]
pub struct Node {
    shared: Arc<Shared>,
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
    /// Starts from a log and a state. `applied` follows the state machine.
    pub async fn start(
        config: Config,
        (wal, contents): (Wal, Contents),
        machine: Arc<dyn StateMachine>,
        applied: watch::Receiver<u64>,
        answerer: Arc<dyn Answerer>,
        directory: Arc<Directory>,
    ) -> Result<Node, NodeError> {
        let log = LogStore::new(wal, &contents, applied.clone(), config.sync_micros.clone())
            .map_err(|e| NodeError::Storage(e.to_string()))?;
        drop(contents);
        let (tls, dial) = (config.tls.clone(), config.dial.clone());
        let transport = Arc::new(Transport::new(config.cluster, config.member, directory, tls, dial));
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
        let (committed, alone) = (log.committed.clone(), log.alone.clone());
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
            counters: Arc::default(),
        });
        tokio::spawn(propose::run(raft, machine, proposed, shared.counters.clone()));
        tokio::spawn(forward::commands(shared.clone(), forwarded));
        tokio::spawn(forward::read_indexes(shared.clone(), asked));
        tokio::spawn(elector::run(shared.clone()));
        tokio::spawn(heartbeats(shared.clone(), alone));
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
        let stopped = self.shared.raft.metrics().borrow().running_state.as_ref().err().map(ToString::to_string);
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
        while server.changed().await.is_ok() {}
        let reason = self.shared.raft.metrics().borrow().running_state.as_ref().err().map(ToString::to_string);
        reason.unwrap_or_else(|| "it was told to".to_owned())
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
        let changed = self.shared.raft.change_membership(change, retain).await;
        changed.map(drop).map_err(|e| NodeError::Raft(e.to_string()))
    }

    /// Gives leadership to another voter.
    pub async fn transfer(&self, to: u64, timeout: Duration) -> Result<(), NodeError> {
        let shared = &self.shared;
        if !shared.leading() {
            return Err(NodeError::NotLeader);
        }
        // Over when this ends, however it does.
        let transferring = shared.lease.begin_transfer(self.term());
        match tokio::time::timeout(timeout, self.hand_over(to, transferring.transfer)).await {
            Ok(done) => done,
            Err(_) => Err(NodeError::TimedOut),
        }
    }

    async fn hand_over(&self, to: u64, transfer: pb::Transfer) -> Result<(), NodeError> {
        loop {
            let status = self.status();
            if status.leader == Some(to) {
                return Ok(());
            }
            let caught_up = status.matched.get(&to).is_some_and(|matched| *matched >= status.last_index);
            if !status.leading || caught_up {
                let mut client = self.shared.transport.client(to).map_err(|e| NodeError::Raft(e.to_string()))?;
                let request = self.shared.transport.request(to, transfer, Some(Duration::from_secs(2)));
                if let Err(status) = client.stand(request).await {
                    tracing::debug!(%status, "the member does not stand yet");
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
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
        if let Err(e) = self.shared.raft.shutdown().await {
            tracing::warn!(error = %e, "replication did not end well");
        }
    }
}

impl Shared {
    /// Role, vote and membership. openraft tells of data first, of these next, of everything together last: only what is
    /// told together may be combined.
    pub fn server(&self) -> Server {
        self.raft.server_metrics().borrow().clone()
    }

    pub fn leader(&self) -> Option<u64> {
        self.raft.server_metrics().borrow().current_leader
    }

    pub fn leading(&self) -> bool {
        self.raft.server_metrics().borrow().state.is_leader()
    }

    /// Lets another member's vote pass, unless there is a leader that nobody should be voted for against.
    pub fn let_pass(&self, term: u64, transfer: Option<&pb::Transfer>) -> Option<Passing> {
        let given_way = transfer.and_then(|transfer| self.promise.pass(term, &Reason::Transfer(transfer)));
        if given_way.is_some() {
            return given_way;
        }
        if !self.leading() {
            return self.promise.pass(term, &Reason::Silence(self.config.election_timeout));
        }
        // As long as it may pass there is no lease: one that holds now was there before.
        let passing = self.promise.pass(term, &Reason::Always)?;
        if self.lease_holds() {
            passing.refused();
            return None;
        }
        Some(passing)
    }

    pub fn term(&self) -> u64 {
        self.raft.server_metrics().borrow().vote.leader_id.term
    }

    /// Whether this is the only voter.
    pub fn alone(&self) -> bool {
        let server = self.server();
        let mut voters = server.membership_config.membership().voter_ids();
        voters.next() == Some(self.member) && voters.next().is_none()
    }

    pub fn vote_and_last(&self) -> (Vote, Option<LogId>) {
        let data = self.raft.data_metrics().borrow().last_log;
        (self.raft.server_metrics().borrow().vote, data)
    }

    pub fn configs_and_last(&self) -> (Vec<BTreeSet<u64>>, Option<LogId>) {
        let last = self.raft.data_metrics().borrow().last_log;
        (self.configs(), last)
    }

    fn configs(&self) -> Vec<BTreeSet<u64>> {
        self.server().membership_config.membership().get_joint_config().clone()
    }

    /// The timeout as configured, or longer where the disk or the way to the others is slow.
    pub fn election_timeout(&self) -> Duration {
        let sync = Duration::from_micros(self.config.sync_micros.load(Ordering::Relaxed));
        let voters: Vec<u64> = self.configs().into_iter().flatten().collect();
        let trips = voters.iter().filter_map(|id| self.transport.directory.health(*id));
        let round_trip = trips.map(|health| health.round_trip).max().unwrap_or_default();
        elector::adapted(self.config.election_timeout, sync, round_trip)
    }

    pub fn lease_holds(&self) -> bool {
        // A tenth is left for clocks that run at different speeds.
        self.lease.holds(self.term(), self.member, &self.configs(), self.config.election_timeout.mul_f64(0.9))
    }

    /// As the leader with a lease: the index that a reader must have applied.
    pub fn certain(&self) -> Option<u64> {
        let server = self.server();
        server.state.is_leader().then_some(())?;
        let term = server.vote.leader_id.term;
        let configs = server.membership_config.membership().get_joint_config();
        // A tenth is left for clocks that run at different speeds.
        let holds = self.lease.holds(term, self.member, configs, self.config.election_timeout.mul_f64(0.9));
        // In this order: a vote that passes in between is later than the moment for which the lease holds.
        (holds && self.promise.free(term)).then(|| self.index(&server))
    }

    /// As the leader: the index that a reader must have applied.
    fn index(&self, server: &Server) -> u64 {
        let mut leadership = self.leadership.lock();
        let barrier = match *leadership {
            Some((vote, barrier)) if vote == server.vote => barrier,
            _ => {
                // A new leadership: what earlier ones promised is in the log, up to its end.
                let last = self.raft.data_metrics().borrow().last_log.map_or(0, |id| id.index);
                *leadership = Some((server.vote, last));
                last
            }
        };
        drop(leadership);
        barrier.max(self.committed.load(Ordering::Acquire))
    }

    /// As `certain`, or after a round of calls to the others where there is no lease.
    pub async fn confirm(&self, timeout: Duration) -> Option<u64> {
        let deadline = Instant::now() + timeout;
        let asked = self.lease.now();
        loop {
            // Before looking, so that an answer in between is not missed.
            let renewed = self.lease.renewed.notified();
            if let Some(index) = self.certain() {
                return Some(index);
            }
            let server = self.server();
            let (term, membership) = (server.vote.leader_id.term, server.membership_config.membership());
            let confirmed = self.lease.confirmed(term, self.member, membership.get_joint_config(), asked);
            if server.state.is_leader() && confirmed {
                // There is no lease while leadership is being given away, but a quorum has just followed.
                return Some(self.index(&server));
            }
            if !self.leading() || Instant::now() >= deadline {
                return None;
            }
            if self.raft.trigger().heartbeat().await.is_err() {
                return None;
            }
            let _ = tokio::time::timeout(self.config.heartbeat, renewed).await;
        }
    }

    /// Another member refused a call; perhaps because this one was removed.
    pub fn refused(&self, id: u64, status: &tonic::Status) {
        self.transport.failed(id);
        if status.code() == tonic::Code::PermissionDenied && status.message().contains(REMOVED) {
            self.answerer.removed();
        }
    }
}

/// Sends heartbeats while this member leads others, and nothing while it is alone.
async fn heartbeats(shared: Arc<Shared>, alone: Arc<AtomicBool>) {
    let mut changes = shared.raft.server_metrics();
    // When the last one was sent, while this member leads.
    let mut last: Option<Instant> = None;
    loop {
        let server = changes.borrow_and_update().clone();
        let others = server.membership_config.membership().nodes().count() > 1;
        alone.store(!others, Ordering::Relaxed);
        // Ticks are for stepping down after one's own removal, which needs others too.
        shared.raft.runtime_config().tick(others);
        if server.state.is_leader() && others {
            let late = last.replace(Instant::now()).map(|last| last.elapsed()).unwrap_or_default();
            if late > 2 * shared.config.heartbeat {
                shared.counters.late_heartbeats.fetch_add(1, Ordering::Relaxed);
                let interval = shared.config.heartbeat;
                tracing::warn!(
                    ?late,
                    ?interval,
                    "a heartbeat is late: this member has too little processor or disk time"
                );
            }
            if shared.raft.trigger().heartbeat().await.is_err() {
                return;
            }
            let _ = tokio::time::timeout(shared.config.heartbeat, changes.changed()).await;
        } else {
            last = None;
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}
