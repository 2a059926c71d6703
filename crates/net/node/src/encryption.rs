//! Peers and routes of the backend `wireguard`. Pure.
//!
//! **Invariant:** one route for each range of the cluster, of a family that the node's pods have,
//! leads to the WireGuard device, also to nodes whose key is not known: packets to them are dropped
//! there, and not sent unencrypted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use net_link::{PublicKey, Route, WireguardPeer};

use crate::peers::{NodeEntry, Peers};
use crate::plan::{LocalNetwork, Plan, first_address};

/// Computes the plan of a node that encrypts packets to the pods of all others.
pub(crate) fn make_encrypted_plan(local: &LocalNetwork, peers: &Peers) -> Plan {
    let mut plan = Plan {
        routes: list_routes(local),
        ..Plan::default()
    };
    let reported = peers
        .nodes
        .iter()
        .filter(|node| !node.addresses.is_empty() && !node.ranges.is_empty());
    for node in reported {
        match build_peer(local, node) {
            Ok((key, peer)) => {
                plan.encrypted.insert(key, peer);
            }
            Err(reason) => plan
                .unreachable
                .push(format!("node {}: {reason}", node.name)),
        }
    }
    plan
}

fn list_routes(local: &LocalNetwork) -> BTreeSet<Route> {
    let Some(device) = local.tunnel else {
        return BTreeSet::new();
    };
    let clusters = local.cluster_ranges.iter();
    clusters
        .filter_map(|cluster| {
            // The range of a cluster with one node is that of its bridge.
            if local.ranges.contains(cluster) {
                return None;
            }
            // Of the family alone: a second range of the cluster is that of other nodes.
            let is_v4 = cluster.addr().is_ipv4();
            let mut own = local.ranges.iter();
            let own = own.find(|own| own.addr().is_ipv4() == is_v4)?;
            Some(Route {
                destination: *cluster,
                device,
                gateway: None,
                source: first_address(*own),
                is_on_link: false,
            })
        })
        .collect()
}

/// Returns the key and the peer of a node. Its ranges are those that no other node has.
fn build_peer(
    local: &LocalNetwork,
    node: &NodeEntry,
) -> Result<(PublicKey, WireguardPeer), &'static str> {
    let address = node.address(local.address.is_ipv4());
    let address = address.ok_or("the node has no address of the tunnel's family")?;
    let key = node.key.ok_or(
        "the node has published no WireGuard key; start its agent with --backend=wireguard",
    )?;
    let peer = WireguardPeer {
        endpoint: Some(SocketAddr::new(address, local.wireguard_port)),
        allowed: node.ranges.iter().copied().collect(),
    };
    Ok((key, peer))
}

/// A change of a device's peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PeerChange {
    /// The node no longer exists, or has another key.
    Delete(PublicKey),
    /// The peer has another endpoint: that of the node has changed, or the peer sends with another
    /// of its addresses.
    Move(PublicKey, SocketAddr),
    /// The node is new, or has other ranges.
    Replace(PublicKey, WireguardPeer),
}

/// Returns the changes that lead from one set of peers to another. Deletions are first: a node with
/// a new key has the ranges of its former one.
pub(crate) fn compare_peers(
    present: &BTreeMap<PublicKey, WireguardPeer>,
    desired: &BTreeMap<PublicKey, WireguardPeer>,
) -> Vec<PeerChange> {
    let deleted = present.keys().filter(|key| !desired.contains_key(key));
    let mut changes: Vec<_> = deleted.copied().map(PeerChange::Delete).collect();
    let changed = desired
        .iter()
        .filter_map(|(key, peer)| compare_peer(*key, present.get(key), peer));
    changes.extend(changed);
    changes
}

fn compare_peer(
    key: PublicKey,
    present: Option<&WireguardPeer>,
    desired: &WireguardPeer,
) -> Option<PeerChange> {
    let has_ranges = present.is_some_and(|present| present.allowed == desired.allowed);
    if !has_ranges {
        return Some(PeerChange::Replace(key, desired.clone()));
    }
    let endpoint = desired.endpoint?;
    let has_endpoint = present.is_some_and(|present| present.endpoint == Some(endpoint));
    (!has_endpoint).then_some(PeerChange::Move(key, endpoint))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::peers::tests::{cluster, key, keyed_node, node, own};
    use crate::settings::Backend;

    fn local() -> LocalNetwork {
        LocalNetwork {
            ranges: own().ranges,
            address: "192.0.2.1".parse().unwrap(),
            backend: Backend::Wireguard,
            tunnel: Some(9),
            cluster_ranges: cluster(),
            wireguard_port: 51_820,
        }
    }

    fn peer(endpoint: &str, allowed: &[&str]) -> WireguardPeer {
        WireguardPeer {
            endpoint: Some(endpoint.parse().unwrap()),
            allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn nodes_with_keys_are_peers_with_their_ranges() {
        let ranges = ["10.244.1.0/24", "fd00:0:0:1::/64"];
        let nodes = [
            keyed_node(node("a", 2021, &ranges, &["192.0.2.2"]), key(1)),
            keyed_node(
                node(
                    "b",
                    2022,
                    &["10.244.2.0/24"],
                    &["2001:db8::3", "198.51.100.2"],
                ),
                key(2),
            ),
            node("keyless", 2023, &["10.244.3.0/24"], &["192.0.2.4"]),
            keyed_node(
                node("far", 2023, &["10.244.4.0/24"], &["2001:db8::4"]),
                key(4),
            ),
            keyed_node(node("new", 2024, &["10.244.5.0/24"], &[]), key(5)),
            keyed_node(node("rangeless", 2024, &[], &["192.0.2.6"]), key(6)),
        ];
        let peers = Peers::check(&own(), &cluster(), &nodes);
        let plan = make_encrypted_plan(&local(), &peers);
        let expect = BTreeMap::from([
            (key(1), peer("192.0.2.2:51820", &ranges)),
            (key(2), peer("198.51.100.2:51820", &["10.244.2.0/24"])),
        ]);
        assert_eq!(plan.encrypted, expect);
        assert_eq!(plan.unreachable.len(), 2, "{:?}", plan.unreachable);
        // As old as the other, so that the names decide.
        assert!(plan.unreachable[0].contains("far"));
        assert!(plan.unreachable[1].contains("keyless"));
        // Pods reach nodes with the address of their node, as behind other tunnels.
        assert_eq!(plan.linked, BTreeSet::new());
    }

    #[test]
    fn all_ranges_of_the_cluster_lead_to_the_device() {
        let plan = make_encrypted_plan(&local(), &Peers::default());
        let routes: Vec<_> = plan
            .routes
            .iter()
            .map(|route| {
                let source = route.source.unwrap();
                format!("{} dev {} src {source}", route.destination, route.device)
            })
            .collect();
        let expect = [
            "10.244.0.0/16 dev 9 src 10.244.0.1",
            "fd00::/48 dev 9 src fd00::1",
        ];
        assert_eq!(routes, expect);
        // One that is the node's own, one of other nodes, and one of a family that the node lacks.
        let mut local = local();
        local.cluster_ranges = ["10.244.0.0/24", "10.245.0.0/24", "fd00::/48"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        local.ranges.truncate(1);
        let plan = make_encrypted_plan(&local, &Peers::default());
        let routes: Vec<_> = plan.routes.iter().collect();
        assert_eq!(routes.len(), 1, "{routes:?}");
        assert_eq!(routes[0].destination, local.cluster_ranges[1]);
        assert_eq!(routes[0].source, Some("10.244.0.1".parse().unwrap()));
        local.cluster_ranges = cluster();
        local.tunnel = None;
        assert_eq!(
            make_encrypted_plan(&local, &Peers::default()).routes,
            BTreeSet::new()
        );
    }

    #[test]
    fn peers_differ_in_key_endpoint_and_ranges() {
        let one = peer("192.0.2.2:51820", &["10.244.1.0/24"]);
        let present = BTreeMap::from([(key(1), one.clone()), (key(2), one.clone())]);
        assert_eq!(compare_peers(&present, &present), []);
        let compare = |changed: &WireguardPeer| {
            let desired = BTreeMap::from([(key(1), changed.clone()), (key(2), one.clone())]);
            compare_peers(&present, &desired)
        };
        for endpoint in ["192.0.2.3:51820", "192.0.2.2:51821"] {
            let changed = peer(endpoint, &["10.244.1.0/24"]);
            let expect = PeerChange::Move(key(1), endpoint.parse().unwrap());
            assert_eq!(compare(&changed), [expect]);
        }
        for ranges in [&["10.244.1.0/24", "fd00::/64"][..], &[]] {
            let changed = peer("192.0.2.2:51820", ranges);
            assert_eq!(compare(&changed), [PeerChange::Replace(key(1), changed)]);
        }
        let desired = BTreeMap::from([(key(0), one.clone()), (key(2), one.clone())]);
        let expect = [PeerChange::Delete(key(1)), PeerChange::Replace(key(0), one)];
        assert_eq!(compare_peers(&present, &desired), expect);
    }
}
