//! Peer RPCs besides replication: the leader's leases, the list of members, membership changes,
//! hashes.

use crate::context::ServerContext;
use crate::corruption::{self, HashResult};
use crate::grpc::{handle_lease_request, member_change};
use async_trait::async_trait;
use bytes::Bytes;
use kv_machine::EtcdError;
use kv_raft::PeerHandler;
use kv_wal::Identity;
use prost::Message;
use proto_etcd::etcdserverpb as pb;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

const RENEW: u32 = 1;
const LEFT: u32 = 2;
/// Returns the members; also served to a member that has not joined yet.
pub(crate) const MEMBERS: u32 = 3;
const CHANGE: u32 = 4;
const STATUS: u32 = 5;
const HASH: u32 = 6;

const PATIENCE: Duration = Duration::from_secs(8);

/// A request that only the leader can serve.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaderRequest {
    /// Renews a lease. The response is its TTL, 0 if it does not exist.
    Renew(i64),
    /// Requests the remaining TTL of a lease in seconds. The response is -1 if it does not exist.
    Left(i64),
}

/// A membership change, as in etcd's requests.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Change {
    #[prost(message, tag = "1")]
    Add(pb::MemberAddRequest),
    #[prost(message, tag = "2")]
    Remove(pb::MemberRemoveRequest),
    #[prost(message, tag = "3")]
    Update(pb::MemberUpdateRequest),
    #[prost(message, tag = "4")]
    Promote(pb::MemberPromoteRequest),
}

#[derive(Clone, PartialEq, prost::Message)]
struct ChangeMessage {
    #[prost(oneof = "Change", tags = "1, 2, 3, 4")]
    change: Option<Change>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ChangeResponse {
    /// Text of the error; empty on success.
    #[prost(string, tag = "1")]
    refusal: String,
    #[prost(message, repeated, tag = "2")]
    members: Vec<pb::Member>,
    #[prost(message, optional, tag = "3")]
    added: Option<pb::Member>,
}

/// Description of a cluster for a member that is about to start.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClusterInfo {
    #[prost(uint64, tag = "1")]
    pub cluster: u64,
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<pb::Member>,
    #[prost(uint64, repeated, tag = "3")]
    pub removed: Vec<u64>,
}

/// Result of a membership change: the members, and the one that was added.
pub(crate) type MembershipResult = (Vec<pb::Member>, Option<pb::Member>);

async fn ask_leader(core: &ServerContext, kind: u32, body: Bytes) -> Result<Bytes, EtcdError> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(leader) = core.node.status().leader
            && leader != core.identity.member
            && let Ok(Some(answer)) = core
                .node
                .call_peer(leader, kind, body.clone(), PATIENCE)
                .await
        {
            return Ok(answer);
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(EtcdError::TimedOut);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn ask_leader_number(
    core: &ServerContext,
    question: LeaderRequest,
) -> Result<i64, EtcdError> {
    let (kind, id) = match question {
        LeaderRequest::Renew(id) => (RENEW, id),
        LeaderRequest::Left(id) => (LEFT, id),
    };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = handle_lease_request(core, question).await {
            return answer;
        }
        if core.node.status().leader != Some(core.identity.member) {
            let answer = ask_leader(core, kind, Bytes::copy_from_slice(&id.to_be_bytes())).await?;
            return answer
                .as_ref()
                .try_into()
                .map(i64::from_be_bytes)
                .map_err(|_| EtcdError::TimedOut);
        }
        // This member is the leader, but can't confirm it at the moment.
        if tokio::time::Instant::now() >= deadline {
            return Err(EtcdError::TimedOut);
        }
        let _ = core.node.read_index(Duration::from_millis(500)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Renews a lease. Returns its TTL, 0 if it does not exist.
pub(crate) async fn request_renewal(core: &ServerContext, id: i64) -> Result<i64, EtcdError> {
    ask_leader_number(core, LeaderRequest::Renew(id)).await
}

/// Returns granted and remaining TTL of a lease; the latter is -1 if it does not exist.
pub(crate) async fn request_time_to_live(
    core: &ServerContext,
    id: i64,
) -> Result<(i64, i64), EtcdError> {
    let left = ask_leader_number(core, LeaderRequest::Left(id)).await?;
    let granted = core
        .machine
        .with_leases(|leases| leases.lease_info(id, tokio::time::Instant::now().into_std()));
    Ok(match granted {
        Some(info) if left >= 0 => (info.granted, left),
        _ => (0, -1),
    })
}

/// Returns whether a member responds within this time.
pub(crate) async fn is_responding(core: &ServerContext, id: u64, patience: Duration) -> bool {
    if id == core.identity.member {
        return true;
    }
    let asked = tokio::time::timeout(
        patience,
        core.node.call_peer(id, STATUS, Bytes::new(), patience),
    );
    matches!(asked.await, Ok(Ok(Some(_))))
}

/// Sends a membership change to the leader. Retries if the leader transfers its leadership for it.
pub(crate) async fn request_membership_change(
    core: &ServerContext,
    change: Change,
) -> Result<MembershipResult, EtcdError> {
    let deadline = tokio::time::Instant::now() + 2 * PATIENCE;
    loop {
        let changed = change_once(core, change.clone()).await;
        if !matches!(changed, Err(EtcdError::LeaderChanged))
            || tokio::time::Instant::now() >= deadline
        {
            return changed;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn change_once(core: &ServerContext, change: Change) -> Result<MembershipResult, EtcdError> {
    if core.node.status().leading {
        return member_change(core, change).await;
    }
    let body = ChangeMessage {
        change: Some(change),
    }
    .encode_to_vec();
    let answer = ask_leader(core, CHANGE, body.into()).await?;
    let answer = ChangeResponse::decode(answer).map_err(|_| EtcdError::TimedOut)?;
    match error_from_text(&answer.refusal) {
        Some(refusal) => Err(refusal),
        None => Ok((answer.members, answer.added)),
    }
}

fn error_from_text(text: &str) -> Option<EtcdError> {
    use EtcdError::*;
    let known = [
        MemberExists,
        PeerUrlExists,
        MemberNotFound,
        BadMemberUrls,
        NotLearner,
        LearnerNotReady,
        TooManyLearners,
        NotEnoughMembers,
        Unhealthy,
        TimedOut,
        NoLeader,
        NotLeader,
        LeaderChanged,
    ];
    (!text.is_empty()).then(|| {
        known
            .into_iter()
            .find(|refusal| refusal.to_string() == text)
            .unwrap_or(TimedOut)
    })
}

/// Returns another member's hash up to a revision, if that member can provide it.
pub(crate) async fn request_hash(
    core: &ServerContext,
    member: u64,
    revision: i64,
    patience: Duration,
) -> Option<HashResult> {
    let body = Bytes::copy_from_slice(&revision.to_be_bytes());
    HashResult::decode(
        core.node
            .call_peer(member, HASH, body, patience)
            .await
            .ok()??,
    )
    .ok()
}

/// Handles peer RPCs.
pub(crate) struct PeerRequestHandler {
    pub identity: Identity,
    /// Weak, because the context owns this handler.
    pub core: OnceLock<Weak<ServerContext>>,
    pub on_removed: Box<dyn Fn() + Send + Sync>,
}

#[async_trait]
impl PeerHandler for PeerRequestHandler {
    async fn handle_peer_rpc(&self, _: u64, kind: u32, body: Bytes) -> Option<Bytes> {
        let core = &self.core()?;
        let number = || body.as_ref().try_into().ok().map(i64::from_be_bytes);
        match kind {
            RENEW => {
                encode_number(handle_lease_request(core, LeaderRequest::Renew(number()?)).await?)
            }
            LEFT => {
                encode_number(handle_lease_request(core, LeaderRequest::Left(number()?)).await?)
            }
            MEMBERS => Some(self.cluster_info(core)),
            CHANGE => {
                if !core.node.status().leading {
                    return None;
                }
                let change = ChangeMessage::decode(body).ok()?.change?;
                let answer = match member_change(core, change).await {
                    Ok((members, added)) => ChangeResponse {
                        refusal: String::new(),
                        members,
                        added,
                    },
                    Err(refusal) => ChangeResponse {
                        refusal: refusal.to_string(),
                        ..ChangeResponse::default()
                    },
                };
                Some(answer.encode_to_vec().into())
            }
            HASH => Some(
                corruption::respond_hash(core, number()?)
                    .await
                    .ok()?
                    .encode_to_vec()
                    .into(),
            ),
            STATUS => Some(core.node.status().applied.to_be_bytes().to_vec().into()),
            _ => None,
        }
    }

    fn allows_joining(&self, kind: u32) -> bool {
        kind == MEMBERS
    }

    fn on_removed(&self) {
        (self.on_removed)();
    }

    fn was_removed(&self, id: u64) -> bool {
        let Some(core) = self.core() else {
            return false;
        };
        // A removed voter's messages are accepted until Raft's membership no longer contains it.
        core.machine.with_members(|members| members.was_removed(id))
            && !core.node.status().voters.contains(&id)
    }
}

impl PeerRequestHandler {
    fn core(&self) -> Option<Arc<ServerContext>> {
        self.core.get()?.upgrade()
    }

    fn cluster_info(&self, core: &ServerContext) -> Bytes {
        let (mut members, removed) = core
            .machine
            .with_members(|members| (members.list(), members.removed_ids().collect::<Vec<_>>()));
        if members.is_empty() {
            members.clone_from(&core.initial);
        }
        ClusterInfo {
            cluster: self.identity.cluster,
            members,
            removed,
        }
        .encode_to_vec()
        .into()
    }
}

fn encode_number(answer: Result<i64, EtcdError>) -> Option<Bytes> {
    answer
        .ok()
        .map(|number| Bytes::copy_from_slice(&number.to_be_bytes()))
}
