//! The addresses of endpoints that the gateway connects.
//!
//! Invariant: slices may be written by tenants, so that an address can be any. What is not among
//! the pods, as a node, the API server or a machine beside the cluster, is not theirs to reach.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;

/// Shortest prefixes of a Node's range of pods, for IPv4 and IPv6. A node writes its own Node when
/// it registers; a wider range would not be one of pods.
const MIN_PREFIX_V4: u8 = 8;
const MIN_PREFIX_V6: u8 = 32;

/// Maximum number of addresses of a Node; further ones are not read.
const MAX_ADDRESSES: usize = 16;

/// Addresses that endpoints may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointPolicy {
    /// Ranges of addresses without overlaps, sorted; empty for all.
    ranges: Vec<IpNet>,
    /// Addresses of nodes, which are not allowed.
    nodes: HashSet<IpAddr>,
}

impl EndpointPolicy {
    /// Returns the policy of `--endpoint-range`.
    pub fn of_ranges(ranges: &[IpNet]) -> Self {
        Self {
            ranges: merge_ranges(ranges.to_vec()),
            nodes: HashSet::new(),
        }
    }

    /// Returns the policy of a cluster: the pods' ranges of its Nodes. If no Node has one, all
    /// addresses but those of Nodes are allowed.
    pub fn of_nodes(nodes: &[Arc<Node>]) -> Self {
        let owners = RangeOwners::of_nodes(nodes);
        // A kubelet can write any address into the status of its Node. With those of pods of other
        // nodes it would stop requests to them.
        let own_addresses = |(number, node): (usize, &Arc<Node>)| -> Vec<IpAddr> {
            let addresses = addresses(node).take(MAX_ADDRESSES);
            addresses
                .filter(|address| !owners.is_of_others(number, *address))
                .collect()
        };
        let addresses = nodes.iter().enumerate().flat_map(own_addresses).collect();
        Self {
            ranges: merge_ranges(owners.by_range.into_keys().collect()),
            nodes: addresses,
        }
    }

    /// Returns whether only some ranges are allowed.
    pub fn is_limited(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Returns whether the gateway may connect to an address of an endpoint. Its own machine, and
    /// the link, where metadata servers of clouds are, are never allowed.
    pub fn allows(&self, address: IpAddr) -> bool {
        // An IPv4 address inside of IPv6 leads to the same host.
        let address = match address {
            IpAddr::V6(v6) => embedded_v4(v6).map_or(address, IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        !is_special(address)
            && !self.nodes.contains(&address)
            && (self.ranges.is_empty() || self.is_in_range(address))
    }

    fn is_in_range(&self, address: IpAddr) -> bool {
        let after = self
            .ranges
            .partition_point(|range| range.network() <= address);
        let before = after.checked_sub(1).and_then(|last| self.ranges.get(last));
        before.is_some_and(|range| range.contains(&address))
    }
}

/// Returns ranges without overlaps, sorted.
fn merge_ranges(ranges: Vec<IpNet>) -> Vec<IpNet> {
    let mut ranges = IpNet::aggregate(&ranges);
    ranges.sort_unstable();
    ranges
}

/// The Nodes that have ranges of pods.
#[derive(Default)]
struct RangeOwners {
    /// The number of the only Node that has a range; None if there are several.
    by_range: HashMap<IpNet, Option<usize>>,
    /// Lengths of the prefixes.
    lengths: BTreeSet<u8>,
}

impl RangeOwners {
    fn of_nodes(nodes: &[Arc<Node>]) -> Self {
        let mut owners = Self::default();
        for (number, node) in nodes.iter().enumerate() {
            for range in pod_ranges(node) {
                owners.lengths.insert(range.prefix_len());
                let owner = owners.by_range.entry(range).or_insert(Some(number));
                *owner = owner.filter(|owner| *owner == number);
            }
        }
        owners
    }

    /// Returns whether an address is one of the pods of other Nodes: the longest prefix decides, so
    /// that a Node gains nothing by a wide range.
    fn is_of_others(&self, number: usize, address: IpAddr) -> bool {
        let find = |length: &u8| {
            let range = IpNet::new(address, *length).ok()?.trunc();
            self.by_range.get(&range)
        };
        let owner = self.lengths.iter().rev().find_map(find);
        owner.is_some_and(|owner| *owner != Some(number))
    }
}

/// Returns the ranges from which a node's pods have their addresses.
fn pod_ranges(node: &Node) -> impl Iterator<Item = IpNet> {
    let spec = node.spec.as_ref();
    let ranges = spec.and_then(|spec| spec.pod_cidrs.as_deref());
    let ranges = ranges.unwrap_or_default().iter();
    ranges.filter_map(|range| {
        let range: IpNet = range.parse().ok()?;
        let shortest = match range {
            IpNet::V4(_) => MIN_PREFIX_V4,
            IpNet::V6(_) => MIN_PREFIX_V6,
        };
        (range.prefix_len() >= shortest).then(|| range.trunc())
    })
}

/// Returns the addresses of a node.
fn addresses(node: &Node) -> impl Iterator<Item = IpAddr> {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_deref());
    let addresses = addresses.unwrap_or_default().iter();
    addresses.filter_map(|found| found.address.parse().ok())
}

fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.octets()[0] == 0
                // The metadata servers of Alibaba Cloud and Oracle Cloud, and Azure's WireServer.
                || matches!(
                    v4.octets(),
                    [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16]
                )
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unicast_link_local()
                // NAT64 of a network's own (RFC 8215). The place of the IPv4 address, which can be
                // any, depends on the network.
                || matches!(v6.segments(), [0x64, 0xff9b, 1, ..])
                // The metadata server of AWS.
                || v6 == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)
        }
    }
}

/// Returns the IPv4 address to which an IPv6 address leads: mapped, compatible, NAT64 or 6to4.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let o = address.octets();
    let last = Ipv4Addr::new(o[12], o[13], o[14], o[15]);
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(last),
        [0x2002, ..] => Some(Ipv4Addr::new(o[2], o[3], o[4], o[5])),
        // `::` and `::1` are addresses of IPv6.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => Some(last),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_of_the_machine_and_of_the_link_are_refused() {
        let everything = EndpointPolicy::default();
        let limited = EndpointPolicy::of_ranges(&["10.244.0.0/16".parse().unwrap()]);
        for (address, anywhere, in_range) in [
            ("10.244.1.2", true, true),
            ("192.168.1.5", true, false),
            ("fd00::5", true, false),
            ("127.0.0.1", false, false),
            ("0.0.0.0", false, false),
            ("169.254.169.254", false, false),
            ("100.100.100.200", false, false),
            ("192.0.0.192", false, false),
            ("168.63.129.16", false, false),
            ("::ffff:168.63.129.16", false, false),
            ("224.0.0.1", false, false),
            ("255.255.255.255", false, false),
            ("::", false, false),
            ("::1", false, false),
            ("fe80::1", false, false),
            ("ff02::1", false, false),
            ("fd00:ec2::254", false, false),
            ("::ffff:127.0.0.1", false, false),
            ("::ffff:10.244.0.1", true, true),
            ("::127.0.0.1", false, false),
            ("64:ff9b::169.254.169.254", false, false),
            ("64:ff9b:1::169.254.169.254", false, false),
            ("64:ff9b:1:a9fe:a9:fe00::", false, false),
            ("2002:7f00:1::", false, false),
        ] {
            let parsed = address.parse().unwrap();
            assert_eq!(everything.allows(parsed), anywhere, "{address}");
            assert_eq!(limited.allows(parsed), in_range, "{address} with a range");
        }
    }

    fn node(ranges: &[&str], address: &str) -> Arc<Node> {
        let node = json!({"spec": {"podCIDRs": ranges},
            "status": {"addresses": [{"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": "n"}]}});
        Arc::new(serde_json::from_value(node).unwrap())
    }

    #[test]
    fn endpoints_of_a_cluster_are_among_the_pods_of_its_nodes() {
        let two = [
            node(&["10.244.0.0/24", "fd00:10:244::/64"], "192.168.1.1"),
            node(&["10.244.1.0/24"], "192.168.1.2"),
        ];
        // The ranges of the first Node would include everything.
        let wide = [
            node(&["0.0.0.0/0", "::/0", "x"], "192.168.1.1"),
            two[1].clone(),
        ];
        // The node's own address is none of a pod, also inside of a range.
        let inside = [node(&["192.168.0.0/16"], "192.168.1.1")];
        // A node that claims the address of another node's pod.
        let claimed = [node(&["10.244.0.0/24"], "10.244.1.9"), two[1].clone()];
        // A node that gave itself a range with the pods of another node, or the range of that.
        let wider = [node(&["10.0.0.0/8"], "10.244.1.9"), two[1].clone()];
        let same = [node(&["10.244.1.0/24"], "10.244.1.9"), two[1].clone()];
        let without = [node(&[], "192.168.1.1")];
        for (nodes, address, want) in [
            (&two[..], "10.244.0.9", true),
            (&two, "10.244.1.9", true),
            (&two, "10.244.2.9", false),
            (&two, "fd00:10:244::9", true),
            (&two, "fd00:10:244:1::9", false),
            (&two, "192.168.1.1", false),
            (&two, "::ffff:192.168.1.1", false),
            (&wide, "192.168.1.9", false),
            (&wide, "10.244.1.9", true),
            (&inside, "192.168.1.1", false),
            (&inside, "192.168.1.9", true),
            (&claimed, "10.244.1.9", true),
            (&wider, "10.244.1.9", true),
            (&same, "10.244.1.9", true),
            (&without, "192.168.1.1", false),
            (&without, "192.168.1.9", true),
            (&[], "192.168.1.9", true),
        ] {
            let policy = EndpointPolicy::of_nodes(nodes);
            let address = address.parse().unwrap();
            assert_eq!(policy.allows(address), want, "{address} of {nodes:?}");
        }
    }
}
