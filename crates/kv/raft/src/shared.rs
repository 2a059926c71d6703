//! What the parts of a member's replication share, and what can be said from it: who leads, with what certainty, up to where.

use crate::elector;
use crate::lease::Lease;
use crate::node::Config;
use crate::pb;
use crate::peer::Answerer;
use crate::promise::{Passing, Promise, Reason};
use crate::propose::{Counters, Held, Proposal};
use crate::state::StateMachine;
use crate::transport::{REMOVED, Transport};
use crate::types::{LogId, Raft, Server, Vote};
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
    pub answerer: Arc<dyn Answerer>,
    pub lease: Arc<Lease>,
    pub proposals: mpsc::UnboundedSender<Proposal>,
    pub spool: PathBuf,
    pub promise: Arc<Promise>,
    pub standing: Arc<Mutex<Option<pb::Transfer>>>,
    pub config: Config,
    pub committed: Arc<AtomicU64>,
    pub applied: watch::Receiver<u64>,
    /// Vote of this leadership, and the index from which on it may answer reads.
    pub leadership: Mutex<Option<(Vote, u64)>>,
    /// Held by whoever gives leadership away, or has something proposed of the members: one at a time.
    pub changes: tokio::sync::Mutex<()>,
    /// Until when proposals wait for a transfer of leadership.
    pub held: Held,
    pub counters: Arc<Counters>,
    /// What replication consists of besides openraft.
    pub loops: Tasks,
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

    /// Whether a quorum has acknowledged this leadership: others would not let a vote pass because it is given away.
    pub fn known(&self, term: u64) -> bool {
        self.lease.confirmed(term, self.member, &self.configs(), Duration::ZERO)
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
pub(crate) async fn heartbeats(shared: Arc<Shared>) {
    let mut changes = shared.raft.server_metrics();
    // When the last one was sent, while this member leads.
    let mut last: Option<Instant> = None;
    loop {
        let server = changes.borrow_and_update().clone();
        let others = server.membership_config.membership().nodes().count() > 1;
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
