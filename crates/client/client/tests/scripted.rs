//! The client against a scripted server: what is asked, and what is made of the answers.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Config, Event, Informer, ListParams, ObjectExt};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

type Asked = Arc<Mutex<Vec<String>>>;

/// Answers connections one after the other with the given bytes; an answer without a length stays open.
async fn serve(answers: Vec<String>) -> (Client, Asked) {
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
            log.lock().push(head.lines().next().unwrap_or_default().replace(" HTTP/1.1", ""));
            stream.write_all(answer.as_bytes()).await.unwrap();
            if answer.contains("x-stay: open") {
                open.push(stream);
            }
        }
        std::future::pending::<()>().await;
    });
    (Client::new(Config::builder(format!("http://{address}"))), asked)
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
    let informer = Informer::new(client.api::<ConfigMap>(), ListParams::new()).on_event(move |event| {
        let word = if matches!(event, Event::Deleted(_)) { "-" } else { "+" };
        sink.lock().push(format!("{word}{}", event.object().name()));
    });
    let (store, run) = informer.start(stop.clone());
    let task = tokio::spawn(run);
    let settled = async {
        while asked.lock().len() < 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), settled).await.unwrap();
    assert_eq!(*heard.lock(), ["+a", "+b", "-a", "+c"]);
    assert_eq!(store.len(), 2);
    let asked = asked.lock().clone();
    assert_eq!(asked[0], "GET /api/v1/configmaps?resourceVersion=0");
    assert!(asked[1].contains("watch=true") && asked[1].ends_with("resourceVersion=5"), "{}", asked[1]);
    assert!(asked[2].ends_with("resourceVersion=6"), "{}", asked[2]);
    assert_eq!(asked[3], "GET /api/v1/configmaps?limit=500");
    assert!(asked[4].ends_with("resourceVersion=9"), "{}", asked[4]);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test]
async fn failures_are_decoded_and_busy_servers_asked_again() {
    let status =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"NotFound","code":404}"#;
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

#[tokio::test]
async fn undecodable_objects_do_not_hide_the_others() {
    let broken = r#"{"metadata":{"namespace":"n","name":"x"},"data":5}"#.to_owned();
    let (client, _) = serve(vec![list(3, &[map("a", 1), broken])]).await;
    let list = client.api::<ConfigMap>().list(&ListParams::new()).await.unwrap();
    assert_eq!(list.items.len(), 1);
    assert_eq!(list.resource_version(), "3");
}
