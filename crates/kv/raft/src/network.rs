//! openraft's RPCs to other members.

use crate::codec;
use crate::lease::Lease;
use crate::pb;
use crate::pb::append_entries_response::Outcome;
use crate::state::StateMachine;
use crate::transport::{REMOVED, Transport};
use crate::types::{LogId, Snapshot, StorageError, Types, Vote};
use base_task::Tasks;
use bytes::Bytes;
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{AnyError, EmptyNode, OptionalSend, StorageIOError};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

/// Creates the RPC clients of peers.
#[derive(Clone)]
pub(crate) struct Network {
    pub transport: Arc<Transport>,
    pub lease: Arc<Lease>,
    pub machine: Arc<dyn StateMachine>,
    pub committed: Arc<AtomicU64>,
    /// The last transfer for which the leader sent TimeoutNow. Vote requests carry it, so that
    /// voters can tell whether it has ended.
    pub timeout_now_transfer: Arc<Mutex<Option<pb::Transfer>>>,
    pub on_removed: Arc<dyn Fn() + Send + Sync>,
    pub loops: Tasks,
}

/// RPC client of one peer.
pub(crate) struct PeerRpcClient {
    network: Network,
    target: u64,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = PeerRpcClient;

    async fn new_client(&mut self, target: u64, _: &EmptyNode) -> PeerRpcClient {
        PeerRpcClient {
            network: self.clone(),
            target,
        }
    }
}

type RpcError = RPCError<u64, EmptyNode, RaftError<u64>>;

impl PeerRpcClient {
    fn record_unreachable(&self, status: &Status) -> Unreachable {
        self.network.transport.record_failure(self.target);
        // A member that was down during its removal learns of it only from the others.
        if status.code() == Code::PermissionDenied && status.message().contains(REMOVED) {
            (self.network.on_removed)();
        }
        tracing::debug!(target = format!("{:x}", self.target), %status, "a call to a member failed");
        Unreachable::new(&AnyError::error(status.to_string()))
    }

    fn peer_client(
        &self,
    ) -> Result<pb::peer_client::PeerClient<crate::transport::PeerChannel>, Unreachable> {
        let client = self.network.transport.peer_client(self.target);
        client.map_err(|e| Unreachable::new(&AnyError::error(e.to_string())))
    }
}

impl RaftNetwork<Types> for PeerRpcClient {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RpcError> {
        // A follower may serve reads as soon as it learns of a commit. So the leader records the
        // commit index before it sends it.
        if let Some(committed) = &rpc.leader_commit {
            self.network
                .committed
                .fetch_max(committed.index, Ordering::AcqRel);
        }
        // Before the call: the lease counts from a time at which the follower can't have received
        // it yet.
        let call = self.network.lease.record_send(rpc.vote.leader_id.term);
        let message = pb::AppendEntriesRequest {
            vote: Some((&rpc.vote).into()),
            previous: rpc.prev_log_id.as_ref().map(Into::into),
            committed: rpc.leader_commit.as_ref().map(Into::into),
            entries: rpc.entries.iter().map(Into::into).collect(),
            ended_transfer: Some(call.ended_transfer),
        };
        let request =
            self.network
                .transport
                .build_request(self.target, message, Some(option.hard_ttl()));
        let sent = Instant::now();
        let response = self
            .peer_client()?
            .append_entries(request)
            .await
            .map_err(|status| self.record_unreachable(&status))?
            .into_inner();
        self.network
            .transport
            .directory
            .record_success(self.target, sent.elapsed());
        // A conflict confirms leadership too: the follower accepts the term, only its log differs.
        if response.outcome() != Outcome::HigherVote {
            self.network
                .lease
                .record_response(self.target, call, response.vote_withheld);
        }
        Ok(match response.outcome() {
            Outcome::Success => AppendEntriesResponse::Success,
            Outcome::Conflict => AppendEntriesResponse::Conflict,
            Outcome::HigherVote => {
                let higher = response.higher_vote.ok_or_else(incomplete_snapshot_error)?;
                AppendEntriesResponse::HigherVote(higher.into())
            }
        })
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RpcError> {
        let message = pb::VoteRequest {
            vote: Some((&rpc.vote).into()),
            last: rpc.last_log_id.as_ref().map(Into::into),
            // Proof for the voters that the leader asked for this election; otherwise leader
            // stickiness would reject it.
            transfer: *self.network.timeout_now_transfer.lock(),
        };
        let request =
            self.network
                .transport
                .build_request(self.target, message, Some(option.hard_ttl()));
        let response = self
            .peer_client()?
            .request_vote(request)
            .await
            .map_err(|status| self.record_unreachable(&status))?
            .into_inner();
        let vote: Vote = response.vote.ok_or_else(incomplete_snapshot_error)?.into();
        Ok(VoteResponse::new(
            vote,
            response.last.map(LogId::from),
            response.granted,
        ))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        _: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        let failed = |reason: String| {
            StorageError::from(StorageIOError::read_snapshot(None, AnyError::error(reason)))
        };
        // openraft's snapshot is only a marker. The state that is sent is the present one, which
        // may be newer, and its head carries its own position.
        let pieces = send_snapshot(&*self.network.machine, vote, &self.network.loops)
            .await
            .map_err(failed)?;
        let stream = ReceiverStream::new(pieces);
        let request = self
            .network
            .transport
            .build_request(self.target, stream, None);
        let mut client = self.peer_client().map_err(StreamingError::Unreachable)?;
        let (began, traffic) = (
            Instant::now(),
            self.network.transport.directory.traffic(self.target),
        );
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            response = client.install_snapshot(request) => {
                match traffic {
                    Some(traffic) if response.is_ok() => traffic.snapshots_sent.observe_duration(began.elapsed()),
                    Some(traffic) => drop(traffic.snapshots_not_sent.fetch_add(1, Ordering::Relaxed)),
                    None => {}
                }
                let response = response.map_err(|status| StreamingError::Unreachable(self.record_unreachable(&status)))?;
                let vote = response.into_inner().vote.unwrap_or_default();
                Ok(SnapshotResponse::new(vote.into()))
            }
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(Duration::from_millis(100)))
    }
}

fn incomplete_snapshot_error() -> NetworkError {
    NetworkError::new(&AnyError::error("the response of a member is incomplete"))
}

/// Sends the live state as messages. Reading ends with the receiver, and with the group of tasks.
pub(crate) async fn send_snapshot(
    machine: &dyn StateMachine,
    vote: Vote,
    tasks: &Tasks,
) -> Result<tokio::sync::mpsc::Receiver<pb::SnapshotChunk>, String> {
    let mut rows = machine.start_snapshot().await?;
    let (position, membership) = rows.applied_position();
    let last = codec::position_from_bytes(&position).map(|id| (&id).into());
    let head = pb::SnapshotHead {
        vote: Some((&vote).into()),
        last,
        membership,
    };
    // A few chunks ahead. A slow receiver then slows down reading, and memory stays bounded.
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let work = async move {
        let first = pb::SnapshotChunk {
            head: Some(head),
            ..Default::default()
        };
        let mut checksum = 0;
        let mut next = Some(first);
        while let Some(message) = next.take() {
            let last = message.last;
            if sender.send(message).await.is_err() || last {
                return;
            }
            next = match base_task::blocking(|| rows.next_rows()) {
                Ok(Some(rows)) => {
                    checksum = crc32c::crc32c_append(checksum, &rows);
                    Some(pb::SnapshotChunk {
                        rows,
                        ..Default::default()
                    })
                }
                Ok(None) => Some(pb::SnapshotChunk {
                    checksum,
                    last: true,
                    rows: Bytes::new(),
                    head: None,
                }),
                Err(reason) => {
                    // Omits the final message: the receiver then discards the snapshot.
                    tracing::error!(%reason, "reading the state for a snapshot failed");
                    None
                }
            };
        }
    };
    let work = tasks.shutdown().clone().run_until_cancelled_owned(work);
    // After a panic the receiver misses the last piece, and throws the others away.
    tasks.spawn_isolated("state for a member", async move {
        let _ = work.await;
    });
    Ok(receiver)
}
