//! Addresses of nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;

/// Returns whether an address means another host on each machine, or no single one.
pub fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_unspecified()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_link_local()
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unicast_link_local()
                || v6.to_ipv4_mapped().is_some()
        }
    }
}

/// Returns the IP addresses in a node's status.
pub fn node_addresses(node: &Node) -> BTreeSet<IpAddr> {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_deref());
    addresses
        .unwrap_or_default()
        .iter()
        .filter(|address| matches!(address.type_.as_str(), "InternalIP" | "ExternalIP"))
        .filter_map(|address| address.address.parse().ok())
        .collect()
}
