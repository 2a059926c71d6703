//! A member's Raft node: the interface for the services above.

use crate::config::{Config, PeerTls};
use crate::elector;
use crate::forward::{self, ForwardedCommand};
use crate::leader_calls::LeaderCalls;
use crate::lease::Lease;
use crate::log_store::LogStore;
use crate::network::Network;
use crate::pb;
use crate::peer::{Directory, PeerHandler};
use crate::propose::{self, Origin, Proposal};
use crate::server::PeerService;
use crate::shared::{Shared, run_heartbeats};
use crate::state::{StateMachine, StateMachineAdapter};
use crate::stop_cause::find_stop_cause;
use crate::transport::{JOINING, ReplaceOutcome, Transport};
use crate::types::Raft;
use crate::vote_guard::VoteGuard;
use base_task::Tasks;
use bytes::Bytes;
use kv_wal::{Contents, Wal};
use openraft::{ChangeMembers, EmptyNode, SnapshotPolicy};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Errors of a Raft node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The cluster has no leader, or this member does not know it.
    #[error("no leader")]
    NoLeader,
    /// Another member is the leader.
    #[error("not leader")]
    NotLeader,
    /// The deadline expired.
    #[error("timed out")]
    TimedOut,
    /// Reading the log or the state failed.
    #[error("{0}")]
    Storage(String),
    /// openraft returned an error or has stopped.
    #[error("{0}")]
    Raft(String),
}

/// A member's view of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Current term.
    pub term: u64,
    /// The last known leader of this term.
    pub leader: Option<u64>,
    /// True if this member is in contact with the leader, or leads a quorum.
    pub has_leader: bool,
    /// True if this member is the leader.
    pub leading: bool,
    /// Index of the last entry in the log.
    pub last_index: u64,
    /// Applied index.
    pub applied: u64,
    /// Commit index known to this member.
    pub committed: u64,
    /// The current voters.
    pub voters: BTreeSet<u64>,
    /// The current learners.
    pub learners: BTreeSet<u64>,
    /// Voters after the membership change in progress.
    pub coming_voters: BTreeSet<u64>,
    /// On the leader: for each member, the index up to which its log is known to match.
    pub matched: BTreeMap<u64, u64>,
    /// Commands proposed and not yet applied.
    pub pending: u64,
    /// Commands that were proposed but not committed.
    pub failed: u64,
    /// Heartbeats that this member sent late as leader.
    pub late_heartbeats: u64,
    /// The reason why replication has stopped.
    pub stopped: Option<String>,
}

/// Components around a Raft node.
pub struct NodeInputs {
    /// Identity, timeouts and limits.
    pub config: Config,
    /// Receives the committed entries.
    pub machine: Arc<dyn StateMachine>,
    /// Applied index of the state machine.
    pub applied: watch::Receiver<u64>,
    /// Serves the requests of peers that do not concern Raft.
    pub peer_handler: Arc<dyn PeerHandler>,
    /// Addresses of the members.
    pub directory: Arc<Directory>,
    /// Group of the node's tasks. If one of them ends, replication has stopped.
    pub loops: Tasks,
}

/// Handle of a member's Raft node.
#[derive(Clone)]
pub struct RaftNode {
    pub(crate) shared: Arc<Shared>,
    forwards: mpsc::UnboundedSender<ForwardedCommand>,
    reads: mpsc::UnboundedSender<oneshot::Sender<Option<u64>>>,
}

fn stopping_error() -> NodeError {
    NodeError::Raft("this member is stopping".to_owned())
}

fn raft_config(config: &Config) -> Result<Arc<openraft::Config>, NodeError> {
    let election = u64::try_from(config.election_timeout.as_millis())
        .unwrap_or(1_000)
        .max(20);
    let raft = openraft::Config {
        cluster_name: format!("{:x}", config.cluster),
        // openraft cancels a call after one heartbeat interval. The heartbeats themselves are sent
        // by `shared::run_heartbeats`.
        heartbeat_interval: election / 2,
        election_timeout_min: election,
        election_timeout_max: election + 1,
        // openraft's default is 200 ms, and a large state takes minutes.
        install_snapshot_timeout: 3_600_000,
        // Bounds the memory of a message to a follower that is far behind.
        max_payload_entries: 512,
        // Only a blocking `add_learner` reads this, and none is made here.
        replication_lag_threshold: u64::MAX / 4,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_entries.max(1)),
        // Entries that remain after a snapshot let a follower catch up after a restart without one.
        max_in_snapshot_log_to_keep: config.kept_entries.max(1),
        purge_batch_size: 1,
        // `elector` and `run_heartbeats` replace both timers: openraft 0.9 has no PreVote.
        enable_elect: false,
        enable_heartbeat: false,
        ..openraft::Config::default()
    };
    Ok(Arc::new(
        raft.validate()
            .map_err(|e| NodeError::Raft(e.to_string()))?,
    ))
}

/// The handle of openraft, and the state that it shares with this crate's tasks.
struct RaftCore {
    raft: Raft,
    transport: Arc<Transport>,
    lease: Arc<Lease>,
    committed: Arc<AtomicU64>,
    timeout_now_transfer: Arc<Mutex<Option<pb::Transfer>>>,
    installed: Arc<AtomicU64>,
}

impl RaftCore {
    async fn start(
        inputs: &NodeInputs,
        (wal, contents): (Wal, Contents),
    ) -> Result<RaftCore, NodeError> {
        let config = &inputs.config;
        let sync_micros = config.sync_micros.clone();
        let log = LogStore::new(wal, &contents, inputs.applied.clone(), sync_micros)
            .map_err(|e| NodeError::Storage(e.to_string()))?;
        // The entries of the whole log; the log store has taken what it needs.
        drop(contents);
        let transport = Arc::new(Transport::new(config, inputs.directory.clone()));
        let lease = Arc::new(Lease::new(config.clock.clone()));
        let timeout_now_transfer = Arc::<Mutex<_>>::default();
        let removed = inputs.peer_handler.clone();
        let committed = log.committed.clone();
        let network = Network {
            transport: transport.clone(),
            lease: lease.clone(),
            machine: inputs.machine.clone(),
            committed: committed.clone(),
            timeout_now_transfer: timeout_now_transfer.clone(),
            on_removed: Arc::new(move || removed.on_removed()),
            loops: inputs.loops.clone(),
        };
        let state = StateMachineAdapter {
            machine: inputs.machine.clone(),
            installed: Arc::default(),
        };
        let installed = state.installed.clone();
        // It starts to call peers at once, so that everything the network needs exists by now.
        let raft = Raft::new(config.member, raft_config(config)?, network, log, state)
            .await
            .map_err(|e| NodeError::Storage(e.to_string()))?;
        Ok(RaftCore {
            raft,
            transport,
            lease,
            committed,
            timeout_now_transfer,
            installed,
        })
    }
}

/// Receivers of the requests that the node's tasks serve.
struct Inboxes {
    proposed: mpsc::UnboundedReceiver<Proposal>,
    forwarded: mpsc::UnboundedReceiver<ForwardedCommand>,
    read_indexes: mpsc::UnboundedReceiver<oneshot::Sender<Option<u64>>>,
}

/// Starts the tasks without which replication stops.
fn spawn_loops(shared: &Arc<Shared>, inboxes: Inboxes) {
    let loops = &shared.loops;
    loops.spawn_critical(
        "proposals",
        propose::run_proposals(
            shared.raft.clone(),
            shared.machine.clone(),
            inboxes.proposed,
            shared.proposal_block.subscribe(),
            shared.counters.clone(),
        ),
    );
    loops.spawn_critical(
        "forwarded commands",
        forward::run_forwarder(shared.clone(), inboxes.forwarded),
    );
    loops.spawn_critical(
        "read indexes",
        forward::run_read_index_requests(shared.clone(), inboxes.read_indexes),
    );
    loops.spawn_critical("elections", elector::run_elector(shared.clone()));
    loops.spawn_critical("heartbeats", run_heartbeats(shared.clone()));
}

impl RaftNode {
    /// Starts the node from a log and a state.
    pub async fn start(inputs: NodeInputs, log: (Wal, Contents)) -> Result<RaftNode, NodeError> {
        let links = RaftCore::start(&inputs, log).await?;
        // Unbounded, because the request limits of the service already bound the waiting commands.
        let (proposals, proposed) = mpsc::unbounded_channel();
        let (forwards, forwarded) = mpsc::unbounded_channel();
        let (reads, read_indexes) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            member: inputs.config.member,
            raft: links.raft,
            transport: links.transport,
            machine: inputs.machine,
            peer_handler: inputs.peer_handler,
            lease: links.lease,
            vote_guard: VoteGuard::new(),
            leader_calls: LeaderCalls::new(),
            proposals,
            spool: inputs.config.spool.clone(),
            timeout_now_transfer: links.timeout_now_transfer,
            config: inputs.config,
            committed: links.committed,
            applied: inputs.applied,
            installed: links.installed,
            leadership: Mutex::new(None),
            changes: tokio::sync::Mutex::default(),
            proposal_block: watch::Sender::new(None),
            counters: Arc::default(),
            loops: inputs.loops,
        });
        let inboxes = Inboxes {
            proposed,
            forwarded,
            read_indexes,
        };
        spawn_loops(&shared, inboxes);
        Ok(RaftNode {
            shared,
            forwards,
            reads,
        })
    }

    /// Bootstraps a new cluster with these voters. Every voter calls this with the same set.
    pub async fn initialize(&self, voters: &BTreeSet<u64>) -> Result<(), NodeError> {
        // A restart repeats the call, and a second membership would contradict the log.
        if self.is_initialized().await? {
            return Ok(());
        }
        let nodes: BTreeMap<u64, EmptyNode> = voters.iter().map(|id| (*id, EmptyNode {})).collect();
        self.shared
            .raft
            .initialize(nodes)
            .await
            .map_err(|e| NodeError::Raft(e.to_string()))
    }

    /// Returns whether the log contains anything.
    pub async fn is_initialized(&self) -> Result<bool, NodeError> {
        self.shared
            .raft
            .is_initialized()
            .await
            .map_err(|e| NodeError::Raft(e.to_string()))
    }

    /// Proposes an encoded command, forwarding it to the leader if necessary. The state machine
    /// delivers the result or is notified that the command is lost.
    pub fn propose(&self, command: Bytes, request: u64) -> Result<(), NodeError> {
        // Without a leader nothing is queued: the caller waits for an election and knows its own
        // timeout.
        let leader = self.shared.current_leader().ok_or(NodeError::NoLeader)?;
        if leader == self.shared.member {
            return self.propose_here(command, request);
        }
        self.forwards
            .send(ForwardedCommand { command, request })
            .map_err(|_| stopping_error())
    }

    /// Proposes an encoded command on the leader. If another member is the leader, the command is
    /// rejected.
    pub fn propose_leading(&self, command: Bytes, request: u64) -> Result<(), NodeError> {
        if self.shared.is_leader() {
            self.propose_here(command, request)
        } else {
            Err(NodeError::NotLeader)
        }
    }

    fn propose_here(&self, command: Bytes, request: u64) -> Result<(), NodeError> {
        let proposal = Proposal {
            commands: command,
            origin: Origin::Here(request),
        };
        self.shared
            .proposals
            .send(proposal)
            .map_err(|_| stopping_error())
    }

    /// Waits until a read of this member's state is linearizable (ReadIndex, Raft thesis 6.4).
    pub async fn read_index(&self, timeout: Duration) -> Result<(), NodeError> {
        // The leader's usual case needs no channel and no other task.
        let index = match self.shared.leased_read_index() {
            Some(index) => index,
            None => tokio::time::timeout(timeout, self.request_read_index())
                .await
                .map_err(|_| NodeError::TimedOut)??,
        };
        let mut applied = self.shared.applied.clone();
        if *applied.borrow() >= index {
            return Ok(());
        }
        match tokio::time::timeout(timeout, applied.wait_for(|applied| *applied >= index)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(stopping_error()),
            Err(_) => Err(NodeError::TimedOut),
        }
    }

    /// Returns whether a read of this member's state is linearizable now, without waiting.
    pub fn is_current(&self) -> bool {
        self.shared
            .leased_read_index()
            .is_some_and(|index| *self.shared.applied.borrow() >= index)
    }

    async fn request_read_index(&self) -> Result<u64, NodeError> {
        loop {
            let (sender, receiver) = oneshot::channel();
            self.reads.send(sender).map_err(|_| stopping_error())?;
            if let Some(index) = receiver.await.map_err(|_| stopping_error())? {
                return Ok(index);
            }
            // There is no leader, or it can't confirm its leadership yet.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns this member's view of the cluster.
    pub fn status(&self) -> Status {
        // Before the metrics are borrowed, because both borrow them too.
        let (stopped, has_leader) = (self.stop_reason(), self.has_leader());
        let server = self.shared.raft_metrics();
        let data = self.shared.raft.data_metrics();
        let data = data.borrow();
        let membership = server.membership_config.membership();
        let matched = data.replication.iter().flatten();
        Status {
            term: server.vote.leader_id.term,
            leader: server.current_leader,
            has_leader,
            leading: server.state.is_leader(),
            last_index: data.last_log.map_or(0, |id| id.index),
            applied: *self.shared.applied.borrow(),
            committed: self.shared.committed.load(Ordering::Acquire),
            voters: membership.voter_ids().collect(),
            learners: membership.learner_ids().collect(),
            coming_voters: membership
                .get_joint_config()
                .last()
                .cloned()
                .unwrap_or_default(),
            matched: matched
                .map(|(id, last)| (*id, last.map_or(0, |id| id.index)))
                .collect(),
            pending: self.shared.counters.pending.load(Ordering::Relaxed),
            failed: self.shared.counters.failed.load(Ordering::Relaxed),
            late_heartbeats: self.shared.counters.late_heartbeats.load(Ordering::Relaxed),
            stopped,
        }
    }

    /// Waits until replication has stopped and returns the reason. Replication does not restart by
    /// itself.
    pub async fn wait_until_stopped(&self) -> String {
        // The server metrics change rarely and close with replication. The complete metrics, which
        // hold the reason, change with each entry.
        let mut server = self.shared.raft.server_metrics();
        let core = async { while server.changed().await.is_ok() {} };
        tokio::select! {
            () = core => {}
            () = self.shared.loops.shutdown().cancelled() => {}
        }
        self.stop_reason()
            .unwrap_or_else(|| "shutdown was requested".to_owned())
    }

    /// Returns the reason why replication has stopped.
    fn stop_reason(&self) -> Option<String> {
        let running = self.shared.raft.metrics().borrow().running_state.clone();
        find_stop_cause(running, self.shared.loops.failure())
    }

    /// Returns the current term, cheaper than `status`.
    pub fn current_term(&self) -> u64 {
        self.shared.current_term()
    }

    /// Returns whether this member is in contact with the leader, or leads a quorum.
    pub fn has_leader(&self) -> bool {
        self.shared.has_leader()
    }

    /// Returns the configured election timeout, extended if disk or network are slow.
    pub fn election_timeout(&self) -> Duration {
        self.shared.election_timeout()
    }

    /// Returns whether this member is the leader and holds its lease.
    pub fn has_confirmed_leadership(&self) -> bool {
        self.shared.leased_read_index().is_some()
    }

    /// Waits until term or leader differ from `known`.
    pub async fn wait_for_leader_change(&self, known: (u64, Option<u64>)) {
        let mut metrics = self.shared.raft.server_metrics();
        if metrics
            .wait_for(|m| (m.vote.leader_id.term, m.current_leader) != known)
            .await
            .is_err()
        {
            // Replication has stopped: nothing changes any more.
            std::future::pending::<()>().await;
        }
    }

    /// Adds a learner. Succeeds without effect if the member is one already.
    pub async fn add_learner(&self, id: u64) -> Result<(), NodeError> {
        let _turn = self.shared.changes.lock().await;
        // Not blocking: a new member may need minutes to catch up, and `changes` is locked here.
        let added = self.shared.raft.add_learner(id, EmptyNode {}, false).await;
        added.map(drop).map_err(|e| NodeError::Raft(e.to_string()))
    }

    /// Promotes a learner to a voter.
    pub async fn promote_learner(&self, id: u64) -> Result<(), NodeError> {
        self.change_membership(ChangeMembers::AddVoterIds(BTreeSet::from([id])), true)
            .await
    }

    /// Removes a member from the membership.
    pub async fn remove_member(&self, id: u64) -> Result<(), NodeError> {
        if self.status().voters.contains(&id) {
            self.change_membership(ChangeMembers::RemoveVoters(BTreeSet::from([id])), false)
                .await?;
        }
        if self.status().learners.contains(&id) {
            self.change_membership(ChangeMembers::RemoveNodes(BTreeSet::from([id])), false)
                .await?;
        }
        Ok(())
    }

    async fn change_membership(
        &self,
        change: ChangeMembers<u64, EmptyNode>,
        retain: bool,
    ) -> Result<(), NodeError> {
        let _turn = self.shared.changes.lock().await;
        let changed = self.shared.raft.change_membership(change, retain).await;
        changed
            .map(drop)
            .map_err(|e| NodeError::Raft(e.to_string()))
    }

    /// Sends a peer RPC to a known member. Returns `None` if that member does not handle it.
    pub async fn call_peer(
        &self,
        id: u64,
        kind: u32,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Option<Bytes>, NodeError> {
        let mut client = self
            .shared
            .transport
            .peer_client(id)
            .map_err(|e| NodeError::Raft(e.to_string()))?;
        let request = self.shared.transport.build_request(
            id,
            pb::ServiceRequest { kind, body },
            Some(timeout),
        );
        let response = client.call_service(request).await.map_err(|status| {
            self.shared.record_peer_rejection(id, &status);
            NodeError::Raft(status.to_string())
        })?;
        let response = response.into_inner();
        Ok(response.handled.then_some(response.body))
    }

    /// Sends a peer RPC to a URL whose member is not known yet.
    pub async fn call_peer_url(
        url: &str,
        tls: PeerTls,
        kind: u32,
        body: Bytes,
    ) -> Result<Option<Bytes>, NodeError> {
        let failed = |e: &dyn std::fmt::Display| NodeError::Raft(e.to_string());
        let mut client = Transport::peer_client_at(url, tls).map_err(|e| failed(&e))?;
        let mut request = tonic::Request::new(pb::ServiceRequest { kind, body });
        request.set_timeout(Duration::from_secs(3));
        request
            .metadata_mut()
            // The caller has no member ID yet, which every other call must present.
            .insert(JOINING, tonic::metadata::MetadataValue::from_static("1"));
        let response = client
            .call_service(request)
            .await
            .map_err(|status| failed(&status))?
            .into_inner();
        Ok(response.handled.then_some(response.body))
    }

    /// Replaces the connections to other members that are older than the TLS configuration of
    /// [`Config::tls`]. Returns the outcome for each of these members.
    pub async fn replace_outdated_connections(&self) -> Vec<(u64, ReplaceOutcome)> {
        self.shared.transport.replace_outdated_channels().await
    }

    /// Returns the gRPC service for peers.
    pub fn peer_service(&self) -> PeerService {
        PeerService::new(self.shared.clone())
    }

    /// Stops replication. The log is closed when its last user is dropped.
    pub async fn shutdown(&self) {
        // The loops stop first: they would report the end of replication as a failure.
        self.shared.loops.shutdown().cancel();
        if let Err(e) = self.shared.raft.shutdown().await {
            tracing::warn!(error = %e, "shutting down replication failed");
        }
    }
}
