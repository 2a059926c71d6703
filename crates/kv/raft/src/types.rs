//! openraft's type parameters.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;

openraft::declare_raft_types!(
    /// A batch of commands in, nothing out: the state machine delivers results to the requests that
    /// wait.
    pub(crate) Types:
        D = Commands,
        R = Applied,
        Node = openraft::EmptyNode,
        SnapshotData = SnapshotPayload,
);

pub(crate) type Raft = openraft::Raft<Types>;
pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Vote = openraft::Vote<u64>;
pub(crate) type Entry = openraft::Entry<Types>;
pub(crate) type Membership = openraft::StoredMembership<u64, openraft::EmptyNode>;
pub(crate) type StorageError = openraft::StorageError<u64>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<u64, openraft::EmptyNode>;
pub(crate) type Snapshot = openraft::Snapshot<Types>;
pub(crate) type RaftMetrics = openraft::metrics::RaftServerMetrics<u64, openraft::EmptyNode>;

/// A batch of encoded commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commands(pub Bytes);

// openraft requires serde for logs that store whole entries. This log encodes them itself.
impl Serialize for Commands {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Commands {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<u8>::deserialize(deserializer).map(|bytes| Commands(bytes.into()))
    }
}

/// Empty result of an applied entry, see `Types`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Applied;

/// Payload of an openraft snapshot.
#[derive(Clone, Debug)]
pub(crate) enum SnapshotPayload {
    /// Read from the live state when it is sent.
    Live,
    /// Received, verified and stored in this file.
    Received(PathBuf),
}
