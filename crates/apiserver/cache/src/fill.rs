//! The first list: fills the empty caches, and decodes pages while later ones are read.
//!
//! Invariant: the caches are not ready until the list is complete, so no client receives a part of
//! it as the whole.

use crate::caches::Caches;
use crate::retry::retry_read;
use crate::served::ServedResources;
use apiserver_storage::{Page, StoreError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::{JoinError, JoinSet};

// A page is decoded within some 20 ms. Smaller ones cost the store more than they save: etcd counts
// the rest of the range for each.
const PAGE: i64 = 1000;

/// Maximum number of pages in memory that are being decoded, whatever the number of processors.
const MAX_DECODERS: usize = 4;

/// Lists everything into the empty caches, retrying until it succeeds; returns the revision.
pub(crate) async fn fill_caches(caches: &Caches) -> i64 {
    let served = caches.served();
    let revision = retry_read(|| fill_or_clear(caches, &served)).await;
    for cache in served.iter_caches() {
        // Also for kinds without objects, so that every cache starts at the same revision.
        cache.finish_list(revision);
    }
    caches.connected.store(true, Ordering::Relaxed);
    // Must be last: a caller that waits for this revision reads a cache without further checks.
    caches.revision.send_replace(revision);
    revision
}

/// Fills the caches, or empties them after an error. The next list is at a later revision, before
/// which objects of this one may have been deleted.
async fn fill_or_clear(caches: &Caches, served: &Arc<ServedResources>) -> Result<i64, StoreError> {
    let filled = fill_once(caches, served).await;
    if filled.is_err() {
        for cache in served.iter_caches() {
            cache.replace_all(Vec::new(), 0);
        }
    }
    filled
}

async fn fill_once(caches: &Caches, served: &Arc<ServedResources>) -> Result<i64, StoreError> {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    let mut decoders = Decoders {
        running: JoinSet::new(),
        places: processors.min(MAX_DECODERS),
    };
    let read = read_pages(caches, served, &mut decoders).await;
    // Also after an error: a page of this list must not be added to the next list.
    decoders.finish().await;
    read
}

/// Reads all pages and starts their decoding; returns the revision.
async fn read_pages(
    caches: &Caches,
    served: &Arc<ServedResources>,
    decoders: &mut Decoders,
) -> Result<i64, StoreError> {
    let prefix = format!("{}/", caches.root);
    let (mut start, mut revision) = (prefix.clone(), 0);
    loop {
        decoders.wait_for_place().await;
        // The first page determines the revision. The others are read at the same one, so that the
        // list is consistent.
        let list = caches.store.list_range(&prefix, &start, PAGE, revision);
        let page = list.await?;
        if revision == 0 {
            revision = page.revision;
        }
        // The smallest key after the last one: the next page begins there.
        let mut keys = page
            .items
            .iter()
            .rev()
            .map(|item| std::str::from_utf8(&item.key));
        if let Some(last) = keys.find_map(Result::ok) {
            start = format!("{last}\0");
        }
        let more = page.more;
        let (root, served) = (caches.root.clone(), served.clone());
        decoders.start(move || insert_page(&served, &root, &page));
        if !more {
            return Ok(revision);
        }
    }
}

/// Decodes the objects of a page into their caches. Other keys are ignored.
fn insert_page(served: &ServedResources, root: &str, page: &Page) {
    for item in &page.items {
        let located = std::str::from_utf8(&item.key)
            .ok()
            .and_then(|key| key.strip_prefix(root))
            .and_then(|path| served.locate_cache(path));
        if let Some((cache, name)) = located {
            cache.insert_listed(name, &item.value, item.revision);
        }
    }
}

/// Threads that decode pages.
struct Decoders {
    running: JoinSet<()>,
    places: usize,
}

impl Decoders {
    async fn wait_for_place(&mut self) {
        while self.running.len() >= self.places {
            propagate_panic(self.running.join_next().await);
        }
    }

    fn start(&mut self, decode: impl FnOnce() + Send + 'static) {
        self.running.spawn_blocking(decode);
    }

    async fn finish(mut self) {
        while !self.running.is_empty() {
            propagate_panic(self.running.join_next().await);
        }
    }
}

/// Panics in the caller's task if a decoder has panicked: the server must not serve caches with
/// gaps.
fn propagate_panic(ended: Option<Result<(), JoinError>>) {
    if let Some(Err(error)) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}
