//! WebSockets, and bytes that no client library sends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use integration_tests::wait_for;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use crate::backends::own_address;
use crate::ingress::{ingress, rule};
use crate::setting::Setting;

async fn start() -> Setting {
    let setting = Setting::start().await;
    setting.create_namespace("a").await;
    setting.add_backend("a", "web").await;
    let spec = json!({"rules": [rule("a.example.com", "/", "web")]});
    setting.create(ingress("a", "i", spec)).await;
    setting
        .wait_for_server("http://a.example.com/", "web")
        .await;
    setting
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_is_connected_with_the_endpoint_until_one_end_closes() {
    let setting = start().await;
    let mut stream = TcpStream::connect(setting.http).await.unwrap();
    let request = "GET /ws HTTP/1.1\r\nHost: a.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(
        head.starts_with("http/1.1 101") && head.contains("upgrade: websocket"),
        "{head}"
    );
    for text in ["hello", "again"] {
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut echoed = [0; 5];
        stream.read_exact(&mut echoed).await.unwrap();
        assert_eq!(&echoed, text.as_bytes());
    }
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_that_stops_waits_for_websockets() {
    let setting = start().await;
    let mut stream = TcpStream::connect(setting.http).await.unwrap();
    let request = "GET /ws HTTP/1.1\r\nHost: a.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("http/1.1 101"));
    setting.tasks.shutdown().cancel();
    wait_for("the port is closed", async || {
        TcpStream::connect(setting.http).await.is_err()
    })
    .await;
    stream.write_all(b"hello").await.unwrap();
    let mut echoed = [0; 5];
    stream.read_exact(&mut echoed).await.unwrap();
    let has_ended = || setting.has_ended.load(Ordering::Acquire);
    assert!(!has_ended());
    drop(stream);
    wait_for("the gateway ends", async || has_ended()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_upgrades_and_ambiguous_requests_reach_no_endpoint_as_such() {
    let setting = start().await;
    let host = "Host: a.example.com\r\n";
    for (request, want) in [
        // The gateway would not see HTTP/2 inside of the connection: a plain request.
        (
            format!(
                "GET / HTTP/1.1\r\n{host}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"
            ),
            "200",
        ),
        (format!("GET / HTTP/1.1\r\n{host}{host}\r\n"), "400"),
        (
            format!("GET http://b.example.com/ HTTP/1.1\r\n{host}\r\n"),
            "400",
        ),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400"),
        (
            format!("POST / HTTP/1.1\r\n{host}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"),
            "400",
        ),
        (
            format!("POST / HTTP/1.1\r\n{host}Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
            "400",
        ),
        (
            format!("GET / HTTP/1.1\r\n{host}X: a\r\n b: c\r\n\r\n"),
            "400",
        ),
        (
            "CONNECT a.example.com:80 HTTP/1.1\r\nHost: a.example.com:80\r\n\r\n".to_owned(),
            "405",
        ),
    ] {
        let mut stream = TcpStream::connect(setting.http).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(
            head.starts_with(&format!("http/1.1 {want}")),
            "{request}: {head}"
        );
    }
}

/// RFC 9112, 6.3: with both headers, the encoding counts and the connection ends. The endpoint gets
/// a body that is framed again.
#[tokio::test(flavor = "multi_thread")]
async fn request_with_two_lengths_hides_no_second_request() {
    let setting = start().await;
    for headers in [
        "Content-Length: 41\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 41\r\n",
    ] {
        let mut stream = TcpStream::connect(setting.http).await.unwrap();
        let hidden = "GET /hidden HTTP/1.1\r\nHost: a.example.com\r\n\r\n";
        let request = format!(
            "POST /first HTTP/1.1\r\nHost: a.example.com\r\n{headers}\r\n0\r\n\r\n{hidden}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut received = String::new();
        // The connection may be reset, since its rest is not read.
        let _ = stream.read_to_string(&mut received).await;
        assert!(!received.contains("/hidden"), "{received}");
        assert!(!received.contains("content-length: 41"), "{received}");
        assert!(
            received.contains("POST /first") || received.contains("HTTP/1.1 400"),
            "{received}"
        );
    }
}

/// Adds the Service `refusing`, whose endpoint answers each part that it receives with a status, and
/// returns what it receives.
async fn add_refusing_endpoint(setting: &Setting) -> Arc<Mutex<Vec<u8>>> {
    let listener = TcpListener::bind((own_address(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let received = Arc::new(Mutex::new(Vec::new()));
    let (all, tasks) = (received.clone(), setting.tasks.clone());
    setting.tasks.spawn("refusing", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let all = all.clone();
            tasks.spawn_isolated("connection", async move {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    all.lock().await.extend_from_slice(&buffer[..count]);
                    let response = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
                    let _ = stream.write_all(response).await;
                }
            });
        }
    });
    setting.add_service("a", "refusing").await;
    setting.add_endpoint("a", "refusing", address, true).await;
    received
}

/// The client's next bytes are a request to the gateway, and not for the endpoint that refused.
#[tokio::test(flavor = "multi_thread")]
async fn websocket_that_the_endpoint_refuses_passes_no_further_bytes() {
    let setting = start().await;
    let received = add_refusing_endpoint(&setting).await;
    let spec = json!({"rules": [rule("refusing.example.com", "/", "refusing")]});
    setting.create(ingress("a", "refusing", spec)).await;
    let url = ["http://refusing.example.com/first"];
    setting
        .wait_for(&url, |response| response.status == 403)
        .await;
    let mut stream = TcpStream::connect(setting.http).await.unwrap();
    let upgrade = "GET /ws HTTP/1.1\r\nHost: refusing.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let hidden = "GET /hidden HTTP/1.1\r\nHost: unknown.example.com\r\n\r\n";
    let both = format!("{upgrade}{hidden}");
    stream.write_all(both.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("http/1.1 403"));
    stream.read_exact(&mut [0; 2]).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("http/1.1 404"));
    let received = String::from_utf8(received.lock().await.clone()).unwrap();
    assert!(received.contains("GET /ws "), "{received}");
    assert!(!received.contains("hidden"), "{received}");
}
