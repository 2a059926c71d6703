//! History of the clients' requests and responses.

use bytes::Bytes;
use parking_lot::Mutex;
use proto_etcd::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
    TxnRequest, TxnResponse,
};
use std::sync::Arc;

/// A request of a client.
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

/// Response to a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Put(PutResponse),
    Delete(DeleteRangeResponse),
    Range(RangeResponse),
    Txn(TxnResponse),
    /// Success at this revision.
    Done(i64),
    /// TTL of the lease; 0: it does not exist.
    Alive(i64),
}

/// A request and its outcome.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub request: Request,
    /// Number of its start in the total order of all events that clients observe.
    pub begun: u64,
    pub begun_ms: u64,
    /// Number of its end; `None`: unknown outcome.
    pub ended: Option<u64>,
    pub answer: Option<Answer>,
    /// The error, for messages.
    pub refusal: Option<String>,
}

/// All requests of all clients.
#[derive(Clone, Default)]
pub(crate) struct History(Arc<Mutex<Vec<Operation>>>);

impl History {
    /// Records the start of a request.
    pub fn record_start(&self, request: Request, begun: u64, begun_ms: u64) -> usize {
        let mut operations = self.0.lock();
        operations.push(Operation {
            request,
            begun,
            begun_ms,
            ended: None,
            answer: None,
            refusal: None,
        });
        operations.len() - 1
    }

    /// Records the end of a request.
    pub fn record_end(&self, number: usize, ended: u64, answer: Result<Answer, String>) {
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

/// A message that a watcher received.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// Events of one message, with their previous values.
    Events {
        revision: i64,
        events: Vec<proto_etcd::mvccpb::Event>,
    },
    /// Progress notification: everything up to this revision was sent.
    Progress(i64),
    /// The requested revision is compacted; the watcher continues at this one.
    Compacted(i64),
    /// A new watch that starts at this revision.
    From(i64),
}

/// Messages of a watcher.
#[derive(Clone, Default)]
pub(crate) struct WatchLog(Arc<Mutex<Vec<Seen>>>);

impl WatchLog {
    pub fn push(&self, seen: Seen) {
        self.0.lock().push(seen);
    }

    pub fn take(&self) -> Vec<Seen> {
        self.0.lock().clone()
    }

    /// Returns the last revision that the watcher received.
    pub fn last_received(&self) -> i64 {
        let seen = self.0.lock();
        let last = seen.iter().rev().find_map(|seen| match seen {
            Seen::Events { events, .. } => events
                .last()
                .and_then(|event| event.kv.as_ref())
                .map(|kv| kv.mod_revision),
            Seen::Progress(revision) => Some(*revision),
            Seen::Compacted(revision) => Some(revision - 1),
            Seen::From(_) => None,
        });
        last.unwrap_or_default()
    }
}

/// Returns a key of the workload.
pub(crate) fn numbered_key(number: u64) -> Bytes {
    Bytes::from(format!("k{number}"))
}

impl History {
    /// Returns the number of acknowledged compactions.
    pub fn compactions(&self) -> usize {
        let operations = self.0.lock();
        operations
            .iter()
            .filter(|o| matches!((&o.request, &o.answer), (Request::Compact(_), Some(_))))
            .count()
    }
}

impl History {
    /// Returns whether every request has ended.
    pub fn all_over(&self) -> bool {
        self.0
            .lock()
            .iter()
            .all(|operation| operation.ended.is_some() || operation.refusal.is_some())
    }

    pub fn put_back(&self, operations: &[Operation]) {
        self.0.lock().extend_from_slice(operations);
    }
}
