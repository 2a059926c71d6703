use super::start_store;
use crate::{Change, Feed, WatchItem};
use std::time::Duration;
use testkit_etcd::FakeEtcd;
use tokio_util::sync::CancellationToken;

/// Starts a watch on `/a/` after the current revision, and waits until it is established.
async fn start_watch(etcd: &FakeEtcd, store: &crate::Store) -> Feed {
    let mut feed = store.watch_prefix("/a/", etcd.revision(), CancellationToken::new());
    assert!(matches!(next_item(&mut feed).await, WatchItem::Restored));
    feed
}

async fn next_item(feed: &mut Feed) -> WatchItem {
    let next = tokio::time::timeout(Duration::from_secs(60), feed.next());
    next.await.unwrap().unwrap()
}

/// Returns key, revision and whether it is a deletion, of the next changes.
async fn next_changes(feed: &mut Feed) -> Vec<(String, i64, bool)> {
    loop {
        if let WatchItem::Changes(changes, last) = next_item(feed).await {
            let all: Vec<_> = changes
                .iter()
                .map(|change| {
                    let (Change::Put(stored) | Change::Delete(stored)) = change;
                    let key = String::from_utf8(stored.key.to_vec()).unwrap();
                    (key, stored.revision, matches!(change, Change::Delete(_)))
                })
                .collect();
            assert_eq!(all.last().map(|change| change.1), Some(last));
            return all;
        }
    }
}

#[tokio::test]
async fn watch_delivers_writes_and_deletes_below_the_prefix_in_order() {
    let (etcd, store) = start_store().await;
    let mut feed = start_watch(&etcd, &store).await;
    let written = etcd.put("/a/1", b"v");
    etcd.put("/b/1", b"v");
    let deleted = etcd.delete("/a/1");
    let mut seen = next_changes(&mut feed).await;
    while seen.len() < 2 {
        seen.extend(next_changes(&mut feed).await);
    }
    let key = || "/a/1".to_owned();
    assert_eq!(seen, [(key(), written, false), (key(), deleted, true)]);
}

#[tokio::test]
async fn watch_resumes_without_a_gap_after_a_lost_connection() {
    let (etcd, store) = start_store().await;
    let mut feed = start_watch(&etcd, &store).await;
    etcd.put("/a/1", b"v");
    assert_eq!(next_changes(&mut feed).await.len(), 1);
    etcd.drop_watches();
    assert!(matches!(next_item(&mut feed).await, WatchItem::Lost(_)));
    let missed = etcd.put("/a/2", b"v");
    assert!(matches!(next_item(&mut feed).await, WatchItem::Restored));
    let expect = ("/a/2".to_owned(), missed, false);
    assert_eq!(next_changes(&mut feed).await, [expect]);
}

#[tokio::test]
async fn watch_ends_if_its_revision_is_compacted_while_it_is_disconnected() {
    let (etcd, store) = start_store().await;
    let mut feed = start_watch(&etcd, &store).await;
    etcd.put("/a/1", b"v");
    assert_eq!(next_changes(&mut feed).await.len(), 1);
    etcd.drop_watches();
    assert!(matches!(next_item(&mut feed).await, WatchItem::Lost(_)));
    for _ in 0..3 {
        etcd.put("/a/1", b"v");
    }
    etcd.compact(etcd.revision());
    while !matches!(next_item(&mut feed).await, WatchItem::Compacted) {}
    assert!(feed.next().await.is_none(), "nothing follows");
}

#[tokio::test]
async fn requested_progress_reports_a_revision_that_other_keys_caused() {
    let (etcd, store) = start_store().await;
    let mut feed = start_watch(&etcd, &store).await;
    let revision = etcd.put("/b/1", b"v");
    feed.progress.request(revision);
    let item = next_item(&mut feed).await;
    assert!(
        matches!(item, WatchItem::Progress(seen) if seen == revision),
        "{item:?}"
    );
}

/// There, a notification can come before events that it includes.
#[tokio::test]
async fn progress_is_not_requested_from_old_versions_of_etcd() {
    let (etcd, store) = start_store().await;
    etcd.set_version("3.4.23");
    let mut feed = start_watch(&etcd, &store).await;
    let other = etcd.put("/b/1", b"v");
    feed.progress.request(other);
    let changes = next_changes(&mut feed).await;
    let [(key, revision, false)] = &changes[..] else {
        panic!("{changes:?}");
    };
    assert_eq!(
        (key.as_str(), *revision),
        ("/a/ironclad.progress", other + 1)
    );
    assert_eq!(etcd.count_requests("progress"), 0);
}

#[tokio::test]
async fn stopped_watch_ends_its_feed() {
    let (etcd, store) = start_store().await;
    let stop = CancellationToken::new();
    let mut feed = store.watch_prefix("/a/", etcd.revision(), stop.clone());
    assert!(matches!(next_item(&mut feed).await, WatchItem::Restored));
    stop.cancel();
    assert!(feed.next().await.is_none());
}
