//! Compaction: which revisions remain readable, and for whom.

use super::TestStore;
use crate::MvccError;
use kv_engine::Table;
use proto_etcd::etcdserverpb::RangeRequest;

fn records(store: &TestStore) -> usize {
    let mut count = 0;
    store
        .engine
        .scan_rows(Table::Revisions, b"", None, &mut |_, _| {
            count += 1;
            true
        })
        .unwrap();
    count
}

#[tokio::test]
async fn newest_revision_of_each_key_survives() {
    let store = TestStore::new();
    for value in ["1", "2", "3"] {
        store.put("a", value);
    }
    store.put("b", "1");
    store.compact(4).unwrap();
    store.reclaim(4).await;
    assert_eq!(records(&store), 2, "revision 4 of a, and b");
    assert_eq!(store.get("a", 4).unwrap().value, "3");
    assert_eq!(store.get("a", 0).unwrap().version, 3);
}

#[test]
fn compacted_revision_itself_stays_readable() {
    let store = TestStore::new();
    for value in ["1", "2", "3"] {
        store.put("a", value);
    }
    store.compact(3).unwrap();
    assert_eq!(store.get("a", 3).unwrap().value, "2");
    let request = RangeRequest {
        key: "a".into(),
        revision: 2,
        ..RangeRequest::default()
    };
    let found = store.range(&request);
    assert!(matches!(found, Err(MvccError::Compacted)), "{found:?}");
}

#[test]
fn compaction_goes_forward_and_not_beyond_the_present() {
    let store = TestStore::new();
    for value in ["1", "2", "3"] {
        store.put("a", value);
    }
    for (revision, expect) in [
        (5, Err("required revision is a future revision")),
        (3, Ok(())),
        (3, Err("required revision has been compacted")),
        (2, Err("required revision has been compacted")),
        (4, Ok(())),
    ] {
        let done = store.compact(revision).map_err(|error| error.to_string());
        assert_eq!(done, expect.map_err(str::to_owned), "revision {revision}");
    }
}

#[tokio::test]
async fn tombstone_goes_with_a_later_compaction_only() {
    let store = TestStore::new();
    store.put("a", "1");
    store.delete("a", "");
    store.put("b", "1");
    store.compact(3).unwrap();
    store.reclaim(3).await;
    assert_eq!(records(&store), 2, "a watch may start at the tombstone");
    store.compact(4).unwrap();
    store.reclaim(4).await;
    assert_eq!(records(&store), 1);
}

#[tokio::test]
async fn pin_keeps_compacted_records_until_it_is_dropped() {
    let store = TestStore::new();
    store.put("a", "1");
    store.put("a", "2");
    let pin = store.store.pin_history();
    store.compact(3).unwrap();
    let time_to_reclaim = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        ended = store.store.run_compactor() => panic!("{ended:?}"),
        () = time_to_reclaim => {}
    }
    assert_eq!(records(&store), 2);
    drop(pin);
    store.reclaim(3).await;
    assert_eq!(records(&store), 1);
}

#[tokio::test]
async fn interrupted_compaction_continues_after_a_restart() {
    let store = TestStore::new();
    store.put("a", "1");
    store.put("a", "2");
    store.compact(3).unwrap();
    let store = store.reopen();
    assert_eq!(store.store.compacted_revision(), 3);
    store.reclaim(3).await;
    assert_eq!(records(&store), 1);
}

#[tokio::test]
async fn data_size_shrinks_with_the_deleted_records() {
    let store = TestStore::new();
    for value in ["1", "2", "3"] {
        store.put("a", value);
    }
    let before = store.store.records_size();
    store.compact(4).unwrap();
    assert_eq!(store.store.records_size(), before, "nothing is deleted yet");
    store.reclaim(4).await;
    assert_eq!(store.store.records_size(), before / 3);
    let after = store.store.records_size();
    assert_eq!(store.reopen().store.records_size(), after);
}
