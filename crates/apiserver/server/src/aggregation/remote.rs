//! Checks extension servers: their Service, its endpoints, and a request for their discovery
//! document.

use super::TargetError;
use super::status::write_condition;
use crate::proxy::{self, Target};
use crate::server::Server;
use api_meta::Meta;
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
        entry.1 = resources.is_some();
        if let Some(resources) = resources {
            entry.0 = Arc::new(resources);
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
    server.aggregation.record_discovery(&remote.name, resources);
    if let Err(error) = write_condition(server, &remote.name, &condition).await {
        tracing::warn!(%error, name = remote.name, "the status of an APIService can't be written");
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
    // Upstream's user of these requests, which every extension server authorizes.
    let user = User {
        name: "system:kube-aggregator".into(),
        groups: vec![User::MASTERS.into()],
        ..User::default()
    };
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let aggregation = &server.aggregation;
        let target = aggregation.find_target(
            &server.kubelets,
            &*server.caches,
            remote,
            &user,
            remote.path(),
        );
        let target = target.map_err(|e| match e {
            TargetError::Unresolved(why) | TargetError::Unusable(why) => why,
        })?;
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
