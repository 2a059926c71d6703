//! Reads during the installation of a snapshot.
#![allow(clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};
use kv_engine::MemoryEngine;
use kv_machine::{Command, Envelope, Machine, Options, encode_into};
use kv_mvcc::MvccError;
use proto_etcd::etcdserverpb::{PutRequest, RangeRequest};
use std::sync::Arc;
use std::time::Duration;

fn machine(engine: &Arc<MemoryEngine>) -> Arc<Machine> {
    let options = Options {
        member: 1,
        max_txn_ops: 128,
        max_learners: 1,
        value_cache: 0,
        own_thread: true,
        token_ttl: Duration::from_secs(300),
        on_store: Arc::new(|_| {}),
        slow_apply: Duration::MAX,
    };
    Machine::open(engine.clone(), options).unwrap()
}

async fn with_a_key() -> Arc<Machine> {
    let engine = Arc::new(MemoryEngine::default());
    let before = machine(&engine);
    let put = PutRequest {
        key: Bytes::from_static(b"k"),
        value: Bytes::from_static(b"v"),
        ..PutRequest::default()
    };
    let envelope = Envelope {
        internal: true,
        command: Some(Command::Put(put)),
        ..Envelope::default()
    };
    let mut entry = BytesMut::new();
    encode_into(&mut entry, &envelope);
    before.apply(1, Bytes::new(), None, Some(entry.freeze()));
    before.flush().await.unwrap();
    // A reopened machine has the key index in memory, but the value only in the engine.
    machine(&engine)
}

#[tokio::test]
async fn what_needs_the_engine_is_refused_meanwhile() {
    let (member, leader) = (with_a_key().await, with_a_key().await);
    let mut picture = leader.start_snapshot().await.unwrap();
    let request = RangeRequest {
        key: Bytes::from_static(b"k"),
        ..RangeRequest::default()
    };
    let mut looked = 0;
    let rows = || {
        looked += 1;
        if looked == 1 {
            assert!(matches!(
                member.store().range(&request),
                Err(MvccError::Replaced)
            ));
            assert!(
                matches!(member.store().read_history(2, 10), Err(MvccError::Replaced)),
                "a watcher would miss it"
            );
        }
        Ok(picture.next_rows()?)
    };
    member.install_snapshot(rows).await.unwrap();
    assert!(looked > 1);
    assert_eq!(member.store().range(&request).unwrap().0.kvs.len(), 1);
    assert_eq!(member.store().read_history(2, 10).unwrap().0.len(), 1);
}
