//! Keys that the branches of a transaction change, and whether two sets of changes conflict.
//!
//! A request of the allowed size can have tens of thousands of operations in nested branches, and
//! this check precedes the permission check. The effort therefore grows with the request's size
//! times a logarithm, never with puts times deletions.

use crate::span::Span;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Keys that a branch puts and deletes. A key may be put once, and not also be deleted.
#[derive(Default)]
pub(crate) struct WriteSet {
    puts: BTreeSet<Bytes>,
    /// Disjoint, non-adjacent ranges: first key, and the first key after the range (`None`: no
    /// end).
    deletes: BTreeMap<Bytes, Option<Bytes>>,
}

impl WriteSet {
    /// Adds a put. Returns false if its key is already put or deleted.
    pub fn add_put(&mut self, key: &Bytes) -> bool {
        !self.is_deleted(key) && self.puts.insert(key.clone())
    }

    /// Adds a deletion, in the form of a request.
    pub fn add_delete(&mut self, key: &Bytes, range_end: &Bytes) {
        let span = Span::new(key, range_end);
        let end = match span.bounds() {
            None => return,
            Some((_, Bound::Unbounded)) => None,
            Some((_, Bound::Included(_))) => Some([key.as_ref(), &[0]].concat().into()),
            Some((_, Bound::Excluded(_))) => Some(range_end.clone()),
        };
        self.delete_until(key.clone(), end);
    }

    /// Merges a range with those that it overlaps.
    fn delete_until(&mut self, mut from: Bytes, mut end: Option<Bytes>) {
        // A range that starts earlier may reach into this one or end where it starts.
        if let Some((before, reached)) = self.deletes.range(..=from.clone()).next_back()
            && reached.as_ref().is_none_or(|reached| *reached >= from)
        {
            from = before.clone();
        }
        loop {
            let next = self.deletes.range(from.clone()..).next();
            let Some((start, reached)) =
                next.map(|(start, reached)| (start.clone(), reached.clone()))
            else {
                break;
            };
            if end.as_ref().is_some_and(|end| start > *end) {
                break;
            }
            end = match (end, reached) {
                (Some(end), Some(reached)) => Some(end.max(reached)),
                _ => None,
            };
            self.deletes.remove(&start);
        }
        self.deletes.insert(from, end);
    }

    fn is_deleted(&self, key: &Bytes) -> bool {
        let before = self.deletes.range(..=key.clone()).next_back();
        before.is_some_and(|(_, end)| end.as_ref().is_none_or(|end| key < end))
    }

    fn puts_within(&self, from: &Bytes, end: Option<&Bytes>) -> bool {
        self.puts
            .range(from.clone()..)
            .next()
            .is_some_and(|key| end.is_none_or(|end| key < end))
    }

    fn size(&self) -> usize {
        self.puts.len() + self.deletes.len()
    }

    /// Returns whether both put the same key, or one puts a key that the other deletes.
    pub fn conflicts_with(&self, other: &WriteSet) -> bool {
        let (few, many) = if self.size() < other.size() {
            (self, other)
        } else {
            (other, self)
        };
        few.puts
            .iter()
            .any(|key| many.puts.contains(key) || many.is_deleted(key))
            || few
                .deletes
                .iter()
                .any(|(from, end)| many.puts_within(from, end.as_ref()))
    }

    /// Adds the changes of `other`. The smaller set is merged into the larger, so that deep nesting
    /// remains cheap.
    pub fn merge(&mut self, mut other: WriteSet) {
        if self.size() < other.size() {
            std::mem::swap(self, &mut other);
        }
        self.puts.extend(other.puts);
        for (from, end) in other.deletes {
            self.delete_until(from, end);
        }
    }
}
