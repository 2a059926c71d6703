//! The aggregation layer: what a client, an extension server or an APIService must not achieve.

#![allow(clippy::unwrap_used, missing_docs)]

use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane, ExtensionRequest, ExtensionServer, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const FLUNDERS: &str = "/apis/ext.example.com/v1/namespaces/default/flunders";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

async fn start_plane(flags: &[&str]) -> ControlPlane {
    ControlPlane::start_with(Options {
        api_server: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        ..Options::default()
    })
    .await
}

/// Responds to the availability check, and with `other` to all other requests.
fn respond_with(other: &'static str) -> impl Fn(&ExtensionRequest) -> String + Send + Sync {
    move |request| match request.line() {
        "GET /apis/ext.example.com/v1" => {
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_owned()
        }
        _ => other.to_owned(),
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

async fn wait_for_message(admin: &Caller, text: &str) {
    let begun = Instant::now();
    loop {
        let path = format!("{API_SERVICES}/v1.ext.example.com");
        let found = admin.get(&path).await.json();
        let condition = found["status"]["conditions"][0].to_string();
        if condition.contains(text) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{condition}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The extension server trusts these headers, because this server's certificate comes with them.
#[tokio::test(flavor = "multi_thread")]
async fn client_can_not_forge_its_identity() {
    let plane = start_plane(&["--enable-aggregator-routing=true"]).await;
    let server = ExtensionServer::start(&plane, respond_with(OK)).await;
    server.register(&plane, "Passed").await;
    let rules = json!([{"apiGroups": ["ext.example.com"], "resources": ["*"], "verbs": ["list"]}]);
    plane.grant("mallory", "default", rules).await;
    let forged = [
        ("x-remote-user", "admin"),
        ("X-Remote-Group", "system:masters"),
        ("x-remote-uid", "0"),
        ("x-remote-extra-scopes", "all"),
        ("x_remote_group", "system:masters"),
        ("x-remote_user", "admin"),
        ("impersonate_user", "admin"),
        ("connection", "x-remote-user, x-remote-group"),
        ("cookie", "a=b"),
    ];
    let mallory = plane.user("mallory", None);
    let reply = mallory.send(Method::GET, FLUNDERS, &forged, "").await;
    reply.unwrap().expect_success();
    let received = server.received();
    let request = received.first().unwrap();
    assert_eq!(request.header("x-remote-user"), ["mallory"]);
    assert_eq!(request.header("x-remote-group"), ["system:authenticated"]);
    assert!(
        !request.head.contains("x-remote-uid: 0"),
        "{}",
        request.head
    );
    assert!(!request.head.contains("scopes"), "{}", request.head);
    // Some servers read `x_remote_user` as `x-remote-user`.
    assert!(!request.head.contains('_'), "{}", request.head);
    assert!(!request.head.contains("authorization"), "{}", request.head);
}

/// An encoded slash is a slash for authorization, and it must be one for the extension server.
#[tokio::test(flavor = "multi_thread")]
async fn path_reaches_the_server_as_it_was_authorized() {
    let plane = start_plane(&["--enable-aggregator-routing=true"]).await;
    let server = ExtensionServer::start(&plane, respond_with(OK)).await;
    server.register(&plane, "Passed").await;
    let path = "/apis/ext.example.com/v1/namespaces/default%2Fflunders%2Fx";
    plane.admin().get(path).await.expect_success();
    let received = server.received();
    let line = received.first().unwrap().line().to_owned();
    assert_eq!(line, format!("GET {FLUNDERS}/x"));
}

/// After a rejected upgrade, further bytes of the client are no request to the extension server
/// (CVE-2018-1002105).
#[tokio::test(flavor = "multi_thread")]
async fn rejected_upgrade_leaves_no_connection() {
    let plane = start_plane(&["--enable-aggregator-routing=true"]).await;
    let refusal = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
    let server = ExtensionServer::start(&plane, respond_with(refusal)).await;
    server.register(&plane, "Passed").await;
    let rules = json!([{"apiGroups": ["ext.example.com"], "resources": ["flunders/attach"], "verbs": ["create"]}]);
    plane.grant("mallory", "default", rules).await;
    let mut stream = plane.user("mallory", None).connect().await.unwrap();
    let smuggled = format!(
        "GET {FLUNDERS}/smuggled HTTP/1.1\r\nHost: a\r\nX-Remote-User: admin\r\nConnection: close\r\n\r\n"
    );
    let request = format!(
        "POST {FLUNDERS}/f/attach HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n{smuggled}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; "HTTP/1.1 403".len()];
    let read = tokio::time::timeout(Duration::from_secs(60), stream.read_exact(&mut status));
    read.await.unwrap().unwrap();
    assert_eq!(&status, b"HTTP/1.1 403");
    // The connection may stay open: time for the second request to arrive.
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest);
    let _ = tokio::time::timeout(Duration::from_secs(3), read).await;
    let received = server.received();
    assert_eq!(received.len(), 1, "{received:?}");
}

/// A proxy in front of this server would take the rest of the connection for another protocol.
#[tokio::test(flavor = "multi_thread")]
async fn unexpected_switch_of_protocols_is_an_error() {
    let plane = start_plane(&["--enable-aggregator-routing=true"]).await;
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    let server = ExtensionServer::start(&plane, respond_with(switch)).await;
    server.register(&plane, "Passed").await;
    plane.admin().get(FLUNDERS).await.expect_status(503);
}

/// A redirect would send the client's request, or this server's certificate, elsewhere
/// (CVE-2022-3172).
#[tokio::test(flavor = "multi_thread")]
async fn redirect_is_neither_followed_nor_passed_on() {
    let plane = start_plane(&["--enable-aggregator-routing=true"]).await;
    let redirect = "HTTP/1.1 307 Temporary Redirect\r\nLocation: https://192.0.2.77/\r\nContent-Length: 0\r\n\r\n";
    let server = ExtensionServer::start(&plane, respond_with(redirect)).await;
    server.register(&plane, "Passed").await;
    let refused = plane.admin().get(FLUNDERS).await.expect_status(502);
    assert!(refused.headers.get("location").is_none());
    assert_eq!(server.received().len(), 1);
}

/// The front proxy's certificate names any user to an API server, so that it must not be sent to
/// this one; link-local addresses have the metadata services of clouds.
#[tokio::test(flavor = "multi_thread")]
async fn own_and_link_local_addresses_are_not_called() {
    let plane = start_plane(&[]).await;
    let admin = plane.admin();
    let port = plane.api_address().port();
    let service = "/api/v1/namespaces/default/services/kubernetes";
    let begun = Instant::now();
    let address = loop {
        let found = admin.get(service).await.json();
        if let Some(address) = found["spec"]["clusterIP"].as_str() {
            break address.to_owned();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{found}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    for (name, port) in [
        ("localhost", port),
        ("169.254.169.254", 443),
        (&address, 443),
    ] {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ext"},
            "spec": {"type": "ExternalName", "externalName": name}});
        let services = "/api/v1/namespaces/default/services";
        admin.post(services, &service).await.expect_success();
        let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1.ext.example.com"}, "spec": {"group": "ext.example.com",
            "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 15,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "ext", "port": port}}});
        admin.post(API_SERVICES, &object).await.expect_success();
        wait_for_message(&admin, "address not allowed").await;
        admin.get(FLUNDERS).await.expect_status(503);
        let path = format!("{API_SERVICES}/v1.ext.example.com");
        admin.delete(&path).await.expect_success();
        admin
            .delete(&format!("{services}/ext"))
            .await
            .expect_success();
    }
}

/// The endpoints of a Service are its namespace's, whose tenant must not direct this server to the
/// metadata service of a cloud.
#[tokio::test(flavor = "multi_thread")]
async fn tenant_can_not_register_an_api_service() {
    let plane = start_plane(&[]).await;
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    plane.grant("tenant", "default", rules).await;
    let object: Value = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.ext.example.com"}, "spec": {"group": "ext.example.com",
        "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 15,
        "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "ext"}}});
    let tenant = plane.user("tenant", None);
    tenant.post(API_SERVICES, &object).await.expect_status(403);
}
