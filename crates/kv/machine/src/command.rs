//! Commands in the log.
//!
//! An entry is a batch of envelopes, each prefixed by its length. An envelope names the member that
//! waits for the result: when that member applies the entry, it responds to its client, and no
//! other member does.

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;
use proto_etcd::etcdserverpb as pb;

/// A command without content.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Nothing {}

/// A user whose password was verified.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Login {
    /// Name of the user.
    #[prost(string, tag = "1")]
    pub user: String,
    /// Digest of the token's secret part. The log contains no tokens.
    #[prost(string, tag = "2")]
    pub digest: String,
}

/// One command and the request that waits for it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Envelope {
    /// Member that waits for the result.
    #[prost(uint64, tag = "1")]
    pub origin: u64,
    /// Number of the request on that member.
    #[prost(uint64, tag = "2")]
    pub request: u64,
    /// User that sent the request; empty for an anonymous caller or the store itself.
    #[prost(string, tag = "3")]
    pub user: String,
    /// Auth revision at which the user was authenticated; 0: the current one.
    #[prost(uint64, tag = "4")]
    pub auth_revision: u64,
    /// Sent by the store itself (lease expiry, checkpoints, membership): no permission check.
    #[prost(bool, tag = "5")]
    pub internal: bool,
    /// The command to apply.
    #[prost(
        oneof = "Command",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 40, 41, 42, 43, 44, 45, 46"
    )]
    pub command: Option<Command>,
}

/// A command of the log.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(missing_docs)]
pub enum Command {
    // Tags are stored in logs: a number that was used once must never get another meaning.
    #[prost(message, tag = "10")]
    Put(pb::PutRequest),
    #[prost(message, tag = "11")]
    DeleteRange(pb::DeleteRangeRequest),
    #[prost(message, tag = "12")]
    Txn(pb::TxnRequest),
    #[prost(message, tag = "13")]
    Compact(pb::CompactionRequest),
    #[prost(message, tag = "14")]
    LeaseGrant(pb::LeaseGrantRequest),
    #[prost(message, tag = "15")]
    LeaseRevoke(pb::LeaseRevokeRequest),
    #[prost(message, tag = "16")]
    LeaseCheckpoint(pb::LeaseCheckpointRequest),
    #[prost(message, tag = "17")]
    Alarm(pb::AlarmRequest),
    #[prost(message, tag = "20")]
    AuthEnable(Nothing),
    #[prost(message, tag = "21")]
    AuthDisable(Nothing),
    #[prost(message, tag = "22")]
    UserAdd(pb::AuthUserAddRequest),
    #[prost(message, tag = "23")]
    UserDelete(pb::AuthUserDeleteRequest),
    #[prost(message, tag = "24")]
    UserChangePassword(pb::AuthUserChangePasswordRequest),
    #[prost(message, tag = "25")]
    UserGrantRole(pb::AuthUserGrantRoleRequest),
    #[prost(message, tag = "26")]
    UserRevokeRole(pb::AuthUserRevokeRoleRequest),
    #[prost(message, tag = "27")]
    RoleAdd(pb::AuthRoleAddRequest),
    #[prost(message, tag = "28")]
    RoleDelete(pb::AuthRoleDeleteRequest),
    #[prost(message, tag = "29")]
    RoleGrantPermission(pb::AuthRoleGrantPermissionRequest),
    #[prost(message, tag = "30")]
    RoleRevokePermission(pb::AuthRoleRevokePermissionRequest),
    /// Does nothing. A reader waits for its index in the log.
    #[prost(message, tag = "31")]
    Barrier(Nothing),
    /// Issues a token after a password was verified.
    #[prost(message, tag = "32")]
    Authenticate(Login),
    /// Members of a new cluster.
    #[prost(message, tag = "40")]
    MembersInit(pb::MemberListResponse),
    #[prost(message, tag = "41")]
    MemberAdd(pb::Member),
    #[prost(message, tag = "42")]
    MemberRemove(pb::MemberRemoveRequest),
    #[prost(message, tag = "43")]
    MemberUpdate(pb::MemberUpdateRequest),
    #[prost(message, tag = "44")]
    MemberPromote(pb::MemberPromoteRequest),
    /// Name and client URLs that a member publishes about itself at start.
    #[prost(message, tag = "45")]
    MemberPublish(pb::Member),
    /// Force new cluster: this member becomes the only one.
    #[prost(message, tag = "46")]
    MemberAlone(pb::Member),
}

/// Appends an envelope to a batch.
pub fn encode_into(batch: &mut BytesMut, envelope: &Envelope) {
    batch.reserve(envelope.encoded_len() + 10);
    // A BytesMut grows on demand, so this can't fail.
    let _ = envelope.encode_length_delimited(batch);
}

/// Decodes the envelopes of a batch. Returns `None` if the bytes are not a batch.
pub fn decode_batch(mut batch: Bytes) -> Option<Vec<Envelope>> {
    let mut envelopes = Vec::new();
    while batch.has_remaining() {
        let length = usize::try_from(prost::encoding::decode_varint(&mut batch).ok()?).ok()?;
        // `split_to` panics beyond the end, and the entry may come from a peer.
        if length > batch.remaining() {
            return None;
        }
        envelopes.push(Envelope::decode(batch.split_to(length)).ok()?);
    }
    Some(envelopes)
}

/// Returns whether a member may have the leader propose these commands. Each must name that member
/// as its origin, and internal commands may only concern the member itself. The permissions of
/// clients are checked when a command is applied.
pub fn may_forward(member: u64, batch: &Bytes) -> bool {
    // Internal commands skip permission checks, so that a peer may forward only those about itself.
    let own = |command: &Option<Command>| match command {
        Some(Command::MemberPublish(publish)) => publish.id == member,
        Some(Command::Alarm(alarm)) => alarm.member_id == member,
        _ => false,
    };
    let fits = |envelope: &Envelope| {
        envelope.origin == member && (!envelope.internal || own(&envelope.command))
    };
    decode_batch(batch.clone()).is_some_and(|envelopes| envelopes.iter().all(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_forwards_only_under_its_own_name_and_without_the_stores_rights() {
        let publish = |id| {
            Command::MemberPublish(pb::Member {
                id,
                ..pb::Member::default()
            })
        };
        let alarm = |member_id| {
            Command::Alarm(pb::AlarmRequest {
                member_id,
                ..pb::AlarmRequest::default()
            })
        };
        for (origin, internal, command, expect) in [
            (7, false, Command::Put(pb::PutRequest::default()), true),
            (8, false, Command::Put(pb::PutRequest::default()), false),
            (7, true, Command::Put(pb::PutRequest::default()), false),
            (
                7,
                true,
                Command::UserAdd(pb::AuthUserAddRequest::default()),
                false,
            ),
            (
                7,
                true,
                Command::MemberRemove(pb::MemberRemoveRequest { id: 9 }),
                false,
            ),
            (7, true, publish(7), true),
            (7, true, publish(8), false),
            (7, true, alarm(7), true),
            (7, true, alarm(8), false),
        ] {
            let shown = format!("{origin} {internal} {command:?}");
            let mut batch = BytesMut::new();
            encode_into(
                &mut batch,
                &Envelope {
                    origin,
                    internal,
                    command: Some(command),
                    ..Envelope::default()
                },
            );
            assert_eq!(may_forward(7, &batch.freeze()), expect, "{shown}");
        }
        assert!(
            !may_forward(7, &Bytes::from_static(b"\xff\xff")),
            "it is no batch"
        );
    }
}
