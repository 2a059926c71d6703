use super::start_store;
use crate::lease::Leases;
use crate::{StoreError, StoredValue};
use bytes::Bytes;
use tonic::{Code, Status};

const VALUE: Bytes = Bytes::from_static(b"v");

#[tokio::test]
async fn create_of_an_existing_key_returns_exists() {
    let (etcd, store) = start_store().await;
    etcd.put("/a", b"old");
    let created = store.create("/a", VALUE, None).await;
    assert!(matches!(created, Err(StoreError::Exists)), "{created:?}");
    assert_eq!(etcd.get("/a").unwrap().0, b"old");
}

#[tokio::test]
async fn update_with_a_stale_revision_returns_the_current_value() {
    let (etcd, store) = start_store().await;
    let first = etcd.put("/a", b"1");
    let second = etcd.put("/a", b"2");
    let updated = store.update("/a", VALUE, first, None).await;
    let Err(StoreError::Conflict(Some(current))) = updated else {
        panic!("{updated:?}");
    };
    let expect = StoredValue {
        key: Bytes::from_static(b"/a"),
        value: Bytes::from_static(b"2"),
        revision: second,
        lease: 0,
    };
    assert_eq!(current, expect);
}

#[tokio::test]
async fn update_of_a_deleted_key_conflicts_without_a_value() {
    let (etcd, store) = start_store().await;
    let revision = etcd.put("/a", b"1");
    etcd.delete("/a");
    let updated = store.update("/a", VALUE, revision, None).await;
    assert!(matches!(updated, Err(StoreError::Conflict(None))));
    assert_eq!(etcd.get("/a"), None);
}

#[tokio::test]
async fn delete_with_a_stale_revision_keeps_the_key() {
    let (etcd, store) = start_store().await;
    let first = etcd.put("/a", b"1");
    let second = etcd.put("/a", b"2");
    let deleted = store.delete("/a", first).await;
    assert!(matches!(deleted, Err(StoreError::Conflict(Some(_)))));
    assert_eq!(store.delete("/a", second).await.unwrap(), second + 1);
    assert_eq!(etcd.get("/a"), None);
}

#[tokio::test]
async fn list_returns_pages_of_the_prefix_only() {
    let (etcd, store) = start_store().await;
    for key in ["/a/1", "/a/2", "/a/3", "/b/1"] {
        etcd.put(key, b"v");
    }
    let page = store.list_range("/a/", "/a/", 2, 0).await.unwrap();
    let keys: Vec<&[u8]> = page.items.iter().map(|item| &*item.key).collect();
    assert_eq!(keys, [b"/a/1", b"/a/2"]);
    assert_eq!((page.more, page.count), (true, 3));
    let rest = store.list_range("/a/", "/a/2\0", 2, 0).await.unwrap();
    assert_eq!((rest.items.len(), rest.more, rest.count), (1, false, 1));
}

#[tokio::test]
async fn list_at_a_past_revision_returns_the_state_of_then() {
    let (etcd, store) = start_store().await;
    let then = etcd.put("/a/1", b"old");
    etcd.put("/a/1", b"new");
    etcd.put("/a/2", b"v");
    let page = store.list_range("/a/", "/a/", 0, then).await.unwrap();
    let values: Vec<&[u8]> = page.items.iter().map(|item| &*item.value).collect();
    assert_eq!(values, [b"old"]);
}

#[tokio::test]
async fn list_outside_the_history_is_rejected() {
    let (etcd, store) = start_store().await;
    let then = etcd.put("/a/1", b"v");
    etcd.put("/a/1", b"v");
    etcd.compact(then + 1);
    let past = store.list_range("/a/", "/a/", 0, then).await;
    assert!(matches!(past, Err(StoreError::Compacted)), "{past:?}");
    let future = store.list_range("/a/", "/a/", 0, then + 100).await;
    assert!(
        matches!(future, Err(StoreError::FutureRevision)),
        "{future:?}"
    );
}

#[tokio::test]
async fn write_with_an_unknown_outcome_is_not_repeated() {
    let (etcd, store) = start_store().await;
    etcd.fail_next(Status::unavailable("connection reset"));
    let created = store.create("/a", VALUE, None).await;
    assert!(matches!(created, Err(StoreError::Unavailable(_))));
    assert_eq!(etcd.count_requests("txn"), 1);
}

#[tokio::test]
async fn request_without_a_response_ends_after_ten_seconds() {
    let (etcd, store) = start_store().await;
    // The connection is made with a running clock: a paused one would let the dial time out.
    store.read_key("/a").await.unwrap();
    etcd.stall(true);
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let read = store.read_key("/a").await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    assert_eq!(begun.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn client_connects_again_after_a_failed_request() {
    let (etcd, store) = start_store().await;
    etcd.fail_next(Status::unavailable("no leader"));
    assert!(store.read_key("/a").await.is_err());
    etcd.put("/a", b"v");
    assert_eq!(&*store.read_key("/a").await.unwrap().unwrap().value, b"v");
}

#[test]
fn grpc_codes_map_to_errors_that_the_registry_distinguishes() {
    let name = |code, text: &str| match StoreError::from(Status::new(code, text)) {
        StoreError::Compacted => "compacted",
        StoreError::FutureRevision => "future",
        StoreError::TooLarge => "too large",
        StoreError::Unavailable(_) => "unavailable",
        _ => "failed",
    };
    for (code, text, expect) in [
        (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted",
            "compacted",
        ),
        (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision is a future revision",
            "future",
        ),
        (
            Code::InvalidArgument,
            "etcdserver: request is too large",
            "too large",
        ),
        (
            Code::ResourceExhausted,
            "trying to send message larger than max",
            "too large",
        ),
        (
            Code::ResourceExhausted,
            "etcdserver: mvcc: database space exceeded",
            "failed",
        ),
        (Code::Unavailable, "etcdserver: no leader", "unavailable"),
        (Code::DeadlineExceeded, "", "unavailable"),
        (Code::Cancelled, "", "unavailable"),
        (Code::PermissionDenied, "", "failed"),
    ] {
        assert_eq!(name(code, text), expect, "{code:?} {text}");
    }
}

#[tokio::test]
async fn keys_of_the_same_ttl_share_a_lease() {
    let (etcd, store) = start_store().await;
    for key in ["/e/1", "/e/2"] {
        store.create(key, VALUE, Some(3600)).await.unwrap();
    }
    store.create("/m/1", VALUE, Some(15)).await.unwrap();
    let lease = |key| etcd.get(key).unwrap().1;
    assert_eq!(lease("/e/1"), lease("/e/2"));
    assert_ne!(lease("/e/1"), lease("/m/1"));
    assert_eq!(
        etcd.lease_ttls(),
        [3660, 16],
        "a key lives for its whole TTL, whenever it joined the lease"
    );
}

#[tokio::test]
async fn lease_is_replaced_after_a_thousand_keys() {
    let (etcd, store) = start_store().await;
    let leases = Leases::new(store.members.clone());
    for _ in 0..1000 {
        assert_eq!(leases.lease_for(3600).await.unwrap(), 1);
    }
    assert_eq!(leases.lease_for(3600).await.unwrap(), 2);
    assert_eq!(etcd.lease_ttls().len(), 2);
}

#[tokio::test]
async fn concurrent_callers_share_a_read_of_the_revision() {
    let (etcd, store) = start_store().await;
    store.current_revision().await.unwrap();
    let before = etcd.count_requests("range");
    etcd.stall(true);
    let calls = futures::future::join_all((0..50).map(|_| store.current_revision()));
    let release = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        etcd.stall(false);
    };
    let (revisions, ()) = tokio::join!(calls, release);
    assert!(revisions.into_iter().all(|revision| revision.is_ok()));
    assert!(etcd.count_requests("range") - before <= 2);
}

#[tokio::test]
async fn read_that_began_before_a_write_does_not_serve_a_later_caller() {
    let (etcd, store) = start_store().await;
    etcd.stall(true);
    let early = store.current_revision();
    let late = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let written = etcd.put("/a", b"v");
        let call = store.current_revision();
        etcd.stall(false);
        (written, call.await.unwrap())
    };
    let (early, (written, seen)) = tokio::join!(early, late);
    assert!(early.is_ok());
    assert!(seen >= written, "{seen} is older than {written}");
}

#[test]
fn prefix_end_is_the_next_prefix() {
    assert_eq!(crate::client::prefix_end("/registry/"), "/registry0");
    assert_eq!(crate::client::prefix_end("a"), "b");
    assert_eq!(
        &*crate::client::prefix_end(""),
        [0],
        "etcd's end of all keys"
    );
}
