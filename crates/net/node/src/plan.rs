//! Routes and tunnel entries to the pods of other nodes. Pure.
//!
//! Nothing of a tunnel is learned from packets: the hardware address of a node's end follows from
//! the node's first range, which no other node has. So nodes need no annotation of each other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use net_link::{ForwardingEntry, MacAddress, NeighbourEntry, PublicKey, Route, WireguardPeer};
use sha2::{Digest, Sha256};

use crate::peers::{NodeEntry, Peers, find_first_range};
use crate::settings::Backend;

/// First byte of hardware addresses of tunnels: locally administered, and another one than that of
/// pods.
const MAC_PREFIX: u8 = 0x0e;

/// This node, as far as the plan depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalNetwork {
    pub(crate) ranges: Vec<IpNet>,
    /// Address on the underlying network.
    pub(crate) address: IpAddr,
    pub(crate) backend: Backend,
    /// Number of the VXLAN or WireGuard device, if there is one.
    pub(crate) tunnel: Option<u32>,
    /// Ranges of all pods of the cluster.
    pub(crate) cluster_ranges: Vec<IpNet>,
    /// UDP port of WireGuard at all nodes.
    pub(crate) wireguard_port: u16,
}

/// Entries of the kernel that lead to pods of other nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) routes: BTreeSet<Route>,
    pub(crate) neighbours: BTreeSet<NeighbourEntry>,
    pub(crate) forwarding: BTreeSet<ForwardingEntry>,
    /// Peers of the WireGuard device.
    pub(crate) encrypted: BTreeMap<PublicKey, WireguardPeer>,
    /// Addresses of nodes with routes: pods reach them with their own addresses.
    pub(crate) linked: BTreeSet<IpAddr>,
    /// Addresses from which packets of tunnels may come.
    pub(crate) tunnel_peers: BTreeSet<IpAddr>,
    /// Nodes whose pods can't be reached, and why.
    pub(crate) unreachable: Vec<String>,
}

/// Computes the plan. `find_link` returns the device of a link that this node shares with an
/// address.
pub(crate) fn make_plan(
    local: &LocalNetwork,
    peers: &Peers,
    mut find_link: impl FnMut(IpAddr) -> Option<u32>,
) -> Plan {
    let mut plan = Plan::default();
    // A kubelet that has not reported yet has no address, and no pods.
    let reported = peers.nodes.iter().filter(|node| !node.addresses.is_empty());
    for node in reported {
        // Also of a node on a link: it may see this one behind its tunnel.
        if local.backend != Backend::Direct && !node.ranges.is_empty() {
            let address = node.address(local.address.is_ipv4());
            plan.tunnel_peers.extend(address);
        }
        for range in &node.ranges {
            if let Err(reason) = plan.add_range(local, node, *range, &mut find_link) {
                let text = format!("node {}: {range}: {reason}", node.name);
                plan.unreachable.push(text);
            }
        }
    }
    plan
}

impl Plan {
    fn add_range(
        &mut self,
        local: &LocalNetwork,
        node: &NodeEntry,
        range: IpNet,
        find_link: &mut impl FnMut(IpAddr) -> Option<u32>,
    ) -> Result<(), &'static str> {
        let is_v4 = range.addr().is_ipv4();
        let mut own = local.ranges.iter();
        let own = own.find(|own| own.addr().is_ipv4() == is_v4);
        let own = own.ok_or("this node has no range of the family")?;
        let source = first_address(*own);
        let linked = match local.backend {
            // A node with WireGuard has another plan (`encryption.rs`).
            Backend::Vxlan | Backend::Wireguard => None,
            Backend::Auto | Backend::Direct => node
                .address(is_v4)
                .and_then(|address| Some((address, find_link(address)?))),
        };
        if let Some((address, device)) = linked {
            self.linked.insert(address);
            self.routes.insert(Route {
                destination: range,
                device,
                gateway: Some(address),
                source,
                is_on_link: false,
            });
            return Ok(());
        }
        let tunnel = match (local.backend, local.tunnel) {
            (Backend::Direct, _) => return Err("the node is on no link of this node; use VXLAN"),
            (_, None) => return Err("there is no VXLAN device"),
            (_, Some(tunnel)) => tunnel,
        };
        let address = node.address(local.address.is_ipv4());
        let address = address.ok_or("the node has no address of the tunnel's family")?;
        self.add_tunnel(node, range, tunnel, address, source)
    }

    fn add_tunnel(
        &mut self,
        node: &NodeEntry,
        range: IpNet,
        tunnel: u32,
        address: IpAddr,
        source: Option<IpAddr>,
    ) -> Result<(), &'static str> {
        let mac = tunnel_mac(&node.ranges).ok_or("the node has no range")?;
        let gateway = match range {
            IpNet::V4(_) => first_address(range),
            IpNet::V6(_) => Some(link_local(mac)),
        };
        let gateway = gateway.ok_or("the range has no address")?;
        self.forwarding
            .insert(ForwardingEntry { mac, node: address });
        self.neighbours.insert(NeighbourEntry {
            address: gateway,
            mac,
        });
        self.routes.insert(Route {
            destination: range,
            device: tunnel,
            gateway: Some(gateway),
            source,
            is_on_link: true,
        });
        Ok(())
    }
}

/// Returns the address of a node on its bridge.
pub(crate) fn first_address(range: IpNet) -> Option<IpAddr> {
    net_cni::AddressRange::of_network(range).map(|range| range.gateway)
}

/// Returns the hardware address of a node's end of tunnels.
pub(crate) fn tunnel_mac(ranges: &[IpNet]) -> Option<MacAddress> {
    let first = find_first_range(ranges)?;
    let digest = Sha256::digest(first.trunc().to_string().as_bytes());
    let mut mac = [MAC_PREFIX; 6];
    for (byte, digit) in mac.iter_mut().skip(1).zip(digest.iter()) {
        *byte = *digit;
    }
    Some(MacAddress(mac))
}

/// Returns an address on the tunnel's device that belongs to a hardware address. The kernel accepts
/// it as a gateway, whatever other routes there are.
fn link_local(mac: MacAddress) -> IpAddr {
    let [a, b, c, d, e, last] = mac.0;
    let words = [(a, b), (c, d), (e, last)].map(|(high, low)| u16::from_be_bytes([high, low]));
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, words[0], words[1], words[2]).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::peers::tests::{cluster, node, own};

    fn local(backend: Backend) -> LocalNetwork {
        LocalNetwork {
            ranges: own().ranges,
            address: "192.0.2.1".parse().unwrap(),
            backend,
            tunnel: (backend != Backend::Direct).then_some(9),
            cluster_ranges: cluster(),
            wireguard_port: 51_820,
        }
    }

    fn plan(backend: Backend) -> Plan {
        let nodes = [
            node(
                "a",
                2021,
                &["10.244.1.0/24", "fd00:0:0:1::/64"],
                &["192.0.2.2"],
            ),
            node("b", 2022, &["10.244.2.0/24"], &["198.51.100.2"]),
            node("c", 2023, &["10.244.3.0/24"], &["2001:db8::3"]),
            node("new", 2024, &["10.244.4.0/24"], &[]),
        ];
        let peers = Peers::check(&own(), &cluster(), &nodes);
        let link: IpNet = "192.0.2.0/24".parse().unwrap();
        make_plan(&local(backend), &peers, |address| {
            link.contains(&address).then_some(2)
        })
    }

    fn format_routes(plan: &Plan) -> Vec<String> {
        let routes = plan.routes.iter();
        routes
            .map(|route| {
                let gateway = route.gateway.unwrap();
                format!("{} via {gateway} dev {}", route.destination, route.device)
            })
            .collect()
    }

    #[test]
    fn nodes_on_a_link_get_routes_and_the_others_tunnels() {
        let plan = plan(Backend::Auto);
        let routes = format_routes(&plan);
        assert_eq!(routes[0], "10.244.1.0/24 via 192.0.2.2 dev 2");
        assert_eq!(routes[1], "10.244.2.0/24 via 10.244.2.1 dev 9");
        // Without an IPv6 address of the node, through the tunnel over IPv4.
        assert!(
            routes[2].starts_with("fd00:0:0:1::/64 via fe80::e"),
            "{routes:?}"
        );
        assert_eq!(plan.forwarding.len(), 2);
        assert_eq!(plan.neighbours.len(), 2);
        assert_eq!(plan.unreachable.len(), 1, "{:?}", plan.unreachable);
        let sources: BTreeSet<_> = plan
            .routes
            .iter()
            .filter_map(|route| route.source)
            .collect();
        let expect = ["10.244.0.1", "fd00::1"].map(|text| text.parse().unwrap());
        assert_eq!(sources, BTreeSet::from(expect));
    }

    #[test]
    fn backend_restricts_the_ways() {
        let direct = plan(Backend::Direct);
        assert_eq!(
            format_routes(&direct),
            ["10.244.1.0/24 via 192.0.2.2 dev 2"]
        );
        assert_eq!((direct.unreachable.len(), direct.forwarding.len()), (3, 0));
        let vxlan = plan(Backend::Vxlan);
        assert_eq!(vxlan.routes.len(), 3);
        assert!(vxlan.linked.is_empty());
        assert!(vxlan.routes.iter().all(|route| route.device == 9));
    }

    /// A node on a link of this one may see it behind its tunnel nevertheless.
    #[test]
    fn packets_of_tunnels_may_come_from_all_nodes() {
        let expect = ["192.0.2.2", "198.51.100.2"].map(|text| text.parse().unwrap());
        assert_eq!(plan(Backend::Auto).tunnel_peers, BTreeSet::from(expect));
        assert_eq!(plan(Backend::Direct).tunnel_peers, BTreeSet::new());
    }

    /// Each node computes the addresses of the others.
    #[test]
    fn hardware_address_does_not_depend_on_the_order_of_ranges() {
        let ranges = own().ranges;
        let reversed: Vec<_> = ranges.iter().rev().copied().collect();
        assert_eq!(tunnel_mac(&ranges), tunnel_mac(&reversed));
        // Locally administered, and of one device.
        assert_eq!(tunnel_mac(&ranges).unwrap().0[0] & 3, 2);
        assert_eq!(tunnel_mac(&[]), None);
    }
}
