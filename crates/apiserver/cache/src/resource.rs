//! The watch cache of one stored kind.

use crate::attribute::{Attribute, required_values};
use crate::entry::{Decoded, Entry, Form};
use crate::history::History;
use crate::kind::StoredKind;
use crate::table::ObjectTable;
use crate::usage::IndexUsage;
use crate::watcher::Watcher;
use crate::watcher_set::WatcherSet;
use crate::{CacheEvent, Delivery, Selection, Snapshot, Subscription};
use apiserver_request::{GroupResource, ObjectEvent, Observer};
use apiserver_storage::Change;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;

/// Number of objects from which on a kind has indexes; passing fewer costs little.
const INDEXED_OBJECTS: usize = 256;

struct State {
    objects: ObjectTable,
    usage: IndexUsage,
    history: History,
    watchers: WatcherSet,
    observers: Vec<Arc<dyn Observer>>,
    /// Revision of the last change of this kind.
    revision: i64,
    /// Number of changes, for an index that is built meanwhile.
    changes: usize,
    /// Number of times that all objects were replaced at once.
    replacements: usize,
    /// A reader builds an index.
    building: bool,
    /// The resource is removed: no event follows.
    closed: bool,
}

/// A kind's objects, recent changes and watchers.
pub struct ResourceCache {
    kind: Arc<StoredKind>,
    group_resource: GroupResource,
    // Shared with the caches of later descriptions of the kind.
    state: Arc<Mutex<State>>,
}

/// A cache under another description of its kind. Its state is that of the earlier description, and
/// still has the earlier objects.
pub(crate) struct Redescription {
    pub(crate) cache: Arc<ResourceCache>,
    objects: ObjectTable,
    /// Both descriptions serve the same watchers.
    keeps_watchers: bool,
}

/// Replaces the objects of the caches, and publishes the caches. A reader sees both or neither: a
/// client that reads an object with a new default must get that default in its next write.
pub(crate) fn replace_together(changed: &[Redescription], publish: impl FnOnce()) {
    let mut states: Vec<_> = changed.iter().map(|one| one.cache.state.lock()).collect();
    for (state, one) in states.iter_mut().zip(changed) {
        state.replace_objects(one.objects.clone());
        if !one.keeps_watchers {
            state.watchers.close_all();
        }
    }
    publish();
}

impl ResourceCache {
    pub(crate) fn new(kind: StoredKind) -> Self {
        let group_resource = GroupResource::new(&kind.resource.group, &kind.resource.plural);
        let state = State {
            objects: ObjectTable::default(),
            usage: IndexUsage::default(),
            history: History::starting_at(0),
            watchers: WatcherSet::default(),
            observers: Vec::new(),
            revision: 0,
            changes: 0,
            replacements: 0,
            building: false,
            closed: false,
        };
        ResourceCache {
            kind: Arc::new(kind),
            group_resource,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Returns a cache of the same objects under another description of the kind, which
    /// [`replace_together`] puts in place.
    pub(crate) fn with_kind(&self, kind: StoredKind) -> Redescription {
        let keeps_watchers = self.kind.serves_watchers_of(&kind);
        let cache = ResourceCache {
            kind: Arc::new(kind),
            group_resource: self.group_resource.clone(),
            state: self.state.clone(),
        };
        // Selectable fields and encodings depend on the description. Decoding takes time, so that
        // it holds no lock; nothing but the reader's task, which calls this, changes objects.
        let before = self.state.lock().objects.clone();
        let mut objects = ObjectTable::default();
        for entry in before.values() {
            objects.insert(Arc::new(entry.with_kind(&cache.kind)));
        }
        Redescription {
            cache: Arc::new(cache),
            objects,
            keeps_watchers,
        }
    }

    /// Ends all watchers and notifies observers that the objects are deleted: the resource is
    /// no longer served.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.watchers.close_all();
        state.closed = true;
        for entry in state.objects.values() {
            self.notify_observers(&state.observers, ObjectEvent::Deleted, entry);
        }
        state.observers.clear();
    }

    /// Returns the group and the plural name.
    pub(crate) fn group_resource(&self) -> &GroupResource {
        &self.group_resource
    }

    /// Adds an object of the first list.
    pub(crate) fn insert_listed(&self, key: &str, value: &[u8], revision: i64) {
        let is_observed = !self.state.lock().observers.is_empty();
        let form = if is_observed { Form::Tree } else { Form::Json };
        let (entry, decoded) = Entry::with_decoded(&self.kind, key, value, revision, form);
        let entry = Arc::new(entry);
        let observed = self.read_observed(&entry, &decoded);
        let mut state = self.state.lock();
        state.objects.insert(entry.clone());
        self.notify_of_write(&state.observers, &entry, observed.as_ref());
        // Unlocked before the tree is dropped, which takes long.
        drop(state);
    }

    /// Ends the first list: watches may start from its revision.
    pub(crate) fn finish_list(&self, revision: i64) {
        let mut state = self.state.lock();
        state.history = History::starting_at(revision);
        state.revision = revision;
    }

    /// Returns the kind.
    pub fn kind(&self) -> &Arc<StoredKind> {
        &self.kind
    }

    /// Returns one object by key.
    pub fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.state.lock().objects.get(key).cloned()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.state.lock().objects.len()
    }

    /// Returns whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the current state for a selection, as [`Self::snapshot`]. Selections by the same
    /// labels or fields lead to an index.
    pub fn snapshot_for(&self, selection: &Selection, revision: i64) -> Snapshot {
        self.prepare_indexes(selection);
        self.snapshot(revision)
    }

    fn prepare_indexes(&self, selection: &Selection) {
        let scope = selection.key_scope(self.kind.resource.namespaced);
        if scope.is_key || self.has_few_objects(&scope.prefix) {
            return;
        }
        for required in required_values(selection) {
            let wanted = self.state.lock().usage.record_use(required.attribute);
            if let Some(attribute) = wanted {
                self.build_index(attribute);
            }
        }
    }

    fn has_few_objects(&self, prefix: &str) -> bool {
        let snapshot = self.snapshot(0);
        let mut counted = snapshot.range_entries(prefix, "").skip(INDEXED_OBJECTS);
        counted.next().is_none()
    }

    /// Builds an index of the present objects without holding the lock, then applies the changes
    /// that were made meanwhile.
    fn build_index(&self, attribute: Arc<Attribute>) {
        let mut state = self.state.lock();
        // Thousands of kubelets list at once after a restart: one of them builds the index.
        if std::mem::replace(&mut state.building, true) {
            return;
        }
        let objects = state.objects.clone();
        let (changes, replacements) = (state.changes, state.replacements);
        drop(state);
        let mut index = objects.build_index(attribute.clone());
        let mut state = self.state.lock();
        state.building = false;
        let missed = state.changes.wrapping_sub(changes);
        if state.replacements != replacements {
            return;
        }
        // The next use tries again.
        let Some(events) = state.history.last_events(missed) else {
            return;
        };
        for event in events {
            index.replace_entry(event.old.as_deref(), event.new.as_deref());
        }
        if let Some(oldest) = state.usage.begin_index(attribute) {
            state.objects.remove_index(&oldest);
        }
        state.objects.add_index(index);
    }

    /// Returns the current state; `revision` is the caches' common revision, read before the call.
    pub fn snapshot(&self, revision: i64) -> Snapshot {
        let state = self.state.lock();
        Snapshot {
            objects: state.objects.clone(),
            revision: revision.max(state.revision),
        }
    }

    /// Returns the state at a past revision by undoing later changes; `None` if these are no longer
    /// in the history.
    pub fn snapshot_at(&self, revision: i64) -> Option<Snapshot> {
        let state = self.state.lock();
        let mut objects = state.objects.clone();
        let later = state.history.events_after(revision)?.rev();
        let later: Vec<Arc<CacheEvent>> = later.cloned().collect();
        // Undoing thousands of changes must not delay writes.
        drop(state);
        for event in later {
            // Undoing from the newest change backwards restores each object in turn.
            match &event.old {
                Some(old) => objects.insert(old.clone()),
                None => objects.remove(event.key()),
            };
        }
        Some(Snapshot { objects, revision })
    }

    /// Subscribes with the existing objects as backlog.
    pub fn subscribe_from_now(&self, selection: Selection, revision: i64) -> Subscription {
        self.prepare_indexes(&selection);
        let mut state = self.state.lock();
        let snapshot = Snapshot {
            objects: state.objects.clone(),
            revision: revision.max(state.revision),
        };
        // The watcher is registered under the same lock as the snapshot is taken, so that no change
        // falls between backlog and live changes.
        let (watcher, changes) = Watcher::new(selection.clone());
        state.add_watcher(watcher, self.kind.resource.namespaced);
        // Selecting may take long in a large namespace: writes must not wait for it.
        drop(state);
        let backlog = snapshot
            .select_entries(&selection, "")
            .cloned()
            .map(Delivery::existing)
            .collect();
        Subscription {
            backlog,
            revision: snapshot.revision,
            changes,
        }
    }

    /// Subscribes to changes after `after`; the error is the oldest possible revision.
    pub fn subscribe_after(&self, selection: Selection, after: i64) -> Result<Subscription, i64> {
        let mut state = self.state.lock();
        // Under the lock, so that no change falls between the backlog and the registration.
        let Some(missed) = state.history.events_after(after) else {
            return Err(state.history.oldest_revision());
        };
        let missed: Vec<Arc<CacheEvent>> = missed.cloned().collect();
        let revision = after.max(state.revision);
        let (watcher, changes) = Watcher::new(selection.clone());
        state.add_watcher(watcher, self.kind.resource.namespaced);
        // Selecting among thousands of changes must not delay writes.
        drop(state);
        let backlog = missed
            .iter()
            .filter_map(|event| event.seen_by(&selection))
            .collect();
        Ok(Subscription {
            backlog,
            revision,
            changes,
        })
    }

    #[cfg(test)]
    pub(crate) fn watcher_count(&self) -> usize {
        self.state.lock().watchers.count()
    }

    /// Replays the existing objects to `observer` and registers it.
    pub(crate) fn add_observer(&self, observer: Arc<dyn Observer>) {
        let mut state = self.state.lock();
        // The lock is held during the replay: a change in between would reach the observer before
        // the state that it changes.
        for entry in state.objects.values() {
            let observers = std::slice::from_ref(&observer);
            self.notify_observers(observers, ObjectEvent::Applied, entry);
        }
        state.observers.push(observer);
    }

    /// Applies a change of the store to the object `key`.
    pub(crate) fn apply_change(&self, key: &str, change: &Change) {
        match change {
            Change::Put(stored) => self.apply_put(key, &stored.value, stored.revision),
            Change::Delete(stored) => self.apply_delete(key, stored.revision),
        }
    }

    /// Applies a write; `value` is the store's.
    pub(crate) fn apply_put(&self, key: &str, value: &[u8], revision: i64) {
        let form = self.state.lock().form_of_writes();
        let (entry, decoded) = Entry::with_decoded(&self.kind, key, value, revision, form);
        let entry = Arc::new(entry);
        // With watchers, JSON is needed at once and by all of them. A watcher that is added after
        // this finds no prepared JSON, and encodes it.
        if self.state.lock().watchers.is_watched(&entry) {
            entry.prepare_json(&decoded);
        }
        let observed = self.read_observed(&entry, &decoded);
        let mut state = self.state.lock();
        let old = state.objects.insert(entry.clone());
        state.record_event(CacheEvent::new(revision, old.clone(), Some(entry.clone())));
        self.notify_of_write(&state.observers, &entry, observed.as_ref());
        drop(state);
        self.shrink_replaced(old);
    }

    /// Applies a deletion.
    pub(crate) fn apply_delete(&self, key: &str, revision: i64) {
        let mut state = self.state.lock();
        // The event repeats one that the last list already covered.
        let Some(old) = state.objects.remove(key) else {
            return;
        };
        state.record_event(CacheEvent::new(revision, Some(old.clone()), None));
        self.notify_observers(&state.observers, ObjectEvent::Deleted, &old);
        drop(state);
        self.shrink_replaced(Some(old));
    }

    /// Replaces the previous state of the last change in the history by a smaller copy. Watchers
    /// that are about to send it have the original. Compressing holds no lock; nothing but the
    /// reader's task, which calls this, changes the history.
    fn shrink_replaced(&self, old: Option<Arc<Entry>>) {
        if let Some(small) = old.and_then(|old| old.shrink()) {
            self.state.lock().history.replace_last_old(Arc::new(small));
        }
    }

    fn notify_observers(
        &self,
        observers: &[Arc<dyn Observer>],
        event: fn(Arc<Value>) -> ObjectEvent,
        entry: &Entry,
    ) {
        if !observers.is_empty()
            && let Some(tree) = entry.decode_observed()
        {
            self.notify_of_tree(observers, &event(Arc::new(tree)));
        }
    }

    /// Returns the tree of a written object for observers, if there are any. Called without the
    /// lock, because decoding takes longer than all that is done with it.
    fn read_observed(&self, entry: &Entry, decoded: &Decoded) -> Option<Arc<Value>> {
        let is_observed = !self.state.lock().observers.is_empty();
        match decoded {
            Decoded::Tree(tree) | Decoded::Part(tree) => Some(tree.clone()),
            Decoded::Json(_) if is_observed => entry.decode_observed().map(Arc::new),
            Decoded::Json(_) | Decoded::Broken => None,
        }
    }

    /// Notifies observers of a write.
    fn notify_of_write(
        &self,
        observers: &[Arc<dyn Observer>],
        entry: &Entry,
        observed: Option<&Arc<Value>>,
    ) {
        match observed {
            Some(tree) => self.notify_of_tree(observers, &ObjectEvent::Applied(tree.clone())),
            // An observer may have been added since.
            None => self.notify_observers(observers, ObjectEvent::Applied, entry),
        }
    }

    fn notify_of_tree(&self, observers: &[Arc<dyn Observer>], event: &ObjectEvent) {
        for observer in observers {
            observer.object_changed(&self.group_resource, event);
        }
    }

    /// Replaces all objects by a list at `revision`. Watchers are closed, because they missed an
    /// unknown number of changes. Observers receive the difference.
    pub(crate) fn replace_all(&self, found: Vec<(String, bytes::Bytes, i64)>, revision: i64) {
        let mut state = self.state.lock();
        let mut objects = ObjectTable::default();
        for (key, value, modified) in found {
            // Most objects did not change while the watch was lost. Their entries keep their
            // encodings, and observers are not notified.
            let known = state
                .objects
                .get(key.as_str())
                .filter(|e| e.revision == modified)
                .cloned();
            let entry = known.unwrap_or_else(|| {
                let entry = Entry::new(&self.kind, &key, &value, modified);
                self.notify_observers(&state.observers, ObjectEvent::Applied, &entry);
                Arc::new(entry)
            });
            objects.insert(entry);
        }
        for old in state.objects.values() {
            if objects.get(&old.key).is_none() {
                self.notify_observers(&state.observers, ObjectEvent::Deleted, old);
            }
        }
        state.replace_objects(objects);
        state.history = History::starting_at(revision);
        state.revision = revision;
        // Dropping the senders ends the streams. Clients then list again, as after a 410.
        state.watchers.close_all();
    }
}

impl State {
    /// Returns the form in which the next written object is needed.
    fn form_of_writes(&self) -> Form {
        match self.observers.is_empty() || !self.watchers.is_empty() {
            true => Form::Json,
            false => Form::Tree,
        }
    }

    fn add_watcher(&mut self, watcher: Watcher, is_namespaced: bool) {
        // Dropping it ends the stream. A request may hold a cache that was removed meanwhile.
        if !self.closed {
            self.watchers.add_watcher(watcher, is_namespaced);
        }
    }

    /// Replaces all objects. Indexes are built again when they are next used.
    fn replace_objects(&mut self, objects: ObjectTable) {
        self.objects = objects;
        self.usage.clear_indexes();
        self.replacements += 1;
    }

    fn record_event(&mut self, event: CacheEvent) {
        self.revision = self.revision.max(event.revision);
        self.changes = self.changes.wrapping_add(1);
        let event = Arc::new(event);
        self.watchers.deliver_event(&event);
        self.history.push(event);
    }
}
