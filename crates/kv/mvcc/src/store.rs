//! The store: index, history and engine under one lock.
//!
//! A writer holds the lock for a batch of commands, a reader while it reads the index. Values are
//! read after it is released.

use crate::error::MvccError;
use crate::history::{Event, History, RevisionEvents};
use crate::index::{Change, Generation, Index};
use crate::range::{self, IndexSelection};
use crate::revision::{Mark, decode_record};
use crate::state::{META_COMPACTED, META_REVISION, State, readable_revision};
use bytes::Bytes;
use kv_engine::{Engine, Table};
use parking_lot::{Mutex, RwLock};
use proto_etcd::etcdserverpb::{RangeRequest, RangeResponse};
use proto_etcd::mvccpb::KeyValue;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// Sizes for metrics and status.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreSizes {
    /// Keys that are not deleted.
    pub keys: usize,
    /// Size of the history in bytes.
    pub history_bytes: usize,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Counts {
    /// Number of puts.
    pub puts: AtomicU64,
    /// Bytes of keys and values put.
    pub put_bytes: AtomicU64,
    /// Number of range deletions.
    pub deletes: AtomicU64,
    /// Number of ranges read.
    pub ranges: AtomicU64,
    /// Number of transactions with more than one operation.
    pub txns: AtomicU64,
}

/// The multi-version store.
pub struct Store {
    pub(crate) state: RwLock<State>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) reclaim: Notify,
    pub(crate) pins: AtomicUsize,
    /// Size in bytes of all records that are not deleted from the engine yet.
    pub(crate) bytes: AtomicU64,
    pub(crate) counts: Counts,
    pub(crate) reclaimed: watch::Sender<i64>,
    /// Counts starts and ends of snapshot installations: odd during an installation.
    replacements: AtomicU64,
    revisions: watch::Sender<i64>,
    value_budget: usize,
    deferred: OnceLock<Defer>,
    pub(crate) steps: Arc<Semaphore>,
    /// Hash, revision and former compacted revision of the last physical compaction.
    pub(crate) compacted_hash: Mutex<Option<(u32, i64, i64)>>,
}

/// Response to a range request, with encoded pairs.
#[derive(Debug)]
pub struct Records {
    /// Encoded `KeyValue`s.
    pub records: Vec<Bytes>,
    /// True if the limit excluded further pairs.
    pub more: bool,
    /// Total number of keys.
    pub count: i64,
    /// The current revision.
    pub revision: i64,
}

/// Queues deletions for the engine. The permit is dropped when the engine has them.
pub type Defer = Box<dyn Fn(kv_engine::Batch, OwnedSemaphorePermit) + Send + Sync>;

/// Maximum number of steps whose deletions are queued. Changes applied later wait behind them.
pub(crate) const WAITING_STEPS: usize = 4;

impl Store {
    /// Builds the index from an engine. `value_budget` is the size in bytes of the cache of latest
    /// values.
    pub fn open(engine: Arc<dyn Engine>, value_budget: usize) -> Result<Store, MvccError> {
        let (state, bytes) = load_state(&*engine, value_budget)?;
        let store = Store {
            bytes: AtomicU64::new(bytes),
            counts: Counts::default(),
            revisions: watch::Sender::new(state.current),
            reclaimed: watch::Sender::new(state.reclaimed),
            state: RwLock::new(state),
            engine,
            reclaim: Notify::new(),
            pins: AtomicUsize::new(0),
            replacements: AtomicU64::new(0),
            value_budget,
            deferred: OnceLock::new(),
            steps: Arc::new(Semaphore::new(WAITING_STEPS)),
            compacted_hash: Mutex::new(None),
        };
        // A compaction may have been interrupted by the end of the last process.
        store.reclaim.notify_one();
        Ok(store)
    }

    /// Starts the replacement of the engine's content. Reads that need the engine are rejected
    /// until `reload_state`.
    pub fn begin_replacing(&self) {
        // The number is odd already if the previous installation failed and is repeated.
        if !self.is_replacing() {
            self.replacements.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn is_replacing(&self) -> bool {
        self.replacements.load(Ordering::Acquire) % 2 == 1
    }

    /// Builds the index again from the replaced content of the engine.
    pub fn reload_state(&self) -> Result<(), MvccError> {
        // Held while everything is loaded: a read in between would see the index of one state and
        // the records of another.
        let mut state = self.state.write();
        let (loaded, bytes) = load_state(&*self.engine, self.value_budget)?;
        *state = loaded;
        // That hash belongs to the replaced content.
        *self.compacted_hash.lock() = None;
        if self.is_replacing() {
            self.replacements.fetch_add(1, Ordering::AcqRel);
        }
        self.bytes.store(bytes, Ordering::Relaxed);
        let (current, reclaimed) = (state.current, state.reclaimed);
        drop(state);
        self.revisions.send_replace(current);
        self.reclaimed.send_replace(reclaimed);
        self.reclaim.notify_one();
        Ok(())
    }

    /// Returns the current revision.
    pub fn current_revision(&self) -> i64 {
        self.state.read().current
    }

    /// Returns the compacted revision.
    pub fn compacted_revision(&self) -> i64 {
        self.state.read().compacted
    }

    /// Subscribes to the current revision.
    pub fn subscribe_revisions(&self) -> watch::Receiver<i64> {
        self.revisions.subscribe()
    }

    /// Subscribes to the revision up to which compacted records are deleted from the engine.
    pub fn subscribe_reclaimed(&self) -> watch::Receiver<i64> {
        self.reclaimed.subscribe()
    }

    /// Deletes records from the engine, after the writes that are queued for it.
    pub(crate) fn delete_records(
        &self,
        batch: kv_engine::Batch,
        turn: OwnedSemaphorePermit,
    ) -> Result<(), MvccError> {
        // Deletions take the same queue as writes. On a path of their own they could overtake the
        // write of the record that they delete, which then would stay for ever.
        match self.deferred.get() {
            Some(defer) => defer(batch, turn),
            None => self.engine.write_batch(batch)?,
        }
        Ok(())
    }

    /// Sets the queue of the engine's writer for deletions. They must be executed after the writes
    /// queued before.
    pub fn defer_removals(&self, defer: Defer) {
        // Set only once, when the state machine is assembled.
        let _ = self.deferred.set(defer);
    }

    pub(crate) fn publish_revision(&self, revision: i64) {
        // An entry without changes must not wake the watch hub.
        self.revisions
            .send_if_modified(|current| std::mem::replace(current, revision) != revision);
    }

    /// Returns the size in bytes of all records, including compacted ones that are not deleted yet.
    pub fn records_size(&self) -> u64 {
        // Counted at each write, because the quota is checked often and a scan of all records would
        // be too slow.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns sizes for metrics.
    pub fn sizes(&self) -> StoreSizes {
        let state = self.state.read();
        StoreSizes {
            keys: state.index.live_count(),
            history_bytes: state.history.size_bytes(),
        }
    }

    /// Returns the counters.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Visits the keys that are attached to a lease.
    pub fn visit_leased_keys(&self, mut visit: impl FnMut(i64, &[u8])) {
        self.state
            .read()
            .index
            .visit_items(crate::span::Span::new(b"", b"\0"), |key, item| {
                // A deleted key was detached when it was deleted.
                if item.is_live() && item.lease_id() != 0 {
                    visit(item.lease_id(), key);
                }
                true
            });
    }

    /// Records that the engine has everything up to `revision`.
    pub fn mark_stored(&self, revision: i64) {
        self.state.write().history.mark_stored(revision);
    }

    /// Executes a range request. Returns the current revision too.
    pub fn range(&self, request: &RangeRequest) -> Result<(RangeResponse, i64), MvccError> {
        range::check_range(request)?;
        self.counts.ranges.fetch_add(1, Ordering::Relaxed);
        loop {
            // Only the selection holds the lock. Values are read without it, because the engine may
            // block.
            let (selected, current) = {
                let state = self.state.read();
                (RangeSelection::new(&state, request)?, state.current)
            };
            if let Some(response) = self.fetch_pairs(request, selected)? {
                return Ok((response, current));
            }
        }
    }

    /// Reads the pairs of a selection. Returns `None` if a compaction deleted one in the meantime;
    /// the caller selects again.
    pub(crate) fn fetch_pairs(
        &self,
        request: &RangeRequest,
        selected: RangeSelection,
    ) -> Result<Option<RangeResponse>, MvccError> {
        let RangeSelection { selection, recent } = selected;
        let mut kvs = Vec::with_capacity(selection.found.len());
        for ((mark, record), event) in selection.found.into_iter().zip(recent) {
            let kv = match (record, event) {
                (Some(record), _) => decode_record(&record),
                (None, Some(event)) => Some(event.kv.clone()),
                (None, None) => self.read_engine(mark)?,
            };
            kvs.extend(kv);
        }
        // Fewer pairs than selected: a compaction deleted a record between selection and read.
        if request.count_only || kvs.len() as i64 == expected_count(request, selection.count) {
            return range::build_response(request, kvs, selection.count).map(Some);
        }
        Ok(None)
    }

    /// Executes a range request without decoding pairs. Returns `None` if the request requires
    /// that.
    pub fn range_records(&self, request: &RangeRequest) -> Result<Option<Records>, MvccError> {
        range::check_range(request)?;
        if range::needs_all(request) || request.keys_only {
            return Ok(None);
        }
        let (RangeSelection { selection, recent }, revision) = {
            let state = self.state.read();
            (RangeSelection::new(&state, request)?, state.current)
        };
        let selected_count = selection.found.len();
        let mut records = Vec::with_capacity(selected_count);
        for ((mark, record), recent) in selection.found.into_iter().zip(recent) {
            records.extend(match (record, recent) {
                (Some(record), _) => Some(record),
                (None, Some(event)) => Some(event.record.clone()),
                (None, None) => self.engine.get(Table::Revisions, &mark.engine_key())?,
            });
        }
        if records.len() != selected_count {
            // A compaction deleted a record in the meantime; the slow path reads again.
            return Ok(None);
        }
        self.counts.ranges.fetch_add(1, Ordering::Relaxed);
        let more = !request.count_only && selection.count > selected_count as i64;
        Ok(Some(Records {
            records,
            more,
            count: selection.count,
            revision,
        }))
    }

    /// Returns the pair of a revision, or `None` if it was compacted.
    pub fn read_record(&self, mark: Mark) -> Result<Option<KeyValue>, MvccError> {
        // First the history: the engine may not have the newest records yet.
        let event = self.state.read().history.get(mark).cloned();
        match event {
            Some(event) => Ok(Some(event.kv.clone())),
            None => self.read_engine(mark),
        }
    }

    /// Returns the key's value before an event, or `None` if there was none or it was compacted.
    pub fn previous_pair(&self, event: &Event) -> Result<Option<KeyValue>, MvccError> {
        if let Some(record) = &event.previous_record {
            return Ok(decode_record(record));
        }
        match event.previous {
            Some(mark) => self.read_record(mark),
            None => Ok(None),
        }
    }

    fn read_engine(&self, mark: Mark) -> Result<Option<KeyValue>, MvccError> {
        let Some(record) = self.engine.get(Table::Revisions, &mark.engine_key())? else {
            return if self.is_replacing() {
                Err(MvccError::Replaced)
            } else {
                Ok(None)
            };
        };
        decode_record(&record)
            .map(Some)
            .ok_or(MvccError::Damaged(mark.main()))
    }

    /// Returns revisions from `from` on in order, about `limit` at most, and the revision at which
    /// to continue. An empty result means that there are no newer ones.
    pub fn read_history(
        &self,
        from: i64,
        limit: usize,
    ) -> Result<(Vec<RevisionEvents>, i64), MvccError> {
        let mut next = from;
        // An installation that starts and ends during the read is noticed only by its number.
        let before = self.replacements.load(Ordering::Acquire);
        loop {
            let upto = {
                let state = self.state.read();
                // A watcher must learn that it has missed events; its client then lists again.
                if from < state.compacted {
                    return Err(MvccError::Compacted);
                }
                if let Some(found) = state.history.revisions_since(next, limit) {
                    // The history has one element per main revision without gaps, so the count is
                    // the distance.
                    next += i64::try_from(found.len()).unwrap_or_default();
                    return Ok((found, next));
                }
                state.history.first_revision()
            };
            let last = next
                .saturating_add(i64::try_from(limit).unwrap_or(i64::MAX))
                // The history serves the rest, without reading values from the disk.
                .min(upto);
            let found = self.engine_history(next, last)?;
            // Records that were replaced or deleted during the read would leave a gap.
            if self.is_replacing() || self.replacements.load(Ordering::Acquire) != before {
                return Err(MvccError::Replaced);
            }
            // Checked again: a compaction during the scan may have deleted records that were not
            // read yet.
            if from < self.compacted_revision() {
                return Err(MvccError::Compacted);
            }
            // In the engine, compaction leaves gaps. A part without records is not the end.
            next = last;
            if !found.is_empty() {
                return Ok((found, next));
            }
        }
    }

    fn engine_history(&self, from: i64, last: i64) -> Result<Vec<RevisionEvents>, MvccError> {
        let mut records = Vec::new();
        self.engine.scan_rows(
            Table::Revisions,
            &Mark::first_key(from),
            Some(&Mark::first_key(last)),
            &mut |key, record| {
                records.push((Mark::from_key(key), Bytes::copy_from_slice(record)));
                true
            },
        )?;
        let mut revisions: Vec<RevisionEvents> = Vec::new();
        let mut open: Vec<Arc<Event>> = Vec::new();
        for (mark, record) in records {
            let mark = mark.ok_or(MvccError::Damaged(from))?;
            if open
                .first()
                .is_some_and(|first| first.mark.main() != mark.main())
            {
                revisions.push(std::mem::take(&mut open).into());
            }
            let kv = decode_record(&record).ok_or(MvccError::Damaged(mark.main()))?;
            let previous = self.previous_mark(&kv.key, mark);
            open.push(Arc::new(Event {
                mark,
                kv,
                record,
                previous,
                previous_record: None,
            }));
        }
        if !open.is_empty() {
            revisions.push(open.into());
        }
        Ok(revisions)
    }

    fn previous_mark(&self, key: &[u8], mark: Mark) -> Option<Mark> {
        let state = self.state.read();
        // One revision earlier: a key changes at most once per revision, so that this is its
        // previous version.
        state.index.get(key)?.mark_at(mark.main() - 1)
    }
}

/// The selection of a range request, with those of its pairs that the engine may not have yet.
pub(crate) struct RangeSelection {
    selection: IndexSelection,
    recent: Vec<Option<Arc<Event>>>,
}

impl RangeSelection {
    pub fn new(state: &State, request: &RangeRequest) -> Result<RangeSelection, MvccError> {
        let revision = readable_revision(state, request.revision)?;
        let selection = range::select_keys(&state.index, request, revision);
        let recent = from_history(state, &selection.found);
        Ok(RangeSelection { selection, recent })
    }
}

fn from_history(state: &State, found: &[(Mark, Option<Bytes>)]) -> Vec<Option<Arc<Event>>> {
    let first = state.history.first_revision();
    found
        .iter()
        .map(|(mark, record)| {
            // Older records are in the engine for certain. Newer ones may only be in the history,
            // which may drop them as soon as the lock is released.
            let recent = record.is_none() && mark.main() >= first;
            recent.then(|| state.history.get(*mark).cloned()).flatten()
        })
        .collect()
}

fn expected_count(request: &RangeRequest, count: i64) -> i64 {
    let sorted_or_filtered = range::needs_all(request);
    if request.limit > 0 && !sorted_or_filtered {
        count.min(request.limit)
    } else {
        count
    }
}

fn load_state(engine: &dyn Engine, value_budget: usize) -> Result<(State, u64), MvccError> {
    let number = |key: &[u8]| -> Result<i64, MvccError> {
        let found = engine.get(Table::Meta, key)?;
        Ok(found
            .and_then(|v| v.as_ref().try_into().ok().map(i64::from_be_bytes))
            .unwrap_or_default())
    };
    let mut changes = Vec::new();
    // An empty store is at revision 1, as in etcd.
    let mut current = number(META_REVISION)?.max(1);
    let mut damaged = None;
    let mut bytes = 0;
    engine.scan_rows(Table::Revisions, b"", None, &mut |key, record| {
        let Some(mark) = Mark::from_key(key) else {
            damaged = Some(current);
            return false;
        };
        current = current.max(mark.main());
        let Some(row) = parse_row(record) else {
            damaged = Some(mark.main());
            return false;
        };
        let mark = mark.with_size(record.len());
        bytes += mark.stored_size();
        let life = Generation {
            create: row.create,
            version: row.version,
        };
        changes.push(Change {
            key: row.key.into(),
            mark,
            life,
            lease: row.lease,
        });
        true
    })?;
    // A store with a missing record would serve wrong data, so that the member does not start.
    if let Some(revision) = damaged {
        return Err(MvccError::Damaged(revision));
    }
    let compacted = number(META_COMPACTED)?;
    let index = Index::restore(value_budget, changes);
    // A compaction that the last process did not finish is executed again.
    Ok((
        State {
            index,
            history: History::new(current),
            current,
            compacted,
            reclaimed: 0,
            to_hash: None,
        },
        bytes,
    ))
}

/// The fields of a record that the index needs, without the value.
struct Row<'a> {
    key: &'a [u8],
    create: i64,
    version: i64,
    lease: i64,
}

/// Returns the key of a record.
pub(crate) fn record_key(record: &[u8]) -> Option<&[u8]> {
    parse_row(record).map(|row| row.key)
}

/// Decodes a `KeyValue` without copying.
fn parse_row(mut record: &[u8]) -> Option<Row<'_>> {
    // Every start decodes every record. prost would also allocate the values, which the index does
    // not need.
    let mut row = Row {
        key: &[],
        create: 0,
        version: 0,
        lease: 0,
    };
    while !record.is_empty() {
        let tag = read_varint(&mut record)?;
        match tag & 7 {
            0 => {
                let value = read_varint(&mut record)?.cast_signed();
                match tag >> 3 {
                    2 => row.create = value,
                    4 => row.version = value,
                    6 => row.lease = value,
                    _ => {}
                }
            }
            2 => {
                let length = usize::try_from(read_varint(&mut record)?).ok()?;
                let (field, rest) = record.split_at_checked(length)?;
                if tag >> 3 == 1 {
                    row.key = field;
                }
                record = rest;
            }
            _ => return None,
        }
    }
    Some(row)
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
