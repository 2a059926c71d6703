//! Custom resources, installed and removed while the caches follow the store.

use super::{config_map, selection};
use crate::changes::{Batch, Request, check_resources};
use crate::{Caches, InstallError};
use api_kinds::{ObjectSchema, Resource, Storage};
use api_meta::Meta;
use apiserver_request::{GroupResource, ObjectEvent, Objects, Observer};
use apiserver_storage::{Store, StoreConfig};
use base_task::{CancellationToken, Tasks};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use testkit_etcd::FakeEtcd;
use tonic::Status;

const GROUP: &str = "example.com";

/// Starts the caches of an etcd and waits for the first list.
async fn start_caches(etcd: &FakeEtcd) -> (Arc<Caches>, Tasks) {
    let store = Store::new(&StoreConfig {
        servers: vec![etcd.url().to_owned()],
        ..StoreConfig::default()
    });
    let tasks = Tasks::new(CancellationToken::new());
    let caches = Caches::start(store.unwrap(), "/registry", &tasks);
    caches.wait_ready().await;
    (caches, tasks)
}

/// Returns `things` or another plural in one version, stored as v1.
fn resource(plural: &'static str, version: &'static str) -> Resource {
    let mut resource = Resource::clone(api_kinds::find("", "v1", "configmaps").unwrap());
    (resource.group, resource.version) = (GROUP.into(), version.into());
    (resource.plural, resource.kind) = (plural.into(), "Thing".into());
    resource.schema = ObjectSchema::Custom(Arc::default());
    resource.storage = Some(Storage {
        prefix: api_kinds::custom_prefix(GROUP, plural),
        api_version: format!("{GROUP}/v1").into(),
        schema: resource.schema.clone(),
        format: api_kinds::StorageFormat::Json,
    });
    resource
}

fn things() -> Vec<Arc<Resource>> {
    vec![Arc::new(resource("things", "v1"))]
}

fn stored(name: &str, color: &str) -> Vec<u8> {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "spec": {"color": color},
        "metadata": {"name": name, "namespace": "d"}})
    .to_string()
    .into_bytes()
}

fn key(name: &str) -> String {
    format!("/registry/example.com/things/d/{name}")
}

fn color(caches: &Caches, name: &str) -> Option<String> {
    let things = GroupResource::new(GROUP, "things");
    let thing = caches.cached_object(&things, "d", name)?;
    Some(thing["spec"]["color"].as_str()?.to_owned())
}

#[tokio::test]
async fn installed_resource_has_its_objects_and_follows_their_changes() {
    let etcd = FakeEtcd::start().await;
    for name in 0..1200 {
        etcd.put(
            &key(&format!("t{name}")),
            &stored(&format!("t{name}"), "red"),
        );
    }
    let (caches, _tasks) = start_caches(&etcd).await;
    assert!(caches.find_cache(GROUP, "things").is_none());
    let before = caches.served();
    caches.install(things()).await.unwrap();
    let cache = caches.find_cache(GROUP, "things").unwrap();
    assert_eq!(cache.len(), 1200, "more than one page");
    assert!(caches.served().resources().is_served(GROUP, "v1"));
    assert!(!before.resources().is_served(GROUP, "v1"));
    etcd.put(&key("t1"), &stored("t1", "blue"));
    etcd.delete(&key("t2"));
    caches.wait_for_current().await.unwrap();
    assert_eq!(color(&caches, "t1").as_deref(), Some("blue"));
    assert_eq!(color(&caches, "t2"), None);
}

#[tokio::test]
async fn changes_during_installations_are_neither_lost_nor_repeated() {
    let etcd = Arc::new(FakeEtcd::start().await);
    let (caches, _tasks) = start_caches(&etcd).await;
    let writer = {
        let etcd = etcd.clone();
        std::thread::spawn(move || {
            for n in 0..600 {
                etcd.put(&key("a"), &stored("a", &n.to_string()));
                etcd.put(&key(&format!("n{n}")), &stored("n", "red"));
            }
        })
    };
    let mut seen = 0;
    while !writer.is_finished() || seen == 0 {
        caches.install(things()).await.unwrap();
        let cache = caches.find_cache(GROUP, "things").unwrap();
        let watch = cache.subscribe_from_now(selection("", "", ""), 0);
        let known = watch.backlog.len();
        assert!(known >= seen, "{known} objects after {seen}");
        seen = known;
        caches.remove(GROUP, "things").await.unwrap();
        assert!(watch.changes.is_closed());
        tokio::task::yield_now().await;
    }
    caches.install(things()).await.unwrap();
    let cache = caches.find_cache(GROUP, "things").unwrap();
    caches.wait_for_current().await.unwrap();
    assert_eq!(cache.len(), 601);
    assert_eq!(color(&caches, "a").as_deref(), Some("599"));
    assert_eq!(cache.get("d/a").unwrap().revision, etcd.revision() - 1);
}

#[tokio::test]
async fn objects_change_together_with_the_description() {
    let etcd = FakeEtcd::start().await;
    etcd.put(&key("a"), &stored("a", "red"));
    let (caches, _tasks) = start_caches(&etcd).await;
    caches.install(things()).await.unwrap();
    let cache = caches.find_cache(GROUP, "things").unwrap();
    let before = cache.get("d/a").unwrap();
    let mut batch = Batch::default();
    batch.add_request(Request {
        kinds: check_resources(things()).unwrap(),
        done: tokio::sync::oneshot::channel().0,
    });
    let next = batch.next_set(&caches.served(), BTreeMap::new());
    let now = cache.get("d/a").unwrap();
    assert!(Arc::ptr_eq(&now, &before), "the set is not published");
    let reader = {
        let (caches, cache, before) = (caches.clone(), cache.clone(), before.clone());
        std::thread::spawn(move || {
            while Arc::ptr_eq(&cache.get("d/a").unwrap(), &before) {}
            // A request that follows must have the description of the object that was read.
            Arc::ptr_eq(&caches.find_cache(GROUP, "things").unwrap(), &cache)
        })
    };
    caches.publish(next);
    assert!(
        !reader.join().unwrap(),
        "the old description after the new object"
    );
}

#[tokio::test]
async fn several_requests_are_served_by_one_pass() {
    let etcd = FakeEtcd::start().await;
    let (caches, _tasks) = start_caches(&etcd).await;
    let plurals = ["as", "bs", "cs", "ds", "es"];
    let installs = plurals.map(|plural| caches.install(vec![Arc::new(resource(plural, "v1"))]));
    let [a, b, c, d, e] = installs;
    let (a, b, c, d, e) = tokio::join!(a, b, c, d, e);
    for done in [a, b, c, d, e] {
        done.unwrap();
    }
    for plural in plurals {
        assert!(caches.find_cache(GROUP, plural).is_some(), "{plural}");
    }
}

#[tokio::test]
async fn other_resources_are_served_while_an_installation_waits_for_the_store() {
    let etcd = FakeEtcd::start().await;
    let (caches, _tasks) = start_caches(&etcd).await;
    for _ in 0..3 {
        etcd.fail_next(Status::unavailable("no leader"));
    }
    let mut install = std::pin::pin!(caches.install(things()));
    let first = tokio::time::timeout(Duration::from_millis(100), &mut install).await;
    assert!(
        first.is_err(),
        "the list failed, so the resource is not served yet"
    );
    let revision = etcd.put("/registry/configmaps/d/a", &config_map("d/a", json!({})));
    caches.wait_for(revision).await.unwrap();
    install.await.unwrap();
    assert!(caches.find_cache(GROUP, "things").is_some());
}

#[tokio::test]
async fn another_version_keeps_objects_and_watchers() {
    let etcd = FakeEtcd::start().await;
    etcd.put(&key("a"), &stored("a", "red"));
    let (caches, _tasks) = start_caches(&etcd).await;
    caches.install(things()).await.unwrap();
    let cache = caches.find_cache(GROUP, "things").unwrap();
    let mut watch = cache.subscribe_from_now(selection("", "", ""), 0);
    let (v1, v2) = (resource("things", "v1"), resource("things", "v2"));
    let both = vec![Arc::new(v1), Arc::new(v2.clone())];
    caches.install(both).await.unwrap();
    assert!(!watch.changes.is_closed());
    etcd.put(&key("a"), &stored("a", "blue"));
    caches.wait_for_current().await.unwrap();
    let entry = watch.changes.try_recv().unwrap().entry;
    assert_eq!(entry.tree_as(&v2).unwrap()["apiVersion"], "example.com/v2");
    // Without v1, its watchers could not be served any longer.
    caches.install(vec![Arc::new(v2)]).await.unwrap();
    assert!(watch.changes.is_closed());
    assert_eq!(color(&caches, "a").as_deref(), Some("blue"));
    assert!(!caches.served().resources().is_served(GROUP, "v1"));
}

#[tokio::test]
async fn removed_resource_ends_its_watchers_and_ignores_its_keys() {
    let etcd = FakeEtcd::start().await;
    let (caches, _tasks) = start_caches(&etcd).await;
    caches.install(things()).await.unwrap();
    let cache = caches.find_cache(GROUP, "things").unwrap();
    let watch = cache.subscribe_from_now(selection("", "", ""), 0);
    caches.remove(GROUP, "things").await.unwrap();
    assert!(watch.changes.is_closed());
    assert!(caches.find_cache(GROUP, "things").is_none());
    let late = cache.subscribe_from_now(selection("", "", ""), 0);
    assert!(late.changes.is_closed(), "of a request that began before");
    etcd.put(&key("a"), &stored("a", "red"));
    caches.wait_for_current().await.unwrap();
    assert!(cache.is_empty());
    caches.remove(GROUP, "things").await.unwrap();
    caches.install(things()).await.unwrap();
    assert_eq!(color(&caches, "a").as_deref(), Some("red"));
}

#[tokio::test]
async fn relist_includes_installed_resources() {
    let etcd = FakeEtcd::start().await;
    etcd.put(&key("old"), &stored("old", "red"));
    let (caches, _tasks) = start_caches(&etcd).await;
    caches.install(things()).await.unwrap();
    etcd.drop_watches();
    etcd.delete(&key("old"));
    etcd.put(&key("new"), &stored("new", "red"));
    etcd.compact(etcd.revision());
    caches.wait_for_current().await.unwrap();
    assert_eq!(color(&caches, "old"), None);
    assert_eq!(color(&caches, "new").as_deref(), Some("red"));
}

#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Observer for Recorder {
    fn object_changed(&self, _: &GroupResource, event: &ObjectEvent) {
        let (verb, object) = match event {
            ObjectEvent::Applied(object) => ("applied", object),
            ObjectEvent::Deleted(object) => ("deleted", object),
        };
        self.0.lock().push(format!("{verb} {}", object.name()));
    }
}

#[tokio::test]
async fn observer_of_a_resource_that_is_installed_later_sees_its_objects() {
    let etcd = FakeEtcd::start().await;
    etcd.put(&key("a"), &stored("a", "red"));
    let (caches, _tasks) = start_caches(&etcd).await;
    let recorder = Arc::new(Recorder::default());
    caches.observe(&GroupResource::new(GROUP, "things"), recorder.clone());
    caches.install(things()).await.unwrap();
    assert_eq!(*recorder.0.lock(), ["applied a"]);
    caches.install(things()).await.unwrap();
    caches.remove(GROUP, "things").await.unwrap();
    caches.install(things()).await.unwrap();
    assert_eq!(*recorder.0.lock(), ["applied a", "deleted a", "applied a"]);
}

#[tokio::test]
async fn resource_that_contradicts_itself_or_a_built_in_one_is_rejected() {
    let etcd = FakeEtcd::start().await;
    let (caches, _tasks) = start_caches(&etcd).await;
    let changed = |change: fn(&mut Resource)| {
        let mut resource = resource("things", "v1");
        change(&mut resource);
        vec![Arc::new(resource)]
    };
    let mut scopes = changed(|resource| resource.namespaced = false);
    scopes.push(Arc::new(resource("things", "v2")));
    let cases = [
        changed(|resource| resource.storage = None),
        changed(|resource| resource.plural = "others".into()),
        changed(|resource| resource.group = "".into()),
        changed(|resource| resource.plural = "a/b".into()),
        changed(|resource| {
            (resource.group, resource.plural) = ("apps".into(), "deployments".into());
        }),
        changed(|resource| {
            if let Some(storage) = &mut resource.storage {
                storage.prefix = "/secrets".into();
            }
        }),
        vec![api_kinds::find("", "v1", "secrets").unwrap().clone()],
        scopes,
    ];
    for (case, resources) in cases.into_iter().enumerate() {
        let rejected = caches.install(resources).await;
        assert!(
            matches!(rejected, Err(InstallError::Invalid(..))),
            "{case}: {rejected:?}"
        );
    }
}

#[tokio::test]
async fn request_after_the_end_of_the_reader_fails() {
    let etcd = FakeEtcd::start().await;
    let (caches, tasks) = start_caches(&etcd).await;
    tasks.shutdown().cancel();
    tasks.wait(Duration::from_secs(5)).await;
    let stopped = caches.install(things()).await;
    assert!(matches!(stopped, Err(InstallError::Stopped)), "{stopped:?}");
}
