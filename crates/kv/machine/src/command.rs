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
    /// What the token begins with; a dot and the entry's index follow.
    #[prost(string, tag = "2")]
    pub secret: String,
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
