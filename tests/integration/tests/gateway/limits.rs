//! Limits of clients and endpoints that are slow, silent or large.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::backends::{own_address, start_unread_server};
use crate::ingress::{ingress, rule};
use crate::setting::Setting;

/// Starts a server that reads and sends these bytes to each connection, and closes none.
async fn start_fixed_server(setting: &Setting, response: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind((own_address(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = setting.tasks.clone();
    setting.tasks.spawn("fixed", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let response = response.clone();
            tasks.spawn_isolated("connection", async move {
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(&response).await;
                while let Ok(1..) = stream.read(&mut buffer).await {}
            });
        }
    });
    address
}

async fn start(flags: &[&str], servers: Vec<(&str, Vec<u8>)>) -> Setting {
    let setting = Setting::start_with(flags).await;
    setting.create_namespace("a").await;
    setting.add_backend("a", "web").await;
    let mut rules = vec![rule("a.example.com", "/", "web")];
    for (name, response) in servers {
        let address = start_fixed_server(&setting, response).await;
        setting.add_service("a", name).await;
        setting.add_endpoint("a", name, address, true).await;
        rules.push(rule(&format!("{name}.example.com"), "/", name));
    }
    setting
        .create(ingress("a", "i", json!({"rules": rules})))
        .await;
    setting
        .wait_for_server("http://a.example.com/", "web")
        .await;
    setting
}

async fn read_rest(stream: &mut TcpStream) -> String {
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received).await;
    String::from_utf8_lossy(&received).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_sends_headers_slowly_is_disconnected() {
    let setting = start(&["--header-timeout=1s"], vec![]).await;
    let stream = TcpStream::connect(setting.http).await.unwrap();
    let (mut receiver, mut sender) = stream.into_split();
    let dribble = async {
        let _ = sender
            .write_all(b"GET / HTTP/1.1\r\nHost: a.example.com\r\n")
            .await;
        // Each line is progress; the headers as a whole have a limit.
        while sender.write_all(b"X: a\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ended = async {
        let mut received = Vec::new();
        let _ = receiver.read_to_end(&mut received).await;
        received
    };
    let received = tokio::select! {
        received = ended => String::from_utf8_lossy(&received).into_owned(),
        () = dribble => String::new(),
    };
    assert!(!received.contains("web"), "{received}");
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_stops_ends_the_request() {
    let setting = start(&["--idle-timeout=500ms"], vec![]).await;
    let mut stream = TcpStream::connect(setting.http).await.unwrap();
    let request = "POST / HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 100\r\n\r\nabc";
    stream.write_all(request.as_bytes()).await.unwrap();
    let received = read_rest(&mut stream).await;
    assert!(!received.starts_with("HTTP/1.1 200"), "{received}");
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_that_is_silent_stops_or_sends_too_much_has_a_status() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(1024 * 1024));
    let servers = vec![
        ("silent", Vec::new()),
        ("stops", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_vec()),
        ("long", long.into_bytes()),
        ("garbage", b"SSH-2.0-x\r\n".to_vec()),
        ("upgrades", b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n".to_vec()),
    ];
    let setting = start(&["--response-timeout=2s", "--idle-timeout=2s"], servers).await;
    for (name, status) in [
        ("silent", 504),
        ("long", 502),
        ("garbage", 502),
        ("upgrades", 502),
    ] {
        let url = format!("http://{name}.example.com/");
        setting
            .wait_for(&[&url], |response| response.status != 404)
            .await;
        let response = setting.curl(&[&url]).await;
        assert_eq!(response.status, status, "{name}: {response:?}");
    }
    let mut stream = TcpStream::connect(setting.http).await.unwrap();
    let request = "GET / HTTP/1.1\r\nHost: stops.example.com\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let received = read_rest(&mut stream).await;
    assert!(
        received.ends_with("abc"),
        "the connection ends without the rest: {received}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn client_has_half_of_the_connections() {
    let setting = start(&["--max-connections=4"], vec![]).await;
    // A connection that was closed before counts until the gateway has noticed.
    integration_tests::wait_for("2 of 6 connections are kept", async || {
        let open = count_kept_connections(&setting, 6).await;
        assert!(open <= 2, "{open} connections");
        open == 2
    })
    .await;
}

/// Opens connections at once, and returns the number of those on which a request has a response.
async fn count_kept_connections(setting: &Setting, count: usize) -> usize {
    let mut open = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(setting.http).await.unwrap();
        let request = "GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n";
        let _ = stream.write_all(request.as_bytes()).await;
        let mut first = [0; 1];
        if let Ok(1) = stream.read(&mut first).await {
            open.push(stream);
        }
    }
    open.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn body_beyond_the_limit_is_refused_whether_its_size_is_known_or_not() {
    let setting = start(&["--max-body-size=1000"], vec![]).await;
    for (size, chunked, status) in [
        (1000, false, 200),
        (1001, false, 413),
        (1000, true, 200),
        (1001, true, 413),
        (1_000_000, true, 413),
    ] {
        let body = setting.plane.folder().join("body");
        std::fs::write(&body, vec![b'x'; size]).unwrap();
        let data = format!("@{}", body.display());
        let encoding = match chunked {
            true => "Transfer-Encoding: chunked",
            false => "X: y",
        };
        let request = [
            "--data-binary",
            &data,
            "--header",
            encoding,
            "http://a.example.com/",
        ];
        let response = setting.curl(&request).await;
        assert_eq!(response.status, status, "{size} {chunked}: {response:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_has_half_of_the_requests_and_gets_them_back() {
    let setting = start(&["--max-requests=4"], vec![("silent", Vec::new())]).await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(setting.http).await.unwrap();
        let request = "GET / HTTP/1.1\r\nHost: silent.example.com\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    let url = ["http://a.example.com/"];
    setting
        .wait_for(&url, |response| response.status == 503)
        .await;
    drop(waiting);
    setting.wait_for_server(url[0], "web").await;
}

/// Starts an upload to an endpoint that responds at once and reads no body. The client goes away
/// after the response.
async fn leave_upload(setting: &Setting) {
    let mut stream = TcpStream::connect(setting.http).await.unwrap();
    let head = "POST / HTTP/1.1\r\nHost: unread.example.com\r\nContent-Length: 33554432\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    // HTTP/1.1 has no window: the part must not fit into the buffers of the connections.
    let part = vec![b'x'; 32 * 1024 * 1024];
    let (mut receiver, mut sender) = stream.split();
    let mut status = [0; 12];
    let read = receiver.read_exact(&mut status);
    let write = tokio::time::timeout(Duration::from_secs(1), sender.write_all(&part));
    let (read, _) = tokio::join!(read, write);
    read.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
}

/// The endpoint must not be able to make the gateway keep uploads for which no one waits.
#[tokio::test(flavor = "multi_thread")]
async fn upload_that_the_endpoint_does_not_read_has_a_place_and_a_limit() {
    for protocol in ["http", "kubernetes.io/h2c"] {
        let setting = start(&["--max-requests=4", "--idle-timeout=8s"], vec![]).await;
        let address = start_unread_server(protocol, &setting.tasks).await;
        let ports = json!([{"name": "web", "port": 80, "appProtocol": protocol}]);
        setting
            .create(json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "unread", "namespace": "a"}, "spec": {"ports": ports}}))
            .await;
        setting.add_endpoint("a", "unread", address, true).await;
        let rules = json!({"rules": [rule("unread.example.com", "/", "unread")]});
        setting.create(ingress("a", "unread", rules)).await;
        // The endpoint's settings are known after the first request.
        let url = "http://unread.example.com/";
        setting
            .wait_for(&[url], |response| response.status == 200)
            .await;
        tokio::join!(leave_upload(&setting), leave_upload(&setting));
        let response = setting.curl(&["http://a.example.com/"]).await;
        assert_eq!(response.status, 503, "{protocol}: {response:?}");
        setting
            .wait_for_server("http://a.example.com/", "web")
            .await;
    }
}

/// The settings and the window of a connection of HTTP/2 limit the bodies that endpoints leave
/// unread.
#[tokio::test(flavor = "multi_thread")]
async fn client_may_send_little_of_a_body_that_the_endpoint_does_not_read() {
    let setting = Setting::start().await;
    let mut stream = TcpStream::connect(setting.http).await.unwrap();
    // The preface and empty settings (RFC 9113, 3.4).
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(preface).await.unwrap();
    let mut of_stream = 65_535;
    let of_connection = loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        match (head[3], head[4]) {
            // Settings (RFC 9113, 6.5), the first frame. Number 4 is the window of streams.
            (4, 0) => {
                let found = payload.chunks(6).find(|setting| setting[..2] == [0, 4]);
                of_stream = found.map_or(of_stream, |setting| number(&setting[2..]));
            }
            (8, _) => break 65_535 + number(&payload),
            _ => {}
        }
    };
    assert_eq!((of_stream, of_connection), (64 * 1024, 128 * 1024));
}
