//! Routes to the pods of other machines: one direct route for each node, kept equal to the Node
//! objects. All machines must be on one link; there is no overlay network.
//!
//! **Invariant:** a node writes parts of its own object. So a range is used only within the
//! cluster's range, and never if an older node has a part of it. The address of a node gets a route
//! of its own only if an administrator has set its gateway, and if nothing else has the address. So
//! a compromised node can't attract the traffic of others.

mod follow;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use operator_discovery::Endpoint;

use crate::settings::Settings;
pub(crate) use follow::follow_nodes;
pub(crate) use table::remove_routes;

/// Label of a node that other machines reach through another address than its own: the nodes of
/// `up` that are namespaces of its machine. In a domain that no node may write (admission plugin
/// NodeRestriction): the gateway gets the traffic for the node's address, too.
pub const GATEWAY: &str = "ironclad.node-restriction.kubernetes.io/gateway";
/// The ranges of links between nodes on one machine (RFC 2544). The address of such a node gets a
/// route, too; addresses elsewhere never do.
const LINK_RANGE: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);

/// The machine whose routes are computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Names of its nodes.
    pub(crate) names: Vec<String>,
    /// Its address.
    pub(crate) address: IpAddr,
    /// Address of the API server, if it is on another machine and known.
    pub(crate) server: Option<Ipv4Addr>,
    /// Ranges of its own pods, and of the links between its own nodes.
    pub(crate) ranges: Vec<Ipv4Net>,
    /// Prefix length of the ranges of single nodes.
    pub(crate) range_length: u8,
    /// Addresses of all pods.
    pub(crate) cluster: Ipv4Net,
}

impl Machine {
    pub(crate) fn for_settings(settings: &Settings) -> Self {
        let nodes = settings.nodes();
        let mut ranges: Vec<_> = nodes.iter().filter_map(|node| node.pods.v4()).collect();
        ranges.extend(settings.node_network);
        Self {
            names: nodes.into_iter().map(|node| node.name).collect(),
            address: settings.node_address,
            server: settings.membership.as_ref().and_then(|membership| {
                let server = Endpoint::from_url(&membership.server).ok()?;
                server.host().parse().ok()
            }),
            range_length: settings.first_node().pods.primary().prefix_len(),
            ranges,
            // Only this plugin has these routes, and it has no IPv6.
            cluster: settings.pod_cidr.v4().unwrap_or_default(),
        }
    }
}

/// Desired routes: destination and gateway; and the reasons why nodes have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RoutePlan {
    pub(crate) routes: BTreeMap<Ipv4Net, Ipv4Addr>,
    pub(crate) rejected: Vec<String>,
}

/// Computes the routes of a machine to the pods of the other nodes.
pub(crate) fn plan_routes(machine: &Machine, nodes: &[Arc<Node>]) -> RoutePlan {
    let mut others: Vec<_> = nodes
        .iter()
        .filter_map(|node| Some((node.metadata.name.as_deref()?, node)))
        .filter(|(name, _)| !machine.names.iter().any(|own| own == name))
        .collect();
    // On a conflict, the node with the earlier creationTimestamp keeps the range.
    others.sort_by_key(|(name, node)| {
        let created = node.metadata.creation_timestamp.as_ref();
        (created.map(|time| time.0), (*name).to_owned())
    });
    let taken = list_taken_addresses(machine, others.iter().map(|(_, node)| *node));
    let mut plan = RoutePlan::default();
    for (name, node) in others {
        let Some(pods) = read_pod_range(node) else {
            // Not allocated yet, or of another family.
            continue;
        };
        // A kubelet that has not reported yet has no address.
        let Some(location) = read_location(node) else {
            continue;
        };
        if let Err(defect) = check_range(machine, &plan, pods) {
            plan.rejected.push(format!("node {name}: {pods} {defect}"));
            continue;
        }
        let (address, gateway) = (location.address, location.reached_at());
        if IpAddr::V4(gateway) == machine.address {
            let defect = "has this machine's own address as its gateway";
            plan.rejected.push(format!("node {name}: {pods} {defect}"));
            continue;
        }
        plan.routes.insert(pods, gateway);
        if gateway == address || !is_link_address(machine, address) {
            continue;
        }
        if taken.contains(&address) {
            let defect = "is an address of another machine";
            plan.rejected
                .push(format!("node {name}: {address} {defect}"));
            continue;
        }
        // An older node with the same address keeps it.
        plan.routes.entry(Ipv4Net::from(address)).or_insert(gateway);
    }
    plan
}

/// Returns the addresses that other machines have on the link: no route of a node's address may
/// replace the direct way there.
fn list_taken_addresses<'a>(
    machine: &Machine,
    others: impl Iterator<Item = &'a Arc<Node>>,
) -> BTreeSet<Ipv4Addr> {
    let locations = others.filter_map(|node| read_location(node));
    let mut taken: BTreeSet<_> = locations.map(|location| location.reached_at()).collect();
    taken.extend(machine.server);
    taken
}

fn read_pod_range(node: &Node) -> Option<Ipv4Net> {
    let text = node.spec.as_ref()?.pod_cidr.as_deref()?;
    text.parse::<Ipv4Net>().ok().map(|range| range.trunc())
}

/// The addresses of a node.
struct Location {
    /// Its own address.
    address: Ipv4Addr,
    /// The machine through which it is reached; None if it is a machine.
    gateway: Option<Ipv4Addr>,
}

impl Location {
    /// Returns the address to which other machines send what is for the node.
    fn reached_at(&self) -> Ipv4Addr {
        self.gateway.unwrap_or(self.address)
    }
}

fn read_location(node: &Node) -> Option<Location> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let address: Ipv4Addr = addresses
        .iter()
        .filter(|address| address.type_ == "InternalIP")
        .find_map(|address| address.address.parse().ok())?;
    let labels = node.metadata.labels.as_ref();
    let gateway = labels.and_then(|all| all.get(GATEWAY)?.parse().ok());
    Some(Location { address, gateway })
}

fn check_range(machine: &Machine, plan: &RoutePlan, pods: Ipv4Net) -> Result<(), &'static str> {
    let overlaps = |other: &Ipv4Net| other.contains(&pods) || pods.contains(other);
    if !machine.cluster.contains(&pods) || pods == machine.cluster {
        return Err("is not a part of the cluster's range of pods");
    }
    // All ranges of a cluster have one size. A larger one would take the ranges of nodes to come.
    if pods.prefix_len() != machine.range_length {
        return Err("has another size than the ranges of the cluster's nodes");
    }
    if machine.ranges.iter().any(overlaps) {
        return Err("overlaps the range of this machine's pods");
    }
    if plan.routes.keys().any(overlaps) {
        return Err("overlaps the range of an older node");
    }
    Ok(())
}

fn is_link_address(machine: &Machine, address: Ipv4Addr) -> bool {
    let (base, length) = LINK_RANGE;
    Ipv4Net::new(base, length).is_ok_and(|links| links.contains(&address))
        && !machine.ranges.iter().any(|own| own.contains(&address))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn machine() -> Machine {
        Machine {
            names: vec!["own".into()],
            address: "192.0.2.1".parse().unwrap(),
            server: "198.18.9.1".parse().ok(),
            ranges: vec!["10.244.0.0/24".parse().unwrap()],
            range_length: 24,
            cluster: "10.244.0.0/16".parse().unwrap(),
        }
    }

    /// Returns a node that was created in this year.
    fn node(name: &str, year: u16, pods: &str, address: &str, gateway: &str) -> Arc<Node> {
        let labels = match gateway {
            "" => json!({}),
            gateway => json!({ GATEWAY: gateway }),
        };
        let tree = json!({
            "metadata": {"name": name, "labels": labels,
                "creationTimestamp": format!("{year}-01-01T00:00:00Z")},
            "spec": {"podCIDR": pods},
            "status": {"addresses": [{"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": address}]},
        });
        Arc::new(serde_json::from_value(tree).unwrap())
    }

    fn format_routes(nodes: &[Arc<Node>]) -> Vec<String> {
        let plan = plan_routes(&machine(), nodes);
        plan.routes
            .iter()
            .map(|(range, gateway)| format!("{range} via {gateway}"))
            .collect()
    }

    #[test]
    fn every_other_node_has_a_route_through_its_address() {
        let nodes = [
            node("own", 2020, "10.244.0.0/24", "192.0.2.1", ""),
            node("a", 2021, "10.244.1.0/24", "192.0.2.2", ""),
            node("b", 2022, "10.244.2.0/24", "198.18.7.2", "192.0.2.9"),
        ];
        let expected = [
            "10.244.1.0/24 via 192.0.2.2",
            "10.244.2.0/24 via 192.0.2.9",
            "198.18.7.2/32 via 192.0.2.9",
        ];
        assert_eq!(format_routes(&nodes), expected);
        let pending: Node = serde_json::from_value(json!({"metadata": {"name": "c"}})).unwrap();
        assert!(format_routes(&[Arc::new(pending)]).is_empty());
    }

    /// A compromised node must not attract traffic to others.
    #[test]
    fn range_outside_of_the_cluster_or_of_an_older_node_is_refused() {
        let older = node("a", 2021, "10.244.1.0/24", "192.0.2.2", "");
        for (range, gateway) in [
            ("0.0.0.0/0", ""),
            ("10.244.0.0/16", ""),
            ("10.0.0.0/8", ""),
            ("192.0.2.0/24", ""),
            ("10.244.0.128/25", ""),
            ("10.244.1.0/24", ""),
            ("10.244.1.7/32", ""),
            ("10.244.0.0/23", ""),
            ("10.244.128.0/17", ""),
            ("10.244.3.0/24", "192.0.2.1"),
        ] {
            let younger = node("0", 2022, range, "192.0.2.3", gateway);
            let nodes = [younger, older.clone()];
            assert_eq!(
                format_routes(&nodes),
                ["10.244.1.0/24 via 192.0.2.2"],
                "{range}"
            );
            assert_eq!(plan_routes(&machine(), &nodes).rejected.len(), 1, "{range}");
        }
    }

    #[test]
    fn address_of_a_node_gets_a_route_on_a_link_between_nodes_only() {
        for (address, expected) in [("198.18.7.2", 2), ("8.8.8.8", 1), ("192.0.2.77", 1)] {
            let nodes = [node("b", 2022, "10.244.2.0/24", address, "192.0.2.9")];
            assert_eq!(format_routes(&nodes).len(), expected, "{address}");
        }
        // A node writes its own annotations.
        let tree = json!({"metadata": {"name": "b", "annotations": {"node.ironclad.local/gateway": "192.0.2.9",
                GATEWAY: "192.0.2.9"}}, "spec": {"podCIDR": "10.244.2.0/24"},
            "status": {"addresses": [{"type": "InternalIP", "address": "198.18.7.2"}]}});
        let annotated = Arc::new(serde_json::from_value(tree).unwrap());
        assert_eq!(
            format_routes(&[annotated]),
            ["10.244.2.0/24 via 198.18.7.2"]
        );
        let own_link = Machine {
            ranges: vec!["198.18.7.0/24".parse().unwrap()],
            ..machine()
        };
        let nodes = [node("b", 2022, "10.244.2.0/24", "198.18.7.2", "192.0.2.9")];
        assert_eq!(plan_routes(&own_link, &nodes).routes.len(), 1);
    }

    /// A compromised node behind a gateway writes its own address. It must not lead the traffic for
    /// other machines through its gateway.
    #[test]
    fn address_of_another_machine_gets_no_route() {
        let machines = [
            node("machine", 2023, "10.244.1.0/24", "198.18.8.1", ""),
            node("behind", 2024, "10.244.3.0/24", "198.18.7.3", "198.18.8.2"),
        ];
        for (address, is_refused) in [
            ("198.18.7.2", false),
            ("198.18.8.1", true),
            ("198.18.8.2", true),
            // The API server's.
            ("198.18.9.1", true),
        ] {
            for year in [2020, 2025] {
                let claimant = node("b", year, "10.244.2.0/24", address, "192.0.2.9");
                let nodes = [&machines[..], &[claimant]].concat();
                let plan = plan_routes(&machine(), &nodes);
                let route = Ipv4Net::from(address.parse::<Ipv4Addr>().unwrap());
                assert_eq!(plan.routes.contains_key(&route), !is_refused, "{address}");
                assert_eq!(plan.rejected.len(), usize::from(is_refused), "{address}");
                let pods = "10.244.2.0/24".parse().unwrap();
                assert!(plan.routes.contains_key(&pods), "{address}");
            }
        }
    }
}
