//! The store's current revision, with one read for all concurrent callers.
//!
//! Invariant: a caller gets the result of a read that started after its call. A read that is
//! already running started too early, so callers wait for the next one and share it.

use crate::StoreError;
use crate::members::Members;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use proto_etcd::etcdserverpb as pb;
use std::sync::Arc;

type ReadBatch = Shared<BoxFuture<'static, Result<i64, String>>>;

/// A reading, and whether it has started.
type QueuedRead = (ReadBatch, Arc<Mutex<bool>>);

#[derive(Clone)]
pub(crate) struct ReadIndex {
    members: Members,
    /// The newest reading; it may have ended.
    last: Arc<Mutex<Option<QueuedRead>>>,
}

impl ReadIndex {
    pub(crate) fn new(members: Members) -> Self {
        ReadIndex {
            members,
            last: Arc::default(),
        }
    }

    pub(crate) async fn current_revision(&self) -> Result<i64, StoreError> {
        let reading = self.join_batch();
        reading.await.map_err(StoreError::Unavailable)
    }

    /// Joins the queued reading, or queues a new one behind the running one.
    fn join_batch(&self) -> ReadBatch {
        let mut last = self.last.lock();
        if let Some((reading, started)) = &*last
            && !*started.lock()
        {
            return reading.clone();
        }
        // A new reading waits for the one that runs. Two at a time would help no caller, and under
        // load this shares one request between many.
        let before = last
            .take()
            .map(|(reading, _)| reading)
            .filter(|r| r.peek().is_none());
        let started = Arc::new(Mutex::new(false));
        let reading = read_revision(self.members.clone(), before, started.clone())
            .boxed()
            .shared();
        *last = Some((reading.clone(), started));
        reading
    }
}

async fn read_revision(
    members: Members,
    before: Option<ReadBatch>,
    started: Arc<Mutex<bool>>,
) -> Result<i64, String> {
    if let Some(before) = before {
        // Its result does not matter, because it started before our callers.
        let _ = before.await;
    }
    // From here on, later callers need another reading: this one may miss their write.
    *started.lock() = true;
    // A key that is never written: the response is empty, its header has the revision.
    let request = pb::RangeRequest {
        key: Bytes::from_static(b"\0none"),
        count_only: true,
        ..Default::default()
    };
    let read = async |channel| {
        pb::kv_client::KvClient::new(channel)
            .range(request.clone())
            .await
    };
    let response = members.read(read).await.map_err(|e| e.to_string())?;
    Ok(response.header.map_or(0, |h| h.revision))
}
