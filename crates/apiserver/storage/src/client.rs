//! Reads and compare-and-swap writes.

use crate::connector::StoreTls;
use crate::lease::Leases;
use crate::members::Members;
use crate::read_index::ReadIndex;
use crate::value::{Page, StoredValue};
use crate::{ConfigError, LatencyMetrics, StoreConfig, StoreError};
use base_tls::Followed;
use base_tls::rustls::ClientConfig;
use bytes::Bytes;
use proto_etcd::etcdserverpb as pb;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;
use tonic::transport::Channel;

// A page of 2,000 large objects exceeds the default of 4 MiB.
const MAX_MESSAGE: usize = 256 * 1024 * 1024;

/// A client of the store; clones share the connections.
#[derive(Clone)]
pub struct Store {
    pub(crate) members: Members,
    pub(crate) tls: StoreTls,
    read_index: ReadIndex,
    latencies: LatencyMetrics,
    leases: Arc<Leases>,
    compacted: Arc<AtomicI64>,
}

impl Store {
    /// Loads the files that `config` names; connects on first use.
    pub fn new(config: &StoreConfig) -> Result<Self, ConfigError> {
        Self::with_tls(config, config.load_tls()?)
    }

    pub(crate) fn with_tls(
        config: &StoreConfig,
        tls: Followed<Arc<ClientConfig>>,
    ) -> Result<Self, ConfigError> {
        let tls = Arc::new(tls);
        // Before the first connection, which may use newer files.
        let read = tls.current();
        // API servers that run beside each other begin with different members, as a rule. Process
        // ids would not do: in a container it is 1.
        let first = RandomState::new().hash_one(0) as usize;
        let members = Members::new(config.connect_members(&tls)?, read.as_ref(), first);
        let read_index = ReadIndex::new(members.clone());
        let leases = Arc::new(Leases::new(members.clone()));
        Ok(Store {
            leases,
            members,
            tls,
            read_index,
            latencies: LatencyMetrics::default(),
            compacted: Arc::default(),
        })
    }

    /// Returns the durations of the store's responses, by operation.
    pub fn latencies(&self) -> &LatencyMetrics {
        &self.latencies
    }

    /// Returns the compacted revision, as far as this server's compaction rounds have learned it; 0
    /// at first.
    pub fn compacted_revision(&self) -> i64 {
        self.compacted.load(Ordering::Relaxed)
    }

    /// Records that history before `revision` is compacted.
    pub(crate) fn note_compaction(&self, revision: i64) {
        // Other servers compact, too, and an older round may be reported later.
        self.compacted.fetch_max(revision, Ordering::Relaxed);
    }

    async fn time_call<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let done = call.await;
        self.latencies.record_duration(name, begun);
        done
    }

    /// Returns the store's revision, at least as new as the call. Concurrent calls share one read.
    pub async fn current_revision(&self) -> Result<i64, StoreError> {
        self.read_index.current_revision().await
    }

    /// Reads one key.
    pub async fn read_key(&self, key: &str) -> Result<Option<StoredValue>, StoreError> {
        let request = pb::RangeRequest {
            key: key_bytes(key),
            ..Default::default()
        };
        let response = self.time_call("get", self.read_range(request)).await?;
        Ok(response.kvs.into_iter().next().map(StoredValue::from))
    }

    /// Reads keys that start with `prefix`, from `start` (a full key, or the prefix) on, at
    /// `revision` (0: current).
    pub async fn list_range(
        &self,
        prefix: &str,
        start: &str,
        limit: i64,
        revision: i64,
    ) -> Result<Page, StoreError> {
        let request = pb::RangeRequest {
            key: key_bytes(start),
            range_end: prefix_end(prefix),
            limit,
            revision,
            ..Default::default()
        };
        let send = async |channel| kv_client(channel).range(request.clone()).await;
        let read = self.members.read_page(send);
        let response = self.time_call("list", read).await?;
        Ok(Page {
            revision: response.header.map_or(0, |h| h.revision),
            more: response.more,
            count: response.count,
            items: response.kvs.into_iter().map(StoredValue::from).collect(),
        })
    }

    /// Writes a key that must not exist; returns its revision. `ttl`: seconds after which it
    /// expires.
    pub async fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<i64>,
    ) -> Result<i64, StoreError> {
        let put = put_operation(key, value, self.lease_for(ttl).await?);
        match self
            .time_call("create", self.compare_and_swap(key, 0, put))
            .await
        {
            // A mod revision of 0 means that the key does not exist, so that a failed compare has
            // one reason.
            Err(StoreError::Conflict(_)) => Err(StoreError::Exists),
            other => other,
        }
    }

    /// Overwrites a key whose mod revision is `expected`; returns the new revision.
    pub async fn update(
        &self,
        key: &str,
        value: Bytes,
        expected: i64,
        ttl: Option<i64>,
    ) -> Result<i64, StoreError> {
        let put = put_operation(key, value, self.lease_for(ttl).await?);
        self.time_call("update", self.compare_and_swap(key, expected, put))
            .await
    }

    /// Deletes a key whose mod revision is `expected`; returns the revision of the deletion.
    pub async fn delete(&self, key: &str, expected: i64) -> Result<i64, StoreError> {
        let request = pb::DeleteRangeRequest {
            key: key_bytes(key),
            ..Default::default()
        };
        let delete = pb::request_op::Request::RequestDeleteRange(request);
        self.time_call("delete", self.compare_and_swap(key, expected, delete))
            .await
    }

    async fn lease_for(&self, ttl: Option<i64>) -> Result<i64, StoreError> {
        match ttl {
            Some(seconds) => self.leases.lease_for(seconds).await,
            None => Ok(0),
        }
    }

    async fn compare_and_swap(
        &self,
        key: &str,
        expected: i64,
        write: pb::request_op::Request,
    ) -> Result<i64, StoreError> {
        let compare = pb::Compare {
            result: pb::compare::CompareResult::Equal.into(),
            target: pb::compare::CompareTarget::Mod.into(),
            key: key_bytes(key),
            target_union: Some(pb::compare::TargetUnion::ModRevision(expected)),
            ..Default::default()
        };
        let read = pb::RangeRequest {
            key: key_bytes(key),
            ..Default::default()
        };
        let request = pb::TxnRequest {
            compare: vec![compare],
            success: vec![pb::RequestOp {
                request: Some(write),
            }],
            // The current value comes with the failed compare, which saves the caller a read before
            // its retry.
            failure: vec![pb::RequestOp {
                request: Some(pb::request_op::Request::RequestRange(read)),
            }],
        };
        let response = self.execute_txn(request).await?;
        if response.succeeded {
            return Ok(response.header.map_or(0, |h| h.revision));
        }
        Err(StoreError::Conflict(
            response.responses.into_iter().find_map(stored_value),
        ))
    }

    /// Executes a transaction that the caller composed.
    pub(crate) async fn execute_txn(
        &self,
        request: pb::TxnRequest,
    ) -> Result<pb::TxnResponse, StoreError> {
        let send = async |channel| kv_client(channel).txn(request).await;
        self.members.call(send).await
    }

    async fn read_range(&self, request: pb::RangeRequest) -> Result<pb::RangeResponse, StoreError> {
        let send = async |channel| kv_client(channel).range(request.clone()).await;
        self.members.read(send).await
    }

    /// Writes an empty value, whatever the key has now. Returns its revision.
    pub(crate) async fn put_mark(&self, key: &str) -> Result<i64, StoreError> {
        let request = pb::PutRequest {
            key: key_bytes(key),
            ..Default::default()
        };
        let send = async |channel| kv_client(channel).put(request).await;
        let response = self.members.call(send).await?;
        Ok(response.header.map_or(0, |header| header.revision))
    }

    /// Compacts history up to `revision`.
    pub(crate) async fn compact_history(&self, revision: i64) -> Result<(), StoreError> {
        let request = pb::CompactionRequest {
            revision,
            physical: false,
        };
        let send = async |channel| kv_client(channel).compact(request).await;
        self.members.call(send).await.map(drop)
    }
}

pub(crate) fn kv_client(channel: Channel) -> pb::kv_client::KvClient<Channel> {
    pb::kv_client::KvClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE)
}

fn put_operation(key: &str, value: Bytes, lease: i64) -> pb::request_op::Request {
    pb::request_op::Request::RequestPut(pb::PutRequest {
        key: key_bytes(key),
        value,
        lease,
        ..Default::default()
    })
}

fn stored_value(op: pb::ResponseOp) -> Option<StoredValue> {
    match op.response? {
        pb::response_op::Response::ResponseRange(range) => {
            range.kvs.into_iter().next().map(StoredValue::from)
        }
        _ => None,
    }
}

pub(crate) fn key_bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Returns the first key after all keys that start with `prefix`.
pub(crate) fn prefix_end(prefix: &str) -> Bytes {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end.into();
        }
    }
    Bytes::from_static(&[0])
}
