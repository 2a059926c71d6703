//! The list of API servers: the endpoints of the Service `kubernetes`, followed by a watch and
//! stored in a file, so that a machine that boots knows them before it reaches any.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Config, WatchEvent};
use futures::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use operator_discovery::Endpoint;

use tokio::time::MissedTickBehavior;

use super::servers::Servers;
use crate::api_endpoints::{NAMESPACE, read_servers, select_slice};
use crate::connect::USER_AGENT;
use crate::files;
use crate::layout::Layout;
use crate::settings::Settings;

/// Time after which the list is read again, whatever the watch reports.
const WATCH_SECONDS: u32 = 60;
/// Shortest time between two watches.
const RETRY: Duration = Duration::from_secs(2);

/// Returns the server through which this machine joined: the last one to try, since it may be a
/// load balancer.
pub(super) fn find_join_server(settings: &Settings) -> Option<String> {
    let joined = settings.joined_control_plane();
    let membership = settings.membership.as_ref();
    let url = joined
        .map(|joined| &joined.server)
        .or(membership.map(|membership| &membership.server))?;
    let endpoint = Endpoint::from_url(url).ok()?;
    Some(endpoint.to_string())
}

/// Follows the endpoints until it is dropped. Its own requests go through the proxy.
pub(super) async fn follow_servers(servers: Arc<Servers>, settings: Settings, layout: Layout) {
    let kubeconfig = match &settings.membership {
        // The kubelet of a worker requests its credentials when it is started.
        Some(_) => layout.kubeconfig("kubelet"),
        // Upstream's role of kube-proxy includes the right to list and watch EndpointSlices.
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
    let mut interval = tokio::time::interval(RETRY);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Also after a watch that the server ended without an error.
        interval.tick().await;
        if let Err(error) = follower.follow_once().await {
            tracing::debug!(%error, "reading the endpoints of the API servers again");
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
        // Read for each watch, since the kubelet of a worker renews its certificate.
        let config = Config::from_kubeconfig(&self.kubeconfig)?;
        let client = Client::new(config.user_agent(USER_AGENT));
        let api = client.namespaced::<EndpointSlice>(NAMESPACE);
        let which = select_slice();
        let list = api.list(&which).await?;
        self.store_servers(&list.items);
        let version = list.metadata.resource_version.unwrap_or_default();
        let mut watch = api.watch(&which, &version, WATCH_SECONDS).await?;
        while let Some(event) = watch.next().await {
            match event? {
                WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_) => {
                    self.store_servers(&api.list(&which).await?.items);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn store_servers(&self, slices: &[EndpointSlice]) {
        let Some(found) = list_others(slices, self.own) else {
            return;
        };
        self.servers.set_current();
        self.servers.replace(&found);
        let text = serde_json::to_string(&found).unwrap_or_default();
        if let Err(error) = files::write_if_changed(&self.file, text.as_bytes()) {
            tracing::warn!(%error, "the list of API servers can't be stored");
        }
    }
}

/// Returns the API servers of other machines, `HOST:PORT`; None if the cluster publishes none at
/// all: the known ones stay then, since there must be one that answered. An empty list is one
/// without others, which are forgotten: they may have become another cluster.
fn list_others(slices: &[EndpointSlice], own: Option<IpAddr>) -> Option<Vec<String>> {
    let published = read_servers(slices);
    let others = published.iter().filter(|server| Some(server.ip()) != own);
    (!published.is_empty()).then(|| others.map(SocketAddr::to_string).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::api_endpoints::load_servers;

    fn slice(addresses: &[&str]) -> EndpointSlice {
        let endpoint = |address: &&str| json!({"addresses": [address]});
        serde_json::from_value(json!({
            "metadata": {"name": "kubernetes"},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": 6443}],
            "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    /// After a restore the other machines of the former cluster must not be used again.
    #[test]
    fn server_that_is_no_longer_published_is_forgotten_also_if_it_was_the_last_other_one() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let follower = Follower {
            servers: Arc::new(Servers::new(Some("127.0.0.1:6443".into()), None, &[])),
            own: "192.0.2.1".parse().ok(),
            kubeconfig: PathBuf::new(),
            file: layout.api_servers(),
        };
        let both = ["127.0.0.1:6443", "192.0.2.2:6443"];
        follower.store_servers(&[slice(&["192.0.2.1", "192.0.2.2"])]);
        assert_eq!(follower.servers.list(), both);
        for nothing in [&[][..], &[slice(&[])]] {
            follower.store_servers(nothing);
            assert_eq!(follower.servers.list(), both, "{nothing:?}");
        }
        assert_eq!(load_servers(&layout), ["192.0.2.2:6443"]);
        follower.store_servers(&[slice(&["192.0.2.1"])]);
        assert_eq!(follower.servers.list(), ["127.0.0.1:6443"]);
        assert!(load_servers(&layout).is_empty());
    }

    #[test]
    fn list_is_the_stored_one_and_the_server_of_the_join_is_known_besides() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        assert!(load_servers(&layout).is_empty());
        files::write_file(&layout.api_servers(), b"[\"192.0.2.9:6443\"]").unwrap();
        assert_eq!(load_servers(&layout), ["192.0.2.9:6443"]);
        for (settings, expected) in [
            (Settings::example_joined(), Some("192.0.2.2:6443")),
            (Settings::example_shared(), Some("192.0.2.2:6443")),
            (Settings::example(), None),
        ] {
            assert_eq!(find_join_server(&settings).as_deref(), expected);
        }
    }
}
