//! The handler chain over an etcd in memory, without TLS and without a network.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod audit;
mod bodies;
mod cbor;
mod chain;
mod connections;
mod custom;
mod definitions;
mod enablement;
mod endpoints;
mod health;
mod legacy_tokens;
mod negotiation;
mod options;
mod owners;
mod patches;
mod reviews;
mod watches;

use crate::options::ServerOptions;
use crate::pipeline::handle_request;
use crate::run::build_server;
use crate::server::Server;
use base_task::{CancellationToken, Tasks};
use bytes::Bytes;
use clap::Parser;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use testkit_etcd::FakeEtcd;

/// Tokens of a member of `system:masters` and of a user without permissions.
const TOKENS: &str = "admin-token,admin,1,\"system:masters\"\nalice-token,alice,2,\"people\"\n";
const MAPS: &str = "/api/v1/namespaces/d/configmaps";

struct TestServer {
    etcd: Arc<FakeEtcd>,
    server: Arc<Server>,
    folder: TempDir,
}

/// Starts a server with RBAC and these flags.
async fn start_server(flags: &[&str]) -> TestServer {
    start_over(FakeEtcd::start().await, flags).await
}

/// Starts a server on the store of another one.
async fn start_over(etcd: impl Into<Arc<FakeEtcd>>, flags: &[&str]) -> TestServer {
    build_over(etcd, tempfile::tempdir().unwrap(), flags).await
}

/// Starts a server with flags that name files of `folder`.
async fn start_server_in(folder: TempDir, flags: &[&str]) -> TestServer {
    build_over(FakeEtcd::start().await, folder, flags).await
}

async fn build_over(etcd: impl Into<Arc<FakeEtcd>>, folder: TempDir, flags: &[&str]) -> TestServer {
    let etcd = etcd.into();
    let tokens = folder.path().join("tokens.csv");
    std::fs::write(&tokens, TOKENS).unwrap();
    let tokens = format!("--token-auth-file={}", tokens.display());
    let servers = format!("--etcd-servers={}", etcd.url());
    let fixed = [
        "kube-apiserver",
        "--tls-cert-file=unused",
        "--tls-private-key-file=unused",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=NamespaceLifecycle,ServiceAccount",
        servers.as_str(),
        tokens.as_str(),
    ];
    let options = ServerOptions::try_parse_from(fixed.iter().chain(flags)).unwrap();
    let [tasks, audit_tasks] = [(); 2].map(|()| Tasks::new(CancellationToken::new()));
    let server = build_server(&options, 6443, &tasks, &audit_tasks).unwrap();
    server.caches.wait_ready().await;
    TestServer {
        etcd,
        server,
        folder,
    }
}

/// A response whose body was read.
struct Answer {
    code: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// Returns code and reason of a Status.
    fn status(&self) -> (u16, String) {
        let status = self.json();
        assert_eq!(status["kind"], "Status");
        (
            self.code,
            status["reason"].as_str().unwrap_or_default().to_owned(),
        )
    }
}

/// Returns a request of the administrator.
fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", "Bearer admin-token")
}

impl TestServer {
    /// Sends a request on a connection of its own; returns the response with a streaming body.
    async fn open(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let server = self.server.clone();
        let service = service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(handle_request(server, request).await) }
        });
        let serving = hyper::server::conn::http1::Builder::new();
        tokio::spawn(serving.serve_connection(TokioIo::new(theirs), service));
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(ours))
            .await
            .unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    }

    async fn send(&self, request: http::request::Builder, body: impl Into<Bytes>) -> Answer {
        let request = request.body(Full::new(body.into())).unwrap();
        let (parts, body) = self.open(request).await.into_parts();
        Answer {
            code: parts.status.as_u16(),
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(request("GET", path), "").await
    }

    /// Sends JSON.
    async fn write(&self, method: &str, path: &str, body: Value) -> Answer {
        let request = request(method, path).header("content-type", "application/json");
        self.send(request, body.to_string()).await
    }

    /// Creates the ConfigMap `name` in namespace `d`.
    async fn create_map(&self, name: &str) -> Answer {
        let created = self.write("POST", MAPS, config_map(name)).await;
        assert_eq!(created.code, 201, "{}", created.text());
        created
    }
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

/// Fails after a minute.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what)
        .await
        .unwrap()
}
