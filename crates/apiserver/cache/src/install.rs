//! An installation in progress: lists the new prefixes while the reader continues.
//!
//! The list is at a revision of the store that the caches may not have reached. Changes of the new
//! prefixes are buffered meanwhile, and the set is published when the caches have reached that
//! revision, so that no change is lost or applied twice.

use crate::changes::Batch;
use crate::kind::StoredKind;
use crate::resource::ResourceCache;
use crate::served::{ServedResources, split_key};
use api_kinds::Name;
use apiserver_storage::{Change, Store, StoreError};
use futures::stream::{self, StreamExt};
use std::collections::{BTreeMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

// Decoded between two changes of other resources, so that a page must not take long.
const PAGE: i64 = 500;
/// Concurrent lists.
const LISTS: usize = 16;
const RETRY: Duration = Duration::from_millis(200);

type Filled = BTreeMap<Name, Arc<ResourceCache>>;

/// The caches of the new prefixes at one revision.
struct Listing {
    caches: Filled,
    revision: i64,
}

enum Progress {
    Reading(Pin<Box<dyn Future<Output = Listing> + Send>>),
    Read(Listing),
}

/// A batch whose new prefixes are being listed.
pub(crate) struct Installation {
    batch: Batch,
    prefixes: HashSet<Name>,
    buffered: Vec<Change>,
    progress: Progress,
}

impl Installation {
    /// Begins to list the prefixes that have no cache in the set.
    pub(crate) fn begin(batch: Batch, set: &ServedResources, store: Store, root: &str) -> Self {
        let kinds = batch.list_new_kinds(set);
        let prefixes = kinds.iter().map(|kind| kind.prefix.clone()).collect();
        let reading = list_kinds(store, root.to_owned(), kinds);
        Installation {
            batch,
            prefixes,
            buffered: Vec::new(),
            progress: Progress::Reading(Box::pin(reading)),
        }
    }

    /// Keeps a change of a prefix that is being listed; `path` is its key below the server's
    /// prefix.
    pub(crate) fn buffer_change(&mut self, path: &str, change: Change) {
        if split_key(path, |prefix| self.prefixes.contains(prefix)).is_some() {
            self.buffered.push(change);
        }
    }

    /// Waits for the list; returns its revision.
    pub(crate) async fn finish_reading(&mut self) -> i64 {
        match &mut self.progress {
            Progress::Reading(reading) => {
                let listing = reading.await;
                let revision = listing.revision;
                self.progress = Progress::Read(listing);
                revision
            }
            Progress::Read(listing) => listing.revision,
        }
    }

    /// Returns whether the list is there.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.progress, Progress::Read(_))
    }

    /// Returns whether the list is there and not newer than the caches.
    pub(crate) fn is_complete(&self, revision: i64) -> bool {
        matches!(&self.progress, Progress::Read(listing) if listing.revision <= revision)
    }

    /// Returns the batch and its filled caches.
    pub(crate) fn into_filled(self, root: &str) -> (Batch, Filled) {
        let Progress::Read(listing) = self.progress else {
            return (self.batch, Filled::new());
        };
        for change in &self.buffered {
            let (Change::Put(stored) | Change::Delete(stored)) = change;
            // The list has the older ones.
            if stored.revision <= listing.revision {
                continue;
            }
            let located = std::str::from_utf8(&stored.key)
                .ok()
                .and_then(|key| key.strip_prefix(root))
                .and_then(|path| split_key(path, |prefix| listing.caches.contains_key(prefix)));
            if let Some((prefix, name)) = located
                && let Some(cache) = listing.caches.get(prefix)
            {
                cache.apply_change(name, change);
            }
        }
        (self.batch, listing.caches)
    }

    /// Returns the batch, to be executed by other means.
    pub(crate) fn into_batch(self) -> Batch {
        self.batch
    }
}

async fn list_kinds(store: Store, root: String, kinds: Vec<StoredKind>) -> Listing {
    loop {
        match list_once(&store, &root, &kinds).await {
            Ok(listing) => return listing,
            Err(e) => {
                tracing::warn!(error = %e, "custom resources can't be listed yet; trying again");
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn list_once(store: &Store, root: &str, kinds: &[StoredKind]) -> Result<Listing, StoreError> {
    let mut listing = Listing {
        caches: Filled::new(),
        revision: 0,
    };
    let Some((first, others)) = kinds.split_first() else {
        return Ok(listing);
    };
    // The first list picks the revision for all prefixes.
    let (cache, revision) = list_kind(store, root, first, 0).await?;
    listing.revision = revision;
    listing.caches.insert(first.prefix.clone(), cache);
    // A server with hundreds of definitions waits for this at its start.
    let lists: Vec<_> = others
        .iter()
        .map(|kind| list_kind(store, root, kind, revision))
        .collect();
    let mut lists = stream::iter(lists).buffered(LISTS);
    let mut kinds = others.iter();
    while let (Some(list), Some(kind)) = (lists.next().await, kinds.next()) {
        listing.caches.insert(kind.prefix.clone(), list?.0);
    }
    drop(lists);
    for cache in listing.caches.values() {
        cache.finish_list(listing.revision);
    }
    Ok(listing)
}

/// Lists one prefix at a revision, or at the current one for 0. Returns the revision.
async fn list_kind(
    store: &Store,
    root: &str,
    kind: &StoredKind,
    mut revision: i64,
) -> Result<(Arc<ResourceCache>, i64), StoreError> {
    let cache = ResourceCache::new(kind.clone());
    let prefix = format!("{root}{}/", kind.prefix);
    let mut start = prefix.clone();
    loop {
        let page = store.list_range(&prefix, &start, PAGE, revision).await?;
        if revision == 0 {
            revision = page.revision;
        }
        for item in page.items {
            let Ok(key) = std::str::from_utf8(&item.key) else {
                continue;
            };
            // The smallest key after this one: the next page begins there.
            start = format!("{key}\0");
            if let Some(name) = key.strip_prefix(&prefix) {
                cache.insert_listed(name, &item.value, item.revision);
            }
        }
        if !page.more {
            return Ok((Arc::new(cache), revision));
        }
    }
}
