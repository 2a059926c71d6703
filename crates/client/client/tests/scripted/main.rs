//! The client against a scripted server: its requests, and its results for the responses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs
)]

mod election;
mod informers;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Config, ListParams, ObjectExt};
use k8s_openapi::api::core::v1::ConfigMap;
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

fn broken(name: &str, version: u32) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"n","name":"{name}","resourceVersion":"{version}"}},"data":5}}"#
    )
}
