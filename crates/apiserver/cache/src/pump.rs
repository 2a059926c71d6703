//! The watch cache reader: feeds the caches with one list of everything, then one watch on
//! everything. Between two changes it installs and removes custom resources.
//!
//! Invariant: this task alone changes caches and publishes sets, and a published cache is at the
//! common revision.

use crate::caches::Caches;
use crate::changes::{Batch, Request};
use crate::fill::fill_caches;
use crate::install::Installation;
use crate::resource::ResourceCache;
use crate::retry::retry_read;
use crate::served::ServedResources;
use api_kinds::{Name, Resource};
use apiserver_storage::{Change, Feed, Store, StoreError, WatchItem};
use base_task::Tasks;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

// Bounds one response: a list of everything at once would exceed the message size of gRPC.
const PAGE: i64 = 2000;

/// Requests that may wait for the reader; further callers wait for room.
const REQUESTS: usize = 64;

type EntriesByPrefix = HashMap<Name, Vec<(String, Bytes, i64)>>;

impl Caches {
    /// Creates empty caches of every stored kind below `root` (`/registry`), filled by a task of
    /// `tasks` until shutdown. If that task ended, the server would serve stale data forever, so
    /// its end stops the server.
    pub fn start(store: Store, root: &str, tasks: &Tasks) -> Arc<Self> {
        Self::start_with(store, root, api_kinds::resources().into(), tasks)
    }

    /// As [`Caches::start`], with these built-in resources.
    pub fn start_with(
        store: Store,
        root: &str,
        built_in: Arc<[Arc<Resource>]>,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let (requests, requested) = mpsc::channel(REQUESTS);
        let caches = Arc::new(Caches::new(store, root, built_in, requests));
        // Critical: without its reader, the server would serve stale data without an error.
        tasks.spawn_critical(
            "watch-cache",
            run_watch(caches.clone(), requested, tasks.shutdown().clone()),
        );
        caches
    }
}

async fn run_watch(
    caches: Arc<Caches>,
    mut requests: mpsc::Receiver<Request>,
    stop: CancellationToken,
) {
    let work = async {
        let mut revision = fill_caches(&caches).await;
        loop {
            let batch = follow_watch(&caches, &mut requests, revision, stop.clone()).await;
            tracing::warn!(
                "the revision of the store's watch was compacted; listing all objects again"
            );
            revision = list_again(&caches, batch).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Lists everything again, retrying until it succeeds; returns the revision. The caches serve their
/// former state meanwhile. The resources of the batch are part of the list.
async fn list_again(caches: &Caches, batch: Batch) -> i64 {
    let served = caches.served();
    let empty = |kind| Arc::new(ResourceCache::new(kind));
    let new: BTreeMap<_, _> = batch
        .list_new_kinds(&served)
        .into_iter()
        .map(|kind| (kind.prefix.clone(), empty(kind)))
        .collect();
    let next = batch.next_set(&served, new);
    let (mut found, revision) = retry_read(|| read_all(caches, &next.set)).await;
    for cache in next.set.iter_caches() {
        // Kinds without an object get an empty list, so that every cache is at the same revision.
        let objects = found.remove(&cache.kind().prefix);
        cache.replace_all(objects.unwrap_or_default(), revision);
    }
    caches.connected.store(true, Ordering::Relaxed);
    caches.publish(next);
    // Must be last: a caller that waits for this revision reads a cache without further checks.
    caches.revision.send_replace(revision);
    batch.notify_callers();
    revision
}

async fn read_all(
    caches: &Caches,
    set: &ServedResources,
) -> Result<(EntriesByPrefix, i64), StoreError> {
    let prefix = format!("{}/", caches.root);
    let (mut found, mut start, mut revision) = (EntriesByPrefix::new(), prefix.clone(), 0);
    loop {
        let page = caches
            .store
            .list_range(&prefix, &start, PAGE, revision)
            .await?;
        // The first page picks the revision, and the others read at the same one, so that the list
        // is consistent.
        revision = if revision == 0 {
            page.revision
        } else {
            revision
        };
        for item in page.items {
            let Ok(key) = std::str::from_utf8(&item.key) else {
                continue;
            };
            // The smallest key after this one: the next page begins there.
            start = format!("{key}\0");
            let located = key
                .strip_prefix(&caches.root)
                .and_then(|path| set.locate_cache(path));
            if let Some((cache, name)) = located {
                let entry = (name.to_owned(), item.value, item.revision);
                match found.get_mut(&cache.kind().prefix) {
                    Some(list) => list.push(entry),
                    None => drop(found.insert(cache.kind().prefix.clone(), vec![entry])),
                }
            }
        }
        if !page.more {
            return Ok((found, revision));
        }
    }
}

/// Applies changes until the watch's revision is compacted; returns the requests that are not
/// executed yet.
async fn follow_watch(
    caches: &Caches,
    requests: &mut mpsc::Receiver<Request>,
    after: i64,
    stop: CancellationToken,
) -> Batch {
    let mut feed = caches
        .store
        .watch_prefix(&format!("{}/", caches.root), after, stop);
    // After a relist, requests must go to the new stream: the old one is closed.
    *caches.progress.lock() = Some(feed.progress.clone());
    let mut current: Option<Installation> = None;
    loop {
        match next_step(caches, &mut feed, requests, current.as_mut()).await {
            Step::Item(WatchItem::Compacted) | Step::Ended => {
                return current.map(Installation::into_batch).unwrap_or_default();
            }
            Step::Item(item) => apply_item(caches, item, current.as_mut()),
            Step::Requested(batch) => {
                let (store, served) = (caches.store.clone(), caches.served());
                current = Some(Installation::begin(batch, &served, store, &caches.root));
            }
            // A quiet store sends nothing by itself for minutes.
            Step::Listed(revision) => feed.progress.request(revision),
        }
        if let Some(done) = current.take_if(|current| current.is_complete(caches.revision())) {
            let (batch, filled) = done.into_filled(&caches.root);
            caches.publish(batch.next_set(&caches.served(), filled));
            batch.notify_callers();
        }
    }
}

enum Step {
    Item(WatchItem),
    /// The feed ended without a reason.
    Ended,
    /// Requests to execute together.
    Requested(Batch),
    /// The list of the installation is there, and has this revision.
    Listed(i64),
}

async fn next_step(
    caches: &Caches,
    feed: &mut Feed,
    requests: &mut mpsc::Receiver<Request>,
    current: Option<&mut Installation>,
) -> Step {
    // Changes come first in every case: an installation must not delay them.
    let item = async |feed: &mut Feed| feed.next().await.map_or(Step::Ended, Step::Item);
    match current {
        None => tokio::select! {
            step = item(feed) => step,
            Some(request) = requests.recv() => {
                let mut batch = Batch::default();
                batch.add_request(request);
                // One pass over the store serves all requests that wait.
                while let Ok(request) = requests.try_recv() {
                    batch.add_request(request);
                }
                Step::Requested(batch)
            }
        },
        Some(current) if !current.is_read() => tokio::select! {
            step = item(feed) => step,
            revision = current.finish_reading() => Step::Listed(revision),
        },
        Some(current) => {
            debug_assert!(
                !current.is_complete(caches.revision()),
                "it would be published"
            );
            item(feed).await
        }
    }
}

fn apply_item(caches: &Caches, item: WatchItem, mut current: Option<&mut Installation>) {
    match item {
        WatchItem::Changes(changes, revision) => {
            let served = caches.served();
            for change in changes {
                route_change(&served, &caches.root, change, current.as_deref_mut());
            }
            // After all changes of the revision: a watcher's bookmark relies on this order.
            advance_revision(caches, revision);
        }
        WatchItem::Progress(revision) => advance_revision(caches, revision),
        WatchItem::Lost(why) => {
            caches.connected.store(false, Ordering::Relaxed);
            tracing::warn!(why, "the store's watch is lost; connecting again");
        }
        WatchItem::Restored => caches.connected.store(true, Ordering::Relaxed),
        // The changes in between are lost. The caller lists everything again.
        WatchItem::Compacted => {}
    }
}

/// Applies a change to its cache, or keeps it for a cache that is being installed. Other keys are
/// ignored.
fn route_change(
    served: &ServedResources,
    root: &str,
    change: Change,
    current: Option<&mut Installation>,
) {
    let (Change::Put(stored) | Change::Delete(stored)) = &change;
    // Shares the bytes: the path is needed after the change was moved.
    let key = stored.key.clone();
    let Some(path) = std::str::from_utf8(&key)
        .ok()
        .and_then(|key| key.strip_prefix(root))
    else {
        return;
    };
    match (served.locate_cache(path), current) {
        (Some((cache, name)), _) => cache.apply_change(name, &change),
        (None, Some(current)) => current.buffer_change(path, change),
        (None, None) => {}
    }
}

fn advance_revision(caches: &Caches, revision: i64) {
    // The revision of a progress notification may be older than that of an event which was already
    // applied. Going back would let readers see time run backwards.
    caches.revision.send_if_modified(|current| {
        let newer = revision > *current;
        *current = revision.max(*current);
        newer
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use apiserver_request::{GroupResource, ObjectEvent, Objects, Observer};
    use apiserver_storage::StoreConfig;
    use std::time::Duration;
    use testkit_etcd::FakeEtcd;

    fn start_caches(etcd: &FakeEtcd) -> (Arc<Caches>, Tasks) {
        let store = Store::new(&StoreConfig {
            servers: vec![etcd.url().to_owned()],
            ..StoreConfig::default()
        });
        let tasks = Tasks::new(CancellationToken::new());
        (Caches::start(store.unwrap(), "/registry", &tasks), tasks)
    }

    /// Panics on the reader's task.
    struct PanickingObserver;

    impl Observer for PanickingObserver {
        fn object_changed(&self, _: &GroupResource, _: &ObjectEvent) {
            panic!("planted");
        }
    }

    #[tokio::test]
    async fn dead_pump_stops_the_component() {
        let etcd = FakeEtcd::start().await;
        let resource = api_kinds::find("", "v1", "configmaps").unwrap();
        let object = serde_json::json!({"metadata": {"name": "c", "namespace": "d"}});
        let stored = apiserver_convert::encode_stored(resource, &object);
        etcd.put("/registry/configmaps/d/c", &stored);
        let (caches, tasks) = start_caches(&etcd);
        let observer = Arc::new(PanickingObserver);
        caches.observe(&GroupResource::new("", "configmaps"), observer);
        let shutdown = tasks.shutdown().cancelled();
        let stopped = tokio::time::timeout(Duration::from_secs(30), shutdown).await;
        assert!(stopped.is_ok(), "the dead pump did not stop the component");
        let failure = tasks.failure().map(|failure| failure.name);
        assert_eq!(failure, Some("watch-cache"));
    }

    #[tokio::test]
    async fn key_belongs_to_the_longest_known_prefix() {
        let etcd = FakeEtcd::start().await;
        let (caches, _tasks) = start_caches(&etcd);
        let locate = |key: &str| {
            let served = caches.served();
            let (cache, name) = served.locate_cache(key.strip_prefix(&caches.root)?)?;
            Some((cache.kind().prefix.clone().into_owned(), name.to_owned()))
        };
        for (key, expect) in [
            ("/registry/pods/d/p", Some(("/pods", "d/p"))),
            (
                "/registry/services/specs/d/s",
                Some(("/services/specs", "d/s")),
            ),
            (
                "/registry/services/endpoints/d/s",
                Some(("/services/endpoints", "d/s")),
            ),
            ("/registry/ranges/servicenodeports", None),
            ("/registry/masterleases/192.0.2.1", None),
            ("/other/pods/d/p", None),
        ] {
            let expect = expect.map(|(prefix, name)| (prefix.to_owned(), name.to_owned()));
            assert_eq!(locate(key), expect, "{key}");
        }
    }
}
