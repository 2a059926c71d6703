//! The client library of the components against the API server.

use base_task::{CancellationToken, Tasks};
use client::{
    Api, Client, Config, DeleteParams, Event, Identity, Informer, ListParams, Source, WatchEvent,
};
use futures::StreamExt as _;
use integration_tests::{Components, Test, wait_for};
use k8s_openapi::api::core::v1::ConfigMap;
use std::sync::{Arc, Mutex};

/// Returns the ConfigMaps of the test's namespace, with the administrator's certificate.
async fn start() -> (Test, Api<ConfigMap>) {
    let test = Test::start(Components::ApiServer).await;
    let plane = test.plane();
    let mut config = Config::builder(format!("https://{}", plane.api_address()));
    config.ca = Some(Source::File(plane.certificate("ca")));
    config.identity = Some(Identity {
        certificate: Source::File(plane.certificate("admin")),
        key: Source::File(plane.key("admin")),
    });
    let api = Client::new(config).namespaced(&test.namespace);
    (test, api)
}

fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object
}

fn name_of(object: &ConfigMap) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

#[tokio::test]
async fn client_creates_reads_updates_and_deletes() {
    let (_test, api) = start().await;
    let mut object = api.create(&config_map("c")).await.unwrap();
    object.data = Some([("a".to_owned(), "1".to_owned())].into());
    let updated = api.update(&object).await.unwrap();
    assert_eq!(api.get("c").await.unwrap(), updated);
    api.delete("c", &DeleteParams::new()).await.unwrap();
    assert!(api.get_opt("c").await.unwrap().is_none());
}

#[tokio::test]
async fn failures_of_the_server_are_typed_errors() {
    let (_test, api) = start().await;
    let object = api.create(&config_map("c")).await.unwrap();
    assert!(
        api.create(&config_map("c"))
            .await
            .unwrap_err()
            .is_already_exists()
    );
    assert!(api.get("none").await.unwrap_err().is_not_found());
    assert!(
        api.create(&config_map("Bad_Name"))
            .await
            .unwrap_err()
            .is_invalid()
    );
    let mut changed = object.clone();
    changed.data = Some([("a".to_owned(), "1".to_owned())].into());
    api.update(&changed).await.unwrap();
    assert!(api.update(&changed).await.unwrap_err().is_conflict());
    let other = DeleteParams::new().uid("00000000-0000-4000-8000-000000000000");
    assert!(api.delete("c", &other).await.unwrap_err().is_conflict());
}

#[tokio::test]
async fn list_follows_the_pages() {
    let (_test, api) = start().await;
    for number in 0..7 {
        api.create(&config_map(&format!("c{number}")))
            .await
            .unwrap();
    }
    let list = api.list(&ListParams::new().with_limit(3)).await.unwrap();
    let names: Vec<&str> = list.items.iter().map(name_of).collect();
    assert_eq!(names, ["c0", "c1", "c2", "c3", "c4", "c5", "c6"]);
    assert_eq!(api.count().await.unwrap(), 7);
}

#[tokio::test]
async fn watch_decodes_events() {
    let (_test, api) = start().await;
    let list = api.list(&ListParams::new()).await.unwrap();
    let version = list.resource_version().to_owned();
    let mut watch = api.watch(&ListParams::new(), &version, 30).await.unwrap();
    api.create(&config_map("c")).await.unwrap();
    api.delete("c", &DeleteParams::new()).await.unwrap();
    let mut events = Vec::new();
    while events.len() < 2 {
        match watch.next().await.unwrap().unwrap() {
            WatchEvent::Added(object) => events.push(format!("added {}", name_of(&object))),
            WatchEvent::Deleted(object) => events.push(format!("deleted {}", name_of(&object))),
            WatchEvent::Bookmark { .. } => {}
            _ => panic!("another event"),
        }
    }
    assert_eq!(events, ["added c", "deleted c"]);
}

#[tokio::test]
async fn informer_keeps_its_store_equal_to_the_cluster() {
    let (_test, api) = start().await;
    api.create(&config_map("before")).await.unwrap();
    let tasks = Tasks::new(CancellationToken::new());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let events = seen.clone();
    let store = Informer::new(api.clone(), ListParams::new())
        .on_event(move |event| {
            let text = match &event {
                Event::Applied { old: None, new } => format!("add {}", name_of(new)),
                Event::Applied { new, .. } => format!("update {}", name_of(new)),
                Event::Deleted(last) => format!("delete {}", name_of(last)),
            };
            events.lock().unwrap().push(text);
        })
        .spawn(&tasks);
    store.wait_until_synced().await;
    assert_eq!(store.len(), 1);
    let mut object = api.create(&config_map("after")).await.unwrap();
    object.data = Some([("a".to_owned(), "1".to_owned())].into());
    api.update(&object).await.unwrap();
    api.delete("before", &DeleteParams::new()).await.unwrap();
    wait_for("the informer has seen the deletion", async || {
        seen.lock()
            .unwrap()
            .last()
            .is_some_and(|last| last == "delete before")
    })
    .await;
    assert_eq!(
        *seen.lock().unwrap(),
        ["add before", "add after", "update after", "delete before"]
    );
    let objects = store.list();
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0].data, object.data);
    assert_eq!(objects[0].metadata.managed_fields, None);
    tasks.shutdown().cancel();
}
