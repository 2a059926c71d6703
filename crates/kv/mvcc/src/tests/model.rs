//! Model test: random commands of all kinds against the store and a naive model, with equal
//! responses, events and lease keys.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod naive;
mod random;

use crate::{Event, LeaseBook, Limits, MvccError, Store, Writer, check_request};
use bytes::Bytes;
use kv_engine::{Batch, Engine, MemoryEngine};
use naive::{Change, Naive, Step};
use proptest::prelude::*;
use prost::Message;
use proto_etcd::etcdserverpb::request_op::Request;
use proto_etcd::etcdserverpb::{RangeRequest, RangeResponse, TxnRequest};
use proto_etcd::mvccpb::KeyValue;
use random::Command;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Leases and their keys.
#[derive(Default)]
struct Book {
    leases: BTreeSet<i64>,
    keys: BTreeSet<(i64, Bytes)>,
}

impl LeaseBook for Book {
    fn lease_exists(&self, lease: i64) -> bool {
        self.leases.contains(&lease)
    }
    fn attach_key(&mut self, lease: i64, key: &[u8]) {
        assert!(
            self.keys.insert((lease, Bytes::copy_from_slice(key))),
            "attached twice"
        );
    }
    fn detach_key(&mut self, lease: i64, key: &[u8]) {
        assert!(
            self.keys.remove(&(lease, Bytes::copy_from_slice(key))),
            "detached, and was not attached"
        );
    }
}

struct Both {
    store: Arc<Store>,
    engine: Arc<dyn Engine>,
    book: Book,
    naive: Naive,
    runtime: Runtime,
}

fn open(engine: &Arc<dyn Engine>) -> Arc<Store> {
    // A small budget: some values are cached, others are read from the engine.
    Arc::new(Store::open(engine.clone(), 20).unwrap())
}

fn same<T: PartialEq + Debug>(
    found: Result<T, MvccError>,
    expected: Result<T, &'static str>,
) -> bool {
    let fine = found.is_ok();
    assert_eq!(
        found.map_err(|e| e.to_string()),
        expected.map_err(str::to_owned)
    );
    fine
}

/// Returns whether a service would propose the request.
fn makes_sense(request: Request) -> bool {
    check_request(&request, Limits { max_txn_ops: 128 }).is_ok()
}

impl Both {
    fn new() -> Both {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        Both {
            store: open(&engine),
            engine,
            book: Book::default(),
            naive: Naive::new(),
            runtime,
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Put(request) => self.write(|writer, book, naive, step| {
                let found = match writer.check_put(&request, book) {
                    Ok(()) => writer.put(&request, book),
                    Err(refused) => Err(refused),
                };
                same(found, naive.put(step, &request))
            }),
            Command::Delete(request) => self.write(|writer, book, naive, step| {
                same(
                    writer.delete_range(&request, book),
                    Ok(naive.delete_range(step, &request)),
                )
            }),
            Command::Txn(request) if makes_sense(Request::RequestTxn(request.clone())) => {
                self.txn(&request)
            }
            Command::Txn(_) => {}
            Command::Range(request) => self.read(&request),
            Command::Grant(lease) => {
                self.book.leases.insert(lease);
                self.naive.leases.insert(lease);
            }
            Command::Revoke(lease) => self.revoke(lease),
            Command::Compact(share) => self.compact(share),
            Command::Reclaim => self.reclaim(),
            Command::Restart => {
                let hash = self.store.hash_history(0).unwrap();
                self.store = open(&self.engine);
                assert_eq!(self.store.hash_history(0).unwrap(), hash);
            }
        }
    }

    /// Executes a command on both sides. A rejected command must change nothing.
    fn write(&mut self, work: impl FnOnce(&mut Writer<'_>, &mut Book, &Naive, &mut Step) -> bool) {
        let mut batch = Batch::default();
        let mut writer = self.store.writer();
        let mut step = self.naive.step();
        if work(&mut writer, &mut self.book, &self.naive, &mut step) {
            self.naive.commit(step);
        }
        writer.commit(&mut batch);
        drop(writer);
        self.engine.write_batch(batch).unwrap();
        self.store.mark_stored(self.store.current_revision());
        assert_eq!(self.store.current_revision(), self.naive.current());
        let hanging = self.naive.now().values().filter(|kv| kv.lease != 0);
        let expected: BTreeSet<_> = hanging.map(|kv| (kv.lease, kv.key.clone())).collect();
        assert_eq!(self.book.keys, expected);
        let mut found = BTreeSet::new();
        self.store.visit_leased_keys(|lease, key| {
            found.insert((lease, Bytes::copy_from_slice(key)));
        });
        assert_eq!(found, expected);
    }

    fn txn(&mut self, request: &TxnRequest) {
        if only_reads(request) {
            same(
                self.store.read_txn(request),
                self.naive.txn(&mut self.naive.step(), request),
            );
        }
        self.write(|writer, book, naive, step| {
            same(writer.execute_txn(request, book), naive.txn(step, request))
        });
    }

    fn read(&self, request: &RangeRequest) {
        let expected = self.naive.range(&self.naive.step(), request);
        let expected = expected.map(|answer| {
            (
                RangeResponse {
                    header: None,
                    ..answer
                },
                self.naive.current(),
            )
        });
        same(self.store.range(request), expected.clone());
        if let (Ok(Some(found)), Ok((expected, revision))) =
            (self.store.range_records(request), expected)
        {
            let kvs: Vec<KeyValue> = found
                .records
                .into_iter()
                .map(|record| KeyValue::decode(record).unwrap())
                .collect();
            assert_eq!(
                (kvs, found.more, found.count, found.revision),
                (expected.kvs, expected.more, expected.count, revision)
            );
        }
    }

    fn revoke(&mut self, lease: i64) {
        let hanging = self.book.keys.iter().filter(|(of, _)| *of == lease);
        let keys: Vec<Bytes> = hanging.map(|(_, key)| key.clone()).collect();
        self.write(|writer, book, _, step| {
            for key in &keys {
                writer.delete_key(key, book);
                step.delete(key);
            }
            true
        });
        self.book.leases.remove(&lease);
        self.naive.leases.remove(&lease);
    }

    fn compact(&mut self, share: u8) {
        let revision = self.naive.current() * i64::from(share) / 255;
        let mut batch = Batch::default();
        let done = self.store.writer().compact(revision, &mut batch);
        assert_eq!(done.is_ok(), revision > self.naive.compacted);
        if done.is_ok() {
            self.naive.compacted = revision;
            self.engine.write_batch(batch).unwrap();
        }
    }

    fn reclaim(&self) {
        let hash = self.store.hash_history(0).unwrap();
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.store.run_compactor() => {}
                () = self.store.wait_for_compaction(self.naive.compacted) => {}
            }
        });
        assert_eq!(
            self.store.hash_history(0).unwrap(),
            hash,
            "what can be read has changed"
        );
    }

    /// Compares all readable revisions and all events that a watcher can receive.
    fn whole(&self) {
        for revision in 0..=self.naive.current() + 1 {
            let (key, range_end) = (Bytes::from_static(b"a"), Bytes::from_static(b"\0"));
            self.read(&RangeRequest {
                key,
                range_end,
                revision,
                ..RangeRequest::default()
            });
        }
        let first = self.naive.compacted.max(2);
        let delivered = self.told_from(first);
        let expected: Vec<Vec<Change>> = self
            .naive
            .changes
            .iter()
            .skip(first as usize - 1)
            .cloned()
            .collect();
        assert_eq!(delivered.len(), expected.len());
        for (at, (delivered, mut expected)) in delivered.into_iter().zip(expected).enumerate() {
            assert_eq!(delivered.len(), expected.len());
            if first + at as i64 == self.naive.compacted {
                // The value before the compacted revision may be deleted already or not.
                delivered
                    .iter()
                    .zip(&mut expected)
                    .for_each(|(delivered, expected)| {
                        expected.previous.clone_from(&delivered.previous)
                    });
            }
            assert_eq!(delivered, expected);
        }
    }

    fn told_from(&self, first: i64) -> Vec<Vec<Change>> {
        let (mut delivered, mut next) = (Vec::new(), first);
        loop {
            let (found, after) = self.store.read_history(next, 3).unwrap();
            if found.is_empty() {
                return delivered;
            }
            delivered.extend(found.iter().map(|revision| {
                revision
                    .iter()
                    .map(|event| self.change(event))
                    .collect::<Vec<_>>()
            }));
            next = after;
        }
    }

    fn change(&self, event: &Event) -> Change {
        let previous = self.store.previous_pair(event).unwrap();
        Change {
            deleted: event.mark.is_tombstone(),
            kv: event.kv.clone(),
            previous,
        }
    }
}

fn only_reads(request: &TxnRequest) -> bool {
    request
        .success
        .iter()
        .chain(&request.failure)
        .all(|op| match &op.request {
            Some(Request::RequestRange(_)) => true,
            Some(Request::RequestTxn(nested)) => only_reads(nested),
            _ => false,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn store_responds_like_the_model(commands in random::commands()) {
        let mut both = Both::new();
        for command in commands {
            both.execute(command);
        }
        both.whole();
        both.execute(Command::Restart);
        both.whole();
        both.reclaim();
        both.whole();
    }
}
