//! What the log carries.
//!
//! An entry is a batch of envelopes, each with its length in front. An envelope names the member that waits for the
//! answer, so that this member, and only it, answers its client when it applies the entry.

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;
use proto_etcd::etcdserverpb as pb;

/// No content.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Nothing {}

/// A user who has shown a password.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Login {
    /// The user.
    #[prost(string, tag = "1")]
    pub user: String,
    /// Digest of the token's secret part. The log keeps no tokens.
    #[prost(string, tag = "2")]
    pub digest: String,
}

/// One command and who waits for it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Envelope {
    /// Member that waits.
    #[prost(uint64, tag = "1")]
    pub origin: u64,
    /// Its number for the request.
    #[prost(uint64, tag = "2")]
    pub request: u64,
    /// Who asked for it; empty: nobody, or the store itself.
    #[prost(string, tag = "3")]
    pub user: String,
    /// Rights as of which the user was authenticated; 0: the present ones.
    #[prost(uint64, tag = "4")]
    pub auth_revision: u64,
    /// Whether the store itself asks (expiry, checkpoints, membership): rights are not looked at.
    #[prost(bool, tag = "5")]
    pub internal: bool,
    /// What to do.
    #[prost(
        oneof = "Command",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 40, 41, 42, 43, 44, 45, 46"
    )]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(missing_docs)]
pub enum Command {
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
    /// Does nothing; its place in the log is what matters.
    #[prost(message, tag = "31")]
    Barrier(Nothing),
    /// A user's password was right: a token for it.
    #[prost(message, tag = "32")]
    Authenticate(Login),
    /// The members a cluster begins with.
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
    /// Name and client URLs, as a member says of itself when it starts.
    #[prost(message, tag = "45")]
    MemberPublish(pb::Member),
    /// This member alone is left, and goes on.
    #[prost(message, tag = "46")]
    MemberAlone(pb::Member),
}

/// Appends an envelope to a batch.
pub fn encode_into(batch: &mut BytesMut, envelope: &Envelope) {
    batch.reserve(envelope.encoded_len() + 10);
    // A BytesMut grows as it needs to, so this does not fail.
    let _ = envelope.encode_length_delimited(batch);
}

/// The envelopes of a batch. None: it is not a batch.
pub fn decode_batch(mut batch: Bytes) -> Option<Vec<Envelope>> {
    let mut envelopes = Vec::new();
    while batch.has_remaining() {
        let length = usize::try_from(prost::encoding::decode_varint(&mut batch).ok()?).ok()?;
        if length > batch.remaining() {
            return None;
        }
        envelopes.push(Envelope::decode(batch.split_to(length)).ok()?);
    }
    Some(envelopes)
}

/// Whether a member may have these commands proposed by the leader: each under its own name, and the store's own only as far as
/// they are about the member itself. Rights of the clients are looked at when a command is applied.
pub fn may_forward(member: u64, batch: &Bytes) -> bool {
    let own = |command: &Option<Command>| match command {
        Some(Command::MemberPublish(publish)) => publish.id == member,
        Some(Command::Alarm(alarm)) => alarm.member_id == member,
        _ => false,
    };
    let fits = |envelope: &Envelope| envelope.origin == member && (!envelope.internal || own(&envelope.command));
    decode_batch(batch.clone()).is_some_and(|envelopes| envelopes.iter().all(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_forwards_only_under_its_own_name_and_without_the_stores_rights() {
        let publish = |id| Command::MemberPublish(pb::Member { id, ..pb::Member::default() });
        let alarm = |member_id| Command::Alarm(pb::AlarmRequest { member_id, ..pb::AlarmRequest::default() });
        for (origin, internal, command, expect) in [
            (7, false, Command::Put(pb::PutRequest::default()), true),
            (8, false, Command::Put(pb::PutRequest::default()), false),
            (7, true, Command::Put(pb::PutRequest::default()), false),
            (7, true, Command::UserAdd(pb::AuthUserAddRequest::default()), false),
            (7, true, Command::MemberRemove(pb::MemberRemoveRequest { id: 9 }), false),
            (7, true, publish(7), true),
            (7, true, publish(8), false),
            (7, true, alarm(7), true),
            (7, true, alarm(8), false),
        ] {
            let shown = format!("{origin} {internal} {command:?}");
            let mut batch = BytesMut::new();
            encode_into(&mut batch, &Envelope { origin, internal, command: Some(command), ..Envelope::default() });
            assert_eq!(may_forward(7, &batch.freeze()), expect, "{shown}");
        }
        assert!(!may_forward(7, &Bytes::from_static(b"\xff\xff")), "it is no batch");
    }
}
