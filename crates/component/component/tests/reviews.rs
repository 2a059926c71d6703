//! Reviews by a scripted API server: what is requested, and what is made of the responses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs
)]

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Config};
use component::{AnswerLifetimes, DelegatedAccess};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

type Requests = Arc<Mutex<Vec<String>>>;

/// Serves each connection with the next response. Records the first line of each request.
async fn serve(responses: Vec<String>) -> (Client, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Requests::default();
    let log = requests.clone();
    tokio::spawn(async move {
        for response in responses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let n = stream.read(&mut head).await.unwrap();
            let head = String::from_utf8_lossy(&head[..n]).into_owned();
            let line = head.lines().next().unwrap_or_default();
            log.lock().push(line.replace(" HTTP/1.1", ""));
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    });
    let client = Client::new(Config::builder(format!("http://{address}")));
    (client, requests)
}

fn reply(code: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {code}\r\n{headers}connection: close\r\n\r\n{body}")
}

#[tokio::test]
async fn reviews_are_cached_for_their_lifetimes_and_failures_are_not() {
    const TOKENS: &str = "POST /apis/authentication.k8s.io/v1/tokenreviews";
    const ACCESS: &str = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";
    let created = |body: &str| reply("201 Created", "", body);
    let known = created(r#"{"spec":{},"status":{"authenticated":true,"user":{"username":"u"}}}"#);
    let decision = |allowed: bool| {
        created(&format!(
            r#"{{"spec":{{}},"status":{{"allowed":{allowed}}}}}"#
        ))
    };
    let unknown = created(r#"{"spec":{},"status":{"authenticated":false}}"#);
    let broken = reply("500 Internal Server Error", "", "oops");
    let responses = vec![
        known.clone(),
        decision(true),
        decision(false),
        unknown,
        broken.clone(),
        broken,
        // Without lifetimes.
        known.clone(),
        decision(true),
        known,
        decision(true),
    ];
    let (client, requests) = serve(responses).await;
    let access = DelegatedAccess::new(client.clone(), client.clone(), AnswerLifetimes::default());
    let check = async |access: &DelegatedAccess, token: &str, path: &str| {
        let mut headers = http::HeaderMap::new();
        headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        access.check_path(&headers, path).await.as_u16()
    };
    let cases = [
        ("a", "/metrics", 200),
        ("a", "/debug", 403),
        ("b", "/metrics", 401),
        ("a", "/metrics", 200),
    ];
    for (token, path, expectation) in cases.into_iter().chain(cases) {
        assert_eq!(
            check(&access, token, path).await,
            expectation,
            "{token} {path}"
        );
    }
    assert_eq!(*requests.lock(), [TOKENS, ACCESS, ACCESS, TOKENS]);
    for _ in 0..2 {
        assert_eq!(
            check(&access, "c", "/metrics").await,
            401,
            "no user has the token"
        );
    }
    assert_eq!(requests.lock().len(), 6);
    let none = AnswerLifetimes {
        tokens: Duration::ZERO,
        authorized: Duration::ZERO,
        unauthorized: Duration::ZERO,
    };
    let uncached = DelegatedAccess::new(client.clone(), client, none);
    for _ in 0..2 {
        assert_eq!(check(&uncached, "a", "/metrics").await, 200);
    }
    assert_eq!(requests.lock().len(), 10);
    assert_eq!(
        access.check_path(&http::HeaderMap::new(), "/metrics").await,
        401
    );
}
