//! Server side of the peer RPCs.

use crate::codec;
use crate::elector;
use crate::network;
use crate::pb;
use crate::pb::append_entries_response::Outcome;
use crate::pb::peer_server::{Peer, PeerServer};
use crate::propose::{Origin, Proposal};
use crate::shared::Shared;
use crate::transport::{JOINING, REMOVED, check_metadata, message_limit};
use crate::trust::{NO_PROOF, PeerInterceptor};
use crate::types::{LogId, Membership, Raft, Snapshot, SnapshotMeta, SnapshotPayload, Vote};
use bytes::BytesMut;
use futures::stream::{BoxStream, StreamExt};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest};
use proto_grpc::MessageStream;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status};

/// The gRPC service for peers.
#[derive(Clone)]
pub struct PeerService {
    shared: Arc<Shared>,
}

type RpcResult<T> = Result<Response<T>, Status>;

fn stopped_status(e: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("this member is stopping: {e}"))
}

fn incomplete_status() -> Status {
    Status::invalid_argument("the message is incomplete")
}

/// Raises openraft's term to the candidate's, so that openraft no longer withholds its vote during
/// a leadership transfer. openraft 0.9 has no call for that. The forged AppendEntries has a
/// previous index of `u64::MAX`, which matches no log: it changes the term and nothing else.
async fn raise_term(raft: &Raft, candidate: Vote) {
    let fits_nothing = LogId {
        leader_id: candidate.leader_id,
        index: u64::MAX,
    };
    let call = AppendEntriesRequest {
        vote: candidate,
        prev_log_id: Some(fits_nothing),
        entries: vec![],
        leader_commit: None,
    };
    // The result is ignored: the vote request that follows reports any error.
    let _ = raft.append_entries(call).await;
}

impl PeerService {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        PeerService { shared }
    }

    /// Returns the gRPC service. It rejects callers without proof of membership before it reads
    /// their messages.
    pub fn into_server(self) -> InterceptedService<PeerServer<PeerService>, PeerInterceptor> {
        // The limit follows from the largest command; tonic's default of 4 MiB would reject a batch
        // of entries.
        let (gate, limit) = (
            PeerInterceptor(self.shared.config.trust),
            message_limit(self.shared.config.max_command),
        );
        InterceptedService::new(PeerServer::new(self).max_decoding_message_size(limit), gate)
    }

    fn check_caller<T>(&self, request: &Request<T>) -> Result<u64, Status> {
        let from = check_metadata(
            request.metadata(),
            self.shared.transport.cluster,
            self.shared.member,
        )?;
        if self.shared.peer_handler.was_removed(from) {
            // The removed member recognizes this text and stops, instead of campaigning for ever.
            return Err(Status::permission_denied(REMOVED));
        }
        Ok(from)
    }

    /// Returns the caller's ID if it has proved to be a known member. Replication only requires
    /// `check_caller`: a member that lags behind may not know which members joined or moved.
    fn check_member<T>(&self, request: &Request<T>) -> Result<u64, Status> {
        let from = self.check_caller(request)?;
        let urls = self.shared.transport.directory.peer_urls(from);
        let proved = urls.is_some_and(|urls| {
            self.shared
                .config
                .trust
                .holds_for_member(request.extensions(), &urls)
        });
        if proved {
            Ok(from)
        } else {
            Err(Status::permission_denied(NO_PROOF))
        }
    }
}

#[tonic::async_trait]
impl Peer for PeerService {
    async fn append_entries(
        &self,
        request: Request<pb::AppendEntriesRequest>,
    ) -> RpcResult<pb::AppendEntriesResponse> {
        self.check_caller(&request)?;
        let message = request.into_inner();
        let vote: Vote = message.vote.ok_or_else(incomplete_status)?.into();
        let ended_transfer = message.ended_transfer.unwrap_or(pb::Transfer {
            term: vote.leader_id.term,
            session: 0,
            number: u64::MAX,
        });
        // A single entry that cannot be decoded rejects the message: a gap in the log would be
        // fatal.
        let entries: Option<Vec<_>> = message
            .entries
            .into_iter()
            .map(codec::entry_from_message)
            .collect();
        if vote.leader_id.term >= self.shared.current_term() {
            self.shared.leader_calls.record();
        }
        let rpc = AppendEntriesRequest {
            vote,
            prev_log_id: message.previous.map(LogId::from),
            entries: entries.ok_or_else(incomplete_status)?,
            leader_commit: message.committed.map(LogId::from),
        };
        let response = self
            .shared
            .raft
            .append_entries(rpc)
            .await
            .map_err(stopped_status)?;
        let (outcome, higher_vote) = match response {
            AppendEntriesResponse::Success | AppendEntriesResponse::PartialSuccess(_) => {
                (Outcome::Success, None)
            }
            AppendEntriesResponse::Conflict => (Outcome::Conflict, None),
            AppendEntriesResponse::HigherVote(vote) => (Outcome::HigherVote, Some((&vote).into())),
        };
        // After openraft has handled the call: a leader of an ended term must not count on this
        // member.
        let vote_withheld = outcome != Outcome::HigherVote
            && self.shared.vote_guard.acknowledge_append(ended_transfer);
        Ok(Response::new(pb::AppendEntriesResponse {
            outcome: outcome.into(),
            higher_vote,
            vote_withheld,
        }))
    }

    async fn request_vote(&self, request: Request<pb::VoteRequest>) -> RpcResult<pb::VoteResponse> {
        self.check_caller(&request)?;
        let message = request.into_inner();
        let last = message.last.map(LogId::from);
        let vote: Vote = message.vote.ok_or_else(incomplete_status)?.into();
        let Some(admitted) = self
            .shared
            .admit_vote(vote.leader_id.term, message.transfer.as_ref())
        else {
            // A leader exists: the candidate has lost contact with it.
            let (vote, last) = self.shared.vote_and_last();
            let response = pb::VoteResponse {
                vote: Some((&vote).into()),
                granted: false,
                last: last.as_ref().map(Into::into),
            };
            return Ok(Response::new(response));
        };
        let raft = self.shared.raft.clone();
        // A candidate whose log is behind gets no vote, so the term need not change.
        let released = admitted.for_transfer && last >= self.shared.vote_and_last().1;
        // Decided even if the candidate does not wait for it.
        let (sender, decided) = oneshot::channel();
        self.shared.loops.spawn("vote", async move {
            if released {
                raise_term(&raft, vote).await;
            }
            let response = raft.vote(VoteRequest::new(vote, last)).await;
            if response
                .as_ref()
                .is_ok_and(|response| !response.vote_granted)
            {
                admitted.record_rejection();
            }
            // The candidate may have stopped waiting.
            let _ = sender.send(response);
        });
        let response = decided
            .await
            .map_err(stopped_status)?
            .map_err(stopped_status)?;
        Ok(Response::new(pb::VoteResponse {
            vote: Some((&response.vote).into()),
            granted: response.vote_granted,
            last: response.last_log_id.as_ref().map(Into::into),
        }))
    }

    async fn pre_vote(
        &self,
        request: Request<pb::PreVoteRequest>,
    ) -> RpcResult<pb::PreVoteResponse> {
        self.check_caller(&request)?;
        let theirs = request.into_inner().last.map(LogId::from);
        let (_, mine) = self.shared.vote_and_last();
        let shared = &self.shared;
        let leading = shared.is_leader() && shared.holds_lease();
        // Nothing is recorded: a PreVote must not change the term or the vote.
        let granted = elector::grants_pre_vote(
            shared.vote_guard.time_since_contact(),
            shared.election_timeout(),
            leading,
            mine,
            theirs,
        );
        Ok(Response::new(pb::PreVoteResponse { granted }))
    }

    async fn install_snapshot(
        &self,
        request: Request<MessageStream<pb::SnapshotChunk>>,
    ) -> RpcResult<pb::InstallSnapshotResponse> {
        let traffic = self
            .shared
            .transport
            .directory
            .traffic(self.check_caller(&request)?);
        let began = Instant::now();
        let mut stream = request.into_inner();
        let head = stream
            .message()
            .await?
            .and_then(|first| first.head)
            .ok_or_else(incomplete_status)?;
        let vote: Vote = head.vote.ok_or_else(incomplete_status)?.into();
        tracing::info!("receiving a snapshot from the leader");
        // A transfer may take longer than an election timeout, and openraft hears nothing of it.
        // Each chunk counts as contact, or this member would campaign meanwhile.
        let received = receive_rows(&self.shared.spool, stream, || {
            self.shared.vote_guard.record_contact();
            self.shared.leader_calls.record();
        })
        .await;
        if let Some(traffic) = traffic {
            traffic.count_received_snapshot(received.is_ok(), began.elapsed());
        }
        let path = received?;
        let last_membership: Membership = codec::membership_from_bytes(&head.membership);
        let last_log_id = head.last.map(LogId::from);
        let snapshot_id = last_log_id.map(|id| id.to_string()).unwrap_or_default();
        let meta = SnapshotMeta {
            last_log_id,
            last_membership,
            snapshot_id,
        };
        let snapshot = Snapshot {
            meta,
            snapshot: Box::new(SnapshotPayload::Received(path)),
        };
        let _installation = self.shared.leader_calls.start_installation();
        let response = self
            .shared
            .raft
            .install_full_snapshot(vote, snapshot)
            .await
            .map_err(stopped_status)?;
        self.shared.vote_guard.record_contact();
        tracing::info!("installed the snapshot from the leader");
        Ok(Response::new(pb::InstallSnapshotResponse {
            vote: Some((&response.vote).into()),
        }))
    }

    type FetchSnapshotStream = BoxStream<'static, Result<pb::SnapshotChunk, Status>>;

    async fn fetch_snapshot(
        &self,
        request: Request<pb::Empty>,
    ) -> RpcResult<Self::FetchSnapshotStream> {
        let from = self.check_member(&request)?;
        tracing::info!(
            member = format!("{from:x}"),
            "sending the state to a member that has lost its data"
        );
        // No quorum is asked: the caller compares the applied index of the head with the one it
        // needs.
        let (vote, _) = self.shared.vote_and_last();
        let pieces = network::send_snapshot(&*self.shared.machine, vote, &self.shared.loops)
            .await
            .map_err(Status::internal)?;
        Ok(Response::new(ReceiverStream::new(pieces).map(Ok).boxed()))
    }

    async fn forward_proposals(
        &self,
        request: Request<pb::ForwardRequest>,
    ) -> RpcResult<pb::ForwardResponse> {
        // A proven member, not only a peer with the cluster's ID: commands act in the name of its
        // clients.
        let from = self.check_member(&request)?;
        if !self.shared.is_leader() {
            return Ok(Response::new(pb::ForwardResponse {
                accepted: false,
                ..pb::ForwardResponse::default()
            }));
        }
        let commands = request.into_inner().commands;
        if let Some(refused) = commands
            .iter()
            .find(|command| !self.shared.machine.may_forward(from, command))
        {
            tracing::warn!(
                member = format!("{from:x}"),
                bytes = refused.len(),
                "rejected a command that a member may not forward"
            );
            return Err(Status::permission_denied(
                "a member forwards its clients' commands only",
            ));
        }
        let (sender, receiver) = oneshot::channel();
        self.shared.propose_batch(commands, sender);
        let committed = receiver.await.unwrap_or(None);
        Ok(Response::new(pb::ForwardResponse {
            accepted: true,
            committed: committed.is_some(),
            index: committed.unwrap_or_default(),
        }))
    }

    async fn read_index(&self, request: Request<pb::Empty>) -> RpcResult<pb::ReadIndexResponse> {
        self.check_caller(&request)?;
        // Shorter than a client's timeout, so that the follower can ask again or find another
        // leader.
        let index = self.shared.confirm_read_index(Duration::from_secs(2)).await;
        let response = pb::ReadIndexResponse {
            confirmed: index.is_some(),
            index: index.unwrap_or_default(),
        };
        Ok(Response::new(response))
    }

    async fn timeout_now(&self, request: Request<pb::Transfer>) -> RpcResult<pb::Empty> {
        self.check_caller(&request)?;
        elector::campaign_for_transfer(&self.shared, request.into_inner())
            .await
            .map_err(Status::unavailable)?;
        Ok(Response::new(pb::Empty {}))
    }

    async fn call_service(
        &self,
        request: Request<pb::ServiceRequest>,
    ) -> RpcResult<pb::ServiceResponse> {
        // A member that is about to join knows the cluster's address but not its ID. Its
        // certificate was checked by the gate.
        let joining = request.metadata().get(JOINING).is_some();
        let open = joining
            && self
                .shared
                .peer_handler
                .allows_joining(request.get_ref().kind);
        let from = if open {
            0
        } else {
            self.check_member(&request)?
        };
        let message = request.into_inner();
        let body = self
            .shared
            .peer_handler
            .handle_peer_rpc(from, message.kind, message.body)
            .await;
        Ok(Response::new(pb::ServiceResponse {
            handled: body.is_some(),
            body: body.unwrap_or_default(),
        }))
    }
}

impl Shared {
    pub(crate) fn propose_batch(
        &self,
        commands: Vec<bytes::Bytes>,
        sender: oneshot::Sender<Option<u64>>,
    ) {
        let mut batch = BytesMut::with_capacity(commands.iter().map(bytes::Bytes::len).sum());
        for command in commands {
            batch.extend_from_slice(&command);
        }
        // The receiver ends only with the process.
        let _ = self.proposals.send(Proposal {
            commands: batch.freeze(),
            origin: Origin::Elsewhere(sender),
        });
    }
}

static RECEIVED: AtomicU64 = AtomicU64::new(0);

/// Writes received rows to a file and verifies the checksum of the whole stream.
pub(crate) async fn receive_rows(
    spool: &Path,
    mut stream: MessageStream<pb::SnapshotChunk>,
    heard: impl Fn(),
) -> Result<PathBuf, Status> {
    let failed =
        |e: std::io::Error| Status::internal(format!("writing the received state failed: {e}"));
    // A unique name, because a deposed leader and its successor may send at the same time.
    let number = RECEIVED.fetch_add(1, Ordering::Relaxed);
    let path = spool.join(format!("received-{number}.tmp"));
    let mut file = base_task::blocking(|| std::fs::File::create(&path)).map_err(failed)?;
    let mut checksum = 0;
    while let Some(message) = stream.message().await? {
        heard();
        if message.last {
            // TLS is optional, and an undetected error would become a permanent difference between
            // members.
            if message.checksum != checksum {
                return Err(Status::data_loss(
                    "the checksum of the received state does not match",
                ));
            }
            // A stream without its last message is never installed: the sender omits it after an
            // error.
            base_task::blocking(|| file.sync_all()).map_err(failed)?;
            return Ok(path);
        }
        checksum = crc32c::crc32c_append(checksum, &message.rows);
        // A length before each chunk, so that the file is installed chunk by chunk too.
        let length = (message.rows.len() as u64).to_le_bytes();
        base_task::blocking(|| {
            file.write_all(&length)
                .and_then(|()| file.write_all(&message.rows))
        })
        .map_err(failed)?;
    }
    Err(Status::data_loss("the stream of the state ended early"))
}
