//! Clients that do not read the responses to their requests.

#![allow(clippy::unwrap_used, missing_docs)]

use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream};
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// More than the responses that a user may leave unread, by far.
const MANY: usize = 400;
/// Bytes of a ConfigMap of almost the maximum size.
const BIG: usize = 900 * 1024;
const DEADLINE: Duration = Duration::from_secs(60);

/// An HTTP/2 connection; it is closed when the value is dropped.
struct Connection {
    sender: SendRequest<&'static [u8]>,
    authority: String,
    _driver: JoinSet<()>,
}

impl Connection {
    /// Connects; the server may send `window` bytes on each stream until they are acknowledged.
    async fn open(caller: &Caller, window: u32) -> Self {
        let authority = caller.address().to_string();
        let stream = caller.clone().with_protocols(&["h2"]).connect().await;
        let (sender, connection) = Builder::new()
            .initial_window_size(window)
            .initial_connection_window_size(1 << 30)
            .handshake(stream.unwrap())
            .await
            .unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            let _ = connection.await;
        });
        Connection {
            sender,
            authority,
            _driver: driver,
        }
    }

    /// Sends a GET, and returns the response when its head has arrived.
    async fn get(&self, path: &str) -> Response<RecvStream> {
        self.get_with(path, &[]).await
    }

    /// Sends a GET with further headers.
    async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Response<RecvStream> {
        self.send(Method::GET, path, headers, b"").await
    }

    /// Sends a request, and returns the response when its head has arrived.
    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &'static [u8],
    ) -> Response<RecvStream> {
        let uri = format!("https://{}{path}", self.authority);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        let mut sender = self.sender.clone().ready().await.unwrap();
        let (response, mut stream) = sender.send_request(request, body.is_empty()).unwrap();
        if !body.is_empty() {
            stream.send_data(body, true).unwrap();
        }
        response.await.unwrap()
    }
}

/// Starts a control plane whose requests do not end while a slow machine sends more of them.
async fn start_with_long_timeout() -> ControlPlane {
    let options = Options {
        api_server: vec!["--request-timeout=10m".to_owned()],
        ..Options::default()
    };
    ControlPlane::start_with(options).await
}

/// Creates a ConfigMap of almost the maximum size.
async fn create_big_map(plane: &ControlPlane, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"k": "v".repeat(BIG)}});
    plane.admin().post(MAPS, &object).await.expect_success();
}

async fn grant_reading(plane: &ControlPlane, user: &str) -> Caller {
    let rules: Value = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]);
    plane.grant(user, "default", rules).await;
    plane.user(user, None)
}

/// Sends a GET until the response has this status.
async fn wait_for_status(caller: &Caller, path: &str, status: u16) {
    let begun = Instant::now();
    while caller.get(path).await.status != status {
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(60), "not {status}: {path}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Each response that is not read is kept in memory: without a limit, a client with one right to
/// read could exhaust the memory of the server.
#[tokio::test(flavor = "multi_thread")]
async fn unread_responses_of_a_user_are_limited_and_leave_others_alone() {
    let plane = ControlPlane::start().await;
    create_big_map(&plane, "big").await;
    let mallory = grant_reading(&plane, "mallory").await;
    let alice = grant_reading(&plane, "alice").await;
    let path = format!("{MAPS}/big");

    let connection = Connection::open(&mallory, 0).await;
    let mut unread = Vec::new();
    let rejected = loop {
        let response = connection.get(&path).await;
        if response.status() != StatusCode::OK {
            break response;
        }
        unread.push(response);
        assert!(unread.len() < MANY, "{MANY} unread responses");
    };
    assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(rejected.headers()["retry-after"], "1");
    // Long lists are sent in parts, and occupy memory, too. Another connection does not help.
    mallory.get(MAPS).await.expect_status(429);

    alice.get(&path).await.expect_success();
    alice.get(MAPS).await.expect_success();

    drop((connection, unread, rejected));
    // Unsent bytes of a closed connection count no longer.
    wait_for_status(&mallory, &path, 200).await;
}

/// Creates a ServiceAccount in the default namespace, and returns a token.
async fn create_account(admin: &Caller, name: &str) -> String {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    admin.post(accounts, &account).await.expect_success();
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("{accounts}/{name}/token");
    let reply = admin.post(&path, &request).await.expect_success().json();
    reply["status"]["token"].as_str().unwrap().to_owned()
}

/// A client that may create ServiceAccounts in a namespace has as many as it likes.
#[tokio::test(flavor = "multi_thread")]
async fn service_accounts_of_a_namespace_have_one_limit_of_unread_responses() {
    let plane = start_with_long_timeout().await;
    let admin = plane.admin();
    create_big_map(&plane, "big").await;
    let alice = grant_reading(&plane, "alice").await;
    let group = "system:serviceaccounts:default";
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "accounts"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "test-alice"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    admin.post(bindings, &binding).await.expect_success();
    let path = format!("{MAPS}/big");
    let first = plane.bearer(&create_account(&admin, "first").await);
    wait_for_status(&first, &path, 200).await;

    let connection = Connection::open(&plane.anonymous(), 0).await;
    let (mut unread, mut rejected) = (Vec::new(), 0);
    for n in 0..200 {
        let token = create_account(&admin, &format!("a{n}")).await;
        let bearer = format!("Bearer {token}");
        let response = connection
            .get_with(&path, &[("authorization", &bearer)])
            .await;
        match response.status() {
            StatusCode::OK => unread.push(response),
            StatusCode::TOO_MANY_REQUESTS => rejected += 1,
            other => panic!("a{n}: {other}"),
        }
    }
    // 128 MiB of 900 KiB each.
    assert_eq!((unread.len(), rejected), (146, 54));
    alice.get(&path).await.expect_success();
}

/// The time of a request ends with its body. Watches continue.
#[tokio::test(flavor = "multi_thread")]
async fn unread_response_is_reset_at_the_request_timeout() {
    let options = Options {
        api_server: vec!["--request-timeout=8s".to_owned()],
        ..Options::default()
    };
    let plane = ControlPlane::start_with(options).await;
    create_big_map(&plane, "big").await;
    let mallory = grant_reading(&plane, "mallory").await;

    let reading = Connection::open(&mallory, 1 << 20).await;
    let watch = format!("{MAPS}?watch=1&fieldSelector=metadata.name=new");
    let mut watch = reading.get(&watch).await;
    assert_eq!(watch.status(), StatusCode::OK);

    // A window of zero, and one that a part of the body fits into.
    for (window, path) in [(0, format!("{MAPS}/big")), (10, MAPS.to_owned())] {
        let connection = Connection::open(&mallory, window).await;
        let mut response = connection.get(&path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let ended = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                match response.body_mut().data().await {
                    Some(Ok(_)) => {}
                    other => break other.map(Result::unwrap_err),
                }
            }
        });
        let reset = ended.await.unwrap().and_then(|error| error.reason());
        assert_eq!(reset, Some(Reason::CANCEL), "{path}");
    }

    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
    plane.admin().post(MAPS, &object).await.expect_success();
    let event = tokio::time::timeout(Duration::from_secs(60), watch.body_mut().data()).await;
    let event = event.unwrap().unwrap().unwrap();
    assert!(String::from_utf8_lossy(&event).contains("ADDED"));
}

/// Opens an HTTP/1.1 connection, and sends a GET. Reads the status line only, and returns the status.
async fn get_unread(caller: &Caller, path: &str) -> (TlsStream<TcpStream>, String) {
    let mut stream = caller.connect().await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: application/json\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut line = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut line).await.unwrap();
    let status = String::from_utf8_lossy(&line[9..]).into_owned();
    (stream, status)
}

/// Over HTTP/1, the buffers of the sockets are the window. The body that does not fit counts, and the
/// connection is closed at the request timeout.
#[tokio::test(flavor = "multi_thread")]
async fn unread_http1_response_counts_and_is_closed_at_the_request_timeout() {
    let options = Options {
        api_server: vec!["--request-timeout=20s".to_owned()],
        ..Options::default()
    };
    let plane = ControlPlane::start_with(options).await;
    for n in 0..12 {
        create_big_map(&plane, &format!("big{n}")).await;
    }
    let mallory = grant_reading(&plane, "mallory").await;
    let path = format!("{MAPS}/big0");

    // A list in a form that is not streamed: one body of 10 MiB, more than the sockets take.
    let list = format!("{MAPS}?pretty=true");
    let slow = mallory.clone().with_receive_buffer(4096);
    let mut unread = Vec::new();
    loop {
        let (stream, status) = get_unread(&slow, &list).await;
        if status == "429" {
            break;
        }
        assert_eq!(status, "200");
        unread.push(stream);
        assert!(unread.len() < MANY, "{MANY} unread responses");
    }
    // 128 MiB of 10.5 MiB each; on a slow machine, the first ones end before the limit is reached.
    assert!(unread.len() >= 13, "{} unread responses", unread.len());
    // The first response ends at its timeout, although its connection is still open here.
    wait_for_status(&mallory, &path, 200).await;
    let mut received = Vec::new();
    let mut first = unread.remove(0);
    let first = first.read_to_end(&mut received);
    // The end may be a reset.
    let _ = tokio::time::timeout(DEADLINE, first).await.unwrap();
    assert!(received.len() < 12 * BIG, "{} bytes", received.len());
}

/// Creates a ConfigMap of almost the maximum size that can't be compressed.
async fn create_random_map(plane: &ControlPlane, name: &str) {
    let mut state = 1_u64;
    let letters = (0..BIG).map(|_| {
        // A linear congruential generator (Knuth's MMIX).
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(b'A' + u8::try_from((state >> 33) % 26).unwrap_or_default())
    });
    let text: String = letters.collect();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"k": text}});
    plane.admin().post(MAPS, &object).await.expect_success();
}

/// Name, method, path, headers and body of a request.
type Case<'a> = (
    &'a str,
    Method,
    &'a str,
    &'a [(&'a str, &'a str)],
    &'static [u8],
);

/// Responses to writes, and compressed ones, occupy memory as those to a GET do.
#[tokio::test(flavor = "multi_thread")]
async fn unread_responses_of_all_kinds_are_limited() {
    let plane = start_with_long_timeout().await;
    for n in 0..12 {
        create_random_map(&plane, &format!("big{n}")).await;
    }
    let rules: Value = json!([{"apiGroups": [""], "resources": ["configmaps"],
        "verbs": ["get", "list", "patch", "deletecollection"]}]);
    let single = format!("{MAPS}/big0?dryRun=All");
    let all = format!("{MAPS}?dryRun=All");
    let objects = format!("{MAPS}?includeObject=Object");
    let merge = [("content-type", "application/merge-patch+json")];
    let gzip = [("accept-encoding", "gzip")];
    let table = [
        ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),
        ("accept-encoding", "gzip"),
    ];
    let cases: [Case<'_>; 4] = [
        (
            "patch",
            Method::PATCH,
            &single,
            &merge,
            br#"{"metadata":{"labels":{"a":"b"}}}"#,
        ),
        ("deletecollection", Method::DELETE, &all, &[], b""),
        ("compressed list", Method::GET, MAPS, &gzip, b""),
        ("compressed table", Method::GET, &objects, &table, b""),
    ];
    for (case, method, path, headers, body) in cases {
        let user = case.replace(' ', "-");
        plane.grant(&user, "default", rules.clone()).await;
        let caller = plane.user(&user, None);
        let connection = Connection::open(&caller, 0).await;
        let mut unread = Vec::new();
        loop {
            let response = connection.send(method.clone(), path, headers, body).await;
            if response.status() == StatusCode::TOO_MANY_REQUESTS {
                break;
            }
            assert_eq!(response.status(), StatusCode::OK, "{case}");
            unread.push(response);
            assert!(unread.len() < MANY, "{case}: {MANY} unread responses");
        }
        assert!(
            unread.len() > 8,
            "{case}: {} unread responses",
            unread.len()
        );
        drop((connection, unread));
        wait_for_status(&caller, &format!("{MAPS}/big0"), 200).await;
    }
}

/// Users who fill the total leave a part to each other user, to nodes and to administrators.
#[tokio::test(flavor = "multi_thread")]
async fn unread_responses_of_all_users_are_limited_together() {
    let plane = start_with_long_timeout().await;
    create_big_map(&plane, "big").await;
    let path = format!("{MAPS}/big");
    let rules: Value =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
    let (mut connections, mut unread, mut bytes) = (Vec::new(), Vec::new(), 0);
    // Users have 128 MiB each, and 512 MiB together.
    while bytes < 512 * 1024 * 1024 {
        let user = format!("mallory{}", connections.len());
        assert!(connections.len() < 20, "{user}: {bytes} bytes");
        plane.grant(&user, "default", rules.clone()).await;
        let connection = Connection::open(&plane.user(&user, None), 0).await;
        loop {
            let response = connection.get(&path).await;
            if response.status() == StatusCode::TOO_MANY_REQUESTS {
                break;
            }
            assert_eq!(response.status(), StatusCode::OK, "{user}");
            unread.push(response);
            bytes += BIG;
        }
        connections.push(connection);
    }

    for n in 0..2 {
        let [reader, user] = ["alice", "bob"].map(|name| format!("{name}{n}"));
        for user in [&reader, &user] {
            plane.grant(user, "default", rules.clone()).await;
        }
        let alice = plane.user(&reader, None);
        // Responses that are read do not count.
        for _ in 0..5 {
            alice.get(&path).await.expect_success();
        }
        // Another user: the server may release a response a moment after the client has read it.
        let connection = Connection::open(&plane.user(&user, None), 0).await;
        let mut found = Vec::new();
        for _ in 0..3 {
            let response = connection.get(&path).await;
            found.push(response.status().as_u16());
            unread.push(response);
        }
        // 1 MiB in any case: the second response reaches it.
        assert_eq!(found, [200, 200, 429], "{user}");
        connections.push(connection);
    }
    let node = plane.kubelet("node");
    node.get("/api/v1/nodes/node").await.expect_status(404);
    plane.admin().get(&path).await.expect_success();
}
