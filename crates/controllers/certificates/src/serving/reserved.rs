//! Addresses and names that a node's certificate must not have, because others in the cluster have
//! them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use controllers_runtime::Meta;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Deserialize;

use super::addresses::node_addresses;

/// Addresses and names of others than the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Addresses of other nodes, of API servers and of Services.
    pub addresses: BTreeSet<IpAddr>,
    /// Names of API servers, in lower case.
    pub names: BTreeSet<String>,
}

impl Reserved {
    /// Collects what others than the node `name` have. `slices` are those of the API servers'
    /// Service, `infos` the ConfigMaps with the name `cluster-info`.
    pub fn collect(
        name: &str,
        nodes: &[Arc<Node>],
        services: &[Arc<Service>],
        slices: &[Arc<EndpointSlice>],
        infos: &[Arc<ConfigMap>],
    ) -> Self {
        let mut reserved = Self::default();
        let others = nodes.iter().filter(|other| other.name() != name);
        reserved
            .addresses
            .extend(others.flat_map(|other| node_addresses(other)));
        for service in services {
            reserved.add_addresses(service_addresses(service));
        }
        // Other users may write such objects in their own namespaces.
        for slice in slices.iter().filter(|slice| slice.namespace() == "default") {
            let endpoints = slice.endpoints.iter().flatten();
            reserved.add_addresses(endpoints.flat_map(|endpoint| &endpoint.addresses));
        }
        for info in infos
            .iter()
            .filter(|info| info.namespace() == "kube-public")
        {
            let kubeconfig = info.data.as_ref().and_then(|data| data.get("kubeconfig"));
            for host in kubeconfig
                .map(|text| server_hosts(text))
                .unwrap_or_default()
            {
                match host.parse() {
                    Ok(address) => _ = reserved.addresses.insert(address),
                    Err(_) => _ = reserved.names.insert(host.to_ascii_lowercase()),
                }
            }
        }
        reserved
    }

    fn add_addresses<'a>(&mut self, texts: impl IntoIterator<Item = &'a String>) {
        let addresses = texts
            .into_iter()
            .filter_map(|text| text.parse::<IpAddr>().ok());
        self.addresses.extend(addresses);
    }
}

fn service_addresses(service: &Service) -> impl Iterator<Item = &String> {
    let spec = service.spec.iter();
    let of_spec = spec.flat_map(|spec| {
        let lists = [&spec.cluster_ips, &spec.external_ips];
        lists.into_iter().flatten().flatten()
    });
    let balancer = service
        .status
        .iter()
        .filter_map(|status| status.load_balancer.as_ref());
    let ingress = balancer.flat_map(|balancer| balancer.ingress.iter().flatten());
    of_spec.chain(ingress.filter_map(|ingress| ingress.ip.as_ref()))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kubeconfig {
    clusters: Option<Vec<NamedCluster>>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cluster {
    server: String,
}

/// Returns the hosts of the API servers in a kubeconfig, IPv6 addresses without brackets.
fn server_hosts(kubeconfig: &str) -> Vec<String> {
    let parsed: Kubeconfig = serde_yaml::from_str(kubeconfig).unwrap_or_default();
    let clusters = parsed.clusters.into_iter().flatten();
    clusters
        .filter_map(|named| host_of_url(&named.cluster.server).map(str::to_owned))
        .collect()
}

fn host_of_url(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None => authority.split(':').next()?,
    };
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn object<K: serde::de::DeserializeOwned>(tree: Value) -> Arc<K> {
        Arc::new(serde_json::from_value(tree).unwrap())
    }

    #[test]
    fn addresses_of_others_services_and_api_servers_are_reserved() {
        let node = |name: &str, address: &str| {
            object::<Node>(json!({"metadata": {"name": name},
                "status": {"addresses": [{"type": "InternalIP", "address": address}]}}))
        };
        let slice = |namespace: &str, address: &str| {
            object::<EndpointSlice>(
                json!({"metadata": {"namespace": namespace, "name": "kubernetes"},
                "addressType": "IPv4", "endpoints": [{"addresses": [address]}]}),
            )
        };
        let info = |namespace: &str, url: &str| {
            let text = format!("clusters:\n- name: ''\n  cluster:\n    server: {url}\n");
            object::<ConfigMap>(
                json!({"metadata": {"namespace": namespace, "name": "cluster-info"},
                "data": {"kubeconfig": text}}),
            )
        };
        let service = object::<Service>(json!({"metadata": {"namespace": "a", "name": "s"},
            "spec": {"clusterIPs": ["10.96.0.1"], "externalIPs": ["192.0.2.50"]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.60"}]}}}));
        let reserved = Reserved::collect(
            "w1",
            &[node("w1", "192.0.2.7"), node("w2", "192.0.2.8")],
            &[service],
            &[slice("default", "192.0.2.1"), slice("other", "192.0.2.2")],
            &[
                info("kube-public", "https://API.example.com:6443"),
                info("kube-public", "https://[2001:db8::1]:6443/"),
                info("other", "https://192.0.2.3"),
            ],
        );
        let addresses: Vec<_> = reserved.addresses.iter().map(ToString::to_string).collect();
        let expected = [
            "10.96.0.1",
            "192.0.2.1",
            "192.0.2.8",
            "192.0.2.50",
            "192.0.2.60",
            "2001:db8::1",
        ];
        assert_eq!(addresses, expected);
        let names: Vec<_> = reserved.names.into_iter().collect();
        assert_eq!(names, ["api.example.com"]);
        assert!(server_hosts("[").is_empty() && host_of_url("https://").is_none());
    }
}
