//! Addresses that follow from the settings: of Services, of cluster DNS, and of the nodes and their
//! pods.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

use crate::cni_plugin::CniPlugin;
use crate::ranges::Ranges;
use crate::settings::{Runtime, Settings};

/// Returns the n-th address of a range.
pub(crate) fn nth_address(range: IpNet, n: u32) -> IpAddr {
    match range {
        IpNet::V4(range) => Ipv4Addr::from(u32::from(range.network()).wrapping_add(n)).into(),
        IpNet::V6(range) => {
            Ipv6Addr::from(u128::from(range.network()).wrapping_add(n.into())).into()
        }
    }
}

/// Returns the n-th part of a range, from 0, with this prefix length.
fn nth_part(range: IpNet, length: u8, n: u32) -> IpNet {
    let part = match range {
        IpNet::V4(range) => {
            let size = 1u32
                .checked_shl(u32::from(32 - length.min(32)))
                .unwrap_or(0);
            let start = u32::from(range.network()).wrapping_add(n.wrapping_mul(size));
            IpNet::new(Ipv4Addr::from(start).into(), length)
        }
        IpNet::V6(range) => {
            let size = 1u128
                .checked_shl(u32::from(128 - length.min(128)))
                .unwrap_or(0);
            let offset = u128::from(n).wrapping_mul(size);
            let start = u128::from(range.network()).wrapping_add(offset);
            IpNet::new(Ipv6Addr::from(start).into(), length)
        }
    };
    part.unwrap_or(range)
}

/// Returns the prefix length of a node's pods in a range of the cluster.
#[must_use]
pub(crate) fn node_prefix_length(range: IpNet) -> u8 {
    // Upstream's defaults of `--node-cidr-mask-size-ipv4` and `-ipv6`.
    let usual = match range {
        IpNet::V4(_) => 24,
        IpNet::V6(_) => 64,
    };
    range.prefix_len().max(usual)
}

impl Settings {
    /// Returns the ranges of a node's pods: the first node has the first ones, and so on.
    #[must_use]
    pub fn pods_of_node(&self, number: u8) -> Ranges {
        let joined = self.membership.as_ref().and_then(|joined| joined.pods);
        let shared = || self.control_plane.as_ref().and_then(|shared| shared.pods);
        joined.or_else(shared).unwrap_or_else(|| {
            let index = u32::from(number.saturating_sub(1));
            self.pod_cidr
                .map(|range| nth_part(range, node_prefix_length(range), index))
        })
    }

    /// Returns the addresses of the first node: that of the primary family, and that of the other
    /// one.
    pub fn node_addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        [Some(self.node_address), self.second_address]
            .into_iter()
            .flatten()
    }

    /// Returns whether the cluster has IPv6 addresses.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.pod_cidr.v6().is_some() || self.service_cidr.v6().is_some()
    }

    /// Returns the unspecified address on which components listen for both families of the cluster.
    #[must_use]
    pub(crate) fn any_address(&self) -> IpAddr {
        // Linux maps IPv4 connections to it, unless the administrator forbids that.
        match self.has_ipv6() {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        }
    }

    /// Returns the IPv6 range of the link between the nodes; None without IPv6, or without a link.
    /// It is unique, since that of IPv4 is, whose digits it has.
    #[must_use]
    pub fn link_range_v6(&self) -> Option<Ipv6Net> {
        let [a, b, c, _] = self.node_network?.network().octets();
        self.pod_cidr.v6()?;
        // Of the unique local addresses (RFC 4193).
        let address = Ipv6Addr::new(
            u16::from_be_bytes([0xfd, a]),
            u16::from_be_bytes([b, c]),
            0,
            0,
            0,
            0,
            0,
            0,
        );
        Ipv6Net::new(address, 64).ok()
    }

    /// Returns the ranges of the link between the nodes.
    #[must_use]
    pub fn link_ranges(&self) -> Vec<IpNet> {
        let v4 = self.node_network.map(IpNet::from);
        v4.into_iter()
            .chain(self.link_range_v6().map(IpNet::from))
            .collect()
    }

    /// Returns the addresses of a node on the link between the nodes; those of the first node are
    /// the gateways of the others.
    #[must_use]
    pub fn link_addresses(&self, number: u8) -> Vec<IpNet> {
        let ranges = self.link_ranges().into_iter();
        ranges
            .filter_map(|range| {
                let address = nth_address(range, number.into());
                IpNet::new(address, range.prefix_len()).ok()
            })
            .collect()
    }

    /// Returns the address of a node on the link, of a family; None if there is no link.
    #[must_use]
    pub fn link_address(&self, number: u8, is_v4: bool) -> Option<IpAddr> {
        let mut addresses = self.link_addresses(number).into_iter();
        addresses
            .find(|address| address.addr().is_ipv4() == is_v4)
            .map(|address| address.addr())
    }

    /// Returns the address of the Service `kubernetes`.
    #[must_use]
    pub fn api_service_address(&self) -> IpAddr {
        // The API server takes the first address of the primary range for it.
        nth_address(self.service_cidr.primary(), 1)
    }

    /// Returns the address of the Service `kube-dns`.
    #[must_use]
    pub fn dns_service_address(&self) -> IpAddr {
        // kubeadm chooses the tenth address, too (`GetDNSIP`).
        nth_address(self.service_cidr.primary(), 10)
    }

    /// Returns the listen address of the cluster DNS: on the bridge, or the node's address if there
    /// is no bridge.
    #[must_use]
    pub fn dns_listen_address(&self) -> IpAddr {
        match self.has_bridge() {
            true => nth_address(self.pods_of_node(1).primary(), 1),
            false => self.node_address,
        }
    }

    /// Returns whether the nodes have a bridge that this program makes.
    #[must_use]
    pub fn has_bridge(&self) -> bool {
        self.runs_pods() && !self.has_foreign_network()
    }

    /// Returns whether the user installs the pod network.
    #[must_use]
    pub fn has_foreign_network(&self) -> bool {
        self.runtime == Runtime::Own && self.cni == CniPlugin::None
    }

    /// Returns whether the agent of the pod network runs on the nodes.
    #[must_use]
    pub fn has_network_agent(&self) -> bool {
        self.runtime == Runtime::Own && self.cni == CniPlugin::Ironclad
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pods_of_a_node_are_a_part_of_each_range() {
        for (range, number, node, bridge) in [
            ("10.244.0.0/16", 1, "10.244.0.0/24", "10.244.0.1"),
            ("10.1.2.0/24", 1, "10.1.2.0/24", "10.1.2.1"),
            ("10.1.2.64/26", 1, "10.1.2.64/26", "10.1.2.65"),
            ("10.244.0.0/16", 3, "10.244.2.0/24", "10.244.2.1"),
            ("fd00::/48", 2, "fd00:0:0:1::/64", "fd00:0:0:1::1"),
            ("fd00::/112", 1, "fd00::/112", "fd00::1"),
            (
                "10.244.0.0/16,fd00::/48",
                2,
                "10.244.1.0/24,fd00:0:0:1::/64",
                "10.244.1.1",
            ),
        ] {
            let settings = Settings {
                pod_cidr: range.parse().unwrap(),
                ..Settings::with_nodes(3)
            };
            let pods = settings.pods_of_node(number);
            assert_eq!(pods.to_string(), node);
            assert_eq!(nth_address(pods.primary(), 1).to_string(), bridge);
        }
    }

    #[test]
    fn link_has_the_families_of_the_cluster() {
        let settings = Settings::with_nodes(2);
        let addresses = |settings: &Settings| -> Vec<String> {
            let all = settings.link_addresses(2);
            all.iter().map(ToString::to_string).collect()
        };
        assert_eq!(addresses(&settings), ["198.18.7.2/24"]);
        let dual = Settings {
            pod_cidr: "10.244.0.0/16,fd00::/48".parse().unwrap(),
            ..settings
        };
        assert_eq!(addresses(&dual), ["198.18.7.2/24", "fdc6:1207::2/64"]);
        assert_eq!(addresses(&Settings::example()), Vec::<String>::new());
    }
}
