//! The newest revisions, shared by watchers and by reads that come before the engine has them.

use crate::revision::Mark;
use bytes::Bytes;
use proto_etcd::mvccpb::KeyValue;
use std::collections::VecDeque;
use std::sync::Arc;

/// Revisions are kept up to this size after the engine has them.
const KEEP_BYTES: usize = 4 << 20;
const KEEP_REVISIONS: usize = 10_000;

/// One change of one key.
#[derive(Debug)]
pub struct Event {
    /// Where it stands.
    pub mark: Mark,
    /// The pair; of a deletion, the key and the revision.
    pub kv: KeyValue,
    /// What the engine stores for it.
    pub record: Bytes,
    /// What the key had before.
    pub previous: Option<Mark>,
    /// The record of `previous`, if it was at hand.
    pub previous_record: Option<Bytes>,
}

/// All changes of one revision, in order.
pub type RevisionEvents = Arc<[Arc<Event>]>;

/// A run of revisions without gaps, up to the present.
pub(crate) struct History {
    /// Main revision of the first element.
    first: i64,
    revisions: VecDeque<RevisionEvents>,
    bytes: usize,
    /// The engine has everything up to here.
    stored: i64,
}

fn size(events: &RevisionEvents) -> usize {
    events.iter().map(|event| event.record.len() + 200).sum()
}

impl History {
    /// Nothing yet; the next revision is `current + 1`.
    pub fn new(current: i64) -> Self {
        History { first: current + 1, revisions: VecDeque::new(), bytes: 0, stored: current }
    }

    pub fn push(&mut self, events: RevisionEvents) {
        self.bytes += size(&events);
        self.revisions.push_back(events);
        self.trim();
    }

    /// The engine has everything up to `revision`.
    pub fn stored(&mut self, revision: i64) {
        self.stored = self.stored.max(revision);
        self.trim();
    }

    fn trim(&mut self) {
        while (self.bytes > KEEP_BYTES || self.revisions.len() > KEEP_REVISIONS) && self.first <= self.stored {
            let Some(events) = self.revisions.pop_front() else { break };
            self.bytes -= size(&events);
            self.first += 1;
        }
    }

    /// Bytes that wait for the engine or are kept for watchers.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn get(&self, mark: Mark) -> Option<&Arc<Event>> {
        let at = usize::try_from(mark.main().checked_sub(self.first)?).ok()?;
        self.revisions.get(at)?.get(mark.sub() as usize)
    }

    /// First revision that is here.
    pub fn first(&self) -> i64 {
        self.first
    }

    /// The revisions from `from` on, at most `limit`. None: some of them are no longer here.
    pub fn since(&self, from: i64, limit: usize) -> Option<Vec<RevisionEvents>> {
        let skip = usize::try_from(from.checked_sub(self.first)?).ok()?;
        if skip > self.revisions.len() {
            return Some(Vec::new());
        }
        Some(self.revisions.iter().skip(skip).take(limit).cloned().collect())
    }
}
