//! Endpoints that speak HTTP/2, as those of gRPC.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::backends::{start_http2_server, start_single_use_server};
use crate::ingress::{ingress, rule};
use crate::setting::Setting;

const URL: &str = "http://a.example.com/pkg.Service/Call?x=1";

async fn start(protocol: &str) -> Setting {
    start_with_streams(protocol, 200).await
}

/// Starts an endpoint that takes this number of requests of a connection at a time.
async fn start_with_streams(protocol: &str, streams: u32) -> Setting {
    let setting = Setting::start().await;
    let address = start_http2_server("rpc", streams, &setting.tasks).await;
    add_endpoint(&setting, protocol, address).await;
    setting.wait_for_server(URL, "rpc").await;
    setting
}

/// Creates a Service with this endpoint, and an Ingress for it.
async fn add_endpoint(setting: &Setting, protocol: &str, address: SocketAddr) {
    setting.create_namespace("a").await;
    let ports = json!([{"name": "web", "port": 80, "appProtocol": protocol}]);
    setting
        .create(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "rpc", "namespace": "a"}, "spec": {"ports": ports}}))
        .await;
    setting.add_endpoint("a", "rpc", address, true).await;
    let spec = json!({"rules": [rule("a.example.com", "/", "rpc")]});
    setting.create(ingress("a", "i", spec)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_share_a_connection_of_http2_with_its_trailers() {
    let setting = start("kubernetes.io/h2c").await;
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let response = setting
            .curl(&[
                version,
                "--data",
                "ping",
                "--header",
                "X-Forwarded-For: 192.0.2.9",
                URL,
            ])
            .await;
        for line in [
            "connection: 1",
            "POST http://a.example.com/pkg.Service/Call?x=1 HTTP/2.0",
            "x-forwarded-for: 127.0.0.1",
            "x-forwarded-host: a.example.com",
            "body: ping",
        ] {
            assert!(response.has_line(line), "{version} {line}: {response:?}");
        }
        assert!(!response.has_line("host: a.example.com"), "{response:?}");
    }
    let trailers = setting
        .curl(&[
            "--http2-prior-knowledge",
            "--dump-header",
            "/dev/stderr",
            "--output",
            "/dev/null",
            "--no-include",
            URL,
        ])
        .await;
    assert!(trailers.body.contains("x-end: 1"), "{trailers:?}");
}

/// The endpoint would not see the end of an upgraded connection as HTTP/2.
#[tokio::test(flavor = "multi_thread")]
async fn websocket_to_an_endpoint_of_http2_is_a_plain_request() {
    let setting = start("grpc").await;
    let upgrade = [
        "--header",
        "Connection: Upgrade",
        "--header",
        "Upgrade: websocket",
        URL,
    ];
    let response = setting.curl(&upgrade).await;
    assert_eq!((response.status, response.server()), (200, "rpc"));
    assert!(!response.body.contains("upgrade"), "{response:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_does_not_read_stops_no_other_one() {
    let setting = start("kubernetes.io/h2c").await;
    let mut silent = Vec::new();
    // More than one connection has places.
    for _ in 0..130 {
        let mut stream = TcpStream::connect(setting.http).await.unwrap();
        let request = "GET /endless HTTP/1.1\r\nHost: a.example.com\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        silent.push(stream);
    }
    let response = setting.curl(&[URL]).await;
    assert_eq!((response.status, response.server()), (200, "rpc"));
    assert!(response.has_line("connection: 2"), "{response:?}");
}

/// Requests beyond the endpoint's limit would wait for the end of others.
#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_the_streams_of_a_connection_have_another_one() {
    let setting = start_with_streams("kubernetes.io/h2c", 2).await;
    let mut open = Vec::new();
    for number in 0..7 {
        let mut stream = TcpStream::connect(setting.http).await.unwrap();
        let request = "GET /endless HTTP/1.1\r\nHost: a.example.com\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        let begun = timeout(Duration::from_secs(60), stream.read_exact(&mut status));
        assert!(begun.await.is_ok(), "{number} does not begin");
        open.push(stream);
    }
    let response = setting.curl(&[URL]).await;
    assert_eq!((response.status, response.server()), (200, "rpc"));
    assert!(response.has_line("connection: 4"), "{response:?}");
}

/// Connections without a use would fill the memory before they expire.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_take_no_request_any_more_are_closed() {
    let setting = Setting::start().await;
    let open = Arc::new(AtomicUsize::new(0));
    let address = start_single_use_server(&open, &setting.tasks).await;
    add_endpoint(&setting, "kubernetes.io/h2c", address).await;
    setting
        .wait_for(&[URL], |response| response.status == 200)
        .await;
    for number in 0..10 {
        assert_eq!(setting.curl(&[URL]).await.status, 200, "{number}");
    }
    // They expire after 30 s.
    let closed = async {
        while open.load(Ordering::Relaxed) > 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let closed = timeout(Duration::from_secs(20), closed).await;
    assert!(closed.is_ok(), "{open:?} connections are open");
}
