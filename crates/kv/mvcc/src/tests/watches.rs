//! History as watchers read it, and the hub.

use super::TestStore;
use crate::{Hub, HubHandle, HubMessage, MvccError, RevisionEvents, WatchFilter, Watcher};
use bytes::Bytes;
use std::sync::Arc;

fn watcher(key: &'static str, end: &'static str, filter: WatchFilter) -> Watcher {
    Watcher {
        key: key.into(),
        end: end.into(),
        filter,
    }
}

/// Returns the keys of each revision from `from` on.
fn history(store: &TestStore, from: i64) -> Vec<Vec<Bytes>> {
    let keys = |events: &RevisionEvents| events.iter().map(|event| event.kv.key.clone()).collect();
    let (found, next) = store.store.read_history(from, 100).unwrap();
    assert_eq!(next, store.store.current_revision() + 1);
    found.iter().map(keys).collect()
}

#[test]
fn history_has_every_revision_from_memory_and_from_the_engine() {
    let store = TestStore::new();
    store.put("a", "1");
    store.put("b", "1");
    store.delete("a", "");
    let expect = vec![vec![Bytes::from("b")], vec![Bytes::from("a")]];
    assert_eq!(history(&store, 3), expect);
    assert_eq!(history(&store.reopen(), 3), expect);
}

#[test]
fn history_before_the_compacted_revision_is_rejected() {
    let store = TestStore::new();
    for value in ["1", "2", "3"] {
        store.put("a", value);
    }
    store.compact(3).unwrap();
    assert!(store.store.read_history(3, 10).is_ok());
    let found = store.store.read_history(2, 10);
    assert!(matches!(found, Err(MvccError::Compacted)));
}

#[test]
fn event_knows_the_pair_that_it_replaced() {
    let store = TestStore::new();
    store.put("a", "1");
    store.put("a", "2");
    store.delete("a", "");
    // The former records are in memory at first, and only in the engine after a restart.
    let check = |store: &TestStore| {
        let (found, _) = store.store.read_history(2, 10).unwrap();
        let previous: Vec<_> = found
            .iter()
            .map(|events| {
                store
                    .store
                    .previous_pair(&events[0])
                    .unwrap()
                    .map(|kv| kv.value)
            })
            .collect();
        assert_eq!(previous, [None, Some("1".into()), Some("2".into())]);
    };
    check(&store);
    check(&store.reopen());
}

#[test]
fn filter_excludes_puts_or_deletions() {
    let store = TestStore::new();
    store.put("a", "1");
    store.delete("a", "");
    let (found, _) = store.store.read_history(2, 10).unwrap();
    for (no_put, no_delete, expect) in [
        (false, false, [1, 1]),
        (true, false, [0, 1]),
        (false, true, [1, 0]),
        (true, true, [0, 0]),
    ] {
        let watcher = watcher("a", "", WatchFilter { no_put, no_delete });
        let counts: Vec<_> = found
            .iter()
            .map(|events| watcher.select_events(events).len())
            .collect();
        assert_eq!(counts, expect, "no_put {no_put}, no_delete {no_delete}");
    }
}

/// Returns the watches and keys of all messages that a stream has received.
fn received(stream: &mut HubHandle) -> Vec<(Vec<i64>, Vec<Bytes>)> {
    let mut all = Vec::new();
    while let Some(message) = stream.try_next() {
        match message {
            HubMessage::Events {
                watches, events, ..
            } => all.push((
                watches,
                events.iter().map(|event| event.kv.key.clone()).collect(),
            )),
            HubMessage::Unsynced { watch, from } => panic!("watch {watch} is unsynced at {from}"),
        }
    }
    all
}

async fn send_all(hub: &Arc<Hub>) {
    tokio::select! {
        biased;
        () = hub.run() => {}
        () = async { for _ in 0..10 { tokio::task::yield_now().await } } => {}
    }
}

#[tokio::test]
async fn stream_receives_the_events_of_its_keys_only() {
    let store = TestStore::new();
    let hub = Hub::new(store.store.clone());
    let mut stream = hub.connect_stream();
    let next = store.store.current_revision() + 1;
    let all = WatchFilter::default();
    assert!(stream.add_watcher(1, &watcher("a", "", all), next));
    assert!(stream.add_watcher(2, &watcher("a", "c", all), next));
    for key in ["a", "b", "c"] {
        store.put(key, "");
    }
    send_all(&hub).await;
    let mut found = received(&mut stream);
    found
        .iter_mut()
        .for_each(|(watches, _)| watches.sort_unstable());
    assert_eq!(
        found,
        [
            (vec![1, 2], vec![Bytes::from("a")]),
            (vec![2], vec![Bytes::from("b")])
        ]
    );
    assert_eq!(stream.sent_revision(), 4);
}

#[tokio::test]
async fn watcher_that_starts_in_the_past_reads_history_first() {
    let store = TestStore::new();
    store.put("a", "1");
    let hub = Hub::new(store.store.clone());
    let stream = hub.connect_stream();
    let watcher = watcher("a", "", WatchFilter::default());
    assert!(!stream.add_watcher(1, &watcher, 2));
    assert!(stream.add_watcher(1, &watcher, 3));
}

#[tokio::test]
async fn removed_watcher_and_dropped_stream_receive_nothing() {
    let store = TestStore::new();
    let hub = Hub::new(store.store.clone());
    let (mut kept, dropped) = (hub.connect_stream(), hub.connect_stream());
    let watcher = watcher("a", "", WatchFilter::default());
    for stream in [&kept, &dropped] {
        assert!(stream.add_watcher(1, &watcher, 2));
        assert!(stream.add_watcher(2, &watcher, 2));
    }
    kept.remove_watcher(1);
    drop(dropped);
    assert_eq!((hub.sizes().streams, hub.sizes().synced), (1, 1));
    store.put("a", "1");
    send_all(&hub).await;
    assert_eq!(received(&mut kept), [(vec![2], vec![Bytes::from("a")])]);
}

#[tokio::test]
async fn transaction_arrives_as_one_message_with_all_its_events() {
    let store = TestStore::new();
    store.put("a1", "1");
    store.put("a2", "1");
    let hub = Hub::new(store.store.clone());
    let mut stream = hub.connect_stream();
    assert!(stream.add_watcher(1, &watcher("a", "b", WatchFilter::default()), 4));
    store.delete("a", "b");
    send_all(&hub).await;
    assert_eq!(
        received(&mut stream),
        [(vec![1], vec![Bytes::from("a1"), Bytes::from("a2")])]
    );
}

#[tokio::test]
async fn range_that_starts_at_the_key_receives_it_whatever_its_end() {
    const LONG_END: &[u8] = &[0xff; 100];
    let store = TestStore::new();
    let hub = Hub::new(store.store.clone());
    let mut stream = hub.connect_stream();
    for (watch, end) in [(1, b"\0" as &[u8]), (2, b"b"), (3, LONG_END)] {
        let watcher = Watcher {
            key: "a".into(),
            end: Bytes::from_static(end),
            filter: WatchFilter::default(),
        };
        assert!(stream.add_watcher(watch, &watcher, 2));
    }
    store.put("a", "1");
    send_all(&hub).await;
    let found: Vec<_> = received(&mut stream)
        .into_iter()
        .flat_map(|(watches, _)| watches)
        .collect();
    assert_eq!(found, [1, 2, 3]);
}
