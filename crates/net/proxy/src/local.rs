//! Properties of the node that affect the rules.

use std::net::IpAddr;

use ipnet::IpNet;

use net_nft::Family;

/// This node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalNode {
    /// Name of the node.
    pub name: String,
    /// Zone of the node.
    pub zone: Option<String>,
    /// Address families of the kernel.
    pub families: Vec<Family>,
    /// Ranges of pods: connections from there keep their source.
    pub pod_ranges: Vec<IpNet>,
    /// Masquerade all connections.
    pub masquerade_all: bool,
    /// Addresses of node ports.
    pub node_port_addresses: Vec<IpAddr>,
}

impl LocalNode {
    /// Returns the pods' range of a family.
    #[must_use]
    pub fn pod_range(&self, family: Family) -> Option<IpNet> {
        self.pod_ranges
            .iter()
            .copied()
            .find(|range| Family::of(range.addr()) == family)
    }
}

/// Returns the addresses of node ports. Loopback is excluded: a connection from outside the node
/// could be forged there, and masquerading would need `route_localnet`.
#[must_use]
pub fn node_port_addresses(ranges: &[String], node_addresses: &[IpAddr]) -> Vec<IpAddr> {
    let primary = ranges.is_empty() || ranges.iter().any(|range| range == "primary");
    let mut found: Vec<IpAddr> = if primary {
        node_addresses.to_vec()
    } else {
        Vec::new()
    };
    let nets: Vec<IpNet> = ranges
        .iter()
        .filter_map(|range| range.parse().ok())
        .collect();
    if !nets.is_empty() {
        found.extend(
            interface_addresses()
                .into_iter()
                .filter(|ip| nets.iter().any(|net| net.contains(ip))),
        );
    }
    found.retain(|ip| !ip.is_loopback());
    // A fixed order keeps the rules equal when interfaces are listed in another one.
    found.sort();
    found.dedup();
    found
}

fn interface_addresses() -> Vec<IpAddr> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };
    all.filter_map(|entry| {
        let address = entry.address?;
        let v4 = address
            .as_sockaddr_in()
            .map(|socket| IpAddr::V4(socket.ip()));
        v4.or_else(|| {
            address
                .as_sockaddr_in6()
                .map(|socket| IpAddr::V6(socket.ip()))
        })
    })
    .collect()
}
