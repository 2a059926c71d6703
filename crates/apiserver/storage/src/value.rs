//! Values as the store returns them.

use bytes::Bytes;
use proto_etcd::mvccpb::KeyValue;

/// A key's value with its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// Full key, prefix included.
    pub key: Bytes,
    /// Stored bytes.
    pub value: Bytes,
    /// Revision of the last write.
    pub revision: i64,
    /// Lease, 0 for none.
    pub lease: i64,
}

impl From<KeyValue> for StoredValue {
    fn from(kv: KeyValue) -> Self {
        StoredValue {
            key: kv.key,
            value: kv.value,
            revision: kv.mod_revision,
            lease: kv.lease,
        }
    }
}

/// A page of a range.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// In key order.
    pub items: Vec<StoredValue>,
    /// The revision at which the range was read.
    pub revision: i64,
    /// Keys follow after the last item.
    pub more: bool,
    /// Number of keys in the whole range, from the start key on.
    pub count: i64,
}
