//! The agent of a node: computes from informers what the node should announce.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api_address_pool::AddressPool;
use api_semantics::endpoints::service_key;
use base_task::Tasks;
use base_telemetry::Metrics;
use client::{Event, ObjectExt, Store};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use tokio::sync::{Notify, watch};

use crate::claims::{Desired, is_announced, is_local, list_claims};
use crate::driver::{Driver, OpenError, Sockets};
use crate::links::LinkSelection;
use crate::metrics::AnnounceMetrics;
use crate::ownership::hash;

/// Label of Nodes that load balancers leave out.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The EndpointSlice of the API servers.
const API_SERVERS: &str = "default/kubernetes";
/// The range of Services that the API servers create. Unlike objects of the namespace `default`, it
/// is one of the cluster's administrators.
const CLUSTER_RANGE: &str = "kubernetes";
/// Changes within this time are applied together.
const BATCH_DELAY: Duration = Duration::from_millis(20);
/// Interval of the checks whether the rules are up to date.
const READY_INTERVAL: Duration = Duration::from_millis(500);

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
    /// Services, with the index [`ANNOUNCED`].
    pub services: Store<Service>,
    /// EndpointSlices, with the index `service` by the key of their Service.
    pub slices: Store<EndpointSlice>,
    /// The Node of this machine.
    pub nodes: Store<Node>,
    /// Ranges of Services. The UID of the one of the API servers identifies the cluster.
    pub ranges: Store<ServiceCIDR>,
}

/// Returns whether this node forwards connections: kube-proxy's rules are installed and up to date.
pub type IsReady = Arc<dyn Fn() -> bool + Send + Sync>;

/// Index of Services whose addresses may be announced, by [`index_announced`].
pub const ANNOUNCED: &str = "announced";
/// The only value of that index.
const YES: &str = "yes";

/// Returns the values of a Service in the index [`ANNOUNCED`].
pub fn index_announced(service: &Service) -> Vec<String> {
    let value = is_announced(service).then(|| YES.to_owned());
    value.into_iter().collect()
}

/// Index of EndpointSlices by the key of their Service.
const SERVICE: &str = "service";

/// Starts to announce the addresses of load balancers until shutdown, while `is_ready` returns
/// true.
///
/// # Errors
/// The process lacks CAP_NET_RAW.
pub fn start_agent(
    settings: AgentSettings,
    stores: Stores,
    is_ready: IsReady,
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
    let stop = tasks.shutdown().clone();
    let follow = follow_changes(settings, stores, is_ready, sender);
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
    is_ready: IsReady,
    sender: watch::Sender<Desired>,
) {
    let wake = Arc::new(Notify::new());
    add_handlers(&stores, &wake);
    // A Service without its endpoints would be announced by a node that has none.
    stores.services.wait_until_synced().await;
    stores.slices.wait_until_synced().await;
    stores.nodes.wait_until_synced().await;
    stores.ranges.wait_until_synced().await;
    let mut cluster = ClusterIdentity::default();
    loop {
        let ready = is_ready();
        // The list of Services may be long.
        let desired = base_task::blocking(|| {
            cluster.update(&stores);
            compute_desired(&settings, &stores, &cluster, ready)
        });
        if desired.is_eligible != sender.borrow().is_eligible {
            let is_eligible = desired.is_eligible;
            tracing::info!(
                is_eligible,
                ready,
                "right to announce load balancers changed"
            );
        }
        sender.send_if_modified(|known| {
            let is_changed = *known != desired;
            *known = desired;
            is_changed
        });
        wait_for_change(&wake, || is_ready() != ready).await;
    }
}

async fn wait_for_change(wake: &Notify, is_due: impl Fn() -> bool) {
    while !is_due() {
        if tokio::time::timeout(READY_INTERVAL, wake.notified())
            .await
            .is_ok()
        {
            tokio::time::sleep(BATCH_DELAY).await;
            return;
        }
    }
}

/// The identity of the cluster and the addresses of its API servers. They stay if their objects are
/// deleted: that must not stop all announcements.
#[derive(Debug, Default)]
struct ClusterIdentity {
    uid: Option<String>,
    servers: HashSet<IpAddr>,
    has_warned: bool,
}

impl ClusterIdentity {
    fn update(&mut self, stores: &Stores) {
        let range = stores.ranges.get(CLUSTER_RANGE);
        let has_range = range.is_some();
        if !has_range && !self.has_warned {
            tracing::warn!(
                "no ServiceCIDR {CLUSTER_RANGE}, whose UID identifies the cluster; a kube-proxy that starts without it announces \
                 no addresses of load balancers (the API server creates it at its start)"
            );
        }
        self.has_warned = !has_range;
        self.uid = range
            .map(|range| range.uid().to_owned())
            .or(self.uid.take());
        let servers = list_server_addresses(stores.slices.get(API_SERVERS).as_deref());
        if !servers.is_empty() {
            self.servers = servers;
        }
    }
}

fn add_handlers(stores: &Stores, wake: &Arc<Notify>) {
    let notify = wake.clone();
    stores.services.add_handler(move |event: Event<Service>| {
        let (old, new) = match &event {
            Event::Applied { old, new } => (old.as_deref(), new),
            Event::Deleted(last) => (None, last),
        };
        if is_announced(new) || old.is_some_and(is_announced) {
            notify.notify_one();
        }
    });
    let (notify, services) = (wake.clone(), stores.services.clone());
    stores
        .slices
        .add_handler(move |event: Event<EndpointSlice>| {
            let matters = |key: String| {
                let service = services.get(&key);
                service.is_some_and(|service| is_announced(&service) && is_local(&service))
            };
            let slice = event.object();
            if slice.key() == API_SERVERS || service_key(slice).is_some_and(matters) {
                notify.notify_one();
            }
        });
    let notify = wake.clone();
    let changed = move |_: Event<Node>| notify.notify_one();
    stores.nodes.add_handler(changed);
    let notify = wake.clone();
    let changed = move |_: Event<ServiceCIDR>| notify.notify_one();
    stores.ranges.add_handler(changed);
}

fn compute_desired(
    settings: &AgentSettings,
    stores: &Stores,
    cluster: &ClusterIdentity,
    is_ready: bool,
) -> Desired {
    let node = stores.nodes.get(&settings.node_name);
    let is_allowed = is_ready && node.is_some_and(|node| may_announce(&node));
    let (true, Some(uid)) = (is_allowed, cluster.uid.as_ref()) else {
        return Desired::default();
    };
    // Each cluster has its own: those of several clusters may share a link. Nodes with another pool
    // may not announce the same addresses, so they are no candidates.
    let group = format!("{uid} {}", settings.pool);
    let slices_of = |key: &str| stores.slices.by_index(SERVICE, key);
    Desired {
        is_eligible: true,
        cluster: hash(group.as_bytes()),
        claims: list_claims(
            &stores.services.by_index(ANNOUNCED, YES),
            slices_of,
            &settings.pool,
            &cluster.servers,
        ),
    }
}

/// Returns whether the label permits it. As upstream: a value that is no boolean excludes the node.
fn may_announce(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let value = labels.and_then(|labels| labels.get(EXCLUDED));
    value.is_none_or(|value| {
        matches!(
            value.as_str(),
            "0" | "f" | "F" | "false" | "False" | "FALSE"
        )
    })
}

fn list_server_addresses(slice: Option<&EndpointSlice>) -> HashSet<IpAddr> {
    let endpoints = slice.and_then(|slice| slice.endpoints.as_deref());
    let endpoints = endpoints.unwrap_or_default().iter();
    let addresses = endpoints.flat_map(|endpoint| &endpoint.addresses);
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
        let range = json!({"metadata": {"name": "kubernetes", "uid": "u"}});
        let balancer = |name: &str, ip: &str| {
            json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"type": "LoadBalancer"},
                "status": {"loadBalancer": {"ingress": [{"ip": ip}]}, "conditions": [{
                    "type": api_address_pool::ALLOCATION_CONDITION, "status": "True",
                    "reason": "Allocated", "message": ip,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
        };
        let services = [balancer("a", "192.0.2.10"), balancer("b", "192.0.2.11")];
        let node = json!({"metadata": {"name": "node-1", "labels": labels}});
        let by_service: KeysOf = Box::new(|slice| service_key(slice).into_iter().collect());
        Stores {
            services: Store::from_objects(
                services.iter().map(parse).collect(),
                vec![(ANNOUNCED, Box::new(index_announced))],
            ),
            slices: Store::from_objects(vec![parse(&slice)], vec![(SERVICE, by_service)]),
            nodes: Store::from_objects(vec![parse(&node)], Vec::new()),
            ranges: Store::from_objects(vec![parse(&range)], Vec::new()),
        }
    }

    fn compute_with(
        stores: &Stores,
        cluster: &mut ClusterIdentity,
        node: &str,
        ready: bool,
    ) -> Desired {
        let settings = AgentSettings {
            node_name: node.to_owned(),
            pool: "192.0.2.0/24".parse().unwrap(),
            interface: None,
        };
        cluster.update(stores);
        compute_desired(&settings, stores, cluster, ready)
    }

    fn compute(labels: &Value, node: &str) -> Desired {
        compute_with(&stores(labels), &mut ClusterIdentity::default(), node, true)
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
        for (value, expect) in [
            ("", false),
            ("true", false),
            ("no", false),
            ("false", true),
            ("0", true),
        ] {
            let desired = compute(&json!({EXCLUDED: value}), "node-1");
            assert_eq!(desired.is_eligible, expect, "{value:?}");
        }
        assert_eq!(compute(&json!({}), "node-2"), Desired::default());
    }

    #[test]
    fn node_without_rules_announces_nothing() {
        let (stores, mut cluster) = (stores(&json!({})), ClusterIdentity::default());
        let desired = compute_with(&stores, &mut cluster, "node-1", false);
        assert_eq!(desired, Desired::default());
    }

    #[test]
    fn deleted_objects_of_the_api_servers_stop_no_announcements() {
        let (full, mut cluster) = (stores(&json!({})), ClusterIdentity::default());
        let before = compute_with(&full, &mut cluster, "node-1", true);
        let by_service: KeysOf = Box::new(|slice| service_key(slice).into_iter().collect());
        let without = Stores {
            slices: Store::from_objects(Vec::new(), vec![(SERVICE, by_service)]),
            ranges: Store::from_objects(Vec::new(), Vec::new()),
            ..full
        };
        let after = compute_with(&without, &mut cluster, "node-1", true);
        assert_eq!(before, after);
        // A process that starts does not know the cluster.
        let unknown = compute_with(&without, &mut ClusterIdentity::default(), "node-1", true);
        assert_eq!(unknown, Desired::default());
    }
}
