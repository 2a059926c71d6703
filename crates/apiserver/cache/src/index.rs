//! An index of the objects of one kind by one attribute.
//!
//! Persistent, as the map of the objects: a snapshot shares its structure with later states.

use crate::Entry;
use crate::attribute::Attribute;
use imbl::OrdSet;
use std::ops::Bound;
use std::sync::Arc;

/// An object's value of the attribute, and its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Posting {
    value: Arc<str>,
    key: Arc<str>,
}

/// The keys of the objects by their value of an attribute.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    attribute: Arc<Attribute>,
    postings: OrdSet<Posting>,
}

impl Index {
    /// Indexes entries.
    pub(crate) fn build<'a>(
        attribute: Arc<Attribute>,
        entries: impl Iterator<Item = &'a Arc<Entry>>,
    ) -> Self {
        let mut index = Index {
            attribute,
            postings: OrdSet::new(),
        };
        entries.for_each(|entry| index.insert_entry(entry));
        index
    }

    /// Returns the attribute.
    pub(crate) fn attribute(&self) -> &Arc<Attribute> {
        &self.attribute
    }

    /// Replaces an object's state; `None` if it did not exist before or does not exist any more.
    pub(crate) fn replace_entry(&mut self, old: Option<&Entry>, new: Option<&Entry>) {
        let before = old.and_then(|entry| self.attribute.read_value(entry));
        let after = new.and_then(|entry| self.attribute.read_value(entry));
        // Most writes change no indexed value, and then cost no write of the index.
        if before == after {
            return;
        }
        if let (Some(old), Some(value)) = (old, before) {
            let (value, key) = (value.into(), old.key.clone());
            self.postings.remove(&Posting { value, key });
        }
        if let Some(new) = new {
            self.insert_entry(new);
        }
    }

    fn insert_entry(&mut self, entry: &Entry) {
        if let Some(value) = self.attribute.read_value(entry) {
            let value = self.share_value(value);
            let key = entry.key.clone();
            self.postings.insert(Posting { value, key });
        }
    }

    /// Returns the value as it is in the index, so that thousands of objects with one value share
    /// its memory.
    fn share_value(&self, value: &str) -> Arc<str> {
        let first = Posting {
            value: value.into(),
            key: "".into(),
        };
        let from = (Bound::Included(&first), Bound::Unbounded);
        let known = self.postings.range::<_, Posting>(from).next();
        match known.filter(|known| known.value == first.value) {
            Some(known) => known.value.clone(),
            None => first.value,
        }
    }

    /// Returns the keys of objects with this value that start with `prefix` and are not before
    /// `start`, in order.
    pub(crate) fn keys_with_value<'a>(
        &'a self,
        value: &str,
        prefix: &'a str,
        start: &str,
    ) -> impl Iterator<Item = &'a Arc<str>> {
        let first = Posting {
            value: value.into(),
            key: start.max(prefix).into(),
        };
        let from = (Bound::Included(&first), Bound::Unbounded);
        let value = first.value.clone();
        self.postings
            .range::<_, Posting>(from)
            .take_while(move |posting| posting.value == value && posting.key.starts_with(prefix))
            .map(|posting| &posting.key)
    }
}
