//! Feeds the caches: one list of everything, then one watch on everything.

use crate::caches::Caches;
use crate::resource::ResourceCache;
use apiserver_storage::{Change, StoreError, WatchItem};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const PAGE: i64 = 2000;
const RETRY: Duration = Duration::from_millis(200);

type Found = HashMap<&'static str, Vec<(String, Bytes, i64)>>;

pub(crate) async fn run(caches: Arc<Caches>, stop: CancellationToken) {
    let work = async {
        loop {
            let revision = load(&caches).await;
            follow(&caches, revision, stop.clone()).await;
            tracing::warn!("the store's history was compacted away; all objects are read again");
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Reads everything, as often as it takes; returns the revision.
async fn load(caches: &Caches) -> i64 {
    let mut told = false;
    loop {
        match read_all(caches).await {
            Ok((mut found, revision)) => {
                for (prefix, cache) in &caches.by_prefix {
                    cache.replace(found.remove(prefix).unwrap_or_default(), revision);
                }
                caches.connected.store(true, Ordering::Relaxed);
                caches.revision.send_replace(revision);
                return revision;
            }
            Err(e) if !told => {
                told = true;
                tracing::warn!(error = %e, "the store can't be read yet; trying again");
            }
            Err(e) => tracing::debug!(error = %e, "the store can't be read yet"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn read_all(caches: &Caches) -> Result<(Found, i64), StoreError> {
    let prefix = format!("{}/", caches.root);
    let (mut found, mut start, mut revision) = (Found::new(), prefix.clone(), 0);
    loop {
        let page = caches.store.list(&prefix, &start, PAGE, revision).await?;
        revision = if revision == 0 { page.revision } else { revision };
        for item in page.items {
            let Ok(key) = std::str::from_utf8(&item.key) else { continue };
            start = format!("{key}\0");
            if let Some((cache, name)) = locate(caches, key) {
                let name = name.to_owned();
                found.entry(cache.kind().prefix).or_default().push((name, item.value, item.revision));
            }
        }
        if !page.more {
            return Ok((found, revision));
        }
    }
}

/// The cache of a key, and the key within it.
fn locate<'a, 'k>(caches: &'a Caches, key: &'k str) -> Option<(&'a Arc<ResourceCache>, &'k str)> {
    let path = key.strip_prefix(&caches.root)?;
    let mut slashes = path.match_indices('/').map(|(at, _)| at).skip(1);
    let (one, two) = (slashes.next()?, slashes.next());
    two.into_iter().chain([one]).find_map(|end| {
        let cache = caches.by_prefix.get(path.get(..end)?)?;
        Some((cache, path.get(end + 1..)?))
    })
}

/// Applies changes until history is lost.
async fn follow(caches: &Caches, after: i64, stop: CancellationToken) {
    let mut feed = caches.store.watch(&format!("{}/", caches.root), after, stop);
    *caches.ask_progress.lock() = Some(feed.ask_progress.clone());
    while let Some(item) = feed.items.recv().await {
        match item {
            WatchItem::Changes(changes, revision) => {
                for change in changes {
                    apply(caches, change);
                }
                advance(caches, revision);
            }
            WatchItem::Progress(revision) => advance(caches, revision),
            WatchItem::Lost(why) => {
                caches.connected.store(false, Ordering::Relaxed);
                tracing::warn!(why, "the store's watch is lost; connecting again");
            }
            WatchItem::Restored => caches.connected.store(true, Ordering::Relaxed),
            WatchItem::Compacted => return,
        }
    }
}

fn apply(caches: &Caches, change: Change) {
    let (Change::Put(stored) | Change::Delete(stored)) = &change;
    let Some((cache, key)) = std::str::from_utf8(&stored.key).ok().and_then(|key| locate(caches, key)) else { return };
    match &change {
        Change::Put(stored) => cache.put(key, &stored.value, stored.revision),
        Change::Delete(stored) => cache.remove(key, stored.revision),
    }
}

fn advance(caches: &Caches, revision: i64) {
    caches.revision.send_if_modified(|current| {
        let newer = revision > *current;
        *current = revision.max(*current);
        newer
    });
}
