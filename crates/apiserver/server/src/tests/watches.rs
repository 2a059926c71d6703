//! Watches over HTTP: initial events, bookmarks, ends, errors.

use super::{MAPS, TestServer, config_map, request, soon, start_server};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};

/// The events of a watch.
struct Events {
    body: Incoming,
    pending: Vec<u8>,
}

impl Events {
    async fn open(server: &TestServer, query: &str, accept: &str) -> Self {
        let request = request("GET", &format!("{MAPS}?watch=1&{query}")).header("accept", accept);
        let response = server
            .open(request.body(Full::new(Bytes::new())).unwrap())
            .await;
        assert_eq!(response.status(), 200);
        Events {
            body: response.into_body(),
            pending: Vec::new(),
        }
    }

    /// Returns the next event; None at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = soon(self.body.frame()).await?.unwrap();
            self.pending.extend_from_slice(frame.data_ref().unwrap());
        }
    }

    /// Returns type and name of the next event.
    async fn next_name(&mut self) -> (String, String) {
        let event = self.next().await.unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (
            text(&event["type"]),
            text(&event["object"]["metadata"]["name"]),
        )
    }
}

fn event(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test]
async fn watch_sends_existing_objects_and_then_changes() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let mut events = Events::open(&server, "", "application/json").await;
    assert_eq!(events.next_name().await, event("ADDED", "a"));
    server.create_map("b").await;
    assert_eq!(events.next_name().await, event("ADDED", "b"));
    server
        .send(request("DELETE", &format!("{MAPS}/a")), "")
        .await;
    assert_eq!(events.next_name().await, event("DELETED", "a"));
}

#[tokio::test]
async fn watch_resumes_from_a_resource_version() {
    let server = start_server(&[]).await;
    let created = server.create_map("a").await.json();
    server.create_map("b").await;
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = Events::open(&server, &format!("resourceVersion={version}"), "").await;
    assert_eq!(events.next_name().await, event("ADDED", "b"));
}

#[tokio::test]
async fn watch_from_before_the_history_is_an_error_event() {
    let etcd = testkit_etcd::FakeEtcd::start().await;
    etcd.put("/registry/masterleases/192.0.2.1", b"v");
    let server = super::start_over(etcd, &[]).await;
    let mut events = Events::open(&server, "resourceVersion=1", "application/json").await;
    let event = events.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(
        (&event["object"]["code"], &event["object"]["reason"]),
        (&json!(410), &json!("Expired"))
    );
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn initial_events_end_with_an_annotated_bookmark() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = Events::open(&server, query, "application/json").await;
    assert_eq!(events.next_name().await, event("ADDED", "a"));
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    let metadata = &bookmark["object"]["metadata"];
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(
        metadata["resourceVersion"],
        server.etcd.revision().to_string()
    );
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
}

#[tokio::test]
async fn initial_events_need_a_version_match() {
    let server = start_server(&[]).await;
    for query in [
        "sendInitialEvents=true",
        "resourceVersionMatch=NotOlderThan",
    ] {
        let answer = server.get(&format!("{MAPS}?watch=1&{query}")).await;
        assert_eq!(answer.status(), (422, "Invalid".into()), "{query}");
    }
    let list = server.get(&format!("{MAPS}?sendInitialEvents=true")).await;
    assert_eq!(list.code, 422, "a list has no initial events");
}

#[tokio::test]
async fn watch_ends_after_its_timeout_with_a_last_bookmark() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let version = server.etcd.revision();
    let query = format!("timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion={version}");
    let mut events = Events::open(&server, &query, "application/json").await;
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(
        bookmark["object"]["metadata"]["resourceVersion"],
        version.to_string()
    );
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn watches_end_when_the_server_stops_serving() {
    let server = start_server(&[]).await;
    let mut events = Events::open(&server, "", "application/json").await;
    server.server.closing.cancel();
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn table_of_a_watch_has_columns_in_its_first_event_only() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    server.create_map("b").await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut events = Events::open(&server, "", accept).await;
    let first = events.next().await.unwrap()["object"].clone();
    assert_eq!(first["kind"], "Table");
    assert!(first["columnDefinitions"].is_array());
    let second = events.next().await.unwrap()["object"].clone();
    assert_eq!(second["rows"][0]["cells"][0], "b");
    assert_eq!(second["columnDefinitions"], Value::Null);
}

#[tokio::test]
async fn metadata_watch_sends_no_content() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let mut events = Events::open(&server, "", accept).await;
    let object = events.next().await.unwrap()["object"].clone();
    assert_eq!(object["kind"], "PartialObjectMetadata");
    assert_eq!(object["metadata"]["name"], "a");
    assert_eq!(object.get("data"), None);
}

#[tokio::test]
async fn watch_in_yaml_is_not_acceptable() {
    let server = start_server(&[]).await;
    let request = request("GET", &format!("{MAPS}?watch=1")).header("accept", "application/yaml");
    assert_eq!(server.send(request, "").await.code, 406);
}

#[tokio::test]
async fn object_that_leaves_the_selector_is_deleted_for_the_watch() {
    let server = start_server(&[]).await;
    let mut object = config_map("a");
    object["metadata"]["labels"] = json!({"app": "web"});
    server.write("POST", MAPS, object.clone()).await;
    let mut events = Events::open(&server, "labelSelector=app%3Dweb", "application/json").await;
    assert_eq!(events.next_name().await, event("ADDED", "a"));
    object["metadata"]["labels"] = json!({"app": "db"});
    assert_eq!(
        server.write("PUT", &format!("{MAPS}/a"), object).await.code,
        200
    );
    assert_eq!(events.next_name().await, event("DELETED", "a"));
}

#[tokio::test]
async fn open_watches_are_counted() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let mut events = Events::open(&server, "", "application/json").await;
    events.next().await.unwrap();
    let page = server.get("/metrics").await;
    assert!(
        page.text()
            .contains("apiserver_longrunning_requests{verb=\"WATCH\"} 1")
    );
    let line = "apiserver_watch_events_total{group=\"\",version=\"v1\",kind=\"ConfigMap\"} 1";
    assert!(page.text().contains(line));
}
