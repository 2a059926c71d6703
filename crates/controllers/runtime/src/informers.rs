//! One informer per kind and selection, shared by all controllers.
//!
//! Controllers declare kinds, indexes and handlers during set-up; no informer runs before
//! [`Informers::start`]. A kind that no controller declares is never listed. Each store knows the
//! resource version up to which it shows every change, so that a controller knows when the store
//! shows its own writes.

use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use base_task::Tasks;
use client::{Client, Event, Informer, ListParams, Store};
use futures::FutureExt;
use futures::future::Shared;
use tokio_util::sync::CancellationToken;

use crate::object::{Meta, Object, split_key};

/// Index of [`Cache::candidates`]: by the controller's UID, or by namespace for orphans.
const CLAIM: &str = "claim";
/// The index of [`Cache::within`].
pub const NAMESPACE: &str = "namespace";

/// An index: its name, and the values that it has for an object.
pub type Index<K> = (&'static str, Box<dyn Fn(&K) -> Vec<String> + Send + Sync>);

/// Read access to one kind; empty until the informers are started. Cheap to clone.
#[derive(Debug)]
pub struct Cache<K> {
    store: Arc<OnceLock<Store<K>>>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
        }
    }
}

impl<K: Object> Cache<K> {
    /// Returns a cache of fixed content without indexes, for tests and measurements of decisions.
    pub fn with_objects(objects: Vec<K>) -> Self {
        Self::with_indexes(objects, Vec::new())
    }

    /// Returns a cache of fixed content with these indexes, for tests and measurements of
    /// decisions.
    pub fn with_indexes(objects: Vec<K>, indexes: Vec<Index<K>>) -> Self {
        Self {
            store: Arc::new(OnceLock::from(Store::from_objects(objects, indexes))),
        }
    }

    /// Returns whether the first list is complete. Handlers of its events see false.
    pub fn has_synced(&self) -> bool {
        self.store.get().is_some_and(Store::has_synced)
    }

    /// Returns the object of a key.
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.store.get()?.get(key)
    }

    /// Returns the object of a namespace and name.
    pub fn get_by_name(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        if namespace.is_empty() {
            self.get(name)
        } else {
            self.get(&format!("{namespace}/{name}"))
        }
    }

    /// Returns all objects.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.store.get().map(Store::list).unwrap_or_default()
    }

    /// Returns the objects that an index holds for a value.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.store
            .get()
            .map(|s| s.by_index(index, value))
            .unwrap_or_default()
    }

    /// Returns the objects of a namespace; needs [`Kind::index_namespace`].
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.by_index(NAMESPACE, namespace)
    }

    /// Returns the objects that a controller owns; needs [`Kind::index_claims`].
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.by_index(CLAIM, uid)
    }

    /// Returns the objects of a namespace without a controller; needs [`Kind::index_claims`].
    pub fn orphans_in(&self, namespace: &str) -> Vec<Arc<K>> {
        self.by_index(CLAIM, &orphan_key(namespace))
    }

    /// Returns the objects that a controller may own or adopt: its own and the orphans of its
    /// namespace.
    pub fn claim_candidates(&self, namespace: &str, uid: &str) -> Vec<Arc<K>> {
        let mut found = self.owned_by(uid);
        found.extend(self.orphans_in(namespace));
        found
    }
}

fn orphan_key(namespace: &str) -> String {
    // A UID contains no colon, so the orphans of a namespace never appear among the objects of an
    // owner.
    format!("orphans:{namespace}")
}

/// The identity of an informer: the kind, and the labels and fields that it selects.
pub(crate) type InformerId = (TypeId, Option<String>, Option<String>);

/// The progress of an informer, by kind name.
trait Seen: Send + Sync {
    fn version(&self) -> u64;
    fn has_object(&self, key: &str) -> bool;
    fn has_live_object(&self, key: &str, uid: &str) -> bool;
}

type SeenInformer = (InformerId, Arc<dyn Seen>);

struct Slot<K: Object> {
    informer: Option<Informer<K>>,
    cache: Cache<K>,
    indexes: HashSet<&'static str>,
}

impl<K: Object> Seen for Cache<K> {
    fn version(&self) -> u64 {
        self.store.get().map_or(0, Store::version)
    }

    fn has_object(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    fn has_live_object(&self, key: &str, uid: &str) -> bool {
        self.get(key)
            // A deletion request is enough: a pod remains for its grace period, and its owner must
            // replace it before that ends.
            .is_some_and(|o| o.uid() == uid && !o.is_deleting())
    }
}

type Slots = HashMap<InformerId, Box<dyn Any + Send>>;
type Starter = Box<dyn FnOnce(&mut Slots, &Tasks, &CancellationToken) -> Waiter + Send>;
type Waiter = futures::future::BoxFuture<'static, ()>;

/// Resolves when a kind's informer has synced.
pub(crate) type Ready = Shared<Waiter>;

/// The informers of one process.
pub struct Informers {
    client: Client,
    slots: Slots,
    starters: Vec<(InformerId, Starter)>,
    touched: HashSet<InformerId>,
    seen: HashMap<String, Vec<SeenInformer>>,
}

impl std::fmt::Debug for Informers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Informers")
            .field("kinds", &self.seen.keys())
            .finish_non_exhaustive()
    }
}

/// A kind during set-up.
pub struct Kind<'a, K: Object> {
    slot: &'a mut Slot<K>,
}

impl<K: Object> Kind<'_, K> {
    /// Returns read access.
    pub fn cache(&self) -> Cache<K> {
        self.slot.cache.clone()
    }

    /// Adds an index; the first of a name wins.
    pub fn index(
        self,
        name: &'static str,
        keys: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        // Several controllers declare the same index; one computation per event is enough.
        if self.slot.indexes.insert(name) {
            self.slot.informer = self.slot.informer.take().map(|i| i.index(name, keys));
        }
        self
    }

    /// Adds the index of [`Cache::within`].
    pub fn index_namespace(self) -> Self {
        self.index(NAMESPACE, |o| vec![o.namespace().to_owned()])
    }

    /// Adds the index of [`Cache::candidates`].
    pub fn index_claims(self) -> Self {
        self.index(CLAIM, |o| match o.controller() {
            // By UID and not by name: an owner that was created again under its name does not own
            // the old objects.
            Some(owner) => vec![owner.uid.clone()],
            None => vec![orphan_key(o.namespace())],
        })
    }

    /// Adds an event handler for every change; it must not block.
    pub fn on_event(self, handler: impl Fn(&Event<K>) + Send + Sync + 'static) -> Self {
        self.slot.informer = self
            .slot
            .informer
            .take()
            .map(|i| i.on_event(move |event| handler(&event)));
        self
    }

    /// Drops unneeded fields before an object is stored.
    pub fn trim(self, trim: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.slot.informer = self.slot.informer.take().map(|i| i.transform(trim));
        self
    }
}

impl Informers {
    /// Creates a set without informers.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            slots: HashMap::new(),
            starters: Vec::new(),
            touched: HashSet::new(),
            seen: HashMap::new(),
        }
    }

    /// Declares the informer of a kind.
    pub fn for_kind<K: Object>(&mut self) -> Kind<'_, K> {
        self.for_selected(ListParams::default())
    }

    /// Declares the informer of a kind that is limited to the objects that `params` select.
    /// Controllers that select the same objects share an informer.
    pub fn for_selected<K: Object>(&mut self, params: ListParams) -> Kind<'_, K> {
        let id = (
            TypeId::of::<K>(),
            params.label_selector.clone(),
            params.field_selector.clone(),
        );
        self.touched.insert(id.clone());
        if !self.slots.contains_key(&id) {
            self.add_informer::<K>(id.clone(), params);
        }
        let slot = self
            .slots
            .get_mut(&id)
            .and_then(|s| s.downcast_mut::<Slot<K>>());
        #[allow(clippy::expect_used)] // The map is keyed by the type itself.
        Kind {
            slot: slot.expect("a slot has its own type"),
        }
    }

    fn add_informer<K: Object>(&mut self, id: InformerId, params: ListParams) {
        let cache = Cache {
            store: Arc::new(OnceLock::new()),
        };
        let informer = Informer::new(self.client.api::<K>(), params);
        let progress: Arc<dyn Seen> = Arc::new(cache.clone());
        let kind = qualify_kind(K::GROUP, K::KIND);
        let seen = self.seen.entry(kind).or_default();
        seen.push((id.clone(), progress));
        self.slots.insert(
            id.clone(),
            Box::new(Slot {
                informer: Some(informer),
                cache,
                indexes: HashSet::new(),
            }),
        );
        let own = id.clone();
        let start: Starter = Box::new(move |slots, tasks, stop| {
            let slot = slots
                .remove(&own)
                .and_then(|s| s.downcast::<Slot<K>>().ok());
            let Some((informer, cache)) = slot.and_then(|s| Some((s.informer?, s.cache))) else {
                return Box::pin(async {});
            };
            // The cache is filled only here, so that event handlers can hold it before the start.
            let (store, run) = informer.start(stop.clone());
            let _ = cache.store.set(store.clone());
            tasks.spawn_critical("informer", run);
            Box::pin(async move { store.wait_until_synced().await })
        });
        self.starters.push((id, start));
    }

    /// Returns the informers declared since the last call: those of the controller being set up.
    pub(crate) fn take_touched(&mut self) -> HashSet<InformerId> {
        std::mem::take(&mut self.touched)
    }

    /// Starts every informer; returns futures that resolve when each has synced.
    pub(crate) fn start(
        &mut self,
        tasks: &Tasks,
        stop: &CancellationToken,
    ) -> HashMap<InformerId, Ready> {
        let starters = std::mem::take(&mut self.starters);
        starters
            .into_iter()
            // Shared, because several controllers wait for the same kind.
            .map(|(id, start)| (id, start(&mut self.slots, tasks, stop).shared()))
            .collect()
    }

    /// Returns the progress of the informers whose caches a controller reads: of its own ones of a
    /// kind, or of all if it has declared none of the kind.
    pub(crate) fn view(&self, needs: &HashSet<InformerId>) -> View {
        let select = |all: &Vec<SeenInformer>| {
            // Reconcilers of one set-up share caches, which count as needs of the first one.
            let is_declared = all.iter().any(|(id, _)| needs.contains(id));
            let read = all
                .iter()
                .filter(|(id, _)| !is_declared || needs.contains(id));
            read.map(|(_, seen)| seen.clone()).collect()
        };
        let seen = self.seen.iter();
        View {
            seen: Arc::new(
                seen.map(|(kind, all)| (kind.clone(), select(all)))
                    .collect(),
            ),
        }
    }
}

/// The informers' progress, to check whether they show a write.
#[derive(Clone)]
pub struct View {
    seen: Arc<HashMap<String, Vec<Arc<dyn Seen>>>>,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("View")
    }
}

impl View {
    /// Returns whether the informers show this version of an object, or the kind has none.
    pub fn has_reached(&self, group: &str, kind: &str, key: &str, version: u64) -> bool {
        let informers = self.informers_of(group, kind);
        // The informers that select the object decide: the others learn of the version only with
        // their next event. All of them, because the reconciler may read any. If none has the
        // object, it may be any of them, too.
        let mut selecting = informers.iter().filter(|i| i.has_object(key)).peekable();
        if selecting.peek().is_none() {
            return informers.iter().all(|i| i.version() >= version);
        }
        selecting.all(|i| i.version() >= version)
    }

    /// Returns whether no informer of the kind has this object without a deletion request.
    pub fn has_deleted(&self, group: &str, kind: &str, key: &str, uid: &str) -> bool {
        let informers = self.informers_of(group, kind);
        !informers.iter().any(|i| i.has_live_object(key, uid))
    }

    /// Returns the informers of a kind. A kind without any shows no writes, so there is nothing to
    /// wait for.
    fn informers_of(&self, group: &str, kind: &str) -> &[Arc<dyn Seen>] {
        let found = self.seen.get(&qualify_kind(group, kind));
        found.map(Vec::as_slice).unwrap_or_default()
    }
}

fn qualify_kind(group: &str, kind: &str) -> String {
    format!("{group}/{kind}")
}

/// Returns the namespace of a queue key.
pub fn namespace_of(key: &str) -> &str {
    split_key(key).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Config;
    use k8s_openapi::api::core::v1::ConfigMap;

    /// An informer at a version, with or without the object.
    struct Progress(u64, bool);

    impl Seen for Progress {
        fn version(&self) -> u64 {
            self.0
        }

        fn has_object(&self, _key: &str) -> bool {
            self.1
        }

        fn has_live_object(&self, _key: &str, _uid: &str) -> bool {
            self.1
        }
    }

    #[test]
    fn write_is_shown_by_the_informer_that_selects_the_object() {
        for (informers, expected) in [
            (vec![], true),
            (vec![Progress(5, true)], true),
            (vec![Progress(5, false)], true),
            (vec![Progress(4, true)], false),
            (vec![Progress(5, true), Progress(1, false)], true),
            (vec![Progress(5, true), Progress(4, true)], false),
            (vec![Progress(5, true), Progress(5, true)], true),
            (vec![Progress(4, true), Progress(9, false)], false),
            (vec![Progress(1, false), Progress(9, false)], false),
            (vec![Progress(5, false), Progress(9, false)], true),
        ] {
            let states: Vec<_> = informers.iter().map(|i| (i.0, i.1)).collect();
            let informers = informers
                .into_iter()
                .map(|i| Arc::new(i) as Arc<dyn Seen>)
                .collect();
            let view = View {
                seen: Arc::new(HashMap::from([(qualify_kind("", "Pod"), informers)])),
            };
            let shown = view.has_reached("", "Pod", "n/p", 5);
            assert_eq!(shown, expected, "{states:?}");
        }
    }

    #[test]
    fn controllers_share_an_informer_if_they_select_the_same_objects() {
        let mut informers = Informers::new(Client::new(Config::builder("http://127.0.0.1:1")));
        let named = |name: &str| ListParams::new().with_fields(format!("metadata.name={name}"));
        for params in [named("a"), named("b"), ListParams::new(), named("a")] {
            informers.for_selected::<ConfigMap>(params);
        }
        assert_eq!(informers.slots.len(), 3);
        assert_eq!(informers.take_touched().len(), 3);
    }

    #[test]
    fn controller_waits_for_its_own_informers_of_a_kind() {
        let mut informers = Informers::new(Client::new(Config::builder("http://127.0.0.1:1")));
        informers.for_kind::<ConfigMap>();
        let all = informers.take_touched();
        let named = ListParams::new().with_fields("metadata.name=a");
        informers.for_selected::<ConfigMap>(named);
        let one = informers.take_touched();
        for (needs, expect) in [(&all, 1), (&one, 1), (&HashSet::new(), 2)] {
            let view = informers.view(needs);
            assert_eq!(view.informers_of("", "ConfigMap").len(), expect);
        }
    }
}
