//! Checks extension servers: their Service, its endpoints, and a request for their discovery
//! document.

use super::TargetError;
use super::status::write_condition;
use crate::connect::Target;
use crate::proxy;
use crate::server::Server;
use api_meta::Meta;
use api_meta::tree::{get, text};
use apiserver_aggregator::{Condition, ExtensionServer, check_service, parse_resource_list};
use apiserver_request::{GroupResource, Objects, User};
use base_task::CancellationToken;
use bytes::Bytes;
use futures::future::join_all;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt, Empty, Limited};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Interval of the checks, as upstream's resync.
const RESYNC: Duration = Duration::from_secs(30);
/// Delay after a change, because changes come in groups.
const SETTLE: Duration = Duration::from_millis(200);
/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Requests until one succeeds: endpoints are chosen at random.
const ATTEMPTS: usize = 5;
/// Maximum size of a discovery document.
const MAX_DOCUMENT: usize = 2 * 1024 * 1024;
/// Maximum length of a document's hash. Upstream's has 128 digits.
const MAX_HASH: usize = 256;

/// Checks the extension servers until `stop`.
pub async fn maintain_remote(server: Arc<Server>, stop: CancellationToken) {
    server.caches.wait_ready().await;
    let work = async {
        loop {
            let servers = server.aggregation.index.servers();
            server.aggregation.forget_others(&servers);
            join_all(servers.iter().map(|remote| check_server(&server, remote))).await;
            let changed = server.aggregation.index.remote_changed.notified();
            if servers.is_empty() {
                changed.await;
            } else {
                // No server is polled if there is none.
                let _ = tokio::time::timeout(RESYNC, changed).await;
            }
            tokio::time::sleep(SETTLE).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

impl super::Aggregation {
    fn forget_others(&self, servers: &[Arc<ExtensionServer>]) {
        let is_known = |name: &String| servers.iter().any(|server| server.name == *name);
        self.discovered.lock().retain(|name, _| is_known(name));
    }

    /// Records the resources of a version; without them the last known ones are stale.
    fn record_discovery(&self, name: &str, resources: Option<Vec<Value>>) {
        let mut discovered = self.discovered.lock();
        let entry = discovered.entry(name.to_owned()).or_default();
        entry.is_current = resources.is_some();
        if let Some(resources) = resources {
            entry.resources = Arc::new(resources);
        }
    }

    fn record_openapi(&self, name: &str, hash: Option<String>) {
        if let Some(entry) = self.discovered.lock().get_mut(name) {
            entry.openapi = hash;
        }
    }
}

async fn check_server(server: &Server, remote: &ExtensionServer) {
    let (condition, resources) = match check_cached(server, remote) {
        Some(failed) => (failed, None),
        None => match request_with_retries(server, remote).await {
            Ok(resources) => (Condition::passed(), resources),
            Err(why) => (Condition::failed("FailedDiscoveryCheck", why), None),
        },
    };
    let responds = resources.is_some();
    server.aggregation.record_discovery(&remote.name, resources);
    if let Err(error) = write_condition(server, &remote.name, &condition).await {
        tracing::warn!(%error, name = remote.name, "the status of an APIService can't be written");
    }
    // Behind the condition, which a slow document must not delay.
    if responds {
        let hash = request_openapi_hash(server, remote).await;
        server.aggregation.record_openapi(&remote.name, hash);
    }
}

fn check_cached(server: &Server, remote: &ExtensionServer) -> Option<Condition> {
    let place = &remote.service;
    let services = GroupResource::new("", "services");
    let service = server
        .caches
        .cached_object(&services, &place.namespace, &place.name);
    let slices = server.caches.cached_list(
        &GroupResource::new("discovery.k8s.io", "endpointslices"),
        Some(&place.namespace),
    );
    let own = slices
        .iter()
        .map(|slice| &**slice)
        .filter(|slice| slice.label("kubernetes.io/service-name") == Some(&place.name));
    check_service(place, service.as_deref(), own)
}

/// Returns the resources of the version, if its document is a list of them.
async fn request_with_retries(
    server: &Server,
    remote: &ExtensionServer,
) -> Result<Option<Vec<Value>>, String> {
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let target = find_probe_target(server, remote, remote.path())?;
        let url = format!("https://{}{}", target.address(), remote.path());
        match tokio::time::timeout(TIMEOUT, request_document(server, &target, &url)).await {
            Ok(Ok(document)) => return Ok(parse_resource_list(&document)),
            Ok(Err(why)) => last = format!("failing or missing response from {url}: {why}"),
            // Further attempts would keep the other servers waiting.
            Err(_) => return Err(format!("timed out waiting for {url}")),
        }
    }
    Err(last)
}

/// Returns the hash of the version's OpenAPI document; `None` if the server has none. A failure is
/// none of the server's availability.
async fn request_openapi_hash(server: &Server, remote: &ExtensionServer) -> Option<String> {
    let index = "/openapi/v3";
    let target = find_probe_target(server, remote, index.to_owned()).ok()?;
    let url = format!("https://{}{index}", target.address());
    let request = request_document(server, &target, &url);
    let document = tokio::time::timeout(TIMEOUT, request).await.ok()?.ok()?;
    let path = remote.path();
    let entry = get(get(&document, "paths"), path.trim_start_matches('/'));
    find_hash(text(entry, "serverRelativeURL")).map(str::to_owned)
}

/// Returns the value of `hash` in a URL, which becomes a part of a URL of this server.
fn find_hash(url: &str) -> Option<&str> {
    let (_, query) = url.split_once('?')?;
    let mut pairs = query.split('&');
    let hash = pairs.find_map(|pair| pair.strip_prefix("hash="))?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.%".contains(&byte);
    (hash.len() <= MAX_HASH && hash.bytes().all(is_plain)).then_some(hash)
}

fn find_probe_target(
    server: &Server,
    remote: &ExtensionServer,
    path: String,
) -> Result<Target, String> {
    // Upstream's user of these requests, which every extension server authorizes.
    let user = User {
        name: "system:kube-aggregator".into(),
        groups: vec![User::MASTERS.into()],
        ..User::default()
    };
    let (aggregation, kubelets) = (&server.aggregation, &server.kubelets);
    let target = aggregation.find_target(kubelets, &*server.caches, remote, &user, path);
    target.map_err(|e| match e {
        TargetError::Unresolved(why) | TargetError::Unusable(why) => why,
    })
}

async fn request_document(server: &Server, target: &Target, url: &str) -> Result<Value, String> {
    let failed = |why: String| format!("Get {url:?}: {why}");
    let mut sender = proxy::dial_target(&server.tasks, target)
        .await
        .map_err(|e| failed(e.message))?;
    let mut request = Request::builder()
        .uri(&target.path)
        .body(Empty::<Bytes>::new())
        .map_err(|e| failed(e.to_string()))?;
    *request.headers_mut() = probe_headers(target);
    let response = sender
        .send_request(request)
        .await
        .map_err(|_| failed("EOF".into()))?;
    let status = response.status();
    if !status.is_success() {
        return Err(format!("bad status from {url}: {}", status.as_u16()));
    }
    let body = Limited::new(response.into_body(), MAX_DOCUMENT)
        .collect()
        .await
        .map_err(|_| failed("the document is too large or incomplete".into()))?;
    // A document of another form is no failure: the server responds.
    Ok(serde_json::from_slice(&body.to_bytes()).unwrap_or_default())
}

fn probe_headers(target: &Target) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static("kube-aggregator"));
    if let Ok(host) = HeaderValue::from_str(&target.address()) {
        headers.insert(HOST, host);
    }
    if let Some(extension) = &target.extension {
        headers.extend(extension.identity.clone());
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_a_document_is_plain_text() {
        for (url, expect) in [
            ("/openapi/v3/apis/a/v1?hash=A1B2", Some("A1B2")),
            ("/openapi/v3/apis/a/v1?x=1&hash=A1", Some("A1")),
            ("/openapi/v3/apis/a/v1", None),
            ("/openapi/v3/apis/a/v1?hash=a\"b", None),
            ("/openapi/v3/apis/a/v1?hash=a#b", None),
        ] {
            assert_eq!(find_hash(url), expect, "{url}");
        }
        assert_eq!(find_hash(&format!("/?hash={}", "a".repeat(257))), None);
    }
}
