//! What clients did and saw.

use bytes::Bytes;
use parking_lot::Mutex;
use proto_etcd::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse, TxnRequest,
    TxnResponse,
};
use std::sync::Arc;

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Range(RangeRequest),
    Txn(TxnRequest),
    Compact(i64),
    Grant { lease: i64, ttl: i64 },
    Revoke(i64),
    KeepAlive(i64),
}

/// Its answer.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Put(PutResponse),
    Delete(DeleteRangeResponse),
    Range(RangeResponse),
    Txn(TxnResponse),
    /// Done as of this revision.
    Done(i64),
    /// The lease's time to live; 0: it is gone.
    Alive(i64),
}

/// A request and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub request: Request,
    /// Place in the order of everything that clients see.
    pub begun: u64,
    pub begun_ms: u64,
    /// Likewise; none: nobody knows whether it was done.
    pub ended: Option<u64>,
    pub answer: Option<Answer>,
    /// The refusal, for messages.
    pub refusal: Option<String>,
}

/// Everything that clients did.
#[derive(Clone, Default)]
pub(crate) struct History(Arc<Mutex<Vec<Operation>>>);

impl History {
    /// A request is about to be sent.
    pub fn begin(&self, request: Request, begun: u64, begun_ms: u64) -> usize {
        let mut operations = self.0.lock();
        operations.push(Operation { request, begun, begun_ms, ended: None, answer: None, refusal: None });
        operations.len() - 1
    }

    /// Its answer came.
    pub fn end(&self, number: usize, ended: u64, answer: Result<Answer, String>) {
        if let Some(operation) = self.0.lock().get_mut(number) {
            match answer {
                Ok(answer) => (operation.ended, operation.answer) = (Some(ended), Some(answer)),
                Err(refusal) => operation.refusal = Some(refusal),
            }
        }
    }

    pub fn take(&self) -> Vec<Operation> {
        std::mem::take(&mut *self.0.lock())
    }

    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// A message that a watcher got.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// Events with their values before, of one message.
    Events { revision: i64, events: Vec<proto_etcd::mvccpb::Event> },
    /// Everything up to here has been told.
    Progress(i64),
    /// What was asked for is compacted up to here; it goes on there.
    Compacted(i64),
    /// A new watch from this revision on.
    From(i64),
}

/// What a watcher saw.
#[derive(Clone, Default)]
pub(crate) struct WatchLog(Arc<Mutex<Vec<Seen>>>);

impl WatchLog {
    pub fn push(&self, seen: Seen) {
        self.0.lock().push(seen);
    }

    pub fn take(&self) -> Vec<Seen> {
        self.0.lock().clone()
    }

    /// The last revision that it was told of.
    pub fn told(&self) -> i64 {
        let seen = self.0.lock();
        let last = seen.iter().rev().find_map(|seen| match seen {
            Seen::Events { events, .. } => events.last().and_then(|event| event.kv.as_ref()).map(|kv| kv.mod_revision),
            Seen::Progress(revision) => Some(*revision),
            Seen::Compacted(revision) => Some(revision - 1),
            Seen::From(_) => None,
        });
        last.unwrap_or_default()
    }
}

/// A key of the workload.
pub(crate) fn key(number: u64) -> Bytes {
    Bytes::from(format!("k{number}"))
}

impl History {
    /// Compactions that were acknowledged.
    pub fn compactions(&self) -> usize {
        let operations = self.0.lock();
        operations.iter().filter(|o| matches!((&o.request, &o.answer), (Request::Compact(_), Some(_)))).count()
    }
}

impl History {
    /// Whether every request has ended one way or the other.
    pub fn all_over(&self) -> bool {
        self.0.lock().iter().all(|operation| operation.ended.is_some() || operation.refusal.is_some())
    }

    pub fn put_back(&self, operations: &[Operation]) {
        self.0.lock().extend_from_slice(operations);
    }
}
