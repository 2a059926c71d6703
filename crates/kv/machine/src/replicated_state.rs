//! State that commands of the log change, and the position of the last one.

use crate::members::Members;
use bytes::Bytes;
use kv_auth::Auth;
use proto_etcd::etcdserverpb as pb;
use std::collections::BTreeSet;

/// Replicated state besides keys and leases.
#[derive(Debug, Default)]
pub(crate) struct ReplicatedState {
    pub auth: Auth,
    pub members: Members,
    pub alarms: BTreeSet<(u64, i32)>,
}

/// Log position that the engine has reached. The bytes are opaque here and belong to the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedPosition {
    /// Position of the last applied entry; empty: none.
    pub position: Bytes,
    /// Membership at that position; empty: none.
    pub membership: Bytes,
}

pub(crate) fn alarm_list(replicated: &ReplicatedState) -> Vec<pb::AlarmMember> {
    replicated
        .alarms
        .iter()
        .map(|(member_id, alarm)| pb::AlarmMember {
            member_id: *member_id,
            alarm: *alarm,
        })
        .collect()
}
