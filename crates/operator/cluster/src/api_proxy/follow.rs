//! The list of API servers: the endpoints of the Service `kubernetes`, followed by a watch and stored in a
//! file, so that a machine that boots knows them before it reaches any.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Config, ListParams, WatchEvent};
use futures::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use operator_discovery::Endpoint;

use super::servers::Servers;
use crate::files;
use crate::layout::Layout;
use crate::settings::Settings;

const NAMESPACE: &str = "default";
const SERVICE: &str = "kubernetes.io/service-name=kubernetes";
/// The name of the API server's port.
const PORT: &str = "https";
/// Time after which the list is read again, whatever the watch reports.
const WATCH_SECONDS: u32 = 60;
const RETRY: Duration = Duration::from_secs(2);

/// Returns the stored list, or the server through which this machine joined.
pub(super) fn load_servers(settings: &Settings, layout: &Layout) -> Vec<String> {
    let stored = std::fs::read(layout.api_servers()).unwrap_or_default();
    let stored: Vec<String> = serde_json::from_slice(&stored).unwrap_or_default();
    if !stored.is_empty() {
        return stored;
    }
    let joined = settings.joined_control_plane();
    let urls = [
        joined.map(|joined| &joined.server),
        settings
            .membership
            .as_ref()
            .map(|membership| &membership.server),
    ];
    let endpoints = urls.into_iter().flatten();
    let endpoints = endpoints.filter_map(|url| Endpoint::from_url(url).ok());
    endpoints.map(|endpoint| endpoint.to_string()).collect()
}

/// Follows the endpoints until it is dropped. Its own requests go through the proxy.
pub(super) async fn follow_servers(servers: Arc<Servers>, settings: Settings, layout: Layout) {
    let kubeconfig = match &settings.membership {
        // The kubelet of a worker requests its credentials when it is started.
        Some(_) => layout.kubeconfig("kubelet"),
        None => layout.kubeconfig("proxy"),
    };
    let follower = Follower {
        servers,
        own: settings
            .control_plane
            .is_some()
            .then_some(settings.node_address),
        kubeconfig,
        file: layout.api_servers(),
    };
    loop {
        if let Err(error) = follower.follow_once().await {
            tracing::debug!(%error, "reading the endpoints of the API servers again");
            tokio::time::sleep(RETRY).await;
        }
    }
}

struct Follower {
    servers: Arc<Servers>,
    /// The address of this machine, whose API server is known by its loopback address.
    own: Option<IpAddr>,
    kubeconfig: PathBuf,
    file: PathBuf,
}

impl Follower {
    /// Reads the list and follows one watch to its end.
    async fn follow_once(&self) -> client::Result<()> {
        let config = Config::from_kubeconfig(&self.kubeconfig)?;
        let client = Client::new(config.user_agent("ironclad"));
        let api = client.namespaced::<EndpointSlice>(NAMESPACE);
        let which = ListParams::new().with_labels(SERVICE);
        let list = api.list(&which).await?;
        self.apply(&list.items);
        let version = list.metadata.resource_version.unwrap_or_default();
        let mut watch = api.watch(&which, &version, WATCH_SECONDS).await?;
        while let Some(event) = watch.next().await {
            match event? {
                // A Service with several slices has several events, so the list is read again.
                WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_) => {
                    self.apply(&api.list(&which).await?.items);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn apply(&self, slices: &[EndpointSlice]) {
        let found = read_servers(slices, self.own);
        // Without an API server on other machines, those that were known are no worse than none.
        if found.is_empty() {
            return;
        }
        self.servers.set_current();
        self.servers.replace(&found);
        let text = serde_json::to_string(&found).unwrap_or_default();
        if let Err(error) = files::write_if_changed(&self.file, text.as_bytes()) {
            tracing::warn!(%error, "the list of API servers can't be stored");
        }
    }
}

/// Returns the API servers of these slices, sorted, without that of this machine.
fn read_servers(slices: &[EndpointSlice], own: Option<IpAddr>) -> Vec<String> {
    let mut found = Vec::new();
    for slice in slices {
        let ports = slice.ports.iter().flatten();
        let named = ports.filter(|port| port.name.as_deref() == Some(PORT));
        let port = named
            .filter_map(|port| u16::try_from(port.port?).ok())
            .next();
        let Some(port) = port else {
            continue;
        };
        for endpoint in slice.endpoints.iter().flatten() {
            let conditions = endpoint.conditions.as_ref();
            if conditions.and_then(|conditions| conditions.ready) == Some(false) {
                continue;
            }
            // Addresses only: a name could be anything.
            let addresses = endpoint
                .addresses
                .iter()
                .filter_map(|text| text.parse().ok());
            let others = addresses.filter(|address| Some(*address) != own);
            found.extend(
                others.map(|address: IpAddr| std::net::SocketAddr::new(address, port).to_string()),
            );
        }
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_are_the_ready_endpoints_of_other_machines() {
        let slice: EndpointSlice = serde_json::from_value(json!({
            "addressType": "IPv4",
            "ports": [{"name": "metrics", "port": 1}, {"name": "https", "port": 6443}],
            "endpoints": [
                {"addresses": ["192.0.2.3"], "conditions": {"ready": true}},
                {"addresses": ["192.0.2.2"]},
                {"addresses": ["192.0.2.4"], "conditions": {"ready": false}},
                {"addresses": ["192.0.2.1"], "conditions": {"ready": true}},
                {"addresses": ["name.example.com"]},
            ],
        }))
        .unwrap();
        let own = "192.0.2.1".parse().ok();
        let both = [slice.clone(), slice];
        assert_eq!(
            read_servers(&both, own),
            ["192.0.2.2:6443", "192.0.2.3:6443"]
        );
        assert_eq!(read_servers(&both, None).len(), 3);
        assert!(read_servers(&[], own).is_empty());
    }

    #[test]
    fn first_list_is_the_stored_one_or_the_server_of_the_join() {
        let dir = tempfile::tempdir().unwrap();
        let (settings, layout) = (Settings::example_joined(), Layout::new(dir.path(), false));
        assert_eq!(load_servers(&settings, &layout), ["192.0.2.2:6443"]);
        files::write_file(&layout.api_servers(), b"[\"192.0.2.9:6443\"]").unwrap();
        assert_eq!(load_servers(&settings, &layout), ["192.0.2.9:6443"]);
    }
}
