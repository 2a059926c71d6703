//! The agent of a node: computes from informers what the node should announce.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api_address_pool::AddressPool;
use base_task::Tasks;
use base_telemetry::Metrics;
use client::{Event, ObjectExt, Store};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::sync::{Notify, watch};

use crate::claims::{Desired, is_announced, is_local, list_claims};
use crate::driver::{Driver, OpenError, Sockets};
use crate::links::LinkSelection;
use crate::metrics::AnnounceMetrics;
use crate::ownership::hash;

/// Label of Nodes that load balancers leave out.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The Service and the EndpointSlice of the API servers.
const API_SERVERS: &str = "default/kubernetes";
/// Changes within this time are applied together.
const BATCH_DELAY: Duration = Duration::from_millis(20);

/// The agent's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSettings {
    /// Name of the node.
    pub node_name: String,
    /// The addresses that may be announced.
    pub pool: AddressPool,
    /// The only interface; None for those with networks of the pool.
    pub interface: Option<String>,
}

/// The objects that the agent reads.
#[derive(Debug, Clone)]
pub struct Stores {
    /// Services.
    pub services: Store<Service>,
    /// EndpointSlices, with the index `service` by the key of their Service.
    pub slices: Store<EndpointSlice>,
    /// The Node of this machine.
    pub nodes: Store<Node>,
}

/// Index of EndpointSlices by the key of their Service.
const SERVICE: &str = "service";

/// Starts to announce the addresses of load balancers until shutdown.
///
/// # Errors
/// The process lacks CAP_NET_RAW.
pub fn start_agent(
    settings: AgentSettings,
    stores: Stores,
    metrics: &Metrics,
    tasks: &Tasks,
) -> Result<(), OpenError> {
    let selection = LinkSelection {
        pool: settings.pool.clone(),
        interface: settings.interface.clone(),
    };
    let metrics = AnnounceMetrics::new(metrics);
    let driver = Driver::new(
        settings.node_name.clone(),
        selection,
        Sockets::open()?,
        metrics,
    );
    let (sender, desired) = watch::channel(Desired::default());
    let stop = tasks.shutdown().clone();
    tasks.spawn_critical("load balancer announcements", driver.run(desired, stop));
    let wake = Arc::new(Notify::new());
    let stop = tasks.shutdown().clone();
    let follow = follow_changes(settings, stores, wake, sender);
    tasks.spawn_critical("load balancer addresses", async move {
        tokio::select! {
            () = follow => {}
            () = stop.cancelled() => {}
        }
    });
    Ok(())
}

async fn follow_changes(
    settings: AgentSettings,
    stores: Stores,
    wake: Arc<Notify>,
    sender: watch::Sender<Desired>,
) {
    add_handlers(&stores, &wake);
    // A Service without its endpoints would be announced by a node that has none.
    stores.services.wait_until_synced().await;
    stores.slices.wait_until_synced().await;
    stores.nodes.wait_until_synced().await;
    loop {
        // The list of Services may be long.
        let desired = base_task::blocking(|| compute_desired(&settings, &stores));
        sender.send_if_modified(|known| {
            let is_changed = *known != desired;
            *known = desired;
            is_changed
        });
        wake.notified().await;
        tokio::time::sleep(BATCH_DELAY).await;
    }
}

fn add_handlers(stores: &Stores, wake: &Arc<Notify>) {
    let notify = wake.clone();
    stores.services.add_handler(move |event: Event<Service>| {
        let (old, new) = match &event {
            Event::Applied { old, new } => (old.as_deref(), new),
            Event::Deleted(last) => (None, last),
        };
        let is_api_server = new.key() == API_SERVERS;
        if is_api_server || is_announced(new) || old.is_some_and(is_announced) {
            notify.notify_one();
        }
    });
    let (notify, services) = (wake.clone(), stores.services.clone());
    stores
        .slices
        .add_handler(move |event: Event<EndpointSlice>| {
            let matters = |key: String| {
                let service = services.get(&key);
                key == API_SERVERS || service.is_some_and(|s| is_announced(&s) && is_local(&s))
            };
            if service_of(event.object()).is_some_and(matters) {
                notify.notify_one();
            }
        });
    let notify = wake.clone();
    let changed = move |_: Event<Node>| notify.notify_one();
    stores.nodes.add_handler(changed);
}

fn service_of(slice: &EndpointSlice) -> Option<String> {
    let labels = slice.metadata.labels.as_ref()?;
    let name = labels.get("kubernetes.io/service-name")?;
    Some(format!("{}/{name}", slice.namespace()))
}

fn compute_desired(settings: &AgentSettings, stores: &Stores) -> Desired {
    let node = stores.nodes.get(&settings.node_name);
    let servers = stores.services.get(API_SERVERS);
    let is_allowed = node.is_some_and(|node| may_announce(&node));
    let (true, Some(servers)) = (is_allowed, servers) else {
        return Desired::default();
    };
    // Each cluster has its own: those of several clusters may share a link. Nodes with another pool
    // may not announce the same addresses, so they are no candidates.
    let group = format!("{} {}", servers.uid(), settings.pool);
    let slices_of = |key: &str| stores.slices.by_index(SERVICE, key);
    let excluded = list_server_addresses(&slices_of(API_SERVERS));
    Desired {
        is_eligible: true,
        cluster: hash(group.as_bytes()),
        claims: list_claims(
            &stores.services.list(),
            slices_of,
            &settings.pool,
            &excluded,
        ),
    }
}

fn may_announce(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    !labels.is_some_and(|labels| labels.contains_key(EXCLUDED))
}

fn list_server_addresses(slices: &[Arc<EndpointSlice>]) -> HashSet<IpAddr> {
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter());
    let addresses = endpoints.flatten().flat_map(|e| e.addresses.iter());
    addresses
        .filter_map(|address| address.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn parse<K: serde::de::DeserializeOwned>(object: &Value) -> K {
        serde_json::from_value(object.clone()).unwrap()
    }

    type KeysOf = Box<dyn Fn(&EndpointSlice) -> Vec<String> + Send + Sync>;

    fn stores(labels: &Value) -> Stores {
        let slice = json!({
            "metadata": {"name": "kubernetes", "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.11"]}],
        });
        let server =
            json!({"metadata": {"name": "kubernetes", "namespace": "default", "uid": "u"}});
        let balancer = |name: &str, ip: &str| {
            json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"type": "LoadBalancer"},
                "status": {"loadBalancer": {"ingress": [{"ip": ip}]}}})
        };
        let services = [
            server,
            balancer("a", "192.0.2.10"),
            balancer("b", "192.0.2.11"),
        ];
        let node = json!({"metadata": {"name": "node-1", "labels": labels}});
        let by_service: KeysOf = Box::new(|slice| service_of(slice).into_iter().collect());
        Stores {
            services: Store::from_objects(services.iter().map(parse).collect(), Vec::new()),
            slices: Store::from_objects(vec![parse(&slice)], vec![(SERVICE, by_service)]),
            nodes: Store::from_objects(vec![parse(&node)], Vec::new()),
        }
    }

    fn compute(labels: &Value, node_name: &str) -> Desired {
        let settings = AgentSettings {
            node_name: node_name.to_owned(),
            pool: "192.0.2.0/24".parse().unwrap(),
            interface: None,
        };
        compute_desired(&settings, &stores(labels))
    }

    #[test]
    fn addresses_of_api_servers_are_not_announced() {
        let desired = compute(&json!({}), "node-1");
        let addresses: Vec<_> = desired
            .claims
            .iter()
            .map(|c| c.address.to_string())
            .collect();
        assert_eq!(addresses, ["192.0.2.10"]);
        assert!(desired.is_eligible);
        assert_ne!(desired.cluster, 0);
    }

    #[test]
    fn excluded_and_unknown_nodes_announce_nothing() {
        let excluded = json!({EXCLUDED: ""});
        assert_eq!(compute(&excluded, "node-1"), Desired::default());
        assert_eq!(compute(&json!({}), "node-2"), Desired::default());
    }
}
