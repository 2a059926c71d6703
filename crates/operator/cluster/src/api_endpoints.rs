//! The API servers of a cluster, as the cluster publishes them: the endpoints of the Service
//! `kubernetes`.

use std::net::{IpAddr, SocketAddr};

use client::ListParams;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::layout::Layout;

/// The namespace of the slice.
pub(crate) const NAMESPACE: &str = "default";
/// The slice that the API servers write. Other slices of the Service may be those of any client.
const SLICE: &str = "kubernetes";
/// The name of the API server's port.
const PORT: &str = "https";
/// Maximum number of servers: each is checked every second.
const MAX_SERVERS: usize = 32;

/// Returns the API servers that the proxy of this machine has stored, `HOST:PORT`.
pub(crate) fn load_servers(layout: &Layout) -> Vec<String> {
    let stored = std::fs::read(layout.api_servers()).unwrap_or_default();
    serde_json::from_slice(&stored).unwrap_or_default()
}

/// Selects the slice.
pub(crate) fn select_slice() -> ListParams {
    ListParams::new().with_fields(format!("metadata.name={SLICE}"))
}

/// Returns the API servers, sorted; none if the cluster publishes none.
pub(crate) fn read_servers(slices: &[EndpointSlice]) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    let is_written_by_servers =
        |slice: &&EndpointSlice| slice.metadata.name.as_deref() == Some(SLICE);
    for slice in slices.iter().filter(is_written_by_servers) {
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
            // In discovery/v1 an absent `ready` counts as true.
            if conditions.and_then(|conditions| conditions.ready) == Some(false) {
                continue;
            }
            // Addresses only: a name could be anything.
            let addresses = endpoint
                .addresses
                .iter()
                .filter_map(|text| text.parse().ok());
            found.extend(addresses.map(|address: IpAddr| SocketAddr::new(address, port)));
        }
    }
    // Before the cut, so that all machines keep the same servers.
    found.sort();
    found.dedup();
    found.truncate(MAX_SERVERS);
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn slice(name: &str, addresses: &[String]) -> EndpointSlice {
        let endpoint = |address: &String| json!({"addresses": [address]});
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": 6443}],
            "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    fn format_servers(slices: &[EndpointSlice]) -> String {
        let found = read_servers(slices).into_iter();
        found
            .map(|server| server.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn servers_are_the_ready_endpoints() {
        let slice: EndpointSlice = serde_json::from_value(json!({
            "metadata": {"name": "kubernetes"},
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
        let both = [slice.clone(), slice];
        let all = "192.0.2.1:6443 192.0.2.2:6443 192.0.2.3:6443";
        assert_eq!(format_servers(&both), all);
        assert!(read_servers(&[]).is_empty());
    }

    /// The rights of an editor of the namespace suffice for a slice with the label of the Service.
    #[test]
    fn slices_of_other_clients_and_endless_lists_are_ignored() {
        let foreign = slice("mine", &["198.51.100.1".to_owned()]);
        let own = slice("kubernetes", &["192.0.2.2".to_owned()]);
        assert_eq!(format_servers(&[foreign, own]), "192.0.2.2:6443");
        let many: Vec<_> = (1..=200).map(|n| format!("192.0.2.{n}")).collect();
        assert_eq!(read_servers(&[slice("kubernetes", &many)]).len(), 32);
    }
}
