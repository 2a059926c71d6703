//! Informers: lists, watches, and objects that can't be decoded.

use super::*;
use client::{Event, Informer};
use k8s_openapi::api::core::v1::Service;

#[tokio::test]
async fn informer_resumes_its_watch_and_relists_after_410() {
    let expired = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
    let added = format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", map("b", 6));
    let (client, requests) = serve(vec![
        list(5, &[map("a", 4)]),
        reply("200 OK", "", &added),
        reply("200 OK", "", &format!("{expired}\n")),
        list(9, &[map("b", 6), map("c", 8)]),
        reply("200 OK", "x-stay: open\r\n", ""),
    ])
    .await;
    let received = Arc::new(Mutex::new(Vec::new()));
    let sink = received.clone();
    let stop = CancellationToken::new();
    let informer =
        Informer::new(client.api::<ConfigMap>(), ListParams::new()).on_event(move |event| {
            let word = if matches!(event, Event::Deleted(_)) {
                "-"
            } else {
                "+"
            };
            sink.lock().push(format!("{word}{}", event.object().name()));
        });
    let (store, run) = informer.start(stop.clone());
    let task = tokio::spawn(run);
    let settled = async {
        while requests.lock().len() < 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), settled)
        .await
        .unwrap();
    assert_eq!(*received.lock(), ["+a", "+b", "-a", "+c"]);
    assert_eq!(store.len(), 2);
    let requests = requests.lock().clone();
    assert_eq!(requests[0], "GET /api/v1/configmaps?resourceVersion=0");
    assert!(
        requests[1].contains("watch=true") && requests[1].ends_with("resourceVersion=5"),
        "{}",
        requests[1]
    );
    assert!(
        requests[2].ends_with("resourceVersion=6"),
        "{}",
        requests[2]
    );
    assert_eq!(requests[3], "GET /api/v1/configmaps?limit=500");
    assert!(
        requests[4].ends_with("resourceVersion=9"),
        "{}",
        requests[4]
    );
    stop.cancel();
    task.await.unwrap();
}

/// Starts an informer of `K`. Returns its store and the token that stops it.
fn informer<K: client::Object + k8s_openapi::Resource>(
    client: &Client,
) -> (client::Store<K>, CancellationToken) {
    let stop = CancellationToken::new();
    let (store, run) = Informer::new(client.api::<K>(), ListParams::new()).start(stop.clone());
    tokio::spawn(run);
    (store, stop)
}

async fn wait_for_version<K: client::Object>(store: &client::Store<K>, version: u64) {
    let reached = async {
        while store.version() < version {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached)
        .await
        .unwrap();
}

/// Returns a Service with a null time, as Go encodes its zero time.
fn service(version: u32) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"n","name":"s","resourceVersion":"{version}"}},"status":{{"conditions":
        [{{"type":"X","status":"True","reason":"R","message":"m","lastTransitionTime":null}}]}}}}"#
    )
    .replace('\n', "")
}

#[tokio::test]
async fn service_with_a_null_transition_time_stays_in_the_store() {
    let changed = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", service(6));
    let (client, requests) = serve(vec![
        list(5, &[service(4)]),
        reply("200 OK", "x-stay: open\r\n", &changed),
    ])
    .await;
    let (store, stop) = informer::<Service>(&client);
    wait_for_version(&store, 6).await;
    let service = store.get("n/s").unwrap();
    assert_eq!(service.metadata.resource_version.as_deref(), Some("6"));
    assert_eq!(
        service.status.clone().unwrap().conditions.unwrap()[0].type_,
        "X"
    );
    assert_eq!(requests.lock().len(), 2, "nothing is listed again");
    stop.cancel();
}

#[tokio::test]
async fn undecodable_change_keeps_the_last_state_and_the_watch_goes_on() {
    let events = format!(
        "{{\"type\":\"MODIFIED\",\"object\":{}}}\n{{\"type\":\"ADDED\",\"object\":{}}}\n\
         {{\"type\":\"DELETED\",\"object\":{}}}\n{{\"type\":\"ADDED\",\"object\":{}}}\n",
        broken("a", 6),
        map("b", 7),
        broken("c", 8),
        map("d", 9),
    );
    let (client, requests) = serve(vec![
        list(5, &[map("a", 1), map("c", 2)]),
        reply("200 OK", "x-stay: open\r\n", &events),
    ])
    .await;
    let (store, stop) = informer::<ConfigMap>(&client);
    wait_for_version(&store, 9).await;
    let mut keys: Vec<_> = store.keys().iter().map(ToString::to_string).collect();
    keys.sort();
    assert_eq!(keys, ["n/a", "n/b", "n/d"]);
    assert_eq!(
        store
            .get("n/a")
            .unwrap()
            .metadata
            .resource_version
            .as_deref(),
        Some("1")
    );
    assert_eq!(requests.lock().len(), 2, "nothing is listed again");
    stop.cancel();
}

#[tokio::test]
async fn relist_keeps_the_last_state_of_an_undecodable_object() {
    let expired = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
    let (client, _) = serve(vec![
        list(5, &[map("a", 1), map("b", 2)]),
        reply("200 OK", "", &format!("{expired}\n")),
        list(9, &[broken("a", 8)]),
        reply("200 OK", "x-stay: open\r\n", ""),
    ])
    .await;
    let (store, stop) = informer::<ConfigMap>(&client);
    wait_for_version(&store, 9).await;
    assert!(store.get("n/a").is_some() && store.get("n/b").is_none());
    stop.cancel();
}

#[tokio::test]
async fn watch_that_is_rejected_with_410_is_followed_by_a_consistent_list() {
    let gone = r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old"}"#;
    let (client, requests) = serve(vec![
        list(5, &[map("a", 4)]),
        reply("410 Gone", "", gone),
        list(9, &[map("a", 4)]),
        reply("200 OK", "x-stay: open\r\n", ""),
    ])
    .await;
    let (store, stop) = informer::<ConfigMap>(&client);
    wait_for_version(&store, 9).await;
    assert_eq!(requests.lock()[2], "GET /api/v1/configmaps?limit=500");
    assert_eq!(store.len(), 1);
    stop.cancel();
}

#[tokio::test]
async fn watch_resumes_from_the_version_of_a_bookmark() {
    let bookmark =
        r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"42"}}}"#;
    let (client, requests) = serve(vec![
        list(5, &[map("a", 4)]),
        reply("200 OK", "", &format!("{bookmark}\n")),
        reply("200 OK", "x-stay: open\r\n", ""),
    ])
    .await;
    let (store, stop) = informer::<ConfigMap>(&client);
    wait_for_version(&store, 42).await;
    let resumed = async {
        while requests.lock().len() < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), resumed)
        .await
        .unwrap();
    assert!(requests.lock()[2].ends_with("resourceVersion=42"));
    stop.cancel();
}

#[tokio::test]
async fn event_that_is_cut_off_at_the_end_of_a_watch_is_received_again() {
    let event = format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", map("b", 6));
    let (client, requests) = serve(vec![
        list(5, &[]),
        reply("200 OK", "", &event[..event.len() / 2]),
        reply("200 OK", "x-stay: open\r\n", &event),
    ])
    .await;
    let (store, stop) = informer::<ConfigMap>(&client);
    wait_for_version(&store, 6).await;
    assert!(store.get("n/b").is_some());
    assert!(requests.lock()[2].ends_with("resourceVersion=5"));
    stop.cancel();
}

#[tokio::test]
async fn stream_that_is_no_watch_is_followed_by_a_list() {
    let (client, requests) = serve(vec![
        list(5, &[]),
        reply("200 OK", "", "<html>\n"),
        list(9, &[map("a", 8)]),
        reply("200 OK", "x-stay: open\r\n", ""),
    ])
    .await;
    let (store, stop) = informer::<ConfigMap>(&client);
    wait_for_version(&store, 9).await;
    assert_eq!(requests.lock()[2], "GET /api/v1/configmaps?limit=500");
    stop.cancel();
}
