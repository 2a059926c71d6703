//! All watch caches, and their common revision.

use crate::kind::StoredKind;
use crate::pump;
use crate::resource::ResourceCache;
use api_kinds::Name;
use apiserver_request::GroupResource;
use apiserver_storage::{Store, StoreError};
use base_task::Tasks;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

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

/// The watch caches of all stored kinds.
pub struct Caches {
    pub(crate) store: Store,
    /// `/registry`
    pub(crate) root: String,
    pub(crate) by_prefix: HashMap<Name, Arc<ResourceCache>>,
    by_resource: HashMap<GroupResource, Arc<ResourceCache>>,
    // Moves after all caches have applied a revision, so a reader that waits for it sees every kind
    // at that revision.
    pub(crate) revision: watch::Sender<i64>,
    pub(crate) connected: AtomicBool,
    pub(crate) progress_requests: parking_lot::Mutex<Option<mpsc::Sender<()>>>,
}

impl Caches {
    /// Creates empty caches of every stored kind below `root` (`/registry`), filled by a task of
    /// `tasks` until shutdown. If that task ended, the server would serve stale data forever, so
    /// its end stops the server.
    pub fn start(store: Store, root: &str, tasks: &Tasks) -> Arc<Self> {
        let all: Vec<_> = StoredKind::stored_kinds()
            .into_iter()
            .map(|kind| Arc::new(ResourceCache::new(kind)))
            .collect();
        let mut by_resource = HashMap::new();
        for cache in &all {
            for resource in &cache.kind().rows {
                // Several versions, and sometimes two groups, share one cache.
                by_resource.insert(
                    GroupResource::new(&resource.group, &resource.plural),
                    cache.clone(),
                );
            }
        }
        let caches = Arc::new(Caches {
            store,
            root: root.to_owned(),
            by_prefix: all
                .into_iter()
                .map(|cache| (cache.kind().prefix.clone(), cache))
                .collect(),
            by_resource,
            revision: watch::Sender::new(0),
            connected: AtomicBool::new(false),
            progress_requests: parking_lot::Mutex::default(),
        });
        // Critical: without its reader, the server would serve stale data without an error.
        tasks.spawn_critical(
            "watch-cache",
            pump::run_watch(caches.clone(), tasks.shutdown().clone()),
        );
        caches
    }

    /// Returns the cache of a resource in any of its versions.
    pub fn find_cache(&self, group: &str, plural: &str) -> Option<Arc<ResourceCache>> {
        self.by_resource
            .get(&GroupResource::new(group, plural))
            .cloned()
    }

    /// Returns every cache.
    pub fn iter_caches(&self) -> impl Iterator<Item = &Arc<ResourceCache>> {
        self.by_prefix.values()
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
        self.wait_for(wanted).await
    }

    /// Waits until the caches have reached `wanted`; returns the revision.
    pub async fn wait_for(&self, wanted: i64) -> Result<i64, CacheError> {
        let mut revision = self.revision.subscribe();
        // The event of the awaited revision is usually on its way. Requesting progress at once
        // would cost a round trip for each consistent read.
        if wait_for_revision(&mut revision, wanted, REQUEST_PROGRESS_AFTER).await {
            return Ok(self.revision());
        }
        self.request_progress();
        match wait_for_revision(&mut revision, wanted, MAX_WAIT).await {
            true => Ok(self.revision()),
            false => Err(CacheError::TooNew {
                wanted,
                current: self.revision(),
            }),
        }
    }

    fn request_progress(&self) {
        if let Some(ask) = &*self.progress_requests.lock() {
            // A full channel means that another request is already queued.
            let _ = ask.try_send(());
        }
    }
}

async fn wait_for_revision(
    revision: &mut watch::Receiver<i64>,
    wanted: i64,
    within: Duration,
) -> bool {
    matches!(
        tokio::time::timeout(within, revision.wait_for(|r| *r >= wanted)).await,
        Ok(Ok(_))
    )
}
