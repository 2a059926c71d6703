//! The values of Node objects that the network depends on, checked. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api_semantics::addresses::is_special_address;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use net_link::PublicKey;

/// Annotation of a Node with the public key of its WireGuard device, in base64.
pub const KEY_ANNOTATION: &str = "ironclad/wireguard-public-key";
/// Limit of the ranges and addresses of a node that are read.
const MAX_ENTRIES: usize = 8;

/// A node with its ranges and addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeEntry {
    pub(crate) name: String,
    /// Seconds since 1970.
    created: i64,
    /// Ranges of its pods, one for each family at most.
    pub(crate) ranges: Vec<IpNet>,
    /// Its addresses of the type InternalIP.
    pub(crate) addresses: Vec<IpAddr>,
    /// The public key that it has published.
    pub(crate) key: Option<PublicKey>,
}

impl NodeEntry {
    pub(crate) fn read(node: &Node) -> Option<Self> {
        let spec = node.spec.as_ref();
        let listed = spec.and_then(|spec| spec.pod_cidrs.clone());
        let single = spec.and_then(|spec| Some(vec![spec.pod_cidr.clone()?]));
        let texts = listed.or(single).unwrap_or_default();
        let status = node.status.as_ref();
        let addresses = status.and_then(|status| status.addresses.as_ref());
        let created = node.metadata.creation_timestamp.as_ref();
        let annotations = node.metadata.annotations.as_ref();
        let key = annotations.and_then(|annotations| annotations.get(KEY_ANNOTATION));
        Some(Self {
            name: node.metadata.name.clone()?,
            created: created.map_or(i64::MAX, |time| time.0.as_second()),
            ranges: read_ranges(&texts),
            addresses: addresses
                .into_iter()
                .flatten()
                .filter(|address| address.type_ == "InternalIP")
                .filter_map(|address| address.address.parse().ok())
                .take(MAX_ENTRIES)
                .collect(),
            key: key.and_then(|text| text.parse().ok()),
        })
    }

    /// Returns the first address of a family.
    pub(crate) fn address(&self, is_v4: bool) -> Option<IpAddr> {
        let mut addresses = self.addresses.iter();
        addresses
            .find(|address| address.is_ipv4() == is_v4)
            .copied()
    }

    /// Returns the range of a family.
    pub(crate) fn range(&self, is_v4: bool) -> Option<IpNet> {
        let mut ranges = self.ranges.iter();
        ranges
            .find(|range| range.addr().is_ipv4() == is_v4)
            .copied()
    }
}

/// Returns the first range of each family.
fn read_ranges(texts: &[String]) -> Vec<IpNet> {
    let mut ranges: Vec<IpNet> = Vec::new();
    for range in texts
        .iter()
        .take(MAX_ENTRIES)
        .filter_map(|text| text.parse::<IpNet>().ok())
    {
        if ranges
            .iter()
            .all(|other| other.addr().is_ipv4() != range.addr().is_ipv4())
        {
            ranges.push(range.trunc());
        }
    }
    ranges
}

/// The other nodes, without the values that are refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Peers {
    pub(crate) nodes: Vec<NodeEntry>,
    /// Values that are not used, and why.
    pub(crate) rejected: Vec<String>,
}

impl Peers {
    /// Checks the other nodes. A node with a range that is refused keeps its other one, unless the
    /// hardware address of its tunnel follows from the refused one.
    pub(crate) fn check(own: &NodeEntry, cluster: &[IpNet], nodes: &[Arc<Node>]) -> Self {
        let entries = nodes.iter().filter_map(|node| NodeEntry::read(node));
        let mut others: Vec<_> = entries.filter(|entry| entry.name != own.name).collect();
        // On a conflict, the older node keeps the range or the address.
        others.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let mut peers = Self::default();
        let mut taken: BTreeMap<IpNet, String> = BTreeMap::new();
        let mut addresses: BTreeMap<IpAddr, String> = BTreeMap::new();
        for range in &own.ranges {
            taken.insert(*range, own.name.clone());
        }
        for mut node in others {
            let first = find_first_range(&node.ranges);
            let mut accepted = Vec::new();
            for range in std::mem::take(&mut node.ranges) {
                match check_range(range, own, cluster, &taken) {
                    Ok(()) => {
                        taken.insert(range, node.name.clone());
                        accepted.push(range);
                    }
                    Err(defect) => peers.reject(&node.name, &range, &defect),
                }
            }
            if first != find_first_range(&accepted) {
                for range in accepted.drain(..) {
                    taken.remove(&range);
                    let defect = "is not used, as the node's tunnel follows from its refused range";
                    peers.reject(&node.name, &range, defect);
                }
            }
            node.ranges = accepted;
            let (good, bad): (Vec<_>, Vec<_>) = std::mem::take(&mut node.addresses)
                .into_iter()
                .partition(|address| is_node_address(*address, own, cluster));
            for address in bad {
                peers.reject(&node.name, &address, "is no address of another node");
            }
            for address in good {
                match addresses.get(&address) {
                    None => {
                        addresses.insert(address, node.name.clone());
                        node.addresses.push(address);
                    }
                    // Listed twice.
                    Some(owner) if *owner == node.name => {}
                    Some(owner) => {
                        let defect = format!(
                            "is the address of {owner}; if that node no longer exists, delete its Node"
                        );
                        peers.reject(&node.name, &address, &defect);
                    }
                }
            }
            peers.nodes.push(node);
        }
        peers.reject_shared_keys(own);
        peers
    }

    /// Rejects keys that an older node has. A node knows the private key of its own one only, so
    /// that another's is an error or an attempt to cut the other off.
    fn reject_shared_keys(&mut self, own: &NodeEntry) {
        let first = own.key.map(|key| (key, own.name.clone()));
        let mut owners: BTreeMap<PublicKey, String> = first.into_iter().collect();
        for node in &mut self.nodes {
            let Some(key) = node.key else {
                continue;
            };
            if let Some(owner) = owners.get(&key) {
                let name = &node.name;
                let defect = format!("node {name}: {key} is the WireGuard key of {owner}");
                self.rejected.push(defect);
                node.key = None;
            } else {
                owners.insert(key, node.name.clone());
            }
        }
    }

    fn reject(&mut self, node: &str, value: &dyn std::fmt::Display, defect: &str) {
        self.rejected.push(format!("node {node}: {value} {defect}"));
    }
}

/// Returns the range from which the hardware address of a node's end of tunnels follows. The order
/// of ranges does not matter.
pub(crate) fn find_first_range(ranges: &[IpNet]) -> Option<IpNet> {
    ranges.iter().min().copied()
}

fn check_range(
    range: IpNet,
    own: &NodeEntry,
    cluster: &[IpNet],
    taken: &BTreeMap<IpNet, String>,
) -> Result<(), String> {
    let is_inside = |outer: &IpNet| outer.contains(&range) && *outer != range;
    if !cluster.iter().any(is_inside) {
        return Err("is not a part of the cluster's ranges of pods".into());
    }
    // All ranges of a family have one size. A larger one would take those of nodes to come.
    let size = own
        .range(range.addr().is_ipv4())
        .map(|range| range.prefix_len());
    if size.is_some_and(|size| size != range.prefix_len()) {
        return Err("has another size than the range of this node".into());
    }
    match find_overlap(range, taken) {
        Some(owner) => Err(format!("overlaps the range of {owner}")),
        None => Ok(()),
    }
}

/// Returns the owner of a range that has addresses in common with this one. None of the taken ones
/// overlaps another, so that the neighbours in their order are enough.
fn find_overlap(range: IpNet, taken: &BTreeMap<IpNet, String>) -> Option<&String> {
    let before = taken.range(..=range).next_back();
    let after = taken.range(range..).next();
    [before, after]
        .into_iter()
        .flatten()
        .find(|(other, _)| other.contains(&range) || range.contains(*other))
        .map(|(_, owner)| owner)
}

/// Returns whether an address may be that of another node: packets are sent there.
fn is_node_address(address: IpAddr, own: &NodeEntry, cluster: &[IpNet]) -> bool {
    !(is_special_address(address)
        || own.addresses.contains(&address)
        || cluster.iter().any(|range| range.contains(&address)))
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    /// Returns a node that was created in this year.
    pub(crate) fn node(name: &str, year: u16, ranges: &[&str], addresses: &[&str]) -> Arc<Node> {
        let addresses: Vec<_> = addresses
            .iter()
            .map(|address| json!({ "type": "InternalIP", "address": address }))
            .collect();
        let tree = json!({
            "metadata": { "name": name, "creationTimestamp": format!("{year}-01-01T00:00:00Z") },
            "spec": { "podCIDRs": ranges },
            "status": { "addresses": addresses },
        });
        Arc::new(serde_json::from_value(tree).unwrap())
    }

    /// Returns a key that differs for each number.
    pub(crate) fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes(&[number; 32]).unwrap()
    }

    /// Returns a node that has published a key.
    pub(crate) fn keyed_node(node: Arc<Node>, key: PublicKey) -> Arc<Node> {
        let mut node = Arc::unwrap_or_clone(node);
        let annotation = (KEY_ANNOTATION.to_owned(), key.to_string());
        node.metadata.annotations = Some([annotation].into());
        Arc::new(node)
    }

    pub(crate) fn cluster() -> Vec<IpNet> {
        ["10.244.0.0/16", "fd00::/48"]
            .map(|text| text.parse().unwrap())
            .to_vec()
    }

    pub(crate) fn own() -> NodeEntry {
        let ranges = ["10.244.0.0/24", "fd00::/64"];
        NodeEntry::read(&node("own", 2024, &ranges, &["192.0.2.1"])).unwrap()
    }

    /// A compromised node must not attract traffic to others.
    #[test]
    fn values_of_others_are_refused() {
        let older = node(
            "a",
            2021,
            &["10.244.1.0/24", "fd00:0:0:1::/64"],
            &["192.0.2.2"],
        );
        for range in [
            "0.0.0.0/0",
            "10.244.0.0/16",
            "10.0.0.0/8",
            "192.0.2.0/24",
            "10.244.0.128/25",
            "10.244.1.0/24",
            "10.244.1.7/32",
            "10.244.0.0/23",
            "10.244.0.0/24",
            "::/0",
            "fd00::/64",
            "fd00:0:0:1::/64",
            "fd00:0:0:1::8/126",
            "fd01::/64",
        ] {
            let younger = node("0", 2022, &[range], &["192.0.2.3"]);
            let peers = Peers::check(&own(), &cluster(), &[younger, older.clone()]);
            assert_eq!(peers.rejected.len(), 1, "{range}");
            assert_eq!(peers.nodes[0].ranges.len(), 2, "{range}");
            assert_eq!(peers.nodes[1].ranges, [], "{range}");
        }
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "169.254.1.1",
            "192.0.2.1",
            "10.244.1.1",
            "::1",
            "fe80::1",
            "ff02::1",
            "fd00::1",
            "::ffff:127.0.0.1",
            "::ffff:192.0.2.1",
        ] {
            let other = node("b", 2022, &["10.244.2.0/24"], &[address]);
            let peers = Peers::check(&own(), &cluster(), &[other]);
            assert_eq!(peers.nodes[0].addresses, Vec::<IpAddr>::new(), "{address}");
            assert_eq!(peers.rejected.len(), 1, "{address}");
        }
    }

    /// Otherwise a node could take the place of another one in the rules of all nodes.
    #[test]
    fn older_node_keeps_its_address() {
        let older = node("b", 2021, &["10.244.1.0/24"], &["192.0.2.2", "192.0.2.2"]);
        let younger = node("a", 2022, &["10.244.2.0/24"], &["192.0.2.2", "192.0.2.3"]);
        let peers = Peers::check(&own(), &cluster(), &[younger, older]);
        assert_eq!(peers.nodes[0].addresses.len(), 1);
        let expect: IpAddr = "192.0.2.3".parse().unwrap();
        assert_eq!(peers.nodes[1].addresses, [expect]);
        assert_eq!(peers.rejected.len(), 1, "{:?}", peers.rejected);
        assert!(peers.rejected[0].contains("address of b"));
    }

    /// Otherwise a node could take the place of another one among the peers.
    #[test]
    fn older_node_keeps_its_key() {
        let mut own = own();
        own.key = Some(key(9));
        let other = |name: &str, year, number| {
            let ranges = [format!("10.244.{number}.0/24")];
            let ranges = ranges.each_ref().map(String::as_str);
            keyed_node(node(name, year, &ranges, &[]), key(number))
        };
        let nodes = [
            other("a", 2023, 1),
            keyed_node(other("b", 2022, 2), key(1)),
            keyed_node(other("c", 2021, 3), key(9)),
            other("d", 2024, 4),
        ];
        let peers = Peers::check(&own, &cluster(), &nodes);
        let keys: Vec<_> = peers.nodes.iter().map(|node| node.key).collect();
        assert_eq!(keys, [None, Some(key(1)), None, Some(key(4))]);
        assert_eq!(peers.rejected.len(), 2, "{:?}", peers.rejected);
        assert!(
            peers.rejected[0].contains("key of own"),
            "{:?}",
            peers.rejected
        );
        assert!(
            peers.rejected[1].contains("key of b"),
            "{:?}",
            peers.rejected
        );
    }

    #[test]
    fn annotation_that_is_no_key_is_none() {
        let node = node("a", 2021, &[], &[]);
        for text in ["", "x", "AAAA", "none"] {
            let mut node = (*node).clone();
            node.metadata.annotations = Some([(KEY_ANNOTATION.into(), text.into())].into());
            assert_eq!(NodeEntry::read(&node).unwrap().key, None, "{text}");
        }
    }

    /// The node itself computes the hardware address of its tunnel from all of its ranges.
    #[test]
    fn node_is_not_used_without_the_range_that_its_tunnel_follows_from() {
        let other = node(
            "a",
            2022,
            &["10.244.0.0/24", "fd00:0:0:1::/64"],
            &["192.0.2.2"],
        );
        let later = node("b", 2023, &["fd00:0:0:1::/64"], &["192.0.2.3"]);
        let peers = Peers::check(&own(), &cluster(), &[other, later]);
        assert_eq!(peers.nodes[0].ranges, []);
        assert_eq!(peers.rejected.len(), 2, "{:?}", peers.rejected);
        assert_eq!(peers.nodes[1].ranges.len(), 1);
        let other = node("a", 2022, &["10.244.1.0/24", "fd00::/64"], &["192.0.2.2"]);
        let peers = Peers::check(&own(), &cluster(), &[other]);
        assert_eq!(peers.nodes[0].ranges.len(), 1);
    }

    #[test]
    fn first_range_of_each_family_counts() {
        let ranges = ["10.244.1.0/24", "10.244.2.0/24", "x", "fd00:0:0:1::/64"];
        let entry = NodeEntry::read(&node("a", 2021, &ranges, &["fd10::1", "192.0.2.2"])).unwrap();
        assert_eq!(entry.ranges.len(), 2);
        assert_eq!(entry.range(false).unwrap().to_string(), "fd00:0:0:1::/64");
        assert_eq!(entry.address(true).unwrap().to_string(), "192.0.2.2");
        let single: Node = serde_json::from_value(json!({
            "metadata": { "name": "b" }, "spec": { "podCIDR": "10.244.3.0/24" }
        }))
        .unwrap();
        assert_eq!(NodeEntry::read(&single).unwrap().ranges.len(), 1);
    }
}
