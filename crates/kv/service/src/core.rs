//! What every service uses: proposing, reading, headers, who calls.

use crate::accept::Connection;
use crate::intake::Budget;
use crate::jwt::Jwt;
use crate::meters::Meters;
use crate::passwords::Passwords;
use crate::peer_access::PeerAccess;
use crate::settings::Connected;
use crate::slow::{self, Phase};
use crate::tokens;
use bytes::{Bytes, BytesMut};
use kv_machine::{Caller, Code, Command, Envelope, Machine, Outcome, Refusal, Reply, encode_into};
use kv_mvcc::{Hub, Store};
use kv_raft::{Directory, Node, NodeError};
use kv_wal::Identity;
use proto_etcd::etcdserverpb::ResponseHeader;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

/// Bounds and times of a member.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub max_request: usize,
    pub request_timeout: Duration,
    pub min_lease_ttl: i64,
    pub quota: u64,
    pub progress_interval: Duration,
    pub client_cert_auth: bool,
    pub max_learners: usize,
    /// Whether changes of members that would leave too few live voters are refused.
    pub strict_reconfig: bool,
    /// A request that takes longer is told in the log.
    pub slow_request: Duration,
    /// And one whose command takes longer to be applied.
    pub slow_apply: Duration,
    /// How much time a lease's checkpoint may be behind.
    pub checkpoint_every: Duration,
    pub connected: Connected,
    /// Whether the times of calls are among the metrics.
    pub detailed_metrics: bool,
    /// Whether members may have peer URLs without TLS.
    pub insecure_members: bool,
    /// How other members get in.
    pub access: PeerAccess,
}

/// A running member.
pub(crate) struct Core {
    pub identity: Identity,
    pub machine: Arc<Machine>,
    pub node: Node,
    /// What replication consists of: when one of them fails, so has replication.
    #[cfg(test)]
    pub loops: base_task::Tasks,
    pub hub: Arc<Hub>,
    pub directory: Arc<Directory>,
    /// None: tokens are simple ones.
    pub jwt: Option<Arc<Jwt>>,
    pub meters: Arc<Meters>,
    pub passwords: Passwords,
    pub intake: Arc<Budget>,
    pub bounds: Bounds,
    pub shutdown: CancellationToken,
    /// Held to write by who notes lease checkpoints, to read by who takes them back.
    pub checkpoints: tokio::sync::RwLock<()>,
    pub initial: Vec<proto_etcd::etcdserverpb::Member>,
    pub on_removed: Box<dyn Fn() + Send + Sync>,
    /// Folder for files that are made and sent.
    pub spool: std::path::PathBuf,
}

/// A refusal as gRPC has it.
pub(crate) fn status(refusal: Refusal) -> Status {
    let code = match refusal.code() {
        Code::InvalidArgument => tonic::Code::InvalidArgument,
        Code::NotFound => tonic::Code::NotFound,
        Code::OutOfRange => tonic::Code::OutOfRange,
        Code::FailedPrecondition => tonic::Code::FailedPrecondition,
        Code::PermissionDenied => tonic::Code::PermissionDenied,
        Code::Unauthenticated => tonic::Code::Unauthenticated,
        Code::ResourceExhausted => tonic::Code::ResourceExhausted,
        Code::Unavailable => tonic::Code::Unavailable,
        Code::DataLoss => tonic::Code::DataLoss,
        Code::Canceled => tonic::Code::Cancelled,
        Code::Internal => tonic::Code::Internal,
        Code::Unimplemented => tonic::Code::Unimplemented,
    };
    Status::new(code, refusal.to_string())
}

fn of_node(error: &NodeError) -> Refusal {
    match error {
        NodeError::NoLeader => Refusal::NoLeader,
        NodeError::NotLeader => Refusal::NotLeader,
        NodeError::TimedOut => Refusal::TimedOut,
        NodeError::Storage(_) | NodeError::Raft(_) => Refusal::Stopped,
    }
}

impl Core {
    pub fn store(&self) -> &Arc<Store> {
        self.machine.store()
    }

    /// A header with the present revision.
    pub fn header(&self) -> Option<ResponseHeader> {
        self.header_at(self.store().revision())
    }

    pub fn header_at(&self, revision: i64) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: self.identity.cluster,
            member_id: self.identity.member,
            revision,
            raft_term: self.node.term(),
        })
    }

    /// This member was removed: it stops.
    pub fn removed(&self) {
        (self.on_removed)();
    }

    /// Whether this member has no vote yet.
    pub fn is_learner(&self) -> bool {
        self.machine.members(|members| members.get(self.identity.member).is_some_and(|member| member.is_learner))
    }

    /// Refuses what a learner does not do.
    pub fn not_for_learners(&self) -> Result<(), Status> {
        if self.is_learner() { Err(status(Refusal::NotForLearner)) } else { Ok(()) }
    }

    /// Proposes a command and waits until it is applied here.
    pub async fn submit(&self, caller: &Caller, command: Command) -> Result<(Outcome, Option<ResponseHeader>), Status> {
        let (outcome, revision) = self.submit_raw(caller, command).await.map_err(status)?;
        Ok((outcome, self.header_at(revision)))
    }

    pub async fn submit_raw(&self, caller: &Caller, command: Command) -> Result<(Outcome, i64), Refusal> {
        self.machine.check_command(caller, &command)?;
        let (request, receiver) = self.machine.wait();
        let bytes = self.encoded(caller, command, request);
        if !caller.internal && bytes.len() > self.bounds.max_request + 512 {
            self.machine.give_up(request);
            return Err(Refusal::TooLarge);
        }
        if let Err(e) = self.propose(bytes, request).await {
            self.machine.give_up(request);
            return Err(e);
        }
        slow::passed(Phase::Proposed);
        self.reply(request, receiver).await
    }

    /// As the leader, what is for no other leader to carry out.
    pub async fn submit_leading(&self, command: Command) -> Result<(Outcome, i64), Refusal> {
        let (request, receiver) = self.machine.wait();
        if let Err(e) = self.node.propose_leading(self.encoded(&Caller::internal(), command, request), request) {
            self.machine.give_up(request);
            return Err(of_node(&e));
        }
        self.reply(request, receiver).await
    }

    fn encoded(&self, caller: &Caller, command: Command, request: u64) -> Bytes {
        let envelope = Envelope {
            origin: self.identity.member,
            request,
            user: caller.user.clone(),
            auth_revision: caller.auth_revision,
            internal: caller.internal,
            command: Some(command),
        };
        let mut bytes = BytesMut::new();
        encode_into(&mut bytes, &envelope);
        bytes.freeze()
    }

    async fn reply(&self, request: u64, receiver: oneshot::Receiver<Reply>) -> Result<(Outcome, i64), Refusal> {
        tokio::select! {
            reply = tokio::time::timeout(self.bounds.request_timeout, receiver) => match reply {
                Ok(Ok(reply)) => {
                    slow::passed_at(Phase::Committed, reply.begun);
                    slow::passed_at(Phase::Applied, reply.applied);
                    reply.result.map(|outcome| (outcome, reply.revision))
                }
                Ok(Err(_)) => Err(Refusal::LeaderChanged),
                Err(_) => {
                    self.machine.give_up(request);
                    Err(Refusal::TimedOut)
                }
            },
            () = self.shutdown.cancelled() => Err(Refusal::Stopped),
        }
    }

    /// Hands a command to the leader, waiting a moment for one where there is none.
    async fn propose(&self, command: Bytes, request: u64) -> Result<(), Refusal> {
        let deadline = tokio::time::Instant::now() + self.bounds.request_timeout;
        loop {
            match self.node.propose(command.clone(), request) {
                Ok(()) => return Ok(()),
                Err(NodeError::NoLeader) => {}
                Err(e) => return Err(of_node(&e)),
            }
            let known = {
                let status = self.node.status();
                (status.term, status.leader)
            };
            tokio::select! {
                () = self.node.changed(known) => {}
                () = tokio::time::sleep_until(deadline) => return Err(Refusal::TimedOut),
            }
        }
    }

    /// Returns when reads see everything acknowledged before.
    pub async fn read_barrier(&self) -> Result<(), Status> {
        if self.node.is_current() {
            return Ok(());
        }
        let began = Instant::now();
        let barrier = self.node.read_barrier(self.bounds.request_timeout);
        let done = tokio::select! {
            done = barrier => done.map_err(|e| of_node(&e)),
            () = self.shutdown.cancelled() => Err(Refusal::Stopped),
        };
        slow::passed(Phase::Current);
        self.meters.read_barrier(began.elapsed() > self.bounds.slow_request, done.is_ok());
        done.map_err(status)
    }

    /// Whose token it is.
    pub fn logged_in(&self, token: &str) -> Option<Caller> {
        match &self.jwt {
            Some(jwt) => jwt.caller(token),
            None => {
                self.machine.token_user(&tokens::known_form(token)?).map(|user| Caller { user, ..Caller::default() })
            }
        }
    }

    /// Returns when the login that a simple token is of has been applied here, which may be later than where it was given
    /// out, or when it is no use to wait any more.
    pub async fn login_applied(&self, token: &str) {
        let index = token.rsplit_once('.').and_then(|(_, index)| index.parse::<u64>().ok());
        let (None, Some(index)) = (&self.jwt, index) else { return };
        let mut applied = self.machine.applied();
        let reached = applied.wait_for(|at: &u64| *at >= index);
        // If it does not come to that, the token is not known.
        let _ = tokio::time::timeout(self.bounds.request_timeout, reached).await;
    }

    /// On whose behalf a request comes: its token, or else its certificate.
    pub fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        if !self.machine.auth(|auth| auth.enabled) {
            return Ok(Caller::default());
        }
        if let Some(token) = token(request) {
            return self.logged_in(&token).ok_or_else(|| status(Refusal::InvalidToken));
        }
        let connection = request.extensions().get::<Connection>().filter(|_| self.bounds.client_cert_auth);
        let shown = connection.and_then(|connection| connection.peer.certificates.first());
        let user = shown.and_then(|certificate| common_name(certificate)).unwrap_or_default();
        Ok(Caller { user, ..Caller::default() })
    }
}

/// The token that a request brings.
pub(crate) fn token<T>(request: &Request<T>) -> Option<String> {
    let token = request.metadata().get("token").or_else(|| request.metadata().get("authorization"))?;
    Some(token.to_str().unwrap_or_default().to_owned())
}

/// The common name of a certificate's subject.
pub(crate) fn common_name(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    Some(name.to_owned())
}
