//! The client against a scripted server: its requests, and its results for the responses.
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

type RequestLog = Arc<Mutex<Vec<String>>>;

/// Serves connections one after the other with the given bytes. A response without a length stays
/// open.
async fn serve(responses: Vec<String>) -> (Client, RequestLog) {
    serve_and_log(responses, |head| {
        head.lines()
            .next()
            .unwrap_or_default()
            .replace(" HTTP/1.1", "")
    })
    .await
}

/// Like [`serve`], but logs the complete head of each request.
async fn serve_heads(responses: Vec<String>) -> (Client, RequestLog) {
    serve_and_log(responses, str::to_owned).await
}

async fn serve_and_log(responses: Vec<String>, entry: fn(&str) -> String) -> (Client, RequestLog) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = RequestLog::default();
    let log = requests.clone();
    tokio::spawn(async move {
        let mut open = Vec::new();
        for response in responses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let n = stream.read(&mut head).await.unwrap();
            let head = String::from_utf8_lossy(&head[..n]).into_owned();
            log.lock().push(entry(&head));
            stream.write_all(response.as_bytes()).await.unwrap();
            if response.contains("x-stay: open") {
                open.push(stream);
            }
        }
        std::future::pending::<()>().await;
    });
    (
        Client::new(Config::builder(format!("http://{address}"))),
        requests,
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
    tokio::time::timeout(Duration::from_secs(10), settled)
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

#[tokio::test]
async fn failure_status_is_decoded_and_retry_after_is_obeyed() {
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"NotFound","code":404}"#;
    let (client, requests) = serve(vec![
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
    assert_eq!(requests.lock()[0], "GET /api/v1/namespaces/n/configmaps/a");
    assert_eq!(requests.lock().len(), 4);
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
    api.in_namespace("n").get("a").await.unwrap();
    api.in_namespace("n")
        .delete_collection(&client::DeleteParams::new(), &ListParams::new())
        .await
        .unwrap();
    let expected = [
        "accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
        "accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        "accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        "accept: application/json",
    ];
    for (head, accept) in heads.lock().iter().zip(expected) {
        let found = head
            .lines()
            .find(|line| line.starts_with("accept:"))
            .unwrap();
        assert_eq!(found, accept, "{head}");
    }
    assert_eq!(heads.lock().len(), expected.len());
}

/// Serves connections and counts received events, each after `pause`.
async fn event_sink(pause: Duration) -> (Client, Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let written = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = written.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let count = count.clone();
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
    let own = working.clone();
    let lead = move |_| {
        let own = own.clone();
        async move {
            std::future::pending::<()>().await;
            drop(own);
        }
    };
    let until = async |expected: usize| {
        while count() != expected {
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
    tokio::time::timeout(Duration::from_secs(10), resumed)
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

#[tokio::test]
async fn all_pages_of_a_list_are_read_with_the_continue_token() {
    let first = format!(
        r#"{{"metadata":{{"resourceVersion":"5","continue":"token"}},"items":[{}]}}"#,
        map("a", 1)
    );
    let (client, requests) =
        serve(vec![reply("200 OK", "", &first), list(5, &[map("b", 2)])]).await;
    let params = ListParams::new().with_limit(1);
    let all = client.api::<ConfigMap>().list(&params).await.unwrap();
    assert_eq!(all.items.len(), 2);
    assert_eq!(
        requests.lock()[1],
        "GET /api/v1/configmaps?limit=1&continue=token"
    );
}

#[tokio::test]
async fn objects_are_counted_from_one_page_if_the_server_returns_the_rest() {
    let page = |rest: &str| {
        let metadata = format!(r#"{{"resourceVersion":"5","continue":"t"{rest}}}"#);
        let body = format!(r#"{{"metadata":{metadata},"items":[{}]}}"#, map("a", 1));
        reply("200 OK", "", &body)
    };
    let (client, requests) = serve(vec![
        page(r#","remainingItemCount":41"#),
        page(""),
        list(5, &[map("a", 1), map("b", 2)]),
    ])
    .await;
    let maps = client.api::<ConfigMap>();
    assert_eq!(maps.count().await.unwrap(), 42);
    assert_eq!(maps.count().await.unwrap(), 2);
    assert_eq!(requests.lock().len(), 3);
}

#[tokio::test]
async fn rejected_token_is_read_again_from_its_file() {
    let file = std::env::temp_dir().join(format!("client-token-{}", std::process::id()));
    std::fs::write(&file, "first\n").unwrap();
    let unauthorized = r#"{"kind":"Status","code":401,"reason":"Unauthorized"}"#;
    let (client, heads) = serve_heads(vec![
        reply("401 Unauthorized", "", unauthorized),
        reply("200 OK", "", &map("a", 1)),
        reply("200 OK", "", &map("a", 1)),
    ])
    .await;
    let client = client.with_token(client::Source::File(file.clone()));
    let maps = client.namespaced::<ConfigMap>("n");
    assert!(maps.get("a").await.unwrap_err().is_unauthorized());
    std::fs::write(&file, "second\n").unwrap();
    maps.get("a").await.unwrap();
    // Cached for a minute after a success.
    std::fs::write(&file, "third\n").unwrap();
    maps.get("a").await.unwrap();
    std::fs::remove_file(&file).unwrap();
    let tokens: Vec<String> = heads
        .lock()
        .iter()
        .filter_map(|head| {
            head.lines()
                .find_map(|line| line.strip_prefix("authorization: Bearer "))
                .map(str::to_owned)
        })
        .collect();
    assert_eq!(tokens, ["first", "second", "second"]);
}

#[tokio::test]
async fn released_lease_has_no_holder_and_is_released_after_the_work() {
    let missing = r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#;
    let held = r#"{"metadata":{"namespace":"kube-system","name":"l","resourceVersion":"3"},"spec":{"holderIdentity":"me"}}"#;
    let (client, requests) = serve(vec![
        reply("404 Not Found", "", missing),
        reply("201 Created", "", held),
        reply("200 OK", "", held),
    ])
    .await;
    let stop = CancellationToken::new();
    let ended = Arc::new(Mutex::new(0));
    let (log, sent) = (ended.clone(), requests.clone());
    let lead = move |term: CancellationToken| {
        let (log, sent) = (log.clone(), sent.clone());
        async move {
            term.cancelled().await;
            *log.lock() = sent.lock().len();
        }
    };
    let campaign =
        election::run_leader_election(&client, LeaderConfig::new("l", "me"), stop.clone(), lead);
    let stopping = async {
        while requests.lock().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        stop.cancel();
    };
    let both = async { tokio::join!(campaign, stopping) };
    tokio::time::timeout(Duration::from_secs(10), both)
        .await
        .unwrap();
    assert_eq!(*ended.lock(), 2, "the work ended before the release");
    let last = "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l";
    assert_eq!(requests.lock().last().map(String::as_str), Some(last));
}

#[tokio::test]
async fn leader_that_loses_its_lease_ends_its_work_and_campaigns_again() {
    let held = |holder: &str| {
        format!(
            r#"{{"metadata":{{"namespace":"kube-system","name":"l","resourceVersion":"3"}},"spec":{{"holderIdentity":"{holder}","leaseDurationSeconds":15}}}}"#
        )
    };
    let conflict = r#"{"kind":"Status","reason":"Conflict","code":409}"#;
    let (client, requests) = serve(vec![
        reply("200 OK", "", &held("")),
        reply("200 OK", "", &held("me")),
        reply("409 Conflict", "", conflict),
        reply("200 OK", "", &held("other")),
        reply("200 OK", "", &held("other")),
    ])
    .await;
    let config = LeaderConfig {
        retry_period: Duration::from_millis(20),
        ..LeaderConfig::new("l", "me")
    };
    let terms = Arc::new(Mutex::new(Vec::new()));
    let log = terms.clone();
    let lead = move |term: CancellationToken| {
        let log = log.clone();
        async move {
            log.lock().push("led");
            term.cancelled().await;
            log.lock().push("ended");
        }
    };
    let campaign = election::run_leader_election(&client, config, CancellationToken::new(), lead);
    let again = async {
        while requests.lock().len() < 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), async {
        tokio::select! { () = campaign => false, () = again => true }
    });
    assert!(ended.await.unwrap());
    assert_eq!(*terms.lock(), ["led", "ended"]);
    assert!(requests.lock()[4].starts_with("GET "));
}
