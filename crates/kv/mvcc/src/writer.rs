//! Executes writes under the lock.

use crate::error::MvccError;
use crate::history::Event;
use crate::index::ReplacedVersion;
use crate::range;
use crate::revision::Mark;
use crate::span::Span;
use crate::state::{META_COMPACTED, META_REVISION, State};
use crate::store::Store;
use crate::view::View;
use bytes::Bytes;
use kv_engine::{Batch, Table};
use parking_lot::RwLockWriteGuard;
use prost::Message;
use proto_etcd::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
    ResponseHeader,
};
use proto_etcd::mvccpb::KeyValue;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Access to leases and the keys attached to them.
pub trait LeaseBook {
    /// Returns whether the lease exists.
    fn lease_exists(&self, lease: i64) -> bool;
    /// Attaches the key to the lease.
    fn attach_key(&mut self, lease: i64, key: &[u8]);
    /// Detaches the key from the lease.
    fn detach_key(&mut self, lease: i64, key: &[u8]);
}

/// Implementation without leases.
pub struct NoLeases;

impl LeaseBook for NoLeases {
    fn lease_exists(&self, _: i64) -> bool {
        false
    }
    fn attach_key(&mut self, _: i64, _: &[u8]) {}
    fn detach_key(&mut self, _: i64, _: &[u8]) {}
}

/// Exclusive write access to the store. Each command ends with `commit`.
pub struct Writer<'a> {
    store: &'a Store,
    pub(crate) state: RwLockWriteGuard<'a, State>,
    events: Vec<Arc<Event>>,
}

impl Store {
    /// Starts a batch of commands. Its changes become visible when the writer is dropped.
    pub fn writer(&self) -> Writer<'_> {
        Writer::new(self, self.state.write())
    }
}

impl<'a> Writer<'a> {
    pub(crate) fn new(store: &'a Store, state: RwLockWriteGuard<'a, State>) -> Self {
        Writer {
            store,
            state,
            events: Vec::new(),
        }
    }

    /// Ends a command. Its changes become one revision, and their records are added to `batch`.
    pub fn commit(&mut self, batch: &mut Batch) {
        // A command that changed nothing makes no revision, as in etcd.
        if self.events.is_empty() {
            return;
        }
        self.state.current += 1;
        for event in &self.events {
            self.store
                .bytes
                .fetch_add(event.mark.stored_size(), Ordering::Relaxed);
            batch.put(
                Table::Revisions,
                event.mark.engine_key(),
                event.record.clone(),
            );
        }
        batch.put(
            // In the batch of the records, so that a crash can't separate them.
            Table::Meta,
            META_REVISION.to_vec(),
            self.state.current.to_be_bytes().to_vec(),
        );
        let events = std::mem::take(&mut self.events);
        self.state.history.push(events.into());
    }

    /// Returns the revision that a read in this command sees: that of the command itself, if it has
    /// changed something.
    pub fn read_revision(&self) -> i64 {
        self.state.current + i64::from(!self.events.is_empty())
    }

    /// Returns the size of the history in bytes.
    pub fn history_bytes(&self) -> usize {
        self.state.history.size_bytes()
    }

    fn next_mark(&self, dead: bool) -> Mark {
        Mark::new(
            self.state.current + 1,
            u32::try_from(self.events.len()).unwrap_or(u32::MAX >> 1),
            dead,
        )
    }

    /// Checks whether a put can be executed in the current state.
    pub fn check_put(&self, request: &PutRequest, leases: &dyn LeaseBook) -> Result<(), MvccError> {
        if request.ignore_value || request.ignore_lease {
            let there = self
                .state
                .index
                .get(&request.key)
                .is_some_and(|item| item.is_live());
            // etcd rejects a put that keeps the value or lease of a key which does not exist.
            if !there {
                return Err(MvccError::KeyNotFound);
            }
        }
        // Checked before the put changes anything: a command that fails must leave no trace.
        if request.lease != 0 && !leases.lease_exists(request.lease) {
            return Err(MvccError::LeaseNotFound);
        }
        Ok(())
    }

    /// Puts a key. `check_put` must have succeeded.
    pub fn put(
        &mut self,
        request: &PutRequest,
        leases: &mut dyn LeaseBook,
    ) -> Result<PutResponse, MvccError> {
        self.count_put(request);
        // Read before the index changes, which makes the new pair the current one.
        let needs_previous = request.prev_kv || request.ignore_value;
        let previous = if needs_previous {
            self.current_pair(&request.key)?
        } else {
            None
        };
        let old_lease = self
            .state
            .index
            .get(&request.key)
            .map_or(0, |item| item.lease_id());
        let lease = if request.ignore_lease {
            old_lease
        } else {
            request.lease
        };
        let value = match &previous {
            Some(previous) if request.ignore_value => previous.value.clone(),
            _ => request.value.clone(),
        };
        let mark = self.next_mark(false);
        // A deleted key starts again with version 1, as in etcd.
        let life = self.state.index.next_generation(&request.key, mark.main());
        let kv = KeyValue {
            key: request.key.clone(),
            create_revision: life.create,
            mod_revision: mark.main(),
            version: life.version,
            value,
            lease,
        };
        let record = Bytes::from(kv.encode_to_vec());
        let mark = mark.with_size(record.len());
        let replaced = self
            .state
            .index
            .put(&request.key, mark, life, lease, record.clone());
        move_key(leases, &request.key, old_lease, lease);
        self.record_event(mark, kv, record, replaced);
        let header = self.response_header();
        Ok(PutResponse {
            header,
            prev_kv: previous.filter(|_| request.prev_kv),
        })
    }

    fn count_put(&self, request: &PutRequest) {
        let counts = &self.store.counts;
        counts.puts.fetch_add(1, Ordering::Relaxed);
        counts.put_bytes.fetch_add(
            (request.key.len() + request.value.len()) as u64,
            Ordering::Relaxed,
        );
    }

    /// Deletes the keys of a range.
    pub fn delete_range(
        &mut self,
        request: &DeleteRangeRequest,
        leases: &mut dyn LeaseBook,
    ) -> Result<DeleteRangeResponse, MvccError> {
        self.store.counts.deletes.fetch_add(1, Ordering::Relaxed);
        // Collected first, because the visit borrows the index that the deletions change.
        let mut keys = Vec::new();
        self.state
            .index
            .visit_items(Span::new(&request.key, &request.range_end), |key, item| {
                if item.is_live() {
                    keys.push(Bytes::copy_from_slice(key));
                }
                true
            });
        let mut prev_kvs = Vec::new();
        for key in &keys {
            if request.prev_kv {
                prev_kvs.extend(self.current_pair(key)?);
            }
            self.delete_key(key, leases);
        }
        Ok(DeleteRangeResponse {
            header: self.response_header(),
            deleted: keys.len() as i64,
            prev_kvs,
        })
    }

    /// Deletes a key if it exists.
    pub fn delete_key(&mut self, key: &Bytes, leases: &mut dyn LeaseBook) {
        let mark = self.next_mark(true);
        let kv = KeyValue {
            key: key.clone(),
            mod_revision: mark.main(),
            ..KeyValue::default()
        };
        let record = Bytes::from(kv.encode_to_vec());
        let mark = mark.with_size(record.len());
        // A lease may hold a key that the same command has already deleted.
        let Some(replaced) = self.state.index.delete(key, mark) else {
            return;
        };
        if replaced.lease != 0 {
            leases.detach_key(replaced.lease, key);
        }
        self.record_event(mark, kv, record, Some(replaced));
    }

    fn record_event(
        &mut self,
        mark: Mark,
        kv: KeyValue,
        record: Bytes,
        replaced: Option<ReplacedVersion>,
    ) {
        let (previous, previous_record) = match replaced {
            Some(replaced) => (Some(replaced.mark), replaced.record),
            None => (None, None),
        };
        self.events.push(Arc::new(Event {
            mark,
            kv,
            record,
            previous,
            previous_record,
        }));
    }

    /// Reads a range within a transaction, including its changes. The view's `check_range` must
    /// have succeeded.
    pub(crate) fn range_in_txn(&self, request: &RangeRequest) -> Result<RangeResponse, MvccError> {
        self.store.counts.ranges.fetch_add(1, Ordering::Relaxed);
        let revision = if request.revision <= 0 {
            self.read_revision()
        } else {
            request.revision
        };
        let selection = range::select_keys(&self.state.index, request, revision);
        let mut kvs = Vec::with_capacity(selection.found.len());
        for (mark, record) in selection.found {
            kvs.extend(self.view().pair_at(mark, record)?);
        }
        let mut response = range::build_response(request, kvs, selection.count)?;
        response.header = self.response_header();
        Ok(response)
    }

    /// Returns the current pair of a key.
    pub(crate) fn current_pair(&self, key: &[u8]) -> Result<Option<KeyValue>, MvccError> {
        self.view().current_pair(key)
    }

    pub(crate) fn count_txn(&self) {
        self.store.counts.txns.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a view of the state including this command's changes.
    pub(crate) fn view(&self) -> View<'_> {
        View {
            engine: &*self.store.engine,
            state: &self.state,
            pending: &self.events,
        }
    }

    pub(crate) fn response_header(&self) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            revision: self.read_revision(),
            ..ResponseHeader::default()
        })
    }

    /// Compacts the history up to `revision`. The records are deleted afterwards in small steps.
    pub fn compact(&mut self, revision: i64, batch: &mut Batch) -> Result<(), MvccError> {
        if revision <= self.state.compacted {
            return Err(MvccError::Compacted);
        }
        // A compaction of the future would make later reads fail as compacted.
        if revision > self.state.current {
            return Err(MvccError::Future);
        }
        // Only the number changes now. Deleting the records here would hold the lock, and stop
        // applying, for as long as the history is large.
        self.state.compacted = revision;
        batch.put(
            Table::Meta,
            META_COMPACTED.to_vec(),
            revision.to_be_bytes().to_vec(),
        );
        self.store.reclaim.notify_one();
        Ok(())
    }

    /// Compacts, and has the history up to the revision hashed before records are deleted.
    /// `Store::hash_history` then returns the same hash for this revision as before. That requires
    /// a scan of all records.
    pub fn compact_physically(
        &mut self,
        revision: i64,
        batch: &mut Batch,
    ) -> Result<(), MvccError> {
        let before = self.state.compacted;
        self.compact(revision, batch)?;
        // Taken before the records are deleted, so that members can be compared at this revision.
        self.state.to_hash = Some((revision, before));
        Ok(())
    }
}

/// Attaches a key to its new lease. A put without a lease detaches the key from its former one, as
/// in etcd.
fn move_key(leases: &mut dyn LeaseBook, key: &[u8], from: i64, to: i64) {
    if from == to {
        return;
    }
    if from != 0 {
        leases.detach_key(from, key);
    }
    if to != 0 {
        leases.attach_key(to, key);
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // Once per batch of commands: watchers then read all of its revisions at once.
        self.store.publish_revision(self.state.current);
    }
}
