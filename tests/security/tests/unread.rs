//! Clients that do not read the responses to their requests.

#![allow(clippy::unwrap_used, missing_docs)]

use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream};
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane, Options};
use tokio::task::JoinSet;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// More than the responses that a user may leave unread, by far.
const MANY: usize = 400;

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
        let uri = format!("https://{}{path}", self.authority);
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        let mut sender = self.sender.clone().ready().await.unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        response.await.unwrap()
    }
}

/// Creates a ConfigMap of almost the maximum size.
async fn create_big_map(plane: &ControlPlane, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"k": "v".repeat(900 * 1024)}});
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
    let plane = ControlPlane::start().await;
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
    let event = tokio::time::timeout(Duration::from_secs(30), watch.body_mut().data()).await;
    let event = event.unwrap().unwrap().unwrap();
    assert!(String::from_utf8_lossy(&event).contains("ADDED"));
}
