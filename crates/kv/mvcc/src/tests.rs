//! Tests of the whole store.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod compaction;
mod deletes;
mod model;
mod puts;
mod ranges;
mod transactions;
mod watches;

use crate::{LeaseBook, MvccError, NoLeases, Store, Writer};
use bytes::Bytes;
use kv_engine::{Batch, Engine, MemoryEngine};
use proto_etcd::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, RangeRequest, RangeResponse, TxnRequest,
    TxnResponse,
};
use proto_etcd::mvccpb::KeyValue;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A store on an engine in memory. Every command is written to the engine at once.
struct TestStore {
    store: Arc<Store>,
    engine: Arc<dyn Engine>,
}

impl TestStore {
    fn new() -> TestStore {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let store = Arc::new(Store::open(engine.clone(), 0).unwrap());
        TestStore { store, engine }
    }

    /// Opens the same engine again, as after a restart.
    fn reopen(self) -> TestStore {
        let store = Arc::new(Store::open(self.engine.clone(), 0).unwrap());
        TestStore {
            store,
            engine: self.engine,
        }
    }

    fn write<T>(&self, work: impl FnOnce(&mut Writer<'_>, &mut Batch) -> T) -> T {
        let mut batch = Batch::default();
        let mut writer = self.store.writer();
        let result = work(&mut writer, &mut batch);
        writer.commit(&mut batch);
        drop(writer);
        self.engine.write_batch(batch).unwrap();
        self.store.mark_stored(self.store.current_revision());
        result
    }

    /// Puts a key. Returns the revision.
    fn put(&self, key: &'static str, value: &'static str) -> i64 {
        self.write(|writer, _| writer.put(&put_request(key, value), &mut NoLeases))
            .unwrap();
        self.store.current_revision()
    }

    fn delete(&self, key: &'static str, range_end: &'static str) -> DeleteRangeResponse {
        let request = DeleteRangeRequest {
            key: key.into(),
            range_end: range_end.into(),
            prev_kv: true,
        };
        self.write(|writer, _| writer.delete_range(&request, &mut NoLeases))
            .unwrap()
    }

    fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, MvccError> {
        self.write(|writer, _| writer.execute_txn(request, &mut NoLeases))
    }

    fn compact(&self, revision: i64) -> Result<(), MvccError> {
        self.write(|writer, batch| writer.compact(revision, batch))
    }

    /// Deletes the compacted records from index and engine.
    async fn reclaim(&self, revision: i64) {
        tokio::select! {
            ended = self.store.run_compactor() => panic!("{ended:?}"),
            () = self.store.wait_for_compaction(revision) => {}
        }
    }

    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, MvccError> {
        self.store.range(request).map(|(response, _)| response)
    }

    /// Returns the pair of a key at a revision; 0: the current one.
    fn get(&self, key: &'static str, revision: i64) -> Option<KeyValue> {
        let request = RangeRequest {
            revision,
            ..range_request(key, "")
        };
        self.range(&request).unwrap().kvs.pop()
    }
}

fn put_request(key: &'static str, value: &'static str) -> PutRequest {
    PutRequest {
        key: key.into(),
        value: value.into(),
        ..PutRequest::default()
    }
}

fn range_request(key: &'static str, range_end: &'static str) -> RangeRequest {
    RangeRequest {
        key: key.into(),
        range_end: range_end.into(),
        ..RangeRequest::default()
    }
}

/// Returns the keys of a response, joined.
fn keys_of(response: &RangeResponse) -> String {
    let keys = response.kvs.iter().map(|kv| kv.key.to_vec());
    String::from_utf8(keys.collect::<Vec<_>>().join(&b' ')).unwrap()
}

/// Leases 1 to 9, and the keys attached to them.
#[derive(Default)]
struct TestLeases(BTreeSet<(i64, Bytes)>);

impl TestLeases {
    fn keys_of(&self, lease: i64) -> Vec<Bytes> {
        let own = self.0.iter().filter(|(id, _)| *id == lease);
        own.map(|(_, key)| key.clone()).collect()
    }
}

impl LeaseBook for TestLeases {
    fn lease_exists(&self, lease: i64) -> bool {
        (1..10).contains(&lease)
    }
    fn attach_key(&mut self, lease: i64, key: &[u8]) {
        self.0.insert((lease, Bytes::copy_from_slice(key)));
    }
    fn detach_key(&mut self, lease: i64, key: &[u8]) {
        self.0.remove(&(lease, Bytes::copy_from_slice(key)));
    }
}
