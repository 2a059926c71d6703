//! Upgrades that a backend rejects or redirects must not open a connection to it (CVE-2018-1002105,
//! CVE-2020-8559).

#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use base_tls::{ClientAuth, ServerTls, server_config};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use testkit_control_plane::{ControlPlane, Options};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

const EXEC: &str = "/api/v1/namespaces/default/pods/p/exec?command=id&stdout=1";
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";

/// A kubelet that sends each request head to the test and returns the same response to every
/// request.
async fn start_kubelet(
    plane: &ControlPlane,
    answer: String,
) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let tls = server_config(&ServerTls {
        certificate: plane.certificate("kubelet-serving-n1"),
        key: plane.key("kubelet-serving-n1"),
        client_auth: ClientAuth::Request,
        alpn: Vec::new(),
    });
    let acceptor = TlsAcceptor::from(tls.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (requests, received) = mpsc::unbounded_channel();
    let answer: Arc<str> = answer.into();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, requests, answer) = (acceptor.clone(), requests.clone(), answer.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut stream = BufReader::new(stream);
                while let Some(head) = read_head(&mut stream).await {
                    requests.send(head).unwrap();
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
                requests.send("closed".to_owned()).unwrap();
            });
        }
    });
    (address, received)
}

/// Reads to the empty line that ends a head; `None` at the connection's end.
async fn read_head<R: AsyncBufReadExt + Unpin>(stream: &mut R) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let read = stream.read_line(&mut head).await.unwrap_or(0);
        if read == 0 {
            return None;
        }
    }
    Some(head)
}

/// A control plane with a node at this address, a pod on it, and a user who may run commands in
/// that pod only.
async fn plane_with_pod(plane: &ControlPlane, kubelet: SocketAddr) {
    let admin = plane.admin();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    admin.post("/api/v1/nodes", &node).await.expect_success();
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": kubelet.ip().to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}},
    }});
    admin
        .merge_patch("/api/v1/nodes/n1/status", &status)
        .await
        .expect_success();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    admin
        .post("/api/v1/namespaces/default/serviceaccounts", &account)
        .await
        .expect_success();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n1",
        "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "example.com/c:1"}]}});
    admin
        .post("/api/v1/namespaces/default/pods", &pod)
        .await
        .expect_success();
    plane
        .grant(
            "mallory",
            "default",
            json!([{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]}]),
        )
        .await;
}

async fn next(received: &mut mpsc::UnboundedReceiver<String>) -> String {
    tokio::time::timeout(Duration::from_secs(60), received.recv())
        .await
        .unwrap()
        .unwrap()
}

/// The kubelet trusts the API server's connection. After a rejected upgrade a client must not be
/// able to use it.
#[tokio::test(flavor = "multi_thread")]
async fn refused_upgrade_leaves_no_connection_to_the_kubelet() {
    let plane = ControlPlane::start_with(Options {
        nodes: vec!["n1".to_owned()],
        ..Options::default()
    })
    .await;
    let refusal = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".to_owned();
    let (kubelet, mut received) = start_kubelet(&plane, refusal).await;
    plane_with_pod(&plane, kubelet).await;

    let stream = plane.user("mallory", None).connect().await.unwrap();
    let mut stream = BufReader::new(stream);
    let smuggled = "GET /pods HTTP/1.1\r\nHost: k\r\n\r\n";
    let request =
        format!("POST {EXEC} HTTP/1.1\r\nHost: a\r\n{UPGRADE}Content-Length: 0\r\n\r\n{smuggled}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await.unwrap();
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");

    let seen = next(&mut received).await;
    assert!(seen.starts_with("POST /exec/default/p/c?"), "{seen}");
    // Either the API server closes the client's connection, or it handles the second request
    // itself.
    let _ = stream.write_all(smuggled.as_bytes()).await;
    let mut rest = String::new();
    let _ = tokio::time::timeout(Duration::from_secs(2), stream.read_to_string(&mut rest)).await;
    assert!(!rest.contains("HTTP/1.1 200"), "{rest}");
    assert_eq!(
        next(&mut received).await,
        "closed",
        "the kubelet got a second request"
    );
}

/// A compromised node must not redirect the API server, with its certificate, to an address of its
/// choice.
#[tokio::test(flavor = "multi_thread")]
async fn redirect_of_a_kubelet_is_not_followed() {
    let plane = ControlPlane::start_with(Options {
        nodes: vec!["n1".to_owned()],
        ..Options::default()
    })
    .await;
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned();
    let (elsewhere, mut redirected) = start_kubelet(&plane, answer).await;
    for code in [
        "301 Moved Permanently",
        "302 Found",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let answer = format!(
            "HTTP/1.1 {code}\r\nLocation: https://{elsewhere}/run/x\r\nContent-Length: 0\r\n\r\n"
        );
        let (kubelet, mut received) = start_kubelet(&plane, answer).await;
        if code.starts_with("301") {
            plane_with_pod(&plane, kubelet).await;
        } else {
            let port = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}}}});
            plane
                .admin()
                .merge_patch("/api/v1/nodes/n1/status", &port)
                .await
                .expect_success();
        }
        // The address comes from a cache that lags behind the write: retry until the new kubelet
        // gets the request.
        let head = loop {
            let stream = plane.user("mallory", None).connect().await.unwrap();
            let mut stream = BufReader::new(stream);
            let request =
                format!("POST {EXEC} HTTP/1.1\r\nHost: a\r\n{UPGRADE}Content-Length: 0\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let head = read_head(&mut stream).await.unwrap();
            if received.try_recv().is_ok() {
                break head;
            }
        };
        assert!(
            !head.starts_with("HTTP/1.1 2") && !head.starts_with("HTTP/1.1 101"),
            "{code}: {head}"
        );
    }
    assert!(
        redirected.try_recv().is_err(),
        "the API server followed a redirect"
    );
}
