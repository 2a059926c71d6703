//! Tenants and clients that use what is not theirs, or more than their part.

use std::net::SocketAddr;

use integration_tests::DEADLINE;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::backends::own_address;
use crate::ingress::{ingress, rule};
use crate::setting::Setting;

/// Starts a server that passes the bytes of each connection to another address.
async fn start_relay(setting: &Setting, to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((own_address(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = setting.tasks.clone();
    setting.tasks.spawn("relay", async move {
        while let Ok((mut near, _)) = listener.accept().await {
            tasks.spawn_isolated("connection", async move {
                let mut far = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn request_that_comes_back_to_the_gateway_is_refused() {
    let setting = Setting::start().await;
    setting.create_namespace("a").await;
    let relay = start_relay(&setting, setting.http).await;
    setting.add_service("a", "loop").await;
    setting.add_endpoint("a", "loop", relay, true).await;
    let spec = json!({"rules": [rule("loop.example.com", "/", "loop")]});
    setting.create(ingress("a", "i", spec)).await;
    setting
        .wait_for(&["http://loop.example.com/"], |response| {
            response.status == 508
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_leaves_hosts_to_their_owners_of_the_record() {
    let mut setting = Setting::start().await;
    for namespace in ["owner", "first"] {
        setting.create_namespace(namespace).await;
        setting.add_backend(namespace, namespace).await;
    }
    // The object of the first namespace is older, and gets the host of the other one later.
    let own = json!({"rules": [rule("own.example.com", "/", "first")]});
    setting.create(ingress("first", "i", own)).await;
    let shop = json!({"rules": [rule("shop.example.com", "/", "owner")]});
    setting.create(ingress("owner", "i", shop)).await;
    setting
        .wait_for_object(
            "/api/v1/namespaces/ironclad-gateway/configmaps/ironclad-gateway-hosts",
            "the owner is recorded",
            |found| {
                let owners = found["data"]["owners"].as_str().unwrap_or_default();
                owners.contains(r#""shop.example.com":"owner""#)
            },
        )
        .await;
    let rules = json!([
        rule("own.example.com", "/", "first"),
        rule("shop.example.com", "/", "first"),
        rule("new.example.com", "/", "first")
    ]);
    let path = "/apis/networking.k8s.io/v1/namespaces/first/ingresses/i";
    let admin = setting.plane.admin();
    admin
        .merge_patch(path, &json!({"spec": {"rules": rules}}))
        .await
        .expect_success();
    setting.add_gateway(&[]).await;
    setting
        .wait_for_server("http://new.example.com/", "first")
        .await;
    let response = setting.curl(&["http://shop.example.com/"]).await;
    assert_eq!((response.status, response.server()), (200, "owner"));
}

/// Starts a server that sends a response without an end, and reports when its client has closed.
async fn start_endless_server(setting: &Setting) -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind((own_address(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (gone, receiver) = mpsc::channel(1);
    setting.tasks.spawn("endless", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            while stream.write_all(&[b'x'; 64 * 1024]).await.is_ok() {}
            let _ = gone.try_send(());
        }
    });
    (address, receiver)
}

#[tokio::test(flavor = "multi_thread")]
async fn response_that_the_client_does_not_read_ends() {
    let setting = Setting::start_with(&["--idle-timeout=300ms"]).await;
    setting.create_namespace("a").await;
    let (address, mut gone) = start_endless_server(&setting).await;
    setting.add_service("a", "endless").await;
    setting.add_endpoint("a", "endless", address, true).await;
    setting.add_backend("a", "web").await;
    let rules = json!([
        rule("endless.example.com", "/", "endless"),
        rule("a.example.com", "/", "web")
    ]);
    setting
        .create(ingress("a", "i", json!({"rules": rules})))
        .await;
    setting
        .wait_for_server("http://a.example.com/", "web")
        .await;
    let mut stream = TcpStream::connect(setting.http).await.unwrap();
    let request = "GET / HTTP/1.1\r\nHost: endless.example.com\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    // The stream stays open, and is not read.
    gone.recv().await.unwrap();
}

/// Types of frames of HTTP/2 (RFC 9113, 6).
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

/// Returns a frame of HTTP/2 (RFC 9113, 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()];
    [head.concat(), payload.to_vec()].concat()
}

/// Reads frames until the end of the connection, and answers pings. Returns their types.
async fn read_frames(stream: &mut TcpStream) -> Vec<u8> {
    let mut kinds = Vec::new();
    loop {
        let mut head = [0; 9];
        // A reset is an end, too.
        if stream.read_exact(&mut head).await.is_err() {
            return kinds;
        }
        let [a, b, c, kind, flags, ..] = head;
        let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap();
        let mut payload = vec![0; length];
        if stream.read_exact(&mut payload).await.is_err() {
            return kinds;
        }
        kinds.push(kind);
        if kind == PING && flags == 0 {
            let _ = stream.write_all(&frame(PING, 1, 0, &payload)).await;
        }
    }
}

/// hyper holds no body of such a response, whose deadline could end.
#[tokio::test(flavor = "multi_thread")]
async fn connection_of_http2_whose_client_leaves_a_response_unread_is_closed() {
    // Without the limit of unread bytes, nothing else closes it.
    let setting = Setting::start_with(&["--idle-timeout=1s", "--header-timeout=1h"]).await;
    setting.create_namespace("a").await;
    setting.add_backend("a", "web").await;
    let spec = json!({"rules": [rule("a.example.com", "/", "web")]});
    setting.create(ingress("a", "i", spec)).await;
    setting
        .wait_for_server("http://a.example.com/", "web")
        .await;
    let mut stream = TcpStream::connect(setting.http).await.unwrap();
    // SETTINGS_INITIAL_WINDOW_SIZE is 1: one byte may be sent, so that hyper queues the body.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]);
    // GET, http, `/`, and the authority as a literal (RFC 7541).
    let headers = [&[0x82, 0x86, 0x84, 0x41, 13], &b"a.example.com"[..]].concat();
    let request = frame(HEADERS, 5, 1, &headers);
    let acknowledgment = frame(SETTINGS, 1, 0, &[]);
    let all = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &settings[..],
        &acknowledgment,
        &request,
    ];
    stream.write_all(&all.concat()).await.unwrap();
    let kinds = tokio::time::timeout(DEADLINE, read_frames(&mut stream)).await;
    assert!(kinds.is_ok(), "the connection stays open");
    let kinds = kinds.unwrap();
    assert!(kinds.contains(&HEADERS), "no response began: {kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_of_http2_without_requests_is_closed() {
    let setting = Setting::start_with(&["--header-timeout=1s"]).await;
    let mut stream = TcpStream::connect(setting.http).await.unwrap();
    // The preface and empty settings (RFC 9113, 3.4), and their acknowledgment.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";
    stream.write_all(preface).await.unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    assert!(!received.is_empty(), "the server spoke HTTP/2");
}

fn node(name: &str, range: &str, address: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"podCIDR": range, "podCIDRs": [range]},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_outside_of_the_pods_ranges_are_not_connected() {
    let setting = Setting::start().await;
    setting.create_namespace("a").await;
    let address = setting.add_backend("a", "web").await.ip();
    let spec = json!({"rules": [rule("a.example.com", "/", "web")]});
    setting.create(ingress("a", "i", spec)).await;
    let url = ["http://a.example.com/"];
    // Without Nodes, nothing is known about pods.
    setting.wait_for_server(url[0], "web").await;
    setting
        .create(node("one", "10.99.0.0/24", "203.0.113.1"))
        .await;
    setting
        .wait_for(&url, |response| response.status == 503)
        .await;
    setting
        .create(node("two", &format!("{address}/32"), "203.0.113.2"))
        .await;
    setting.wait_for_server(url[0], "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_the_command_line_take_the_place_of_those_of_nodes() {
    let setting = Setting::start_with(&["--endpoint-range=0.0.0.0/0"]).await;
    setting
        .create(node("one", "10.99.0.0/24", "203.0.113.1"))
        .await;
    setting.create_namespace("a").await;
    setting.add_backend("a", "web").await;
    let spec = json!({"rules": [rule("a.example.com", "/", "web")]});
    setting.create(ingress("a", "i", spec)).await;
    setting
        .wait_for_server("http://a.example.com/", "web")
        .await;
}

/// The API server refuses loopback and link-local addresses; these lead to them, or to metadata
/// servers.
#[tokio::test(flavor = "multi_thread")]
async fn endpoints_of_the_machine_and_of_clouds_are_not_connected() {
    let ranges = ["--endpoint-range=0.0.0.0/0", "--endpoint-range=::/0"];
    let setting = Setting::start_with(&ranges).await;
    setting.create_namespace("a").await;
    let mut rules = Vec::new();
    let special = [
        "100.100.100.200",
        "168.63.129.16",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::1",
        "fd00:ec2::254",
    ];
    for (n, address) in special.iter().enumerate() {
        let name = format!("s{n}");
        setting.add_service("a", &name).await;
        let endpoint = SocketAddr::new(address.parse().unwrap(), setting.http.port());
        setting.add_endpoint("a", &name, endpoint, true).await;
        rules.push(rule(&format!("{name}.example.com"), "/", &name));
    }
    setting.add_backend("a", "web").await;
    rules.push(rule("a.example.com", "/", "web"));
    setting
        .create(ingress("a", "i", json!({"rules": rules})))
        .await;
    setting
        .wait_for_server("http://a.example.com/", "web")
        .await;
    for (n, address) in special.iter().enumerate() {
        let url = format!("http://s{n}.example.com/");
        let response = setting.curl(&[&url]).await;
        // Not 502: no connection is tried.
        assert_eq!(response.status, 503, "{address}: {response:?}");
    }
}
