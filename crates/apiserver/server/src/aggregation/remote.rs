//! Checks extension servers: their Service, its endpoints, and a request for their discovery
//! document.

use super::probe::{TIMEOUT, find_probe_target, request_document};
use super::remote_openapi::start_update;
use super::status::write_condition;
use crate::server::Server;
use api_meta::Meta;
use apiserver_aggregator::{Condition, ExtensionServer, check_service, parse_resource_list};
use apiserver_request::{GroupResource, Objects, User};
use base_task::CancellationToken;
use futures::future::join_all;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Interval of the checks, as upstream's resync.
const RESYNC: Duration = Duration::from_secs(30);
/// Delay after a change, because changes come in groups.
const SETTLE: Duration = Duration::from_millis(200);
/// Requests until one succeeds: endpoints are chosen at random.
const ATTEMPTS: usize = 5;

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
}

async fn check_server(server: &Arc<Server>, remote: &Arc<ExtensionServer>) {
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
        start_update(server, remote);
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
    let checker = User {
        name: "system:kube-aggregator".into(),
        groups: vec![User::MASTERS.into()],
        ..User::default()
    };
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let target = find_probe_target(server, remote, &checker, remote.path())?;
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
