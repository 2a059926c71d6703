//! Subscriptions: backlog, selectors, slow watchers.

use super::{config_map, new_cache, put, selection};
use crate::{Delivery, EventType, FrameFormat, Selection};
use api_meta::fields::FieldSelector;
use serde_json::json;
use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;

fn describe(delivery: &Delivery) -> (EventType, String, i64) {
    let entry = &delivery.entry;
    (delivery.event, entry.name().to_owned(), entry.revision)
}

fn drain(changes: &mut Receiver<Delivery>) -> Vec<(EventType, String, i64)> {
    std::iter::from_fn(|| changes.try_recv().ok())
        .map(|delivery| describe(&delivery))
        .collect()
}

#[test]
fn watch_without_a_revision_begins_with_the_existing_objects() {
    let cache = new_cache("configmaps");
    put(&cache, "d/b", json!({}), 11);
    put(&cache, "d/a", json!({}), 12);
    put(&cache, "e/c", json!({}), 13);
    let mut subscription = cache.subscribe_from_now(selection("d", "", ""), 20);
    let backlog: Vec<_> = subscription.backlog.iter().map(describe).collect();
    let added = |name: &str, revision| (EventType::Added, name.to_owned(), revision);
    assert_eq!(backlog, [added("a", 12), added("b", 11)]);
    assert_eq!(subscription.revision, 20);
    put(&cache, "d/n", json!({}), 21);
    assert_eq!(drain(&mut subscription.changes), [added("n", 21)]);
}

#[test]
fn watch_from_a_revision_begins_with_the_changes_after_it() {
    let cache = new_cache("configmaps");
    for (revision, name) in [(11, "d/a"), (12, "d/b"), (13, "d/a")] {
        put(&cache, name, json!({}), revision);
    }
    let subscription = cache.subscribe_after(Selection::default(), 11).unwrap();
    let backlog: Vec<_> = subscription.backlog.iter().map(describe).collect();
    let expect = [
        (EventType::Added, "b".to_owned(), 12),
        (EventType::Modified, "a".to_owned(), 13),
    ];
    assert_eq!(backlog, expect);
    assert_eq!(subscription.revision, 13);
}

#[test]
fn watch_from_before_the_history_returns_the_oldest_revision() {
    let cache = new_cache("configmaps");
    cache.replace_all(Vec::new(), 100);
    put(&cache, "d/a", json!({}), 101);
    let too_old = cache.subscribe_after(Selection::default(), 99);
    assert_eq!(too_old.err(), Some(100));
    assert!(cache.subscribe_after(Selection::default(), 100).is_ok());
}

#[test]
fn object_that_begins_to_match_a_selector_is_added() {
    let cache = new_cache("configmaps");
    put(&cache, "d/a", json!({"app": "x"}), 11);
    let mut watch = cache.subscribe_from_now(selection("", "app=web", ""), 11);
    assert!(watch.backlog.is_empty());
    put(&cache, "d/a", json!({"app": "web"}), 12);
    put(&cache, "d/a", json!({"app": "web", "more": "y"}), 13);
    let expect = [
        (EventType::Added, "a".to_owned(), 12),
        (EventType::Modified, "a".to_owned(), 13),
    ];
    assert_eq!(drain(&mut watch.changes), expect);
}

#[test]
fn object_that_ceases_to_match_is_deleted_with_its_last_matching_state() {
    let cache = new_cache("configmaps");
    put(&cache, "d/a", json!({"app": "web"}), 11);
    let mut watch = cache.subscribe_from_now(selection("", "app=web", ""), 11);
    put(&cache, "d/a", json!({"app": "x"}), 12);
    put(&cache, "d/a", json!({"app": "y"}), 13);
    let delivery = watch.changes.try_recv().unwrap();
    assert_eq!(describe(&delivery), (EventType::Deleted, "a".into(), 12));
    assert_eq!(delivery.entry.label("app"), Some("web"));
    let tree = delivery.entry.decode_tree().unwrap();
    assert_eq!(
        tree["metadata"]["resourceVersion"], "12",
        "a client resumes from the revision of the event"
    );
    assert!(drain(&mut watch.changes).is_empty());
}

#[test]
fn field_selector_limits_a_watch_to_one_name() {
    let cache = new_cache("configmaps");
    let mut watch = cache.subscribe_from_now(selection("d", "", "metadata.name=a"), 10);
    for (revision, key) in [(11, "d/b"), (12, "e/a"), (13, "d/a")] {
        put(&cache, key, json!({}), revision);
    }
    let expect = [(EventType::Added, "a".to_owned(), 13)];
    assert_eq!(drain(&mut watch.changes), expect);
}

#[test]
fn change_is_judged_by_the_converted_states() {
    let cache = new_cache("configmaps");
    let selected = |name: &str| Selection {
        converted_fields: FieldSelector::parse(&format!("metadata.name={name}")).unwrap(),
        ..Selection::default()
    };
    let mut watch = cache.subscribe_from_now(selected("a"), 10);
    for (revision, key) in [(11, "d/a"), (12, "d/a"), (13, "d/b")] {
        put(&cache, key, json!({}), revision);
    }
    cache.apply_delete("d/a", 14);
    // The cache delivers each change: only the reader can convert the object.
    let all: Vec<Delivery> = std::iter::from_fn(|| watch.changes.try_recv().ok()).collect();
    assert_eq!(all.len(), 4);
    let (a, b) = (all[0].entry.clone(), all[2].entry.clone());
    let (added, modified, deleted) = (EventType::Added, EventType::Modified, EventType::Deleted);
    for (event, entry, previous, expect) in [
        (added, &a, None, Some((added, "a", 11))),
        (added, &b, None, None),
        (modified, &a, Some(&a), Some((modified, "a", 11))),
        (modified, &a, Some(&b), Some((added, "a", 11))),
        (modified, &b, Some(&a), Some((deleted, "a", 13))),
        (modified, &b, Some(&b), None),
        (deleted, &a, None, Some((deleted, "a", 11))),
        (deleted, &b, None, None),
    ] {
        let delivery = Delivery {
            event,
            entry: entry.clone(),
            previous: previous.cloned(),
            frames: None,
        };
        let case = format!("{delivery:?}");
        let seen = delivery.select_converted(&selected("a"));
        let expect = expect.map(|(event, name, revision)| (event, name.to_owned(), revision));
        assert_eq!(seen.as_ref().map(describe), expect, "{case}");
    }
    assert!(all[1].previous.is_some(), "the state before the change");
}

#[test]
fn deleted_event_carries_the_revision_of_the_deletion() {
    let cache = new_cache("configmaps");
    put(&cache, "d/a", json!({}), 11);
    let mut watch = cache.subscribe_from_now(Selection::default(), 11);
    cache.apply_delete("d/a", 15);
    cache.apply_delete("d/a", 16);
    let expect = [(EventType::Deleted, "a".to_owned(), 15)];
    assert_eq!(drain(&mut watch.changes), expect);
}

#[test]
fn frame_of_an_event_is_encoded_once_for_all_watchers() {
    let cache = new_cache("configmaps");
    let mut watches = [
        selection("d", "", ""),
        selection("", "", ""),
        selection("", "app=x", ""),
    ]
    .map(|selection| cache.subscribe_from_now(selection, 10));
    let mut encoded = 0;
    for (revision, app) in [(11, "x"), (12, "x"), (13, "y")] {
        put(&cache, "d/a", json!({"app": app}), revision);
        for watch in &mut watches {
            let delivery = watch.changes.try_recv().unwrap();
            let frames = delivery.frames.as_ref().unwrap();
            let text = format!("{:?} {revision}", delivery.event);
            let frame = frames.get_or_encode::<()>(delivery.event, FrameFormat::Json, || {
                encoded += 1;
                Ok(text.clone().into())
            });
            assert_eq!(frame.unwrap(), text);
        }
    }
    assert_eq!(
        encoded, 4,
        "the last change is DELETED to the third watcher"
    );
}

#[test]
fn closed_watchers_are_removed_without_events() {
    let cache = new_cache("configmaps");
    let open = cache.subscribe_from_now(selection("d", "app=x", ""), 10);
    for number in 0..10_000 {
        let selection = selection("d", &format!("id={number}"), "");
        drop(cache.subscribe_from_now(selection, 10));
    }
    assert!(cache.watcher_count() < 200, "{}", cache.watcher_count());
    assert!(!open.changes.is_closed());
}

#[test]
fn slow_watcher_is_closed_and_others_go_on() {
    let cache = new_cache("configmaps");
    let mut slow = cache.subscribe_from_now(Selection::default(), 0);
    let mut quick = cache.subscribe_from_now(Selection::default(), 0);
    let mut unaffected = cache.subscribe_from_now(selection("other", "", ""), 0);
    for revision in 1..=1100 {
        put(&cache, "d/a", json!({}), revision);
        assert!(quick.changes.try_recv().is_ok());
    }
    assert_eq!(drain(&mut slow.changes).len(), 1024, "what was queued");
    assert_eq!(
        slow.changes.try_recv().err(),
        Some(TryRecvError::Disconnected),
        "a gap must end the watch"
    );
    assert_eq!(quick.changes.try_recv().err(), Some(TryRecvError::Empty));
    let idle = unaffected.changes.try_recv().err();
    assert_eq!(idle, Some(TryRecvError::Empty));
}

#[test]
fn relist_closes_watchers() {
    let cache = new_cache("configmaps");
    let mut watch = cache.subscribe_from_now(Selection::default(), 0);
    let listed = ("d/a".to_owned(), config_map("d/a", json!({})).into(), 50);
    cache.replace_all(vec![listed], 60);
    let closed = watch.changes.try_recv().err();
    assert_eq!(closed, Some(TryRecvError::Disconnected));
    assert_eq!(
        cache.subscribe_after(Selection::default(), 59).err(),
        Some(60),
        "changes before the list are unknown"
    );
}
