//! Several members: those that fail or hang are left.

use crate::{Change, Feed, Store, StoreConfig, StoreError, WatchItem};
use bytes::Bytes;
use std::time::{Duration, Instant};
use testkit_etcd::FakeEtcd;
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Returns two members with one key, the preferred one first, and a client of both.
async fn start_two() -> (FakeEtcd, FakeEtcd, Store) {
    let (one, other) = (FakeEtcd::start().await, FakeEtcd::start().await);
    for member in [&one, &other] {
        member.put("/a/1", b"v");
    }
    let config = StoreConfig {
        servers: vec![one.url().to_owned(), other.url().to_owned()],
        ..StoreConfig::default()
    };
    let store = Store::new(&config).unwrap();
    store.read_key("/a/1").await.unwrap();
    match one.count_requests("range") {
        0 => (other, one, store),
        _ => (one, other, store),
    }
}

#[tokio::test]
async fn calls_go_to_one_member_until_it_fails() {
    let (first, second, store) = start_two().await;
    for _ in 0..5 {
        store.read_key("/a/1").await.unwrap();
    }
    assert_eq!(second.count_requests("range"), 0);
    first.fail_next(Status::unavailable("no leader"));
    // A read is repeated, a write is not.
    assert!(store.read_key("/a/1").await.unwrap().is_some());
    assert_eq!(second.count_requests("range"), 1);
    second.fail_next(Status::unavailable("no leader"));
    let written = store.create("/a/2", Bytes::from_static(b"v"), None).await;
    assert!(matches!(written, Err(StoreError::Unavailable(_))));
    assert_eq!(
        (first.count_requests("txn"), second.count_requests("txn")),
        (0, 1)
    );
    store
        .create("/a/2", Bytes::from_static(b"v"), None)
        .await
        .unwrap();
    assert!(first.get("/a/2").is_some());
}

#[tokio::test]
async fn error_of_a_request_is_not_that_of_its_member() {
    let (first, second, store) = start_two().await;
    first.fail_next(Status::out_of_range("required revision has been compacted"));
    let read = store.read_key("/a/1").await;
    assert!(matches!(read, Err(StoreError::Compacted)), "{read:?}");
    store.read_key("/a/1").await.unwrap();
    assert_eq!(second.count_requests("range"), 0);
}

#[tokio::test]
async fn read_at_a_member_that_hangs_is_answered_by_the_next_one() {
    let (first, second, store) = start_two().await;
    first.stall(true);
    let begun = Instant::now();
    let (read, revision) = tokio::join!(store.read_key("/a/1"), store.current_revision());
    assert!(read.unwrap().is_some() && revision.is_ok());
    let elapsed = begun.elapsed();
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
    // Those that follow do not wait.
    let before = second.count_requests("txn");
    store
        .create("/a/2", Bytes::from_static(b"v"), None)
        .await
        .unwrap();
    assert_eq!(second.count_requests("txn"), before + 1);
}

/// The first one was silent shortly before, so it is not preferred again. It is asked nevertheless.
#[tokio::test]
async fn read_reaches_a_member_that_has_recovered() {
    let (first, second, store) = start_two().await;
    first.stall(true);
    store.read_key("/a/1").await.unwrap();
    first.stall(false);
    second.stall(true);
    let before = second.count_requests("range");
    assert!(store.read_key("/a/1").await.unwrap().is_some());
    assert!(store.read_key("/a/1").await.unwrap().is_some());
    // The other read does not wait for the second one again.
    assert_eq!(second.count_requests("range"), before + 1);
}

#[tokio::test]
async fn read_fails_if_no_member_responds() {
    let (first, second, store) = start_two().await;
    // The connections are made with a running clock: a paused one would let the dial time out.
    first.fail_next(Status::unavailable("no leader"));
    store.read_key("/a/1").await.unwrap();
    first.stall(true);
    second.stall(true);
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let read = store.read_key("/a/1").await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    let elapsed = begun.elapsed().as_secs();
    assert!((10..=14).contains(&elapsed), "{elapsed} s");
}

async fn next_item(feed: &mut Feed) -> WatchItem {
    let next = tokio::time::timeout(Duration::from_secs(60), feed.next());
    next.await.unwrap().unwrap()
}

/// A reader would otherwise wait for a response that never comes: nothing is written below the
/// prefix.
#[tokio::test]
async fn progress_request_is_repeated_at_the_next_member() {
    let (first, second, store) = start_two().await;
    let mut feed = store.watch_prefix("/a/", first.revision(), CancellationToken::new());
    assert!(matches!(next_item(&mut feed).await, WatchItem::Restored));
    first.stall_watches(true);
    let written = second.put("/b/1", b"v");
    let progress = feed.progress.clone();
    let begun = Instant::now();
    let ask = async {
        // More of them do not give the member more time.
        while begun.elapsed() < Duration::from_secs(3) {
            progress.request(written);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        std::future::pending().await
    };
    let follow = async {
        loop {
            match next_item(&mut feed).await {
                WatchItem::Progress(revision) => return revision,
                WatchItem::Changes(_, revision) if revision > written => return revision,
                _ => {}
            }
        }
    };
    let revision = tokio::select! {
        revision = follow => revision,
        () = ask => 0,
    };
    assert!(revision >= written, "{revision}");
    let elapsed = begun.elapsed();
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
}

/// Only reads that need the current state ask for progress, so they find a watch that hangs.
#[tokio::test]
async fn watch_at_a_member_that_hangs_moves_to_the_next_one() {
    let (first, second, store) = start_two().await;
    let mut feed = store.watch_prefix("/a/", first.revision(), CancellationToken::new());
    assert!(matches!(next_item(&mut feed).await, WatchItem::Restored));
    first.stall_watches(true);
    let written = second.put("/a/3", b"v");
    feed.progress.request(written);
    let lost = next_item(&mut feed).await;
    assert!(
        matches!(&lost, WatchItem::Lost(why) if why.contains("stays behind")),
        "{lost:?}"
    );
    assert!(matches!(next_item(&mut feed).await, WatchItem::Restored));
    let item = next_item(&mut feed).await;
    let WatchItem::Changes(changes, revision) = &item else {
        panic!("{item:?}");
    };
    assert!(matches!(&changes[..], [Change::Put(put)] if &*put.key == b"/a/3"));
    assert_eq!(*revision, written);
}
