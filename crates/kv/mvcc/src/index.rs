//! Key index: the keys in order, with their revisions.
//!
//! A key that was written once takes its own bytes and one fixed-size item. The newest record of a
//! key may be cached as well, within a budget; the engine has all records.

use crate::revision::Mark;
use crate::span::Span;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// Revisions of a key. The fields of a key that was put once and whose record is not cached fit in
/// here.
#[derive(Debug)]
pub(crate) struct Item {
    pub last: Mark,
    more: Option<Box<More>>,
}

/// Further fields of a key with older revisions, a lease or a cached record.
#[derive(Debug, Default)]
struct More {
    /// Create revision and version of the current generation; meaningless if `last` is a tombstone.
    create: i64,
    version: i64,
    lease: i64,
    /// The record of `last`, if cached.
    record: Option<Bytes>,
    /// Revisions before `last`, oldest first.
    older: VecDeque<Mark>,
}

impl Item {
    fn new(last: Mark, life: Generation, lease: i64, record: Option<Bytes>) -> Self {
        let mut item = Item { last, more: None };
        item.set_generation(life, lease, record);
        item
    }

    /// Returns the create revision.
    pub fn create_revision(&self) -> i64 {
        self.more
            .as_ref()
            .map_or(self.last.main(), |more| more.create)
    }

    /// Returns the version.
    pub fn version(&self) -> i64 {
        self.more
            .as_ref()
            .map_or(i64::from(self.is_live()), |more| more.version)
    }

    /// Returns the lease to which the key is attached, or 0.
    pub fn lease_id(&self) -> i64 {
        self.more.as_ref().map_or(0, |more| more.lease)
    }

    /// Returns the newest record, if cached.
    pub fn cached_record(&self) -> Option<&Bytes> {
        self.more.as_ref()?.record.as_ref()
    }

    /// Returns the newest revision at `revision`, or `None` if the key did not exist then.
    pub fn mark_at(&self, revision: i64) -> Option<Mark> {
        if self.last.main() <= revision {
            return (!self.last.is_tombstone()).then_some(self.last);
        }
        let older = &self.more.as_ref()?.older;
        let count = older.partition_point(|mark| mark.main() <= revision);
        older
            .get(count.checked_sub(1)?)
            .copied()
            .filter(|mark| !mark.is_tombstone())
    }

    pub fn is_live(&self) -> bool {
        !self.last.is_tombstone()
    }

    fn push_revision(&mut self, mark: Mark) {
        // As long as `more` is absent, `last` implies both. So they are read before `last` changes.
        let (create, version) = (self.create_revision(), self.version());
        let more = self.more.get_or_insert_with(|| {
            Box::new(More {
                create,
                version,
                ..More::default()
            })
        });
        more.older.push_back(self.last);
        self.last = mark;
    }

    fn set_generation(&mut self, life: Generation, lease: i64, record: Option<Bytes>) {
        let plain =
            life.create == self.last.main() && life.version == 1 && lease == 0 && record.is_none();
        if plain && self.more.is_none() {
            return;
        }
        let more = self.more.get_or_insert_default();
        (more.create, more.version, more.lease, more.record) =
            (life.create, life.version, lease, record);
    }

    fn take_record(&mut self) -> Option<Bytes> {
        self.more.as_mut()?.record.take()
    }

    fn take_replaced(&mut self) -> ReplacedVersion {
        ReplacedVersion {
            mark: self.last,
            lease: self.lease_id(),
            record: self.take_record(),
        }
    }

    /// Frees the further fields if `last` implies them.
    fn drop_implied_fields(&mut self) {
        let plain = |more: &More| {
            more.older.is_empty()
                && more.record.is_none()
                && (more.create, more.version, more.lease) == (self.last.main(), 1, 0)
        };
        if self.is_live() && self.more.as_deref().is_some_and(plain) {
            self.more = None;
        }
    }
}

/// The index of all keys.
#[derive(Default)]
pub(crate) struct Index {
    keys: BTreeMap<Box<[u8]>, Item>,
    /// Keys that are not deleted.
    live: usize,
    kept: usize,
    budget: usize,
}

/// Overhead in bytes of a cached record.
const KEPT_OVERHEAD: usize = 160;

fn record_cost(record: Option<&Bytes>) -> usize {
    record.map_or(0, |record| record.len() + KEPT_OVERHEAD)
}

/// The record that a put or a deletion replaced.
pub(crate) struct ReplacedVersion {
    pub mark: Mark,
    pub lease: i64,
    pub record: Option<Bytes>,
}

/// A row of the engine, without its value.
pub(crate) struct Change {
    pub key: Box<[u8]>,
    pub mark: Mark,
    pub life: Generation,
    pub lease: i64,
}

/// Create revision and version of a key's current generation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generation {
    pub create: i64,
    pub version: i64,
}

impl Index {
    #[cfg(test)]
    pub fn new(budget: usize) -> Self {
        Index {
            keys: BTreeMap::new(),
            live: 0,
            kept: 0,
            budget,
        }
    }

    /// Returns the number of keys that are not deleted.
    pub fn live_count(&self) -> usize {
        self.live
    }

    pub fn get(&self, key: &[u8]) -> Option<&Item> {
        self.keys.get(key)
    }

    /// Returns the create revision and version that a put of this key at `main` gets.
    pub fn next_generation(&self, key: &[u8], main: i64) -> Generation {
        match self.keys.get(key).filter(|item| item.is_live()) {
            Some(item) => Generation {
                create: item.create_revision(),
                version: item.version() + 1,
            },
            None => Generation {
                create: main,
                version: 1,
            },
        }
    }

    /// Sets a key's newest record. Returns the one that it replaced, if there was one.
    pub fn put(
        &mut self,
        key: &[u8],
        mark: Mark,
        life: Generation,
        lease: i64,
        record: Bytes,
    ) -> Option<ReplacedVersion> {
        // A record that exceeds the budget evicts no other: an order of eviction would cost memory
        // for every key. It is read from history or engine.
        let keep = self.kept + record_cost(Some(&record)) <= self.budget;
        let record = keep.then_some(record);
        self.kept += record_cost(record.as_ref());
        let Some(item) = self.keys.get_mut(key) else {
            self.keys
                .insert(key.into(), Item::new(mark, life, lease, record));
            self.live += 1;
            return None;
        };
        let replaced = item.take_replaced();
        // A deleted key keeps its item until its tombstone is compacted. A put in the meantime
        // revives it.
        self.live += usize::from(replaced.mark.is_tombstone());
        self.kept -= record_cost(replaced.record.as_ref());
        item.push_revision(mark);
        item.set_generation(life, lease, record);
        (!replaced.mark.is_tombstone()).then_some(replaced)
    }

    /// Records the deletion of a live key.
    pub fn delete(&mut self, key: &[u8], mark: Mark) -> Option<ReplacedVersion> {
        let item = self.keys.get_mut(key).filter(|item| item.is_live())?;
        let replaced = item.take_replaced();
        self.live -= 1;
        self.kept -= record_cost(replaced.record.as_ref());
        item.push_revision(mark);
        item.set_generation(
            Generation {
                create: item.create_revision(),
                version: 0,
            },
            0,
            None,
        );
        Some(replaced)
    }

    /// Visits the items of a span in order, until `visit` returns false.
    pub fn visit_items<'a>(
        &'a self,
        span: Span<'_>,
        mut visit: impl FnMut(&'a [u8], &'a Item) -> bool,
    ) {
        if let Some(key) = span.single_key() {
            if let Some((key, item)) = self.keys.get_key_value(key) {
                visit(key, item);
            }
            return;
        }
        let Some(bounds) = span.bounds() else { return };
        for (key, item) in self.keys.range::<[u8], _>(bounds) {
            if !visit(key, item) {
                return;
            }
        }
    }

    /// Builds the index from all changes, sorted by revision.
    pub fn restore(budget: usize, mut changes: Vec<Change>) -> Self {
        // The sort is stable, so the changes of a key remain in order.
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        let mut changes = changes.into_iter().peekable();
        let items = std::iter::from_fn(|| {
            let first = changes.next()?;
            let mut item = Item::new(first.mark, first.life, first.lease, None);
            while let Some(change) = changes.next_if(|change| change.key == first.key) {
                item.push_revision(change.mark);
                item.set_generation(change.life, change.lease, None);
            }
            Some((first.key, item))
        });
        let keys: BTreeMap<_, _> = items.collect();
        let live = keys.values().filter(|item| item.is_live()).count();
        Index {
            keys,
            live,
            kept: 0,
            budget,
        }
    }

    /// Removes revisions that no read or watch at or after `revision` can see, from the keys from
    /// `from` on. It removes at most `most` revisions, visits at most as many keys, and stops when
    /// `stop` returns true. A tombstone at `revision` itself remains, because a watch may start
    /// there. Returns the removed revisions and the key at which to continue.
    pub fn compact_step(
        &mut self,
        revision: i64,
        from: &[u8],
        most: usize,
        mut stop: impl FnMut() -> bool,
    ) -> (Vec<Mark>, Option<Box<[u8]>>) {
        let mut removed = Vec::new();
        let mut emptied = Vec::new();
        let mut next = None;
        let range = self
            .keys
            .range_mut::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        for (number, (key, item)) in range.enumerate() {
            // The first key is always visited. Otherwise a step on a slow host could end without
            // progress.
            let pause = number > 0 && number % STOP_EVERY == 0 && stop();
            if number == most || removed.len() >= most || pause {
                next = Some(key.clone());
                break;
            }
            match compact_item(item, revision, most, &mut removed) {
                CompactedItem::Stays => {}
                CompactedItem::Gone => emptied.push(key.clone()),
                CompactedItem::More => {
                    next = Some(key.clone());
                    break;
                }
            }
        }
        for key in emptied {
            self.keys.remove(&key);
        }
        (removed, next)
    }
}

/// Number of keys between two calls of `stop`.
const STOP_EVERY: usize = 64;

/// Result of compacting a key.
enum CompactedItem {
    Stays,
    Gone,
    /// The limit was reached before all invisible revisions were removed.
    More,
}

/// Removes revisions of a key, the oldest first, so that an interruption makes no older revision
/// visible again.
fn compact_item(
    item: &mut Item,
    revision: i64,
    most: usize,
    removed: &mut Vec<Mark>,
) -> CompactedItem {
    // If the newest revision is compacted too, no reader can see an older one.
    let superseded = item.last.main() <= revision;
    if let Some(more) = &mut item.more {
        let count = if superseded {
            more.older.len()
        } else {
            count_invisible(&more.older, revision)
        };
        let room = most.saturating_sub(removed.len());
        removed.extend(more.older.drain(..count.min(room)));
        if count > room {
            return CompactedItem::More;
        }
        // A key that was written often would keep the memory of its longest history.
        if more.older.capacity() > 2 * more.older.len() {
            more.older.shrink_to_fit();
        }
    }
    // At `revision` itself the tombstone remains: it is an event for a watch that starts there.
    if superseded && item.last.is_tombstone() && item.last.main() < revision {
        if removed.len() >= most {
            return CompactedItem::More;
        }
        removed.push(item.last);
        return CompactedItem::Gone;
    }
    item.drop_implied_fields();
    CompactedItem::Stays
}

/// Returns how many of the oldest revisions are invisible at `revision` and later.
fn count_invisible(older: &VecDeque<Mark>, revision: i64) -> usize {
    let visible = older.partition_point(|mark| mark.main() <= revision);
    // The newest of those remains, unless it is an older tombstone.
    let newest = visible.checked_sub(1).and_then(|at| older.get(at));
    visible
        - usize::from(newest.is_some_and(|mark| !mark.is_tombstone() || mark.main() == revision))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn put(index: &mut Index, key: &[u8], main: i64) {
        let life = index.next_generation(key, main);
        index.put(
            key,
            Mark::new(main, 0, false),
            life,
            0,
            Bytes::from_static(b"r"),
        );
    }

    #[test]
    fn index_finds_and_compacts_old_revisions() {
        let mut index = Index::new(1000);
        put(&mut index, b"a", 2);
        put(&mut index, b"a", 3);
        index.delete(b"a", Mark::new(4, 0, true)).unwrap();
        put(&mut index, b"a", 6);
        let at =
            |index: &Index, revision| index.get(b"a").unwrap().mark_at(revision).map(Mark::main);
        let seen: Vec<_> = (1..8).map(|revision| at(&index, revision)).collect();
        assert_eq!(seen, [None, Some(2), Some(3), None, None, Some(6), Some(6)]);
        let item = index.get(b"a").unwrap();
        assert_eq!((item.create_revision(), item.version()), (6, 1));
        assert_eq!(index.live_count(), 1);

        let mains = |marks: Vec<Mark>| marks.into_iter().map(Mark::main).collect::<Vec<_>>();
        assert_eq!(mains(index.compact_step(3, b"", 9, || false).0), [2]);
        assert_eq!(at(&index, 3), Some(3));
        assert_eq!(mains(index.compact_step(4, b"", 9, || false).0), [3]);
        assert_eq!(at(&index, 4), None);
        assert_eq!(mains(index.compact_step(6, b"", 9, || false).0), [4]);
        index.delete(b"a", Mark::new(7, 0, true)).unwrap();
        assert_eq!(mains(index.compact_step(7, b"", 9, || false).0), [6]);
        assert_eq!(mains(index.compact_step(8, b"", 9, || false).0), [7]);
        assert_eq!((index.keys.len(), index.live_count()), (0, 0));
        assert_eq!(index.kept, 0);
    }

    #[test]
    fn compaction_continues_at_the_returned_key() {
        let mut index = Index::new(0);
        for key in [b"a", b"b", b"c"] {
            put(&mut index, key, 2);
            put(&mut index, key, 3);
        }
        let (removed, next) = index.compact_step(3, b"", 2, || false);
        assert_eq!((removed.len(), next.as_deref()), (2, Some(&b"c"[..])));
        let (removed, next) = index.compact_step(3, b"c", 2, || false);
        assert_eq!((removed.len(), next), (1, None));
    }
}
