//! The state machine: commands in, results and state out.
#![allow(clippy::unwrap_used)]

mod alarms;
mod install;
mod keys;
mod leases;
mod members;
mod permissions;
mod tokens;

use bytes::{Bytes, BytesMut};
use kv_engine::MemoryEngine;
use kv_machine::{Command, Envelope, EtcdError, Machine, Options, Outcome, Reply, encode_into};
use proto_etcd::etcdserverpb::{PutRequest, RangeRequest};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MEMBER: u64 = 1;

fn options() -> Options {
    Options {
        member: MEMBER,
        max_txn_ops: 128,
        max_learners: 1,
        value_cache: 0,
        own_thread: false,
        token_ttl: Duration::from_secs(300),
        on_store: Arc::new(|_| {}),
        slow_apply: Duration::MAX,
    }
}

/// A machine on an engine in memory, and the index of its next entry.
struct TestMachine {
    engine: Arc<MemoryEngine>,
    machine: Arc<Machine>,
    next: AtomicU64,
}

impl TestMachine {
    fn new() -> TestMachine {
        TestMachine::open(Arc::new(MemoryEngine::default()), options())
    }

    fn open(engine: Arc<MemoryEngine>, options: Options) -> TestMachine {
        let machine = Machine::open(engine.clone(), options).unwrap();
        let next = AtomicU64::new(machine.applied_index() + 1);
        TestMachine {
            engine,
            machine,
            next,
        }
    }

    /// Opens the same engine again, after everything was written to it.
    fn reopen(self) -> TestMachine {
        while self.machine.drain_queue() {}
        TestMachine::open(self.engine.clone(), options())
    }

    /// Applies an entry of these envelopes. Returns the replies to requests of this member.
    fn apply_entry(&self, envelopes: Vec<Envelope>) -> Vec<Option<Reply>> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let mut entry = BytesMut::new();
        let mut receivers = Vec::new();
        for envelope in envelopes {
            let (request, receiver) = self.machine.register_request();
            encode_into(
                &mut entry,
                &Envelope {
                    request,
                    ..envelope
                },
            );
            receivers.push(receiver);
        }
        let position = Bytes::copy_from_slice(&index.to_be_bytes());
        self.machine
            .apply(index, position, None, Some(entry.freeze()));
        receivers
            .into_iter()
            .map(|mut receiver| receiver.try_recv().ok())
            .collect()
    }

    fn apply_envelope(&self, envelope: Envelope) -> Result<Outcome, EtcdError> {
        let reply = self.apply_entry(vec![envelope]).pop().flatten();
        reply.unwrap().result
    }

    /// Applies a command of the store itself.
    fn apply(&self, command: Command) -> Result<Outcome, EtcdError> {
        self.apply_envelope(Envelope {
            origin: MEMBER,
            internal: true,
            command: Some(command),
            ..Envelope::default()
        })
    }

    /// Applies a command of a user.
    fn apply_as(&self, user: &str, command: Command) -> Result<Outcome, EtcdError> {
        self.apply_envelope(Envelope {
            origin: MEMBER,
            user: user.to_owned(),
            command: Some(command),
            ..Envelope::default()
        })
    }

    fn count_keys(&self, key: &'static str, range_end: &'static str) -> i64 {
        let request = RangeRequest {
            key: key.into(),
            range_end: range_end.into(),
            ..RangeRequest::default()
        };
        self.machine.store().range(&request).unwrap().0.count
    }
}

fn put(key: &'static str) -> Command {
    Command::Put(PutRequest {
        key: key.into(),
        value: "v".into(),
        ..PutRequest::default()
    })
}

fn put_with_lease(key: &'static str, lease: i64) -> Command {
    Command::Put(PutRequest {
        key: key.into(),
        lease,
        ..PutRequest::default()
    })
}
