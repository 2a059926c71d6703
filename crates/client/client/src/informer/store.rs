//! The store of an informer: objects by key, indexes, and handlers.
//!
//! Invariant: a change is in the store before handlers are called, and handlers are called in the
//! order in which changes were stored. `writing` serialises writers; readers only wait for a map
//! operation.

use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::any_object::{AnyObject, downcast, key_of};
use crate::informer::decoder::ListedObject;
use crate::informer::event::{AnyIndexFn, Event, Handler, IndexFn, box_handler, box_index};
use crate::informer::packing::{Packing, StoredObject};
use crate::object::Object;

struct Index {
    name: &'static str,
    keys: AnyIndexFn,
    entries: HashMap<String, HashSet<Arc<str>>>,
}

impl Index {
    fn insert_key(&mut self, key: &Arc<str>, object: &dyn AnyObject) {
        for value in (self.keys)(object) {
            self.entries.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove_key(&mut self, key: &Arc<str>, object: &dyn AnyObject) {
        for value in (self.keys)(object) {
            if let Some(keys) = self.entries.get_mut(&value) {
                keys.remove(key);
                // Values come and go, for instance names of nodes; empty sets would accumulate.
                if keys.is_empty() {
                    self.entries.remove(&value);
                }
            }
        }
    }
}

struct Objects {
    by_key: HashMap<Arc<str>, StoredObject>,
    indexes: Vec<Index>,
}

impl Objects {
    /// Stores an object, whose stored form is `stored`; returns the former state.
    fn put_object(
        &mut self,
        object: &Arc<dyn AnyObject>,
        stored: StoredObject,
    ) -> Option<Arc<dyn AnyObject>> {
        let key: Arc<str> = key_of(&**object).into();
        let old = self.by_key.insert(key.clone(), stored);
        let old = old.and_then(|old| old.open());
        for index in &mut self.indexes {
            // Keys of an index are computed from the object, so the old ones must be removed by the
            // old state.
            if let Some(old) = &old {
                index.remove_key(&key, &**old);
            }
            index.insert_key(&key, &**object);
        }
        old
    }

    fn take_object(&mut self, key: &str) -> Option<Arc<dyn AnyObject>> {
        let (key, old) = self.by_key.remove_entry(key)?;
        let old = old.open()?;
        for index in &mut self.indexes {
            index.remove_key(&key, &*old);
        }
        Some(old)
    }
}

pub(crate) struct Shared {
    objects: RwLock<Objects>,
    handlers: RwLock<Vec<Handler>>,
    writing: Mutex<()>,
    synced: watch::Sender<bool>,
    version: AtomicU64,
    packing: Option<Packing>,
}

impl Shared {
    pub(crate) fn new(
        indexes: Vec<(&'static str, AnyIndexFn)>,
        handlers: Vec<Handler>,
        packing: Option<Packing>,
    ) -> Self {
        let indexes = indexes
            .into_iter()
            .map(|(name, keys)| Index {
                name,
                keys,
                entries: HashMap::new(),
            })
            .collect();
        Self {
            objects: RwLock::new(Objects {
                by_key: HashMap::new(),
                indexes,
            }),
            handlers: RwLock::new(handlers),
            writing: Mutex::new(()),
            synced: watch::Sender::new(false),
            version: AtomicU64::new(0),
            packing,
        }
    }

    fn notify_handlers(&self, event: &Event<dyn AnyObject>) {
        for handler in self.handlers.read().iter() {
            handler(event.clone());
        }
    }

    fn put_object(&self, new: Arc<dyn AnyObject>, stored: StoredObject) {
        // The lock ends with this line: handlers may read the store.
        let old = self.objects.write().put_object(&new, stored);
        self.notify_handlers(&Event::Applied { old, new });
    }

    pub(crate) fn apply_object(&self, object: Arc<dyn AnyObject>) {
        let stored = StoredObject::new(&object, self.packing);
        let _writing = self.writing.lock();
        self.put_object(object, stored);
    }

    /// Removes an object. Handlers receive the last state from the server.
    pub(crate) fn delete_object(&self, object: Arc<dyn AnyObject>) {
        let _writing = self.writing.lock();
        // A deletion of an object that was never seen is no change: its creation and deletion fell
        // between two lists.
        if self
            .objects
            .write()
            .take_object(&key_of(&*object))
            .is_some()
        {
            // With the final state: it has the deletion timestamp and the last status, which the
            // stored one lacks.
            self.notify_handlers(&Event::Deleted(object));
        }
    }

    /// Removes an object whose last state is unknown.
    pub(crate) fn delete_key(&self, key: &str) {
        let _writing = self.writing.lock();
        let last = self.objects.write().take_object(key);
        if let Some(last) = last {
            self.notify_handlers(&Event::Deleted(last));
        }
    }

    /// Records that the store contains all changes up to a version.
    pub(crate) fn advance_version(&self, version: &str) {
        // Resource versions are the etcd store's revisions, which only increase.
        self.version
            // A relist from a cache that is behind must not move the version backwards.
            .fetch_max(version.parse().unwrap_or(0), Ordering::AcqRel);
    }

    /// Replaces the content by a list of `version` and calls handlers for the differences. The
    /// objects with the keys `kept` exist but can't be decoded; their last known states remain.
    pub(crate) fn replace_all(&self, items: Vec<ListedObject>, kept: &[String], version: &str) {
        let _writing = self.writing.lock();
        // Objects that are missing in the list were deleted while no watch ran. Their deletion must
        // reach the handlers although no event comes.
        let mut listed: HashSet<String> = items.iter().map(|item| item.key.clone()).collect();
        // Undecodable is not deleted: a controller that believed so would, for instance, start
        // replacements.
        listed.extend(kept.iter().cloned());
        let gone: Vec<Arc<str>> = {
            let objects = self.objects.read();
            objects
                .by_key
                .keys()
                .filter(|key| !listed.contains(&***key))
                .cloned()
                .collect()
        };
        for key in gone {
            // Deletions come first: an object may have been created again with a new name and the
            // same resources.
            let last = self.objects.write().take_object(&key);
            if let Some(last) = last {
                self.notify_handlers(&Event::Deleted(last));
            }
        }
        for item in items {
            // Most objects are unchanged after a relist. Handlers would otherwise reconcile
            // everything once more.
            if !self.has_version(&item)
                && let Some(object) = item.object.open()
            {
                self.put_object(object, item.object);
            }
        }
        self.advance_version(version);
        // Last: readers that wait for it must find the complete list.
        self.synced.send_replace(true);
    }

    fn has_version(&self, item: &ListedObject) -> bool {
        let objects = self.objects.read();
        let known = objects.by_key.get(item.key.as_str());
        known.and_then(StoredObject::open).is_some_and(|known| {
            let known = known.metadata();
            // The UID as well: after a restore from a backup, versions can repeat.
            known.resource_version == item.resource_version && known.uid == item.uid
        })
    }
}

/// Read access to an informer's objects. Cheap to clone.
pub struct Store<K> {
    // It has objects of kind `K` only.
    shared: Arc<Shared>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            kind: PhantomData,
        }
    }
}

impl<K> std::fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl<K: Object> Store<K> {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            kind: PhantomData,
        }
    }

    /// Creates a store without an informer, for tests of decisions.
    pub fn from_objects(objects: Vec<K>, indexes: Vec<(&'static str, IndexFn<K>)>) -> Self {
        let indexes = indexes.into_iter();
        let indexes = indexes.map(|(name, keys)| (name, box_index(keys)));
        let shared = Shared::new(indexes.collect(), Vec::new(), None);
        let objects = objects.into_iter();
        let objects = objects.map(|object| ListedObject::new(Arc::new(object), None));
        shared.replace_all(objects.collect(), &[], "");
        Self::new(Arc::new(shared))
    }

    /// Returns the object with the key `namespace/name` (`name` if cluster-scoped).
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        let objects = self.shared.objects.read();
        objects.by_key.get(key)?.open().and_then(downcast)
    }

    /// Returns all objects, unordered.
    pub fn list(&self) -> Vec<Arc<K>> {
        let objects = self.shared.objects.read();
        objects
            .by_key
            .values()
            .filter_map(|object| downcast(object.open()?))
            .collect()
    }

    /// Returns all keys, unordered.
    pub fn keys(&self) -> Vec<Arc<str>> {
        self.shared.objects.read().by_key.keys().cloned().collect()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.shared.objects.read().by_key.len()
    }

    /// Returns whether the store is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the objects with this value in the index `name`. The result is empty if the index
    /// does not exist.
    pub fn by_index(&self, name: &str, value: &str) -> Vec<Arc<K>> {
        let objects = self.shared.objects.read();
        let index = objects.indexes.iter().find(|index| index.name == name);
        index
            .and_then(|index| index.entries.get(value))
            .into_iter()
            .flatten()
            // Under one read lock with the index, which therefore never names an object that is
            // missing.
            .filter_map(|key| downcast(objects.by_key.get(key)?.open()?))
            .collect()
    }

    /// Calls `handler` for every existing object and then for every change, in order. It must not
    /// block.
    pub fn add_handler<F>(&self, handler: F)
    where
        F: Fn(Event<K>) + Send + Sync + 'static,
    {
        let _writing = self.shared.writing.lock();
        for new in self.list() {
            // Under the lock, so that no change is delivered twice or lost between the existing
            // objects and the registration.
            handler(Event::Applied { old: None, new });
        }
        self.shared.handlers.write().push(box_handler(handler));
    }

    /// Returns the version up to which the store contains all changes; 0 before the first list.
    pub fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    /// Returns whether the store contains the first list.
    pub fn has_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Waits until the store contains the first list and handlers were called for it.
    pub async fn wait_until_synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // The sender lives in `shared`, which this function borrows, so the channel can't close.
        let _ = synced.wait_for(|done| *done).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::object::ObjectExt;
    use k8s_openapi::api::core::v1::Pod;

    fn typed(name: &str, version: &str, node: &str) -> Pod {
        let pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "namespace": "n", "resourceVersion": version},
            "spec": {"nodeName": node, "containers": []}
        }));
        pod.unwrap()
    }

    fn pod(name: &str, version: &str, node: &str) -> Arc<dyn AnyObject> {
        Arc::new(typed(name, version, node))
    }

    fn listed(name: &str, version: &str, node: &str) -> ListedObject {
        ListedObject::new(pod(name, version, node), None)
    }

    fn box_pods(handler: impl Fn(Event<Pod>) + Send + Sync + 'static) -> Handler {
        box_handler(handler)
    }

    fn on_node(pod: &Pod) -> Vec<String> {
        pod.spec
            .iter()
            .filter_map(|spec| spec.node_name.clone())
            .collect()
    }

    #[test]
    fn replaced_content_reaches_handlers_as_differences() {
        let received = Arc::new(Mutex::new(Vec::new()));
        let sink = received.clone();
        let handler = box_pods(move |event| {
            let word = match &event {
                Event::Applied { old: None, .. } => "added",
                Event::Applied { .. } => "changed",
                Event::Deleted(_) => "deleted",
            };
            sink.lock()
                .push(format!("{word} {}", event.object().name()));
        });
        let shared = Shared::new(vec![("node", box_index(on_node))], vec![handler], None);
        shared.replace_all(vec![listed("a", "1", "x"), listed("b", "1", "x")], &[], "1");
        received.lock().clear();
        shared.replace_all(vec![listed("b", "1", "x"), listed("c", "2", "y")], &[], "2");
        shared.apply_object(pod("c", "3", "x"));
        assert_eq!(*received.lock(), ["deleted a", "added c", "changed c"]);
        let store = Store::<Pod>::new(Arc::new(shared));
        assert_eq!(store.by_index("node", "x").len(), 2);
        assert!(store.by_index("node", "y").is_empty());
        assert!(store.has_synced());
    }

    #[test]
    fn version_never_decreases() {
        let shared = Shared::new(Vec::new(), Vec::new(), None);
        shared.replace_all(vec![listed("a", "9", "x")], &[], "9");
        shared.replace_all(vec![listed("a", "7", "x")], &[], "7");
        shared.advance_version("not a number");
        assert_eq!(Store::<Pod>::new(Arc::new(shared)).version(), 9);
    }

    #[test]
    fn deletion_of_an_unknown_object_is_no_event() {
        let received = Arc::new(Mutex::new(0));
        let sink = received.clone();
        let handler = box_pods(move |_| *sink.lock() += 1);
        let shared = Shared::new(Vec::new(), vec![handler], None);
        shared.delete_object(pod("a", "1", "x"));
        shared.delete_key("b");
        assert_eq!(*received.lock(), 0);
    }

    #[test]
    fn deletion_has_the_final_state_of_the_object() {
        let received = Arc::new(Mutex::new(Vec::new()));
        let sink = received.clone();
        let handler = box_pods(move |event| {
            sink.lock()
                .push(event.object().resource_version().to_owned())
        });
        let shared = Shared::new(Vec::new(), vec![handler], None);
        shared.apply_object(pod("a", "1", "x"));
        shared.delete_object(pod("a", "5", "x"));
        assert_eq!(*received.lock(), ["1", "5"]);
    }

    #[test]
    fn later_handler_receives_the_existing_objects_first() {
        let store =
            Store::from_objects(vec![typed("a", "1", "x"), typed("b", "1", "x")], Vec::new());
        let received = Arc::new(Mutex::new(Vec::new()));
        let sink = received.clone();
        store.add_handler(move |event| {
            let change = match &event {
                Event::Applied { old: None, .. } => "added",
                Event::Applied { .. } => "changed",
                Event::Deleted(_) => "deleted",
            };
            sink.lock()
                .push(format!("{change} {}", event.object().name()));
        });
        store.shared.apply_object(pod("a", "2", "x"));
        let mut received = received.lock().clone();
        assert_eq!(received.pop().as_deref(), Some("changed a"));
        received.sort();
        assert_eq!(received, ["added a", "added b"]);
    }

    #[test]
    fn unknown_index_and_unknown_value_have_no_objects() {
        let store = Store::from_objects(vec![typed("a", "1", "x")], Vec::new());
        assert!(store.by_index("node", "x").is_empty() && store.get("b").is_none());
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn listed_but_undecodable_objects_keep_their_last_state() {
        let shared = Shared::new(Vec::new(), Vec::new(), None);
        shared.replace_all(vec![listed("a", "1", "x"), listed("b", "1", "x")], &[], "1");
        let key = typed("a", "1", "x").key();
        shared.replace_all(Vec::new(), std::slice::from_ref(&key), "2");
        let store = Store::<Pod>::new(Arc::new(shared));
        assert!(store.get(&key).is_some());
        assert_eq!(store.len(), 1);
    }

    /// A packed store behaves as another one.
    #[test]
    fn packed_objects_are_read_as_they_were_stored() {
        let received = Arc::new(Mutex::new(Vec::new()));
        let sink = received.clone();
        let handler = box_pods(move |event| {
            let old = match &event {
                Event::Applied { old, .. } => {
                    old.as_ref().map(|old| old.resource_version().to_owned())
                }
                Event::Deleted(_) => None,
            };
            sink.lock()
                .push((event.object().resource_version().to_owned(), old));
        });
        let packing = Some(Packing::for_kind::<Pod>());
        let index = vec![("node", box_index(on_node))];
        let shared = Shared::new(index, vec![handler], packing);
        let listed = |name: &str, version: &str, node: &str| {
            let listed = ListedObject::new(pod(name, version, node), packing);
            assert!(matches!(listed.object, StoredObject::Packed(..)));
            listed
        };
        shared.replace_all(vec![listed("a", "1", "x"), listed("b", "1", "x")], &[], "1");
        shared.replace_all(vec![listed("a", "1", "x"), listed("b", "1", "x")], &[], "2");
        shared.apply_object(pod("a", "3", "y"));
        shared.delete_key("n/b");
        let event = |new: &str, old: Option<&str>| (new.to_owned(), old.map(str::to_owned));
        let expect = [
            event("1", None),
            event("1", None),
            event("3", Some("1")),
            event("1", None),
        ];
        assert_eq!(*received.lock(), expect);
        let store = Store::<Pod>::new(Arc::new(shared));
        assert_eq!(*store.get("n/a").unwrap(), typed("a", "3", "y"));
        assert_eq!(store.list().len(), 1);
        assert_eq!(store.by_index("node", "y").len(), 1);
        assert!(store.by_index("node", "x").is_empty());
    }
}
