//! Addresses and names that a node's certificate must not have, because others in the cluster have
//! them. Each lookup reads an index, which a cache updates with each change of an object.

use std::net::IpAddr;
use std::sync::Arc;

use controllers_runtime::{Cache, Meta};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use parking_lot::Mutex;

use super::addresses::{list_endpoint_addresses, list_service_addresses};
use super::claims::{AddressClaims, AddressOwner};
use super::published::{COMPLETE, read_server_hosts};

/// Index of Services by address.
pub const SERVICE_ADDRESS: &str = "serving-address";
/// Index of the API servers' slices by address.
pub const SERVER_ADDRESS: &str = "serving-server-address";
/// Index of the published ConfigMaps by host of an API server.
pub const SERVER_HOST: &str = "serving-server-host";

/// Returns the keys of a Service in [`SERVICE_ADDRESS`].
pub fn list_service_keys(service: &Service) -> Vec<String> {
    let addresses = list_service_addresses(service);
    addresses.iter().map(IpAddr::to_string).collect()
}

/// Returns the keys of a slice in [`SERVER_ADDRESS`]. Other users may write slices of the Service
/// `kubernetes` in their own namespaces.
pub fn list_slice_keys(slice: &EndpointSlice) -> Vec<String> {
    if slice.namespace() != "default" {
        return Vec::new();
    }
    let addresses = list_endpoint_addresses(slice);
    addresses.iter().map(IpAddr::to_string).collect()
}

/// Returns the keys of a ConfigMap in [`SERVER_HOST`].
pub fn list_map_keys(map: &ConfigMap) -> Vec<String> {
    read_server_hosts(map).into_iter().collect()
}

/// Addresses and names of others than a node.
pub struct ReservedNames {
    /// Claims of nodes.
    pub claims: Arc<Mutex<AddressClaims>>,
    /// Services, with [`SERVICE_ADDRESS`].
    pub services: Cache<Service>,
    /// EndpointSlices of the Service `kubernetes`, with [`SERVER_ADDRESS`].
    pub slices: Cache<EndpointSlice>,
    /// ConfigMaps that name API servers, with [`SERVER_HOST`].
    pub maps: Vec<Cache<ConfigMap>>,
    /// Ranges of Services.
    pub service_ranges: Cache<ServiceCIDR>,
    /// Ranges of pods and Services in the options of this process.
    pub ranges: Vec<IpNet>,
}

impl ReservedNames {
    /// Returns the owner of an address, if that is not the node.
    pub fn find_owner(&self, node: &str, address: IpAddr) -> Option<String> {
        if self.is_api_server(address) {
            return Some("an API server".to_owned());
        }
        let services = self
            .services
            .by_index(SERVICE_ADDRESS, &address.to_string());
        if let Some(service) = services.first() {
            return Some(format!("the Service {}", service.key()));
        }
        if let Some(range) = self.find_range(address) {
            return Some(format!("the range {range} of pods or Services"));
        }
        match self.claims.lock().find_owner(address) {
            AddressOwner::Node(owner) if owner != node => Some(format!("node {owner}")),
            AddressOwner::Contested(nodes) => {
                Some(format!("one of the nodes {}", nodes.join(", ")))
            }
            AddressOwner::Node(_) | AddressOwner::Unclaimed => None,
        }
    }

    /// Returns whether an API server has an address.
    pub fn is_api_server(&self, address: IpAddr) -> bool {
        let address = address.to_string();
        !self.slices.by_index(SERVER_ADDRESS, &address).is_empty() || self.has_host(&address)
    }

    /// Returns whether the DNS names of the API servers are known.
    pub fn knows_hosts(&self) -> bool {
        let mut maps = self.maps.iter();
        maps.any(|maps| !maps.by_index(SERVER_HOST, COMPLETE).is_empty())
    }

    /// Returns whether an API server has a DNS name, or a wildcard for it; `name` is in lower case.
    pub fn has_host(&self, name: &str) -> bool {
        let wildcard = name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        let has = |host: &str| {
            let mut maps = self.maps.iter();
            maps.any(|maps| !maps.by_index(SERVER_HOST, host).is_empty())
        };
        has(name) || wildcard.is_some_and(|wildcard| has(&wildcard))
    }

    fn find_range(&self, address: IpAddr) -> Option<IpNet> {
        let stored = self.service_ranges.list();
        let stored = stored.iter().filter_map(|object| object.spec.as_ref());
        let stored = stored.flat_map(|spec| spec.cidrs.iter().flatten());
        stored
            .filter_map(|range| range.parse::<IpNet>().ok())
            .chain(self.ranges.iter().copied())
            .find(|range| range.contains(&address))
    }
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use client::Event;
    use controllers_runtime::Index;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    fn object<K: serde::de::DeserializeOwned>(tree: Value) -> K {
        serde_json::from_value(tree).unwrap()
    }

    fn boxed_index<K>(
        name: &'static str,
        keys: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Vec<Index<K>> {
        vec![(name, Box::new(keys))]
    }

    /// Returns the names of a cluster: API server `192.0.2.1` with the names `n1` and
    /// `api.example.com`, nodes `w1` and `w2`.
    pub fn cluster_names() -> ReservedNames {
        let slice = |namespace: &str, address: &str| {
            object::<EndpointSlice>(
                json!({"metadata": {"namespace": namespace, "name": "kubernetes"},
                "addressType": "IPv4", "endpoints": [{"addresses": [address]}]}),
            )
        };
        let map = |namespace: &str, name: &str, key: &str, text: &str| {
            let tree =
                json!({"metadata": {"namespace": namespace, "name": name}, "data": {key: text}});
            Cache::with_indexes(
                vec![object::<ConfigMap>(tree)],
                boxed_index(SERVER_HOST, list_map_keys),
            )
        };
        let info = "clusters: [{cluster: {server: 'https://API.example.com:6443'}}]";
        let configuration = "{apiServer: {certSANs: [n1, 192.0.2.1, '*.lb.example.com']}}";
        let service = object(json!({"metadata": {"namespace": "a", "name": "s"},
            "spec": {"clusterIPs": ["10.96.0.1"], "externalIPs": ["192.0.2.50"]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.60"}]}}}));
        let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/24"]}});
        let mut claims = AddressClaims::default();
        for (name, address) in [("w1", "192.0.2.7"), ("w2", "192.0.2.8")] {
            let tree = json!({"metadata": {"name": name},
                "status": {"addresses": [{"type": "InternalIP", "address": address}]}});
            let new = Arc::new(object::<Node>(tree));
            claims.apply_event(&Event::Applied { old: None, new }, true);
        }
        ReservedNames {
            claims: Arc::new(Mutex::new(claims)),
            services: Cache::with_indexes(
                vec![service],
                boxed_index(SERVICE_ADDRESS, list_service_keys),
            ),
            slices: Cache::with_indexes(
                vec![slice("default", "192.0.2.2"), slice("other", "192.0.2.3")],
                boxed_index(SERVER_ADDRESS, list_slice_keys),
            ),
            maps: vec![
                map("kube-public", "cluster-info", "kubeconfig", info),
                map(
                    "kube-system",
                    "kubeadm-config",
                    "ClusterConfiguration",
                    configuration,
                ),
            ],
            service_ranges: Cache::with_objects(vec![object(range)]),
            ranges: vec!["10.244.0.0/16".parse().unwrap()],
        }
    }

    #[test]
    fn addresses_of_others_services_and_api_servers_are_reserved() {
        let names = cluster_names();
        for (address, expected) in [
            ("192.0.2.1", Some("an API server")),
            ("192.0.2.2", Some("an API server")),
            ("10.96.0.1", Some("the Service a/s")),
            ("192.0.2.50", Some("the Service a/s")),
            ("192.0.2.60", Some("the Service a/s")),
            (
                "10.97.0.9",
                Some("the range 10.97.0.0/24 of pods or Services"),
            ),
            (
                "10.244.9.9",
                Some("the range 10.244.0.0/16 of pods or Services"),
            ),
            ("192.0.2.8", Some("node w2")),
            ("192.0.2.7", None),
            // A slice in another namespace.
            ("192.0.2.3", None),
        ] {
            let owner = names.find_owner("w1", address.parse().unwrap());
            assert_eq!(owner.as_deref(), expected, "{address}");
        }
        assert!(names.has_host("n1") && names.has_host("api.example.com"));
        assert!(names.has_host("api.lb.example.com"));
        for other in ["w1", "lb.example.com", "a.b.lb.example.com", "example.com"] {
            assert!(!names.has_host(other), "{other}");
        }
    }
}
