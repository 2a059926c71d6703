//! Messages and calls of the peer RPCs besides replication: the leader's leases, the list of
//! members, membership changes, hashes.

use crate::context::ServerContext;
use crate::data_hash::HashResult;
use bytes::Bytes;
use kv_machine::EtcdError;
use prost::Message;
use proto_etcd::etcdserverpb as pb;
use std::time::Duration;

// These numbers are part of the protocol: members of two releases talk to each other during an
// upgrade.
pub(crate) const RENEW: u32 = 1;
pub(crate) const LEFT: u32 = 2;
/// Returns the members; also served to a member that has not joined yet.
pub const MEMBERS: u32 = 3;
pub(crate) const CHANGE: u32 = 4;
pub(crate) const STATUS: u32 = 5;
pub(crate) const HASH: u32 = 6;

/// Timeout of a call to the leader, and of the search for one.
// Longer than several elections with the default timeout, so that a failed leader is replaced
// meanwhile.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(8);

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
pub(crate) struct ChangeMessage {
    #[prost(oneof = "Change", tags = "1, 2, 3, 4")]
    pub change: Option<Change>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ChangeResponse {
    /// Text of the error; empty on success.
    #[prost(string, tag = "1")]
    pub refusal: String,
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<pb::Member>,
    #[prost(message, optional, tag = "3")]
    pub added: Option<pb::Member>,
}

/// Description of a cluster for a member that is about to start.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClusterInfo {
    /// ID of the cluster.
    #[prost(uint64, tag = "1")]
    pub cluster: u64,
    /// Its members.
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<pb::Member>,
    /// IDs of removed members.
    #[prost(uint64, repeated, tag = "3")]
    pub removed: Vec<u64>,
}

/// Result of a membership change: the members, and the one that was added.
pub(crate) type MembershipResult = (Vec<pb::Member>, Option<pb::Member>);

/// Calls the leader, which may change meanwhile, until it responds.
pub(crate) async fn call_leader(
    core: &ServerContext,
    kind: u32,
    body: Bytes,
) -> Result<Bytes, EtcdError> {
    let deadline = tokio::time::Instant::now() + RESPONSE_TIMEOUT;
    loop {
        if let Some(leader) = core.node.status().leader
            && leader != core.identity.member
            && let Ok(Some(answer)) = core
                .node
                .call_peer(leader, kind, body.clone(), RESPONSE_TIMEOUT)
                .await
        {
            return Ok(answer);
        }
        // No leader, an unreachable one, or one that is deposed just now: all end with an election.
        if tokio::time::Instant::now() >= deadline {
            return Err(EtcdError::TimedOut);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns whether a member responds within this time.
pub async fn is_responding(core: &ServerContext, id: u64, timeout: Duration) -> bool {
    // A call to itself would need the peer port, which a single member may keep closed.
    if id == core.identity.member {
        return true;
    }
    let asked = tokio::time::timeout(
        timeout,
        core.node.call_peer(id, STATUS, Bytes::new(), timeout),
    );
    matches!(asked.await, Ok(Ok(Some(_))))
}

/// Returns another member's hash up to a revision, if that member can provide it.
pub async fn request_hash(
    core: &ServerContext,
    member: u64,
    revision: i64,
    timeout: Duration,
) -> Option<HashResult> {
    let body = Bytes::copy_from_slice(&revision.to_be_bytes());
    HashResult::decode(
        core.node
            .call_peer(member, HASH, body, timeout)
            .await
            .ok()??,
    )
    .ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_membership_change_survives_its_encoding() {
        let urls = vec!["https://h:1".to_owned()];
        for change in [
            Change::Add(pb::MemberAddRequest {
                peer_ur_ls: urls.clone(),
                is_learner: true,
            }),
            Change::Remove(pb::MemberRemoveRequest { id: 7 }),
            Change::Update(pb::MemberUpdateRequest {
                id: 7,
                peer_ur_ls: urls,
            }),
            Change::Promote(pb::MemberPromoteRequest { id: 7 }),
        ] {
            let message = ChangeMessage {
                change: Some(change),
            };
            let received = ChangeMessage::decode(&message.encode_to_vec()[..]).unwrap();
            assert_eq!(received, message);
        }
    }

    #[test]
    fn unknown_membership_change_is_none() {
        // Field 9, which no member of this version sends.
        let received = ChangeMessage::decode(&[0x4a, 0][..]).unwrap();
        assert_eq!(received.change, None);
    }

    #[test]
    fn description_of_a_cluster_survives_its_encoding() {
        let info = ClusterInfo {
            cluster: u64::MAX,
            members: vec![pb::Member {
                id: 7,
                name: "m".to_owned(),
                ..pb::Member::default()
            }],
            removed: vec![8, 9],
        };
        assert_eq!(
            ClusterInfo::decode(&info.encode_to_vec()[..]).unwrap(),
            info
        );
    }

    #[test]
    fn error_and_success_of_a_change_are_distinguished_by_the_text() {
        let success = ChangeResponse::default();
        let error = ChangeResponse {
            refusal: EtcdError::Unhealthy.to_string(),
            ..ChangeResponse::default()
        };
        for response in [success, error] {
            let received = ChangeResponse::decode(&response.encode_to_vec()[..]).unwrap();
            assert_eq!(received, response);
        }
    }
}
