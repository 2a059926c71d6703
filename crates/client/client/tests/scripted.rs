//! The client against a scripted server: what is asked, and what is made of the answers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs
)]

use std::sync::Arc;
use std::time::Duration;

use client::election::{self, LeaderConfig};
use client::{Client, Config, Event, Informer, ListParams, ObjectExt};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

type Asked = Arc<Mutex<Vec<String>>>;

/// Serves connections one after the other with the given bytes. A response without a length stays
/// open.
async fn serve(answers: Vec<String>) -> (Client, Asked) {
    serve_and_log(answers, |head| {
        head.lines()
            .next()
            .unwrap_or_default()
            .replace(" HTTP/1.1", "")
    })
    .await
}

/// Like [`serve`], but logs the complete head of each request.
async fn serve_heads(answers: Vec<String>) -> (Client, Asked) {
    serve_and_log(answers, str::to_owned).await
}

async fn serve_and_log(answers: Vec<String>, entry: fn(&str) -> String) -> (Client, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut open = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let n = stream.read(&mut head).await.unwrap();
            let head = String::from_utf8_lossy(&head[..n]).into_owned();
            log.lock().push(entry(&head));
            stream.write_all(answer.as_bytes()).await.unwrap();
            if answer.contains("x-stay: open") {
                open.push(stream);
            }
        }
        std::future::pending::<()>().await;
    });
    (
        Client::new(Config::builder(format!("http://{address}"))),
        asked,
    )
}

fn reply(code: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {code}\r\n{headers}connection: close\r\n\r\n{body}")
}

fn map(name: &str, version: u32) -> String {
    format!(r#"{{"metadata":{{"namespace":"n","name":"{name}","resourceVersion":"{version}"}}}}"#)
}

fn list(version: u32, items: &[String]) -> String {
    let items = items.join(",");
    let body = format!(
        r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{items}]}}"#
    );
    reply("200 OK", "", &body)
}

#[tokio::test]
async fn informers_resume_and_list_again() {
    let expired = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
    let added = format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", map("b", 6));
    let (client, asked) = serve(vec![
        list(5, &[map("a", 4)]),
        reply("200 OK", "", &added),
        reply("200 OK", "", &format!("{expired}\n")),
        list(9, &[map("b", 6), map("c", 8)]),
        reply("200 OK", "x-stay: open\r\n", ""),
    ])
    .await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
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
        while asked.lock().len() < 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), settled)
        .await
        .unwrap();
    assert_eq!(*heard.lock(), ["+a", "+b", "-a", "+c"]);
    assert_eq!(store.len(), 2);
    let asked = asked.lock().clone();
    assert_eq!(asked[0], "GET /api/v1/configmaps?resourceVersion=0");
    assert!(
        asked[1].contains("watch=true") && asked[1].ends_with("resourceVersion=5"),
        "{}",
        asked[1]
    );
    assert!(asked[2].ends_with("resourceVersion=6"), "{}", asked[2]);
    assert_eq!(asked[3], "GET /api/v1/configmaps?limit=500");
    assert!(asked[4].ends_with("resourceVersion=9"), "{}", asked[4]);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test]
async fn failures_are_decoded_and_busy_servers_asked_again() {
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"NotFound","code":404}"#;
    let (client, asked) = serve(vec![
        reply("429 Too Many Requests", "retry-after: 0\r\n", ""),
        reply("200 OK", "", &map("a", 1)),
        reply("404 Not Found", "", status),
        reply("500 Internal Server Error", "", "oops"),
    ])
    .await;
    let api = client.namespaced::<ConfigMap>("n");
    assert_eq!(api.get("a").await.unwrap().name(), "a");
    let error = api.get("b").await.unwrap_err();
    assert!(error.is_not_found() && error.to_string() == "no", "{error}");
    let error = api.get("b").await.unwrap_err();
    assert_eq!(error.code(), Some(500));
    assert!(error.to_string().contains("oops"), "{error}");
    assert_eq!(asked.lock()[0], "GET /api/v1/namespaces/n/configmaps/a");
    assert_eq!(asked.lock().len(), 4);
}

fn broken(name: &str, version: u32) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"n","name":"{name}","resourceVersion":"{version}"}},"data":5}}"#
    )
}

#[tokio::test]
async fn list_with_an_undecodable_object_contains_the_others() {
    let (client, _) = serve(vec![list(3, &[map("a", 1), broken("x", 2)])]).await;
    let list = client
        .api::<ConfigMap>()
        .list(&ListParams::new())
        .await
        .unwrap();
    assert_eq!(list.items.len(), 1);
    assert_eq!(list.resource_version(), "3");
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
    tokio::time::timeout(Duration::from_secs(10), reached)
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
    let (client, asked) = serve(vec![
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
    assert_eq!(asked.lock().len(), 2, "nothing is listed again");
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
    let (client, asked) = serve(vec![
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
    assert_eq!(asked.lock().len(), 2, "nothing is listed again");
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
async fn metadata_is_requested_as_a_list_for_lists_and_as_objects_for_watches() {
    let resource = client::ApiResource::of_kind::<ConfigMap>();
    let (client, heads) = serve_heads(vec![
        list(5, &[map("a", 4)]),
        reply("200 OK", "x-stay: open\r\n", ""),
        reply("200 OK", "", &map("a", 4)),
        reply("200 OK", "", r#"{"kind":"Status","status":"Success"}"#),
    ])
    .await;
    let api = client.metadata(&resource, None);
    api.list(&ListParams::new()).await.unwrap();
    let _watch = api.watch(&ListParams::new(), "5", 60).await.unwrap();
    api.within("n").get("a").await.unwrap();
    api.within("n")
        .delete_collection(&client::DeleteParams::new(), &ListParams::new())
        .await
        .unwrap();
    let wanted = [
        "accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
        "accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        "accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        "accept: application/json",
    ];
    for (head, accept) in heads.lock().iter().zip(wanted) {
        let found = head
            .lines()
            .find(|line| line.starts_with("accept:"))
            .unwrap();
        assert_eq!(found, accept, "{head}");
    }
    assert_eq!(heads.lock().len(), wanted.len());
}

/// Serves connections and counts received events, each after `pause`.
async fn event_sink(pause: Duration) -> (Client, Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let written = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&written);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut request = vec![0; 16384];
                while let Ok(1..) = stream.read(&mut request).await {
                    tokio::time::sleep(pause).await;
                    count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    let _ = stream
                        .write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}")
                        .await;
                }
            });
        }
    });
    (
        Client::new(Config::builder(format!("http://{address}"))),
        written,
    )
}

#[tokio::test]
async fn events_about_different_objects_are_written_side_by_side() {
    let (client, written) = event_sink(Duration::from_millis(20)).await;
    let recorder = client::events::Recorder::new(client, "test", "");
    for i in 0..200 {
        let pod = k8s_openapi::api::core::v1::ObjectReference {
            name: Some(format!("p{i}")),
            namespace: Some("n".to_owned()),
            ..Default::default()
        };
        recorder.normal(&pod, "Scheduled", "assigned");
    }
    // Sequential requests would take 4 s.
    let all = async {
        while written.load(std::sync::atomic::Ordering::SeqCst) < 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(3), all)
        .await
        .unwrap();
}

#[tokio::test]
async fn dropped_campaign_ends_the_work_of_its_term() {
    let missing =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#;
    let lease =
        r#"{"metadata":{"namespace":"kube-system","name":"l"},"spec":{"holderIdentity":"me"}}"#;
    let (client, _) = serve(vec![
        reply("404 Not Found", "", missing),
        reply("201 Created", "", lease),
    ])
    .await;
    let working = Arc::new(());
    let count = || Arc::strong_count(&working);
    let own = Arc::clone(&working);
    let lead = move |_| {
        let own = Arc::clone(&own);
        async move {
            std::future::pending::<()>().await;
            drop(own);
        }
    };
    let until = async |wanted: usize| {
        while count() != wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let campaign = election::run_leader_election(
        &client,
        LeaderConfig::new("l", "me"),
        CancellationToken::new(),
        lead,
    );
    let limit = Duration::from_secs(10);
    let led = tokio::time::timeout(limit, async {
        tokio::select! { () = campaign => false, () = until(3) => true }
    });
    assert!(led.await.unwrap());
    tokio::time::timeout(limit, until(1)).await.unwrap();
}
