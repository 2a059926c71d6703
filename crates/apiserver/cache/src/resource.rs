//! The watch cache of one stored kind.

use crate::entry::Entry;
use crate::history::History;
use crate::kind::StoredKind;
use crate::watcher::Watcher;
use crate::{CacheEvent, Delivery, EventType, Selection, Subscription};
use apiserver_request::{GroupResource, ObjectEvent, Observer};
use apiserver_storage::Change;
use imbl::OrdMap;
use parking_lot::Mutex;
use serde_json::Value;
use std::ops::Bound;
use std::sync::Arc;

type Objects = OrdMap<Arc<str>, Arc<Entry>>;

/// The objects of a kind at one revision; cheap to clone, shares structure with other revisions.
#[derive(Clone, Debug)]
pub struct Snapshot {
    objects: Objects,
    /// The revision.
    pub revision: i64,
}

impl Snapshot {
    /// Returns entries whose key starts with `prefix` and is not before `start`, in order.
    pub fn range_entries<'a>(
        &'a self,
        prefix: &'a str,
        start: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Entry>> {
        let from = if start > prefix { start } else { prefix };
        self.objects
            .range::<_, str>((Bound::Included(from), Bound::Unbounded))
            .map(|(_, entry)| entry)
            .take_while(move |entry| entry.key.starts_with(prefix))
    }

    /// Returns all selected entries.
    pub fn select_entries<'a>(&'a self, selection: &'a Selection) -> Vec<Arc<Entry>> {
        let prefix = selection.key_prefix();
        let found: Vec<_> = self
            .range_entries(&prefix, "")
            .filter(|e| selection.matches(e))
            .cloned()
            .collect();
        found
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
        self.objects.is_empty()
    }
}

struct State {
    objects: Objects,
    history: History,
    watchers: Vec<Watcher>,
    observers: Vec<Arc<dyn Observer>>,
    /// Revision of the last change of this kind.
    revision: i64,
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

impl ResourceCache {
    pub(crate) fn new(kind: StoredKind) -> Self {
        let group_resource = GroupResource::new(&kind.resource.group, &kind.resource.plural);
        let state = State {
            objects: Objects::new(),
            history: History::starting_at(0),
            watchers: Vec::new(),
            observers: Vec::new(),
            revision: 0,
            closed: false,
        };
        ResourceCache {
            kind: Arc::new(kind),
            group_resource,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Returns a cache of the same objects under another description of the kind. Watchers are kept
    /// if both serve them.
    pub(crate) fn with_kind(&self, kind: StoredKind) -> Self {
        let keeps_watchers = self.kind.serves_watchers_of(&kind);
        let changed = ResourceCache {
            kind: Arc::new(kind),
            group_resource: self.group_resource.clone(),
            state: self.state.clone(),
        };
        // Selectable fields and encodings depend on the description. Decoding takes time, so that
        // it holds no lock; nothing but the reader's task, which calls this, changes objects.
        let objects = self.state.lock().objects.clone();
        let objects = objects
            .values()
            .map(|entry| (entry.key.clone(), Arc::new(entry.with_kind(&changed.kind))))
            .collect();
        let mut state = changed.state.lock();
        state.objects = objects;
        if !keeps_watchers {
            state.watchers.clear();
        }
        drop(state);
        changed
    }

    /// Ends all watchers and notifies observers that the objects are deleted: the resource is
    /// no longer served.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.watchers.clear();
        state.closed = true;
        for entry in state.objects.values() {
            if let (Ok(tree), false) = (entry.decode_tree(), state.observers.is_empty()) {
                self.notify_observers(&state.observers, ObjectEvent::Deleted, || tree);
            }
        }
        state.observers.clear();
    }

    /// Returns the group and the plural name.
    pub(crate) fn group_resource(&self) -> &GroupResource {
        &self.group_resource
    }

    /// Adds an object of the first list.
    pub(crate) fn insert_listed(&self, key: &str, value: &[u8], revision: i64) {
        let (entry, _) = Entry::new(&self.kind, key, value, revision);
        let mut state = self.state.lock();
        state.objects.insert(entry.key.clone(), Arc::new(entry));
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
        for event in state.history.events_after(revision)?.rev() {
            // Undoing from the newest change backwards restores each object in turn.
            match &event.old {
                Some(old) => objects.insert(old.key.clone(), old.clone()),
                None => objects.remove(event.key()),
            };
        }
        Some(Snapshot { objects, revision })
    }

    /// Subscribes with the existing objects as backlog.
    pub fn subscribe_from_now(&self, selection: Selection, revision: i64) -> Subscription {
        let mut state = self.state.lock();
        let snapshot = Snapshot {
            objects: state.objects.clone(),
            revision: revision.max(state.revision),
        };
        // The watcher is registered under the same lock as the snapshot is taken, so that no change
        // falls between backlog and live changes.
        let (watcher, changes) = Watcher::new(selection.clone());
        state.add_watcher(watcher);
        // Selecting may take long in a large namespace: writes must not wait for it.
        drop(state);
        let added = |entry| Delivery {
            event: EventType::Added,
            entry,
            previous: None,
        };
        let backlog = snapshot
            .select_entries(&selection)
            .into_iter()
            .map(added)
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
        let backlog: Vec<Delivery> = missed
            .filter_map(|event| event.seen_by(&selection))
            .collect();
        let revision = after.max(state.revision);
        let (watcher, changes) = Watcher::new(selection);
        state.add_watcher(watcher);
        Ok(Subscription {
            backlog,
            revision,
            changes,
        })
    }

    /// Replays the existing objects to `observer` and registers it.
    pub(crate) fn add_observer(&self, observer: Arc<dyn Observer>) {
        let mut state = self.state.lock();
        // The lock is held during the replay: a change in between would reach the observer before
        // the state that it changes.
        for entry in state.objects.values() {
            if let Ok(tree) = entry.decode_tree() {
                observer
                    .object_changed(&self.group_resource, &ObjectEvent::Applied(Arc::new(tree)));
            }
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
        let (entry, tree) = Entry::new(&self.kind, key, value, revision);
        let entry = Arc::new(entry);
        let mut state = self.state.lock();
        // With watchers, JSON is needed at once and by all of them. Encoding it from the decoded
        // tree saves decoding the stored bytes again.
        if let (Some(tree), false) = (&tree, state.watchers.is_empty()) {
            entry.prepare_json(tree);
        }
        let old = state.objects.insert(entry.key.clone(), entry.clone());
        state.record_event(CacheEvent::new(revision, old, Some(entry)));
        if let Some(tree) = tree {
            self.notify_observers(&state.observers, ObjectEvent::Applied, || tree);
        }
    }

    /// Applies a deletion.
    pub(crate) fn apply_delete(&self, key: &str, revision: i64) {
        let mut state = self.state.lock();
        // The event repeats one that the last list already covered.
        let Some(old) = state.objects.remove(key) else {
            return;
        };
        state.record_event(CacheEvent::new(revision, Some(old.clone()), None));
        if !state.observers.is_empty()
            && let Ok(tree) = old.decode_tree()
        {
            self.notify_observers(&state.observers, ObjectEvent::Deleted, || tree);
        }
    }

    fn notify_observers(
        &self,
        observers: &[Arc<dyn Observer>],
        event: fn(Arc<Value>) -> ObjectEvent,
        tree: impl FnOnce() -> Value,
    ) {
        if observers.is_empty() {
            return;
        }
        let event = event(Arc::new(tree()));
        for observer in observers {
            observer.object_changed(&self.group_resource, &event);
        }
    }

    /// Replaces all objects by a list at `revision`. Watchers are closed, because they missed an
    /// unknown number of changes. Observers receive the difference.
    pub(crate) fn replace_all(&self, found: Vec<(String, bytes::Bytes, i64)>, revision: i64) {
        let mut state = self.state.lock();
        let mut objects = Objects::new();
        for (key, value, modified) in found {
            // Most objects did not change while the watch was lost. Their entries keep their
            // encodings, and observers are not notified.
            let known = state
                .objects
                .get(key.as_str())
                .filter(|e| e.revision == modified)
                .cloned();
            let entry = known.unwrap_or_else(|| {
                let (entry, tree) = Entry::new(&self.kind, &key, &value, modified);
                if let Some(tree) = tree {
                    self.notify_observers(&state.observers, ObjectEvent::Applied, || tree);
                }
                Arc::new(entry)
            });
            objects.insert(entry.key.clone(), entry);
        }
        for (key, old) in &state.objects {
            if !objects.contains_key(key)
                && let Ok(tree) = old.decode_tree()
            {
                self.notify_observers(&state.observers, ObjectEvent::Deleted, || tree);
            }
        }
        state.objects = objects;
        state.history = History::starting_at(revision);
        state.revision = revision;
        // Dropping the senders ends the streams. Clients then list again, as after a 410.
        state.watchers.clear();
    }
}

impl State {
    fn add_watcher(&mut self, watcher: Watcher) {
        // Dropping it ends the stream. A request may hold a cache that was removed meanwhile.
        if !self.closed {
            self.watchers.push(watcher);
        }
    }

    fn record_event(&mut self, event: CacheEvent) {
        self.revision = self.revision.max(event.revision);
        let event = Arc::new(event);
        self.watchers.retain(|watcher| watcher.deliver(&event));
        self.history.push(event);
    }
}
