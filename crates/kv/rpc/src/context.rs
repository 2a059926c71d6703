//! Context shared by all services: proposals, reads, response headers, identity of callers.

use crate::jwt::Jwt;
use crate::metrics::StoreMetrics;
use crate::passwords::Passwords;
use crate::slow_request::{self, Phase, SlowLimits};
use crate::tokens;
use base_tls::CertificateFiles;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::request::Parts;
use kv_config::PeerAccess;
use kv_machine::{
    Caller, Code, Command, Envelope, EtcdError, Machine, Outcome, Reply, encode_into,
};
use kv_mvcc::{Hub, Store};
use kv_raft::{Directory, NodeError, RaftNode};
use kv_transport::{ClientTraffic, Connection};
use kv_wal::Identity;
use proto_etcd::etcdserverpb::ResponseHeader;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

/// Limits and intervals of a member.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// Maximum size of a proposal in bytes.
    pub max_request: usize,
    /// Time until a request fails without a leader or a quorum.
    pub request_timeout: Duration,
    /// Minimum TTL of a lease in seconds.
    pub min_lease_ttl: i64,
    /// Quota of the data in bytes.
    pub quota: u64,
    /// Interval of progress notifications.
    pub progress_interval: Duration,
    /// True if the common name of a client's certificate is its user.
    pub client_cert_auth: bool,
    /// Maximum number of learners.
    pub max_learners: usize,
    /// Rejects membership changes that would leave too few live voters.
    pub strict_reconfig: bool,
    /// A request that takes longer is logged with its phases.
    pub slow: SlowLimits,
    /// Maximum age of a lease checkpoint.
    pub checkpoint_every: Duration,
    /// True if metrics include the durations of calls.
    pub detailed_metrics: bool,
    /// True if members may have peer URLs without TLS.
    pub insecure_members: bool,
    /// Proof required from callers of the peer port.
    pub access: PeerAccess,
}

/// A running member.
pub struct ServerContext {
    /// IDs of the member and of its cluster.
    pub identity: Identity,
    /// The replicated state.
    pub machine: Arc<Machine>,
    /// Replication.
    pub node: RaftNode,
    /// Events of watchers.
    pub hub: Arc<Hub>,
    /// Sends when this member has had no leader for some time.
    pub leader_losses: tokio::sync::watch::Sender<()>,
    /// Addresses and health of the members.
    pub directory: Arc<Directory>,
    /// Signs and verifies JWTs; `None` with simple tokens.
    pub jwt: Option<Arc<Jwt>>,
    /// The files of this member's own certificates.
    pub certificates: CertificateFiles,
    /// Counters and histograms.
    pub metrics: Arc<StoreMetrics>,
    /// Hashes and verifies passwords.
    pub passwords: Passwords,
    /// Limits and counters of clients' requests.
    pub traffic: Arc<ClientTraffic>,
    /// Limits and intervals.
    pub bounds: ServerLimits,
    /// Cancelled when the member stops.
    pub shutdown: CancellationToken,
    /// When this member started.
    pub started: tokio::time::Instant,
    /// Write-locked while lease checkpoints are proposed, read-locked while they are cleared.
    pub checkpoints: tokio::sync::RwLock<()>,
    /// Members that are known before the log names them.
    pub initial: Vec<proto_etcd::etcdserverpb::Member>,
    /// Called when the member was removed from the cluster.
    pub on_removed: Box<dyn Fn() + Send + Sync>,
    /// Directory for temporary files.
    pub spool: std::path::PathBuf,
}

/// Converts an error of the state machine to a gRPC status.
pub(crate) fn to_status(refusal: EtcdError) -> Status {
    let code = match refusal.grpc_code() {
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

fn etcd_error(error: &NodeError) -> EtcdError {
    match error {
        NodeError::NoLeader => EtcdError::NoLeader,
        NodeError::NotLeader => EtcdError::NotLeader,
        NodeError::TimedOut => EtcdError::TimedOut,
        NodeError::Storage(_) | NodeError::Raft(_) => EtcdError::Stopped,
    }
}

impl ServerContext {
    /// Returns the keys.
    pub fn store(&self) -> &Arc<Store> {
        self.machine.store()
    }

    /// Returns a response header with the current revision.
    pub fn header(&self) -> Option<ResponseHeader> {
        self.header_at(self.store().current_revision())
    }
    /// Returns a response header with this revision.
    // By the IDs, a client can check that revisions come from the cluster it knows.
    pub fn header_at(&self, revision: i64) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: self.identity.cluster,
            member_id: self.identity.member,
            revision,
            raft_term: self.node.current_term(),
        })
    }

    /// Stops this member after its removal from the cluster.
    pub fn on_removed(&self) {
        (self.on_removed)();
    }

    /// Returns whether this member is a learner.
    pub fn is_learner(&self) -> bool {
        self.machine.with_members(|members| {
            members
                .get(self.identity.member)
                // A member that is not listed yet counts as a voter: before the first command, the
                // flags name only voters.
                .is_some_and(|member| member.is_learner)
        })
    }

    /// Rejects a request that a learner does not serve.
    pub fn not_for_learners(&self) -> Result<(), Status> {
        if self.is_learner() {
            Err(to_status(EtcdError::NotForLearner))
        } else {
            Ok(())
        }
    }

    /// Proposes a command and waits until this member has applied it.
    pub async fn submit(
        &self,
        caller: &Caller,
        command: Command,
    ) -> Result<(Outcome, Option<ResponseHeader>), Status> {
        let (outcome, revision) = self.submit_raw(caller, command).await.map_err(to_status)?;
        Ok((outcome, self.header_at(revision)))
    }
    /// Like `submit`; returns the revision instead of a header.
    pub async fn submit_raw(
        &self,
        caller: &Caller,
        command: Command,
    ) -> Result<(Outcome, i64), EtcdError> {
        // Checked here for a prompt error, and again when the command is applied: the permissions
        // may change in between, and only the log's order decides.
        self.machine.check_command(caller, &command)?;
        // Registered before the proposal, because the entry may be applied before `propose`
        // returns.
        let (request, receiver) = self.machine.register_request();
        let bytes = self.encode_command(caller, command, request);
        // The store's own commands are not bounded: rejecting a revocation or an alarm would leave
        // the cluster stuck. The envelope around a client's command has up to 512 bytes.
        if !caller.internal && bytes.len() > self.bounds.max_request + 512 {
            self.machine.cancel_request(request);
            return Err(EtcdError::TooLarge);
        }
        if let Err(e) = self.propose(bytes, request).await {
            // A registration without an entry would never be answered and would stay in memory.
            self.machine.cancel_request(request);
            return Err(e);
        }
        slow_request::record_phase(Phase::Proposed);
        self.wait_for_reply(request, receiver).await
    }

    /// Proposes a command that is only valid while this member is the leader.
    // A deposed leader must not propose expirations: its deadlines of leases may be out of date.
    pub async fn submit_leading(&self, command: Command) -> Result<(Outcome, i64), EtcdError> {
        let (request, receiver) = self.machine.register_request();
        if let Err(e) = self.node.propose_leading(
            self.encode_command(&Caller::internal(), command, request),
            request,
        ) {
            self.machine.cancel_request(request);
            return Err(etcd_error(&e));
        }
        self.wait_for_reply(request, receiver).await
    }

    fn encode_command(&self, caller: &Caller, command: Command, request: u64) -> Bytes {
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

    async fn wait_for_reply(
        &self,
        request: u64,
        receiver: oneshot::Receiver<Reply>,
    ) -> Result<(Outcome, i64), EtcdError> {
        tokio::select! {
            reply = tokio::time::timeout(self.bounds.request_timeout, receiver) => match reply {
                Ok(Ok(reply)) => {
                    slow_request::record_phase_at(Phase::Committed, reply.begun);
                    slow_request::record_phase_at(Phase::Applied, reply.applied);
                    reply.result.map(|outcome| (outcome, reply.revision))
                }
                // The waiter was dropped: a new leader has overwritten the entry, or a snapshot of
                // the leader took its place.
                Ok(Err(_)) => Err(EtcdError::LeaderChanged),
                Err(_) => {
                    // The command may still be applied later. As in etcd, the client can't know.
                    self.machine.cancel_request(request);
                    Err(EtcdError::TimedOut)
                }
            },
            // A stopping member applies nothing more, so that the reply would never come.
            () = self.shutdown.cancelled() => Err(EtcdError::Stopped),
        }
    }

    /// Proposes a command. Without a leader it retries until the request timeout.
    async fn propose(&self, command: Bytes, request: u64) -> Result<(), EtcdError> {
        let deadline = tokio::time::Instant::now() + self.bounds.request_timeout;
        loop {
            match self.node.propose(command.clone(), request) {
                Ok(()) => return Ok(()),
                // An election takes about a second, so waiting for its result is better than an
                // error that every client would have to retry.
                Err(NodeError::NoLeader) => {}
                Err(e) => return Err(etcd_error(&e)),
            }
            let known = {
                let status = self.node.status();
                (status.term, status.leader)
            };
            tokio::select! {
                () = self.node.wait_for_leader_change(known) => {}
                () = tokio::time::sleep_until(deadline) => return Err(EtcdError::TimedOut),
            }
        }
    }

    /// Waits until a read of this member's state is linearizable.
    pub async fn read_index(&self) -> Result<(), Status> {
        // The leader lease makes most linearizable reads free of messages.
        if self.node.is_current() {
            return Ok(());
        }
        let began = Instant::now();
        let barrier = self.node.read_index(self.bounds.request_timeout);
        let done = tokio::select! {
            done = barrier => done.map_err(|e| etcd_error(&e)),
            () = self.shutdown.cancelled() => Err(EtcdError::Stopped),
        };
        // Recorded after a failure too, so that the slow-request log shows what the time went to.
        slow_request::record_phase(Phase::Current);
        self.metrics
            .count_read_index(began.elapsed() > self.bounds.slow.request, done.is_ok());
        done.map_err(to_status)
    }

    /// Returns the user of a token.
    pub fn token_caller(&self, token: &str) -> Option<Caller> {
        match &self.jwt {
            Some(jwt) => jwt.verify_token(token),
            None => self
                .machine
                // Members store digests only, so that a copy of a data directory contains no usable
                // token.
                .token_user(&tokens::known_form(token)?)
                .map(|user| Caller {
                    user,
                    ..Caller::default()
                }),
        }
    }

    /// Waits until this member has applied the login that issued a simple token, which may lag
    /// behind the issuing member. Gives up after the request timeout.
    pub async fn login_applied(&self, token: &str) {
        let (None, Some(index)) = (&self.jwt, tokens::login_index(token)) else {
            return;
        };
        let mut applied = self.machine.subscribe_applied();
        let reached = applied.wait_for(|at: &u64| *at >= index);
        // After a timeout the token is rejected as unknown.
        let _ = tokio::time::timeout(self.bounds.request_timeout, reached).await;
    }

    /// Returns the identity of a request's caller: by its token, or else by its certificate.
    pub fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        if !self.machine.with_auth(|auth| auth.enabled) {
            return Ok(Caller::default());
        }
        if let Some(token) = bearer_token(request.metadata().as_ref()) {
            return self
                .token_caller(&token)
                .ok_or_else(|| to_status(EtcdError::InvalidToken));
        }
        let connection = request
            .extensions()
            .get::<Connection>()
            // As in etcd, a certificate is an identity only with --client-cert-auth, even if its CA
            // was checked.
            .filter(|_| self.bounds.client_cert_auth);
        let shown = connection.and_then(|connection| connection.peer.certificates.first());
        let user = shown
            .and_then(|certificate| common_name(certificate))
            .unwrap_or_default();
        Ok(Caller {
            user,
            ..Caller::default()
        })
    }

    /// Returns the identity of the caller of a request that tonic has not parsed.
    pub fn http_caller(&self, parts: Parts) -> Result<Caller, Status> {
        if !self.machine.with_auth(|auth| auth.enabled) {
            return Ok(Caller::default());
        }
        let metadata = MetadataMap::from_headers(parts.headers);
        self.caller(&Request::from_parts(metadata, parts.extensions, ()))
    }
}

/// Returns the token of a request.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let token = headers
        .get("token")
        .or_else(|| headers.get("authorization"))?;
    Some(token.to_str().unwrap_or_default().to_owned())
}

/// Returns the common name of a certificate's subject.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = certificate
        .subject()
        .iter_common_name()
        .next()?
        .as_str()
        .ok()?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::HeaderValue;

    #[test]
    fn errors_have_etcds_codes_and_texts() {
        for (error, code, text) in [
            (
                EtcdError::TooLarge,
                tonic::Code::InvalidArgument,
                "etcdserver: request is too large",
            ),
            (
                EtcdError::LeaseNotFound,
                tonic::Code::NotFound,
                "etcdserver: requested lease not found",
            ),
            (
                EtcdError::Compacted,
                tonic::Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
            ),
            (
                EtcdError::NoLeader,
                tonic::Code::Unavailable,
                "etcdserver: no leader",
            ),
            (
                EtcdError::InvalidToken,
                tonic::Code::Unauthenticated,
                "etcdserver: invalid auth token",
            ),
            (
                EtcdError::TimedOut,
                tonic::Code::Unavailable,
                "etcdserver: request timed out",
            ),
        ] {
            let status = to_status(error);
            assert_eq!((status.code(), status.message()), (code, text));
        }
    }

    #[test]
    fn errors_of_replication_are_those_of_etcd() {
        for (error, expect) in [
            (NodeError::NoLeader, EtcdError::NoLeader),
            (NodeError::NotLeader, EtcdError::NotLeader),
            (NodeError::TimedOut, EtcdError::TimedOut),
            (NodeError::Raft("stopped".into()), EtcdError::Stopped),
        ] {
            assert_eq!(
                etcd_error(&error).to_string(),
                expect.to_string(),
                "{error}"
            );
        }
    }

    #[test]
    fn rejected_memory_has_the_status_of_too_many_requests() {
        let status = to_status(EtcdError::TooManyRequests);
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        assert_eq!(status.message(), kv_transport::TOO_MANY_REQUESTS);
    }

    #[test]
    fn token_is_in_one_of_two_headers() {
        for (headers, expect) in [
            (&[][..], None),
            (&[("token", "a.1")], Some("a.1")),
            (&[("authorization", "b.2")], Some("b.2")),
            (&[("authorization", "b.2"), ("token", "a.1")], Some("a.1")),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, HeaderValue::from_static(value));
            }
            assert_eq!(bearer_token(&map).as_deref(), expect, "{headers:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_certificate_have_no_common_name() {
        assert_eq!(common_name(b"not a certificate"), None);
        assert_eq!(common_name(b""), None);
    }
}
