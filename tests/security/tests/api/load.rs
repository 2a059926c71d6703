//! Clients that send too much.

use serde_json::json;
use std::time::{Duration, Instant};
use testkit_control_plane::{ControlPlane, Options};
use tokio::io::AsyncWriteExt;

fn flags(words: &[&str]) -> Options {
    Options {
        api_server: words.iter().map(|&word| word.to_owned()).collect(),
        ..Options::default()
    }
}

/// Timeout of requests whose bodies do not arrive.
const HELD: Duration = Duration::from_secs(40);

/// Requests that wait for their bodies must not block other clients, nor queue without bounds.
#[tokio::test(flavor = "multi_thread")]
async fn flood_of_slow_writes_is_refused_and_leaves_reads_and_administrators_alone() {
    let plane = ControlPlane::start_with(flags(&[
        "--max-mutating-requests-inflight=1",
        "--request-timeout=40s",
    ]))
    .await;
    plane
        .grant(
            "mallory",
            "default",
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
        )
        .await;
    let mallory = plane.user("mallory", None);
    let begun = Instant::now();
    let mut slow = Vec::new();
    let head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                content-length: 100\r\n\r\n{";
    for _ in 0..5 {
        let mut stream = mallory.connect().await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        slow.push(stream);
    }
    let object =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let path = "/api/v1/namespaces/default/configmaps";
    // Until the server has read one of the heads, it serves others.
    let refused = loop {
        let reply = mallory.post(path, &object("a")).await;
        match reply.status {
            201 | 409 => assert!(begun.elapsed() < HELD, "not refused: {}", reply.text()),
            _ => break reply.expect_status(429),
        }
    };
    assert_eq!(refused.headers.get("retry-after").unwrap(), "1");
    mallory.get(path).await.expect_success();
    plane
        .admin()
        .post(path, &object("b"))
        .await
        .expect_success();
}

/// The client's timeout must be a duration.
#[tokio::test(flavor = "multi_thread")]
async fn timeout_of_a_client_is_checked() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    admin
        .get("/api/v1/namespaces?timeout=x")
        .await
        .expect_status(400);
    admin
        .get("/api/v1/namespaces?timeout=30s")
        .await
        .expect_success();
}

/// The default authorizer allows everything, so anonymous requests must be rejected.
#[tokio::test(flavor = "multi_thread")]
async fn anonymous_client_cannot_use_a_server_that_allows_everything() {
    let plane = ControlPlane::start_with(flags(&["--authorization-mode=AlwaysAllow"])).await;
    plane
        .anonymous()
        .get("/api/v1/namespaces")
        .await
        .expect_status(401);
    plane
        .admin()
        .get("/api/v1/namespaces")
        .await
        .expect_success();
}

/// Health checks need no credentials even if all other paths do.
#[tokio::test(flavor = "multi_thread")]
async fn anonymous_client_reaches_only_the_paths_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("authentication.yaml");
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous:\n  enabled: true\n  \
                conditions:\n  - path: /livez\n  - path: /readyz\n";
    std::fs::write(&file, text).unwrap();
    let plane = ControlPlane::start_with(flags(&[&format!(
        "--authentication-config={}",
        file.display()
    )]))
    .await;
    plane.anonymous().get("/readyz").await.expect_success();
    plane
        .anonymous()
        .get("/livez/etcd")
        .await
        .expect_status(401);
    plane.anonymous().get("/version").await.expect_status(401);
    plane.anonymous().get("/api").await.expect_status(401);
}

/// `--tls-min-version` is honoured, and an unsupported version is rejected.
#[tokio::test(flavor = "multi_thread")]
async fn weak_tls_settings_are_refused() {
    let strict = [
        "--tls-min-version=VersionTLS13",
        "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    ];
    let plane = ControlPlane::start_with(flags(&strict)).await;
    plane.admin().get("/version").await.expect_success();
    assert!(
        ControlPlane::try_start(&flags(&["--tls-min-version=VersionTLS10"]))
            .await
            .is_err()
    );
}
