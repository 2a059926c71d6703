//! State shared by the tasks of a Raft node, and the questions of leadership that it decides: role,
//! lease, read index.

use crate::config::Config;
use crate::election_timeout::adapt_timeout;
use crate::leader_calls::LeaderCalls;
use crate::lease::Lease;
use crate::pb;
use crate::peer::PeerHandler;
use crate::propose::{Counters, Proposal, ProposalBlock};
use crate::state::StateMachine;
use crate::transport::{REMOVED, Transport};
use crate::types::{LogId, Raft, RaftMetrics, Vote};
use crate::vote_guard::{AdmittedVote, Reason, VoteGuard};
use base_task::Tasks;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub(crate) struct Shared {
    pub member: u64,
    pub raft: Raft,
    pub transport: Arc<Transport>,
    pub machine: Arc<dyn StateMachine>,
    pub peer_handler: Arc<dyn PeerHandler>,
    pub lease: Arc<Lease>,
    pub proposals: mpsc::UnboundedSender<Proposal>,
    pub spool: PathBuf,
    pub vote_guard: Arc<VoteGuard>,
    pub leader_calls: LeaderCalls,
    pub timeout_now_transfer: Arc<Mutex<Option<pb::Transfer>>>,
    pub config: Config,
    pub committed: Arc<AtomicU64>,
    pub applied: watch::Receiver<u64>,
    /// Index of the last snapshot whose installation began.
    pub installed: Arc<AtomicU64>,
    /// Vote of the current leadership, and the index from which it may serve reads.
    pub leadership: Mutex<Option<(Vote, u64)>>,
    /// Serialises leadership transfers and membership changes.
    pub changes: tokio::sync::Mutex<()>,
    /// Deadline until which a leadership transfer blocks proposals.
    pub proposal_block: ProposalBlock,
    pub counters: Arc<Counters>,
    /// Tasks of replication outside openraft.
    pub loops: Tasks,
}

impl Shared {
    /// Returns role, vote and membership. openraft publishes three sets of metrics one after the
    /// other: data, server, all. Combine only values of the same set.
    pub fn raft_metrics(&self) -> RaftMetrics {
        self.raft.server_metrics().borrow().clone()
    }

    pub fn current_leader(&self) -> Option<u64> {
        self.raft.server_metrics().borrow().current_leader
    }

    pub fn is_leader(&self) -> bool {
        self.raft.server_metrics().borrow().state.is_leader()
    }

    /// Admits a vote request to openraft, unless the current leader is within its lease or was
    /// heard within an election timeout. Votes of an open leadership transfer are always admitted.
    pub fn admit_vote(&self, term: u64, transfer: Option<&pb::Transfer>) -> Option<AdmittedVote> {
        let for_transfer = transfer.and_then(|transfer| {
            self.vote_guard
                .admit_vote(term, &Reason::Transfer(transfer))
        });
        if for_transfer.is_some() {
            return for_transfer;
        }
        if !self.is_leader() {
            return self
                .vote_guard
                .admit_vote(term, &Reason::Silence(self.config.election_timeout));
        }
        // While a vote is admitted, `leased_read_index` grants no lease-based read. So a lease that
        // holds now was held before the admission.
        let admitted = self.vote_guard.admit_vote(term, &Reason::Always)?;
        if self.holds_lease() {
            admitted.record_rejection();
            return None;
        }
        Some(admitted)
    }

    pub fn current_term(&self) -> u64 {
        self.raft.server_metrics().borrow().vote.leader_id.term
    }

    /// Returns whether this member is the only voter.
    pub fn is_only_voter(&self) -> bool {
        let server = self.raft_metrics();
        let mut voters = server.membership_config.membership().voter_ids();
        voters.next() == Some(self.member) && voters.next().is_none()
    }

    pub fn vote_and_last(&self) -> (Vote, Option<LogId>) {
        let data = self.raft.data_metrics().borrow().last_log;
        (self.raft.server_metrics().borrow().vote, data)
    }

    pub fn configs_and_last(&self) -> (Vec<BTreeSet<u64>>, Option<LogId>) {
        let last = self.raft.data_metrics().borrow().last_log;
        (self.joint_configs(), last)
    }

    fn joint_configs(&self) -> Vec<BTreeSet<u64>> {
        self.raft_metrics()
            .membership_config
            .membership()
            .get_joint_config()
            .clone()
    }

    /// Returns the configured election timeout, extended if disk or network are slow.
    pub fn election_timeout(&self) -> Duration {
        let sync = Duration::from_micros(self.config.sync_micros.load(Ordering::Relaxed));
        let voters: Vec<u64> = self.joint_configs().into_iter().flatten().collect();
        let trips = voters
            .iter()
            .filter_map(|id| self.transport.directory.health(*id));
        let round_trip = trips
            .map(|health| health.round_trip)
            .max()
            .unwrap_or_default();
        adapt_timeout(self.config.election_timeout, sync, round_trip)
    }

    /// Returns whether this member is in contact with the leader, or, as the leader, with a quorum.
    ///
    /// etcd's members forget the leader between one and two election timeouts after the last
    /// contact. openraft keeps it until a new one is elected.
    pub fn has_leader(&self) -> bool {
        let server = self.raft_metrics();
        let length = 2 * self.election_timeout();
        match server.current_leader {
            Some(leader) if leader == self.member => {
                let configs = server.membership_config.membership().get_joint_config();
                let term = server.vote.leader_id.term;
                self.lease
                    .has_quorum_within((term, self.member), configs, length)
            }
            Some(_) => self.leader_calls.are_recent(length),
            None => false,
        }
    }

    pub fn holds_lease(&self) -> bool {
        // The margin of one tenth covers clocks that run at different speeds.
        self.lease.holds(
            self.current_term(),
            self.member,
            &self.joint_configs(),
            self.config.election_timeout.mul_f64(0.9),
        )
    }

    /// Returns whether a quorum has acknowledged this leader. A transfer starts only afterwards,
    /// because voters grant its votes only for a leader that they know.
    pub fn is_acknowledged_by_quorum(&self, term: u64) -> bool {
        self.lease
            .is_confirmed(term, self.member, &self.joint_configs(), Duration::ZERO)
    }

    /// Returns the read index if this member is the leader and holds its lease.
    pub fn leased_read_index(&self) -> Option<u64> {
        let server = self.raft_metrics();
        server.state.is_leader().then_some(())?;
        let term = server.vote.leader_id.term;
        let configs = server.membership_config.membership().get_joint_config();
        // The margin of one tenth covers clocks that run at different speeds.
        let holds = self.lease.holds(
            term,
            self.member,
            configs,
            self.config.election_timeout.mul_f64(0.9),
        );
        // The lease is checked before the votes: a vote admitted between both checks is later than
        // the time at which the lease held.
        (holds && self.vote_guard.has_no_conflicting_vote(term))
            .then(|| self.read_index_of(&server))
    }

    /// Returns the read index. Only valid on the leader.
    fn read_index_of(&self, server: &RaftMetrics) -> u64 {
        let mut leadership = self.leadership.lock();
        let barrier = match *leadership {
            Some((vote, barrier)) if vote == server.vote => barrier,
            _ => {
                // In a new term, everything that earlier leaders acknowledged is in the log, up to
                // its end.
                let last = self
                    .raft
                    .data_metrics()
                    .borrow()
                    .last_log
                    .map_or(0, |id| id.index);
                *leadership = Some((server.vote, last));
                last
            }
        };
        drop(leadership);
        // The commit index may lag behind the barrier until an entry of this term is committed
        // (Raft thesis 6.4).
        barrier.max(self.committed.load(Ordering::Acquire))
    }

    /// Returns the read index like `leased_read_index`. Without a lease it confirms leadership by a
    /// round of heartbeats first.
    pub async fn confirm_read_index(&self, timeout: Duration) -> Option<u64> {
        let deadline = Instant::now() + timeout;
        // Only responses to calls sent from now on prove that this member still leads.
        let asked = self.lease.now();
        loop {
            // Registered before the check, so that a response in between is not missed.
            let renewed = self.lease.renewed.notified();
            if let Some(index) = self.leased_read_index() {
                return Some(index);
            }
            let server = self.raft_metrics();
            let (term, membership) = (
                server.vote.leader_id.term,
                server.membership_config.membership(),
            );
            let confirmed =
                self.lease
                    .is_confirmed(term, self.member, membership.get_joint_config(), asked);
            if server.state.is_leader() && confirmed {
                // During a leadership transfer there is no lease, but a quorum has just
                // acknowledged this leader.
                return Some(self.read_index_of(&server));
            }
            if !self.is_leader() || Instant::now() >= deadline {
                return None;
            }
            if self.raft.trigger().heartbeat().await.is_err() {
                return None;
            }
            let _ = tokio::time::timeout(self.config.heartbeat, renewed).await;
        }
    }

    /// Records that a peer rejected a call, possibly because this member was removed.
    pub fn record_peer_rejection(&self, id: u64, status: &tonic::Status) {
        self.transport.record_failure(id);
        if status.code() == tonic::Code::PermissionDenied && status.message().contains(REMOVED) {
            self.peer_handler.on_removed();
        }
    }
}

/// Sends heartbeats while this member is the leader of a cluster with other members.
pub(crate) async fn run_heartbeats(shared: Arc<Shared>) {
    let mut changes = shared.raft.server_metrics();
    // Time of the last heartbeat, while this member is the leader.
    let mut last: Option<Instant> = None;
    loop {
        let server = changes.borrow_and_update().clone();
        let others = server.membership_config.membership().nodes().count() > 1;
        // Ticks make openraft step down after this member's removal, which also requires other
        // members.
        shared.raft.runtime_config().tick(others);
        if server.state.is_leader() && others {
            let late = last
                .replace(Instant::now())
                .map(|last| last.elapsed())
                .unwrap_or_default();
            if late > 2 * shared.config.heartbeat {
                shared
                    .counters
                    .late_heartbeats
                    .fetch_add(1, Ordering::Relaxed);
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
            // A change of role or membership takes effect at once, not after an interval.
            let _ = tokio::time::timeout(shared.config.heartbeat, changes.changed()).await;
        } else {
            last = None;
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}
