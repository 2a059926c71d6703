//! Informer: a local copy of a kind's objects that follows the cluster.
//!
//! An informer lists once and then watches. After a disconnect it resumes from the last version. If
//! the server no longer has that version (410), it lists again. The store changes before handlers
//! are called, and handlers receive every change in order. An idle informer is one open stream:
//! there is no resync and no polling.

mod decoder;
mod event;
mod packing;
mod reflector;
mod store;

use std::sync::Arc;

use base_task::{CancellationToken, Tasks};
use futures::future::BoxFuture;

use crate::api::Api;
use crate::object::Object;
use crate::params::ListParams;

use decoder::Transforms;
pub use event::Event;
use event::{AnyIndexFn, Handler, Transform, box_handler, box_index};
use packing::Packing;
use reflector::Reflector;
pub(crate) use store::Shared;
pub use store::Store;

/// Builder of an informer: add indexes and handlers, then spawn it.
pub struct Informer<K: Object> {
    api: Api<K>,
    params: ListParams,
    indexes: Vec<(&'static str, AnyIndexFn)>,
    handlers: Vec<Handler>,
    transforms: Vec<Transform<K>>,
    packing: Option<Packing>,
}

impl<K: Object> Informer<K> {
    /// Creates an informer for the objects that `params` select. `managedFields` are dropped.
    pub fn new(api: Api<K>, params: ListParams) -> Self {
        let strip: Transform<K> =
            // Field ownership is often larger than the rest of the object, and no component reads
            // it from a cache.
            Box::new(|object: &mut K| object.meta_mut().managed_fields = None);
        Self {
            api,
            params,
            indexes: Vec::new(),
            handlers: Vec::new(),
            transforms: vec![strip],
            packing: None,
        }
    }

    /// Adds an index by the values that `keys` returns for an object.
    pub fn index<F>(mut self, name: &'static str, keys: F) -> Self
    where
        F: Fn(&K) -> Vec<String> + Send + Sync + 'static,
    {
        self.indexes.push((name, box_index(keys)));
        self
    }

    /// Adds a handler that is called for every change, in order. It must not block.
    pub fn on_event<F>(mut self, handler: F) -> Self
    where
        F: Fn(Event<K>) + Send + Sync + 'static,
    {
        self.handlers.push(box_handler(handler));
        self
    }

    /// Adds a function that is applied to each object before it is stored, to drop unneeded data.
    pub fn transform<F>(mut self, transform: F) -> Self
    where
        F: Fn(&mut K) + Send + Sync + 'static,
    {
        self.transforms.push(Box::new(transform));
        self
    }

    /// Keeps objects encoded, which takes a fraction of the memory. Each read of the store decodes:
    /// for kinds with many objects that are read one by one, when they change.
    pub fn packed(mut self) -> Self {
        self.packing = Some(Packing::for_kind::<K>());
        self
    }

    /// Starts the informer. It ends with the group's shutdown.
    pub fn spawn(self, tasks: &Tasks) -> Store<K> {
        let (store, run) = self.start(tasks.shutdown().clone());
        // Without one of its informers a component decides on stale data, so it is restarted
        // instead.
        tasks.spawn_critical("informer", run);
        store
    }

    /// Starts the informer. It ends when `stop` is cancelled.
    pub fn spawn_until(self, tasks: &Tasks, stop: CancellationToken) -> Store<K> {
        let (store, run) = self.start(stop);
        tasks.spawn("informer", run);
        store
    }

    /// Returns the store, and the future that updates it until `stop` is cancelled.
    pub fn start(self, stop: CancellationToken) -> (Store<K>, BoxFuture<'static, ()>) {
        let shared = Arc::new(Shared::new(self.indexes, self.handlers, self.packing));
        let store = Store::new(shared.clone());
        let reflector = Reflector {
            collection: self.api.into_collection(),
            params: self.params,
            decoder: Box::new(Transforms {
                transforms: self.transforms,
                packing: self.packing,
            }),
            shared,
        };
        (store, reflector.run_until(stop))
    }
}
