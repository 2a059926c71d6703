//! The watch cache reader: feeds the caches with one list of everything, then one watch on
//! everything.

use crate::caches::Caches;
use crate::resource::ResourceCache;
use api_kinds::Name;
use apiserver_storage::{Change, StoreError, WatchItem};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

// Bounds one response: a list of everything at once would exceed the message size of gRPC.
const PAGE: i64 = 2000;
const RETRY: Duration = Duration::from_millis(200);

type EntriesByPrefix = HashMap<Name, Vec<(String, Bytes, i64)>>;

pub(crate) async fn run_watch(caches: Arc<Caches>, stop: CancellationToken) {
    let work = async {
        loop {
            let revision = load_all(&caches).await;
            follow_watch(&caches, revision, stop.clone()).await;
            tracing::warn!(
                "the revision of the store's watch was compacted; listing all objects again"
            );
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Lists everything, retrying until it succeeds; returns the revision.
async fn load_all(caches: &Caches) -> i64 {
    let mut warned = false;
    loop {
        match read_all(caches).await {
            Ok((mut found, revision)) => {
                for (prefix, cache) in &caches.by_prefix {
                    // Kinds without an object get an empty list, so that every cache starts at the
                    // same revision.
                    cache.replace_all(found.remove(prefix).unwrap_or_default(), revision);
                }
                caches.connected.store(true, Ordering::Relaxed);
                // Last: a caller that waits for this revision reads a cache without further checks.
                caches.revision.send_replace(revision);
                return revision;
            }
            // Warn once: while the store starts, this fails several times a second.
            Err(e) if !warned => {
                warned = true;
                tracing::warn!(error = %e, "the store can't be read yet; trying again");
            }
            Err(e) => tracing::debug!(error = %e, "the store can't be read yet"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn read_all(caches: &Caches) -> Result<(EntriesByPrefix, i64), StoreError> {
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
            if let Some((cache, name)) = locate_cache(caches, key) {
                let name = name.to_owned();
                found.entry(cache.kind().prefix.clone()).or_default().push((
                    name,
                    item.value,
                    item.revision,
                ));
            }
        }
        if !page.more {
            return Ok((found, revision));
        }
    }
}

/// Returns the cache of a key, and the key within it.
fn locate_cache<'a, 'k>(
    caches: &'a Caches,
    key: &'k str,
) -> Option<(&'a Arc<ResourceCache>, &'k str)> {
    let path = key.strip_prefix(&caches.root)?;
    // Most prefixes have one segment (`/pods`), some two (`/services/specs`). The longer one is
    // tried first, because `/services` alone is no kind.
    let mut slashes = path.match_indices('/').map(|(at, _)| at).skip(1);
    let (one, two) = (slashes.next()?, slashes.next());
    two.into_iter().chain([one]).find_map(|end| {
        let cache = caches.by_prefix.get(path.get(..end)?)?;
        Some((cache, path.get(end + 1..)?))
    })
}

/// Applies changes until the watch's revision is compacted.
async fn follow_watch(caches: &Caches, after: i64, stop: CancellationToken) {
    let mut feed = caches
        .store
        .watch_prefix(&format!("{}/", caches.root), after, stop);
    // After a relist, requests must go to the new stream: the old one is closed.
    *caches.progress_requests.lock() = Some(feed.progress_requests.clone());
    while let Some(item) = feed.next().await {
        match item {
            WatchItem::Changes(changes, revision) => {
                for change in changes {
                    apply_change(caches, change);
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
            WatchItem::Compacted => return,
        }
    }
}

fn apply_change(caches: &Caches, change: Change) {
    let (Change::Put(stored) | Change::Delete(stored)) = &change;
    let Some((cache, key)) = std::str::from_utf8(&stored.key)
        .ok()
        .and_then(|key| locate_cache(caches, key))
    else {
        return;
    };
    match &change {
        Change::Put(stored) => cache.apply_put(key, &stored.value, stored.revision),
        Change::Delete(stored) => cache.apply_delete(key, stored.revision),
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
    use apiserver_storage::{Store, StoreConfig};
    use base_task::Tasks;
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
    async fn dead_pump_stops_the_component_within_a_second() {
        let etcd = FakeEtcd::start().await;
        let resource = api_kinds::find("", "v1", "configmaps").unwrap();
        let object = serde_json::json!({"metadata": {"name": "c", "namespace": "d"}});
        let stored = apiserver_convert::encode_stored(resource, &object);
        etcd.put("/registry/configmaps/d/c", &stored);
        let (caches, tasks) = start_caches(&etcd);
        let observer = Arc::new(PanickingObserver);
        caches.observe(&GroupResource::new("", "configmaps"), observer);
        let shutdown = tasks.shutdown().cancelled();
        let stopped = tokio::time::timeout(Duration::from_secs(1), shutdown).await;
        assert!(stopped.is_ok(), "the dead pump did not stop the component");
        let failure = tasks.failure().map(|failure| failure.name);
        assert_eq!(failure, Some("watch-cache"));
    }

    #[tokio::test]
    async fn key_belongs_to_the_longest_known_prefix() {
        let etcd = FakeEtcd::start().await;
        let (caches, _tasks) = start_caches(&etcd);
        let locate = |key: &str| {
            let (cache, name) = locate_cache(&caches, key)?;
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
