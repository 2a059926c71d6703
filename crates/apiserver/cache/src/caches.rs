//! All watch caches, and their common revision.

use crate::changes::{InstallError, NextSet, Request, check_resources};
use crate::kind::StoredKind;
use crate::resource::{ResourceCache, replace_together};
use crate::served::ServedResources;
use api_kinds::{Name, Resource};
use apiserver_request::{GroupResource, Observer};
use apiserver_storage::{ProgressRequests, Store, StoreError};
use arc_swap::ArcSwap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

// Upstream waits 3 s for a fresh cache, too, before it responds with "Too large resource version".
const MAX_WAIT: Duration = Duration::from_secs(3);
// A write to any stored kind arrives as an event well within this time. Only keys outside the
// prefix, such as the compaction key, move the revision without an event.
const REQUEST_PROGRESS_AFTER: Duration = Duration::from_millis(50);

/// Reasons why the caches can't serve a read.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The caches did not reach the revision in time.
    #[error("Too large resource version: {wanted}, current: {current}")]
    TooNew {
        /// The requested revision.
        wanted: i64,
        /// The caches' revision.
        current: i64,
    },
    /// The store failed to return its revision.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The watch caches of all stored kinds, and the set of served resources.
pub struct Caches {
    pub(crate) store: Store,
    /// `/registry`
    pub(crate) root: String,
    // Read by each request and replaced rarely.
    served: ArcSwap<ServedResources>,
    requests: mpsc::Sender<Request>,
    /// Observers of custom resources, which may be installed later, and again.
    observers: parking_lot::Mutex<Vec<(GroupResource, Arc<dyn Observer>)>>,
    // Moves after all caches have applied a revision, so a reader that waits for it sees every kind
    // at that revision.
    pub(crate) revision: watch::Sender<i64>,
    pub(crate) connected: AtomicBool,
    pub(crate) progress: parking_lot::Mutex<Option<ProgressRequests>>,
}

impl Caches {
    /// Creates empty caches of these built-in resources, which the watch cache reader fills. It
    /// receives requests to change the served resources through `requests`.
    pub(crate) fn new(
        store: Store,
        root: &str,
        built_in: Arc<[Arc<Resource>]>,
        requests: mpsc::Sender<Request>,
    ) -> Self {
        Caches {
            store,
            root: root.to_owned(),
            served: ArcSwap::from_pointee(ServedResources::built_in(built_in)),
            requests,
            observers: parking_lot::Mutex::default(),
            revision: watch::Sender::new(0),
            connected: AtomicBool::new(false),
            progress: parking_lot::Mutex::default(),
        }
    }

    /// Installs custom resources in all their versions, or replaces the descriptions of those that
    /// are installed, which keep their objects. Returns once they are served.
    ///
    /// # Errors
    /// A resource can't be served; then none of them is installed.
    pub async fn install(&self, resources: Vec<Arc<Resource>>) -> Result<(), InstallError> {
        self.request_change(check_resources(resources)?).await
    }

    /// Removes a custom resource in all its versions and ends its watches. Its stored objects stay.
    ///
    /// # Errors
    /// The caches have stopped.
    pub async fn remove(&self, group: &str, plural: &str) -> Result<(), InstallError> {
        let prefix = api_kinds::custom_prefix(group, plural);
        self.request_change([(prefix, None)].into()).await
    }

    async fn request_change(
        &self,
        kinds: BTreeMap<Name, Option<StoredKind>>,
    ) -> Result<(), InstallError> {
        let (done, published) = oneshot::channel();
        self.requests
            .send(Request { kinds, done })
            .await
            .map_err(|_| InstallError::Stopped)?;
        published.await.map_err(|_| InstallError::Stopped)
    }

    /// Makes the next set the served one.
    pub(crate) fn publish(&self, next: NextSet) {
        // The lock makes an observer see each cache once: here, or when it is added.
        let observers = self.observers.lock();
        for cache in &next.added {
            for (_, observer) in observers
                .iter()
                .filter(|(resource, _)| resource == cache.group_resource())
            {
                cache.add_observer(observer.clone());
            }
        }
        replace_together(&next.changed, || self.served.store(Arc::new(next.set)));
        // Afterwards: a client that lists again must not find the removed resource.
        for cache in next.removed {
            cache.close();
        }
    }

    /// Adds an observer of a resource, which need not be installed yet.
    pub(crate) fn add_observer(&self, resource: &GroupResource, observer: Arc<dyn Observer>) {
        let mut observers = self.observers.lock();
        let cache = self.find_cache(&resource.group, &resource.resource);
        if let Some(cache) = &cache {
            cache.add_observer(observer.clone());
        }
        if cache.is_none() && api_kinds::is_built_in_group(&resource.group) {
            // A typing error in a resource name would otherwise look like a kind without objects.
            tracing::warn!(?resource, "cannot observe a resource that is not stored");
        }
        if !api_kinds::is_built_in(&resource.group, &resource.resource) {
            observers.push((resource.clone(), observer));
        }
    }

    /// Returns the resources that are served now, with their caches.
    pub fn served(&self) -> Arc<ServedResources> {
        self.served.load_full()
    }

    /// Returns the cache of a resource in any of its versions.
    pub fn find_cache(&self, group: &str, plural: &str) -> Option<Arc<ResourceCache>> {
        self.served.load().find_cache(group, plural).cloned()
    }

    /// Returns the full key of an object.
    pub fn store_key(&self, kind: &StoredKind, namespace: &str, name: &str) -> String {
        format!(
            "{}/{}",
            self.store_prefix(kind),
            kind.object_key(namespace, name)
        )
    }

    /// Returns the prefix of all keys: `/registry`.
    pub fn root_prefix(&self) -> &str {
        &self.root
    }

    /// Returns the prefix of a kind's keys, without a slash at the end.
    pub fn store_prefix(&self, kind: &StoredKind) -> String {
        format!("{}{}", self.root, kind.prefix)
    }

    /// Returns the revision that all caches have reached; 0 before the first list.
    pub fn revision(&self) -> i64 {
        *self.revision.borrow()
    }

    /// Returns whether every cache has its first list.
    pub fn is_ready(&self) -> bool {
        self.revision() > 0
    }

    /// Returns whether the store's watch is connected.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Waits until every cache has its first list.
    pub async fn wait_ready(&self) {
        let mut revision = self.revision.subscribe();
        // Can't fail: the sender lives as long as `self`.
        let _ = revision.wait_for(|r| *r > 0).await;
    }

    /// Waits until the caches show the store's current state; returns the revision.
    pub async fn wait_for_current(&self) -> Result<i64, CacheError> {
        // As upstream's consistent reads from cache (KEP-2340): the revision comes from the store,
        // the objects from memory.
        let wanted = self.store.current_revision().await?;
        if self.wait_shortly(wanted).await {
            return Ok(self.revision());
        }
        self.wait_long(wanted, wanted).await
    }

    /// Waits until the caches have reached `wanted`; returns the revision.
    pub async fn wait_for(&self, wanted: i64) -> Result<i64, CacheError> {
        if self.wait_shortly(wanted).await {
            return Ok(self.revision());
        }
        // A client may name a revision that the store has not had yet. A member of the store that
        // does not reach it is not at fault.
        let known = self.store.current_revision().await?;
        self.wait_long(wanted, known).await
    }

    // The event of the awaited revision is usually on its way. Requesting progress at once would
    // cost a round trip for each consistent read.
    async fn wait_shortly(&self, wanted: i64) -> bool {
        wait_for_revision(&self.revision, wanted, REQUEST_PROGRESS_AFTER).await
    }

    /// Requests progress up to `known`, and waits until the caches have reached `wanted`.
    async fn wait_long(&self, wanted: i64, known: i64) -> Result<i64, CacheError> {
        if let Some(progress) = &*self.progress.lock() {
            progress.request(known);
        }
        match wait_for_revision(&self.revision, wanted, MAX_WAIT).await {
            true => Ok(self.revision()),
            false => Err(CacheError::TooNew {
                wanted,
                current: self.revision(),
            }),
        }
    }
}

async fn wait_for_revision(revision: &watch::Sender<i64>, wanted: i64, within: Duration) -> bool {
    let mut revision = revision.subscribe();
    matches!(
        tokio::time::timeout(within, revision.wait_for(|r| *r >= wanted)).await,
        Ok(Ok(_))
    )
}
