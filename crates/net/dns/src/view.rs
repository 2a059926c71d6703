//! The view of the cluster: informers' stores with indexes for DNS.

use std::net::IpAddr;
use std::sync::Arc;

use api_semantics::endpoints::service_key;
use base_task::Tasks;
use client::{Client, Informer, ListParams, Store};
use k8s_openapi::api::core::v1::{Namespace, Node, NodeStatus, Pod, PodSpec, PodStatus, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::zone::View;

/// Limit of the addresses of a node that are read: the node writes them.
const MAX_NODE_ADDRESSES: usize = 8;

/// Kinds that the view has only if an option needs them.
#[derive(Debug, Clone, Copy)]
pub struct Extras {
    /// Pods, for their search paths.
    pub pods: bool,
    /// Nodes, which are clients.
    pub nodes: bool,
}

/// A view fed by informers.
#[derive(Clone)]
pub struct InformerView {
    services: Store<Service>,
    slices: Store<EndpointSlice>,
    namespaces: Store<Namespace>,
    /// Only for the search paths of pods.
    pods: Option<Store<Pod>>,
    /// Only if nodes are clients.
    nodes: Option<Store<Node>>,
}

impl InformerView {
    /// Starts the informers.
    #[must_use]
    pub fn start(client: &Client, tasks: &Tasks, extras: Extras) -> Self {
        let services = Informer::new(client.api::<Service>(), ListParams::new())
            // Annotations such as the last applied configuration are larger than the rest, and DNS
            // reads none.
            .transform(|service: &mut Service| service.metadata.annotations = None)
            .index("address", cluster_addresses)
            .spawn(tasks);
        let slices = Informer::new(client.api::<EndpointSlice>(), ListParams::new())
            .transform(|slice: &mut EndpointSlice| slice.metadata.annotations = None)
            .index("service", |slice| service_key(slice).into_iter().collect())
            .index("address", |slice| {
                slice
                    .endpoints
                    .iter()
                    .flatten()
                    .flat_map(|e| e.addresses.clone())
                    .collect()
            })
            .spawn(tasks);
        let namespaces = Informer::new(client.api::<Namespace>(), ListParams::new()).spawn(tasks);
        let pods = extras.pods.then(|| start_pods(client, tasks));
        let nodes = extras.nodes.then(|| start_nodes(client, tasks));
        Self {
            services,
            slices,
            namespaces,
            pods,
            nodes,
        }
    }

    /// Waits until the informers have synced.
    pub async fn wait_until_synced(&self) {
        self.services.wait_until_synced().await;
        self.slices.wait_until_synced().await;
        self.namespaces.wait_until_synced().await;
    }
}

/// Starts the informer of the pods that may send requests.
fn start_pods(client: &Client, tasks: &Tasks) -> Store<Pod> {
    // The address of a pod that has ended may be that of another one by now.
    let alive = "status.phase!=Succeeded,status.phase!=Failed";
    Informer::new(client.api::<Pod>(), ListParams::new().with_fields(alive))
        .transform(keep_addresses)
        .index("address", pod_addresses)
        .spawn(tasks)
}

/// Starts the informer of the nodes that may send requests.
fn start_nodes(client: &Client, tasks: &Tasks) -> Store<Node> {
    Informer::new(client.api::<Node>(), ListParams::new())
        .transform(keep_node_addresses)
        .index("address", node_addresses)
        .spawn(tasks)
}

/// Keeps name and addresses: the lists of images and annotations are larger than the rest.
fn keep_node_addresses(node: &mut Node) {
    let addresses = node.status.take().and_then(|status| status.addresses);
    node.spec = None;
    node.metadata.annotations = None;
    node.metadata.labels = None;
    node.metadata.managed_fields = None;
    let internal = addresses
        .into_iter()
        .flatten()
        .filter(|address| address.type_ == "InternalIP")
        .take(MAX_NODE_ADDRESSES);
    node.status = Some(NodeStatus {
        addresses: Some(internal.collect()),
        ..NodeStatus::default()
    });
}

/// Returns the addresses of a node as [`format_address`] writes them.
fn node_addresses(node: &Node) -> Vec<String> {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref());
    addresses
        .into_iter()
        .flatten()
        .filter_map(|address| Some(format_address(address.address.parse().ok()?)))
        .collect()
}

/// Keeps name and addresses, and an empty specification if the pod's search path is that of the
/// cluster. Addresses of pods in the node's network are removed: they belong to several pods.
fn keep_addresses(pod: &mut Pod) {
    let spec = pod.spec.take().unwrap_or_default();
    let is_on_host = spec.host_network == Some(true);
    let status = pod.status.take().filter(|_| !is_on_host);
    pod.spec = has_cluster_path(&spec).then(PodSpec::default);
    pod.metadata.annotations = None;
    pod.metadata.labels = None;
    pod.metadata.managed_fields = None;
    pod.metadata.owner_references = None;
    pod.status = status.map(|status| PodStatus {
        pod_ips: status.pod_ips,
        ..PodStatus::default()
    });
}

/// Returns whether a pod's search path is that of the cluster. Search domains of the pod's own come
/// between those of the cluster and the name itself.
fn has_cluster_path(spec: &PodSpec) -> bool {
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let config = spec.dns_config.as_ref();
    let searches = config.and_then(|config| config.searches.as_deref());
    matches!(policy, "ClusterFirst" | "ClusterFirstWithHostNet")
        && searches.unwrap_or_default().is_empty()
}

/// Returns the addresses of a pod as [`format_address`] writes them; a status may have another
/// form.
fn pod_addresses(pod: &Pod) -> Vec<String> {
    let status = pod.status.as_ref();
    let addresses = status.and_then(|status| status.pod_ips.as_ref());
    addresses
        .into_iter()
        .flatten()
        .filter_map(|ip| Some(format_address(ip.ip.parse().ok()?)))
        .collect()
}

/// Formats an address. On a socket for both families, IPv4 clients have addresses in IPv6 form.
fn format_address(address: IpAddr) -> String {
    address.to_canonical().to_string()
}

/// Returns the namespace of the only pod with an address, if its search path is the cluster's.
fn namespace_of(pods: &[Arc<Pod>]) -> Option<String> {
    // Two pods may have one address for a moment, after one of them has ended.
    match pods {
        [pod] if pod.spec.is_some() => pod.metadata.namespace.clone(),
        _ => None,
    }
}

fn cluster_addresses(service: &Service) -> Vec<String> {
    let Some(spec) = &service.spec else {
        return Vec::new();
    };
    spec.cluster_ips
        .clone()
        .unwrap_or_default()
        .into_iter()
        .filter(|ip| ip != "None")
        .collect()
}

impl View for InformerView {
    fn find_service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        self.services.get(&format!("{namespace}/{name}"))
    }

    fn list_slices(&self, namespace: &str, name: &str) -> Vec<Arc<EndpointSlice>> {
        self.slices
            .by_index("service", &format!("{namespace}/{name}"))
    }

    fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.get(name).is_some()
    }

    fn find_service_by_address(&self, address: IpAddr) -> Option<Arc<Service>> {
        self.services
            .by_index("address", &address.to_string())
            .into_iter()
            .next()
    }

    fn list_slices_by_address(&self, address: IpAddr) -> Vec<Arc<EndpointSlice>> {
        self.slices.by_index("address", &address.to_string())
    }

    fn namespace_of_pod(&self, address: IpAddr) -> Option<String> {
        let pods = self.pods.as_ref()?;
        namespace_of(&pods.by_index("address", &format_address(address)))
    }

    fn has_node_address(&self, address: IpAddr) -> bool {
        let address = format_address(address);
        self.nodes
            .as_ref()
            .is_some_and(|nodes| !nodes.by_index("address", &address).is_empty())
    }

    fn has_synced(&self) -> bool {
        self.services.has_synced() && self.slices.has_synced() && self.namespaces.has_synced()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value, addresses: &[&str]) -> Arc<Pod> {
        let addresses: Vec<_> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
        let pod = json!({ "metadata": { "name": "p", "namespace": "n" }, "spec": spec,
            "status": { "podIPs": addresses } });
        let mut pod = serde_json::from_value(pod).unwrap();
        keep_addresses(&mut pod);
        Arc::new(pod)
    }

    fn spec(more: Value) -> Value {
        let mut spec = json!({ "containers": [] });
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        spec
    }

    #[test]
    fn only_a_pod_with_the_search_path_of_the_cluster_is_searched() {
        for (more, expect) in [
            (json!({}), true),
            (json!({ "dnsPolicy": "ClusterFirst" }), true),
            (json!({ "dnsPolicy": "ClusterFirstWithHostNet" }), true),
            (
                json!({ "dnsConfig": { "options": [{ "name": "ndots", "value": "2" }] } }),
                true,
            ),
            (json!({ "dnsPolicy": "Default" }), false),
            (json!({ "dnsPolicy": "None" }), false),
            (
                json!({ "dnsConfig": { "searches": ["corp.example"] } }),
                false,
            ),
        ] {
            let pod = pod(spec(more.clone()), &["10.0.0.1"]);
            assert_eq!(pod_addresses(&pod), ["10.0.0.1"], "{more}");
            assert_eq!(namespace_of(&[pod]).is_some(), expect, "{more}");
        }
        let on_host = pod(spec(json!({ "hostNetwork": true })), &["10.0.0.1"]);
        assert!(pod_addresses(&on_host).is_empty());
    }

    #[test]
    fn address_of_two_pods_belongs_to_none() {
        let [own, other] =
            [json!({}), json!({ "dnsPolicy": "None" })].map(|more| pod(spec(more), &["10.0.0.1"]));
        for pods in [&[own.clone(), own.clone()][..], &[own, other], &[]] {
            assert_eq!(namespace_of(pods), None);
        }
    }

    #[test]
    fn addresses_of_a_node_are_internal_and_limited() {
        let address = |kind: &str, ip: &str| json!({ "type": kind, "address": ip });
        let mut addresses = vec![
            address("Hostname", "10.0.0.1"),
            address("ExternalIP", "203.0.113.1"),
            address("InternalIP", "FD00:0::7"),
        ];
        addresses.extend((0..20).map(|n| address("InternalIP", &format!("10.0.1.{n}"))));
        let node = json!({ "metadata": { "name": "n" }, "status": { "addresses": addresses } });
        let mut node = serde_json::from_value(node).unwrap();
        keep_node_addresses(&mut node);
        let found = node_addresses(&node);
        assert_eq!(found.len(), MAX_NODE_ADDRESSES, "{found:?}");
        assert_eq!(found[..2], ["fd00::7", "10.0.1.0"]);
    }

    #[test]
    fn addresses_have_one_form() {
        let pod = pod(spec(json!({})), &["FD00:0::7", "::ffff:10.0.0.1", "x"]);
        assert_eq!(pod_addresses(&pod), ["fd00::7", "10.0.0.1"]);
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(format_address(mapped), "10.0.0.1");
    }
}
