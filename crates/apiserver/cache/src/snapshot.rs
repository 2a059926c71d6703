//! The objects of a kind at one revision.

use crate::table::ObjectTable;
use crate::{Entry, Selection};
use std::sync::Arc;

/// The objects of a kind at one revision, with the indexes of that revision; cheap to clone, shares
/// structure with other revisions.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) objects: ObjectTable,
    /// The revision.
    pub revision: i64,
}

impl Snapshot {
    /// Returns entries whose key starts with `prefix` and is not before `start`, in order.
    pub fn range_entries<'a>(
        &'a self,
        prefix: &'a str,
        start: &str,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        self.objects.range_entries(prefix, start)
    }

    /// Returns the selected entries whose key is not before `start`, in the order of their keys.
    pub fn select_entries<'a>(
        &'a self,
        selection: &'a Selection,
        start: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Entry>> {
        self.objects.select_entries(selection, start)
    }

    /// Returns one entry by key.
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.objects.get(key)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
