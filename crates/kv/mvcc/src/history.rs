//! The newest revisions in memory, for watchers and for reads of records that the engine does not
//! have yet.

use crate::revision::Mark;
use bytes::Bytes;
use proto_etcd::mvccpb::KeyValue;
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum size in bytes, for revisions that the engine has.
const KEEP_BYTES: usize = 4 << 20;
const KEEP_REVISIONS: usize = 10_000;

/// A change of one key.
#[derive(Debug)]
pub struct Event {
    /// Revision of the change.
    pub mark: Mark,
    /// The key-value pair; for a deletion, only key and revision.
    pub kv: KeyValue,
    /// The encoded record.
    pub record: Bytes,
    /// Revision of the key's previous record.
    pub previous: Option<Mark>,
    /// The record of `previous`, if it was in memory.
    pub previous_record: Option<Bytes>,
}

/// All changes of one main revision, in order.
pub type RevisionEvents = Arc<[Arc<Event>]>;

/// Consecutive revisions up to the current one.
pub(crate) struct History {
    /// Main revision of the first element.
    first: i64,
    revisions: VecDeque<RevisionEvents>,
    bytes: usize,
    /// Revision up to which the engine has all records.
    stored: i64,
}

fn events_size(events: &RevisionEvents) -> usize {
    events.iter().map(|event| event.record.len() + 200).sum()
}

impl History {
    /// Creates an empty history. The next revision is `current + 1`.
    pub fn new(current: i64) -> Self {
        History {
            first: current + 1,
            revisions: VecDeque::new(),
            bytes: 0,
            stored: current,
        }
    }

    pub fn push(&mut self, events: RevisionEvents) {
        self.bytes += events_size(&events);
        self.revisions.push_back(events);
        self.trim_stored();
    }

    /// Records that the engine has everything up to `revision`.
    pub fn mark_stored(&mut self, revision: i64) {
        self.stored = self.stored.max(revision);
        self.trim_stored();
    }

    fn trim_stored(&mut self) {
        // Revisions that the engine lacks are kept beyond both limits: reads and watchers find them
        // nowhere else.
        while (self.bytes > KEEP_BYTES || self.revisions.len() > KEEP_REVISIONS)
            && self.first <= self.stored
        {
            let Some(events) = self.revisions.pop_front() else {
                break;
            };
            self.bytes -= events_size(&events);
            self.first += 1;
        }
    }

    /// Returns the size of the history in bytes.
    pub fn size_bytes(&self) -> usize {
        self.bytes
    }

    pub fn get(&self, mark: Mark) -> Option<&Arc<Event>> {
        let at = usize::try_from(mark.main().checked_sub(self.first)?).ok()?;
        self.revisions.get(at)?.get(mark.sub() as usize)
    }

    /// Returns the oldest revision in the history.
    pub fn first_revision(&self) -> i64 {
        self.first
    }

    /// Returns the revisions from `from` on, at most `limit`, or `None` if some of them are no
    /// longer in the history.
    pub fn revisions_since(&self, from: i64, limit: usize) -> Option<Vec<RevisionEvents>> {
        let skip = usize::try_from(from.checked_sub(self.first)?).ok()?;
        if skip > self.revisions.len() {
            return Some(Vec::new());
        }
        Some(
            self.revisions
                .iter()
                .skip(skip)
                .take(limit)
                .cloned()
                .collect(),
        )
    }
}
