//! The objects of a kind by key, with indexes by labels and fields.

use crate::attribute::{Attribute, RequiredValues, required_values};
use crate::index::Index;
use crate::{Entry, Selection};
use imbl::OrdMap;
use std::ops::Bound;
use std::sync::Arc;

/// An index is used if at most this part of the objects has the value: reading an object through an
/// index costs more than passing it in a scan.
const SELECTIVE_PART: usize = 8;

/// Number of keys that are counted to choose an index, even if the kind has few objects.
const MIN_COUNTED: usize = 64;

/// The objects of a kind at one revision; cheap to clone, shares structure with other revisions.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectTable {
    by_key: OrdMap<Arc<str>, Arc<Entry>>,
    indexes: Arc<Vec<Index>>,
}

impl ObjectTable {
    /// Adds or replaces an object; returns its state before.
    pub(crate) fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let old = self.by_key.insert(entry.key.clone(), entry.clone());
        self.update_indexes(old.as_deref(), Some(&entry));
        old
    }

    /// Removes an object; returns its last state.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Arc<Entry>> {
        let old = self.by_key.remove(key)?;
        self.update_indexes(Some(&old), None);
        Some(old)
    }

    fn update_indexes(&mut self, old: Option<&Entry>, new: Option<&Entry>) {
        if self.indexes.is_empty() {
            return;
        }
        for index in Arc::make_mut(&mut self.indexes) {
            index.replace_entry(old, new);
        }
    }

    /// Returns an index of the present objects, without adding it.
    pub(crate) fn build_index(&self, attribute: Arc<Attribute>) -> Index {
        Index::build(attribute, self.by_key.values())
    }

    /// Adds an index, which must be one of the present objects.
    pub(crate) fn add_index(&mut self, index: Index) {
        let indexes = Arc::make_mut(&mut self.indexes);
        indexes.retain(|other| other.attribute() != index.attribute());
        indexes.push(index);
    }

    /// Removes an index.
    pub(crate) fn remove_index(&mut self, attribute: &Attribute) {
        Arc::make_mut(&mut self.indexes).retain(|index| **index.attribute() != *attribute);
    }

    /// Returns the index of an attribute.
    pub(crate) fn find_index(&self, attribute: &Attribute) -> Option<&Index> {
        self.indexes
            .iter()
            .find(|index| **index.attribute() == *attribute)
    }

    /// Returns an object.
    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.by_key.get(key)
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns all objects in the order of their keys.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.by_key.values()
    }

    /// Returns entries whose key starts with `prefix` and is not before `start`, in order.
    pub(crate) fn range_entries<'a>(
        &'a self,
        prefix: &'a str,
        start: &str,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        self.by_key
            .range::<_, str>((Bound::Included(start.max(prefix)), Bound::Unbounded))
            .map(|(_, entry)| entry)
            .take_while(move |entry| entry.key.starts_with(prefix))
    }

    /// Returns the selected entries whose key is not before `start`, in order. The first one is
    /// found by key or through an index if the selection allows it.
    pub(crate) fn select_entries<'a>(
        &'a self,
        selection: &'a Selection,
        start: &'a str,
    ) -> Box<dyn Iterator<Item = &'a Arc<Entry>> + 'a> {
        let scope = selection.key_scope(self.is_namespaced());
        if scope.is_key {
            let entry = self.get(&scope.prefix).into_iter();
            let selected =
                move |entry: &&Arc<Entry>| &*entry.key >= start && selection.matches(entry);
            return Box::new(entry.filter(selected));
        }
        match self.choose_index(selection, &scope.prefix) {
            Some((index, required)) => {
                let keys = find_keys(index, &required.values, &scope.prefix, start);
                let entries = keys.into_iter().filter_map(|key| self.get(&key));
                // Comparing what the index has compared would load the labels of each object.
                let is_selected = selection.has_one_requirement();
                Box::new(entries.filter(move |entry| is_selected || selection.matches(entry)))
            }
            None => Box::new(self.scan_entries(selection, scope.prefix, start)),
        }
    }

    fn is_namespaced(&self) -> bool {
        let first = self.by_key.values().next();
        first.is_some_and(|entry| entry.kind().resource.namespaced)
    }

    fn scan_entries<'a>(
        &'a self,
        selection: &'a Selection,
        prefix: String,
        start: &str,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        let from = start.max(&prefix);
        self.by_key
            .range::<_, str>((Bound::Included(from), Bound::Unbounded))
            .map(|(_, entry)| entry)
            .take_while(move |entry| entry.key.starts_with(&*prefix))
            .filter(|entry| selection.matches(entry))
    }

    /// Returns the index with the fewest keys for the selection, unless a scan costs less.
    fn choose_index<'a>(
        &'a self,
        selection: &'a Selection,
        prefix: &str,
    ) -> Option<(&'a Index, RequiredValues<'a>)> {
        if self.indexes.is_empty() {
            return None;
        }
        let limit = (self.len() / SELECTIVE_PART).max(MIN_COUNTED);
        let mut best = None;
        let mut fewest = limit;
        for required in required_values(selection) {
            let Some(index) = self.find_index(&required.attribute) else {
                continue;
            };
            let keys = required
                .values
                .iter()
                .flat_map(|value| index.keys_with_value(value, prefix, ""));
            // Counted only as far as it matters.
            let count = keys.take(fewest).count();
            if count < fewest {
                (best, fewest) = (Some((index, required)), count);
            }
        }
        best
    }
}

/// Returns the keys with one of the values, in order and each once.
fn find_keys(index: &Index, values: &[&str], prefix: &str, start: &str) -> Vec<Arc<str>> {
    let keys = values
        .iter()
        .flat_map(|value| index.keys_with_value(value, prefix, start));
    let mut keys: Vec<Arc<str>> = keys.cloned().collect();
    if values.len() > 1 {
        keys.sort_unstable();
        // A selector may list a value twice.
        keys.dedup();
    }
    keys
}
