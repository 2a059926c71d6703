//! All caches against an etcd in memory.

use super::{config_map, selection};
use crate::{CacheError, Caches};
use api_meta::Meta;
use apiserver_request::{GroupResource, ObjectEvent, Objects, Observer};
use apiserver_storage::{Store, StoreConfig};
use base_task::{CancellationToken, Tasks};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use testkit_etcd::FakeEtcd;
use tonic::Status;

const KEY: &str = "/registry/configmaps/d/a";

/// Starts the caches of an etcd.
fn start_caches(etcd: &FakeEtcd) -> (Arc<Caches>, Tasks) {
    let store = Store::new(&StoreConfig {
        servers: vec![etcd.url().to_owned()],
        ..StoreConfig::default()
    });
    let tasks = Tasks::new(CancellationToken::new());
    (Caches::start(store.unwrap(), "/registry", &tasks), tasks)
}

/// Waits until the condition holds, for at most a minute.
async fn eventually(condition: impl Fn() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), poll)
        .await
        .unwrap();
}

fn cached_labels(caches: &Caches) -> String {
    let cached = caches.cached_object(&GroupResource::new("", "configmaps"), "d", "a");
    cached.map_or_else(String::new, |object| {
        object.label("v").unwrap_or_default().to_owned()
    })
}

/// Knows the names that the events of an observed resource leave, and calls a hook once.
#[derive(Default)]
struct NameRecorder {
    names: Mutex<BTreeSet<String>>,
    at_first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Observer for NameRecorder {
    fn object_changed(&self, _: &GroupResource, event: &ObjectEvent) {
        if let Some(hook) = self.at_first.lock().take() {
            hook();
        }
        let mut names = self.names.lock();
        match event {
            ObjectEvent::Applied(object) => names.insert(object.name().to_owned()),
            ObjectEvent::Deleted(object) => names.remove(object.name()),
        };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observers_know_the_objects_of_the_list_that_succeeds() {
    let etcd = Arc::new(FakeEtcd::start().await);
    // More pages than are decoded at once, so that a page is read after the first notification.
    for number in 0..7000 {
        let key = format!("d/c{number:04}");
        let path = format!("/registry/configmaps/{key}");
        etcd.put(&path, &config_map(&key, json!({})));
    }
    let recorder = Arc::new(NameRecorder::default());
    let changing = etcd.clone();
    *recorder.at_first.lock() = Some(Box::new(move || {
        // Only the first list has this object.
        changing.delete("/registry/configmaps/d/c0000");
        changing.fail_next(Status::unavailable("no leader"));
    }));
    etcd.stall(true);
    let (caches, _tasks) = start_caches(&etcd);
    let resource = GroupResource::new("", "configmaps");
    caches.observe(&resource, recorder.clone());
    etcd.stall(false);
    caches.wait_ready().await;
    assert!(caches.revision() >= etcd.revision(), "no second list");
    let cache = caches.find_cache("", "configmaps").unwrap();
    let expect: BTreeSet<String> = (1..7000).map(|number| format!("c{number:04}")).collect();
    assert_eq!(cache.len(), expect.len());
    assert!(*recorder.names.lock() == expect);
}

#[tokio::test]
async fn caches_are_ready_after_the_first_list() {
    let etcd = FakeEtcd::start().await;
    for name in 0..2100 {
        let key = format!("d/c{name}");
        etcd.put(
            &format!("/registry/configmaps/{key}"),
            &config_map(&key, json!({})),
        );
    }
    let (caches, _tasks) = start_caches(&etcd);
    assert!(!caches.is_ready());
    caches.wait_ready().await;
    assert_eq!(caches.revision(), etcd.revision());
    let cache = caches.find_cache("", "configmaps").unwrap();
    assert_eq!(cache.len(), 2100, "more than one page");
    assert!(caches.find_cache("", "pods").unwrap().is_empty());
}

#[tokio::test]
async fn first_list_is_repeated_until_the_store_responds() {
    let etcd = FakeEtcd::start().await;
    etcd.put(KEY, &config_map("d/a", json!({"v": "1"})));
    for _ in 0..3 {
        etcd.fail_next(Status::unavailable("no leader"));
    }
    let (caches, tasks) = start_caches(&etcd);
    caches.wait_ready().await;
    assert_eq!(cached_labels(&caches), "1");
    assert!(tasks.failure().is_none());
}

#[tokio::test]
async fn read_after_a_write_waits_for_the_write() {
    let etcd = FakeEtcd::start().await;
    let (caches, _tasks) = start_caches(&etcd);
    caches.wait_ready().await;
    for value in 0..20 {
        let labels = json!({"v": value.to_string()});
        let revision = etcd.put(KEY, &config_map("d/a", labels));
        assert!(caches.wait_for_current().await.unwrap() >= revision);
        assert_eq!(cached_labels(&caches), value.to_string());
    }
}

#[tokio::test]
async fn revision_caused_by_other_keys_is_reached_by_requesting_progress() {
    let etcd = FakeEtcd::start().await;
    let (caches, _tasks) = start_caches(&etcd);
    caches.wait_ready().await;
    eventually(|| etcd.count_requests("watch") > 0).await;
    let revision = etcd.put("compact_rev_key", b"1");
    assert!(caches.wait_for(revision).await.unwrap() >= revision);
}

#[tokio::test]
async fn revision_of_the_future_is_too_new() {
    let etcd = FakeEtcd::start().await;
    let (caches, _tasks) = start_caches(&etcd);
    caches.wait_ready().await;
    let current = etcd.revision();
    let too_new = caches.wait_for(current + 1000).await;
    assert!(
        matches!(too_new, Err(CacheError::TooNew { wanted, current: seen })
            if wanted == current + 1000 && seen == current),
        "{too_new:?}"
    );
}

#[tokio::test]
async fn caches_catch_up_after_a_lost_connection() {
    let etcd = FakeEtcd::start().await;
    let (caches, _tasks) = start_caches(&etcd);
    caches.wait_ready().await;
    eventually(|| etcd.count_requests("watch") == 1).await;
    let cache = caches.find_cache("", "configmaps").unwrap();
    let watch = cache.subscribe_from_now(selection("", "", ""), 0);
    etcd.drop_watches();
    etcd.put(KEY, &config_map("d/a", json!({"v": "1"})));
    eventually(|| cached_labels(&caches) == "1").await;
    eventually(|| etcd.count_requests("watch") == 2 && caches.is_connected()).await;
    assert!(!watch.changes.is_closed(), "clients notice nothing");
    assert_eq!(watch.changes.len(), 1);
}

#[tokio::test]
async fn caches_list_again_if_the_history_was_compacted_meanwhile() {
    let etcd = FakeEtcd::start().await;
    etcd.put(
        "/registry/configmaps/d/gone",
        &config_map("d/gone", json!({})),
    );
    let (caches, _tasks) = start_caches(&etcd);
    caches.wait_ready().await;
    eventually(|| etcd.count_requests("watch") == 1).await;
    let cache = caches.find_cache("", "configmaps").unwrap();
    let watch = cache.subscribe_from_now(selection("", "", ""), 0);
    etcd.drop_watches();
    etcd.delete("/registry/configmaps/d/gone");
    etcd.put(KEY, &config_map("d/a", json!({"v": "1"})));
    etcd.compact(etcd.revision());
    eventually(|| cached_labels(&caches) == "1").await;
    assert!(cache.get("d/gone").is_none());
    assert!(watch.changes.is_closed(), "the watch missed changes");
}

#[tokio::test]
async fn live_read_does_not_wait_for_the_cache() {
    let etcd = FakeEtcd::start().await;
    let (caches, tasks) = start_caches(&etcd);
    caches.wait_ready().await;
    tasks.shutdown().cancel();
    tasks.wait(Duration::from_secs(5)).await;
    let revision = etcd.put(KEY, &config_map("d/a", json!({"v": "1"})));
    let resource = GroupResource::new("", "configmaps");
    assert_eq!(caches.cached_object(&resource, "d", "a"), None);
    let live = caches
        .read_live(&resource, "d", "a")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(live.label("v"), Some("1"));
    assert_eq!(live.resource_version(), revision.to_string());
    assert_eq!(caches.read_live(&resource, "d", "b").await.unwrap(), None);
}

#[tokio::test]
async fn cached_list_is_limited_to_a_namespace() {
    let etcd = FakeEtcd::start().await;
    for key in ["d/a", "d/b", "e/a"] {
        etcd.put(
            &format!("/registry/configmaps/{key}"),
            &config_map(key, json!({})),
        );
    }
    let (caches, _tasks) = start_caches(&etcd);
    caches.wait_ready().await;
    let resource = GroupResource::new("", "configmaps");
    assert_eq!(caches.cached_list(&resource, Some("d")).len(), 2);
    assert_eq!(caches.cached_list(&resource, None).len(), 3);
    let unknown = GroupResource::new("example.com", "things");
    assert!(caches.cached_list(&unknown, None).is_empty());
}
