//! A node of the cluster on this machine, as a value: everything in which one node differs from the
//! next.
//!
//! The first node is the machine itself. Every further one has its own network and mount
//! namespaces.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;

use crate::addresses::nth_address;
use crate::ranges::Ranges;
use crate::settings::Settings;

/// Maximum number of nodes on one machine.
// From 36 on, the ranges of simulated pods would be those of joined machines (`plan/node.rs`).
pub const MAX_NODES: u8 = 32;

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNode {
    /// Number of the node, from 1.
    pub number: u8,
    /// Name of the Node object.
    pub name: String,
    /// Address of the node, of the primary family.
    pub address: IpAddr,
    /// Address of the node, of the other family of the cluster.
    pub second_address: Option<IpAddr>,
    /// Addresses of its pods.
    pub pods: Ranges,
    /// Loopback address of its components.
    pub loopback: Ipv4Addr,
    /// URL of the API server for its components.
    pub server: String,
    /// Parent cgroup of its pods' cgroups, relative to the hierarchy's root.
    pub cgroup_root: Option<String>,
    /// The node has its own network and mount namespaces.
    pub is_isolated: bool,
}

impl ClusterNode {
    /// Returns the node with this number.
    #[must_use]
    pub fn new(settings: &Settings, number: u8) -> Self {
        if number <= 1 {
            return Self::machine(settings);
        }
        let is_isolated = settings.runs_pods();
        let mut addresses = settings
            .pod_cidr
            .families()
            .into_iter()
            .filter_map(|is_v4| settings.link_address(number, is_v4));
        let address = addresses.next().unwrap_or(Ipv4Addr::LOCALHOST.into());
        let second_address = addresses.next();
        let server = if is_isolated {
            // The machine's loopback address is not reachable from another network namespace.
            SocketAddr::new(settings.node_address, settings.ports.api)
        } else {
            SocketAddr::from((Ipv4Addr::LOCALHOST, settings.ports.api))
        };
        Self {
            number,
            name: format!("{}-{number}", settings.node_name),
            address,
            second_address,
            pods: settings.pods_of_node(number),
            // Simulated nodes share the machine's network, so each has a loopback address of its
            // own: the ports are the same on every node.
            loopback: if is_isolated {
                Ipv4Addr::LOCALHOST
            } else {
                Ipv4Addr::new(127, 0, 0, number)
            },
            server: format!("https://{server}"),
            cgroup_root: is_isolated.then(|| match settings.instance().as_str() {
                "" => format!("ironclad-n{number}"),
                word => format!("ironclad-{word}-n{number}"),
            }),
            is_isolated,
        }
    }

    fn machine(settings: &Settings) -> Self {
        Self {
            number: 1,
            name: settings.node_name.clone(),
            address: settings.node_address,
            second_address: settings.second_address,
            pods: settings.pods_of_node(1),
            loopback: Ipv4Addr::LOCALHOST,
            server: settings.server_url(),
            cgroup_root: find_joined_cgroup(settings),
            is_isolated: false,
        }
    }

    /// Returns the name of one of the node's processes, and of its log: those of the first node
    /// have the component's name.
    #[must_use]
    pub fn process_name(&self, component: &str) -> String {
        match self.number {
            1 => component.to_owned(),
            number => format!("{component}-{number}"),
        }
    }

    /// Returns the address of the node on the bridge of its pods: the first of their primary range.
    #[must_use]
    pub fn bridge_address(&self) -> IpAddr {
        nth_address(self.pods.primary(), 1)
    }

    /// Returns the addresses of the node on the bridge of its pods, with their prefix lengths.
    pub fn bridge_addresses(&self) -> impl Iterator<Item = IpNet> + use<> {
        self.pods
            .iter()
            .filter_map(|pods| IpNet::new(nth_address(pods, 1), pods.prefix_len()).ok())
    }

    /// Returns the addresses of the node.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        [Some(self.address), self.second_address]
            .into_iter()
            .flatten()
    }

    /// Returns the address of the node of a family.
    #[must_use]
    pub fn address_of_family(&self, is_v4: bool) -> Option<IpAddr> {
        self.addresses().find(|address| address.is_ipv4() == is_v4)
    }

    /// Returns the name of the machine's end of the link to the node.
    #[must_use]
    pub fn link(&self, settings: &Settings) -> String {
        // The kernel limits names of devices to 15 characters (IFNAMSIZ).
        match settings.instance().as_str() {
            "" => format!("ironclad-n{}", self.number),
            word => format!("icn{}-{word}", self.number),
        }
    }
}

/// Returns the parent cgroup of a joined machine's pods. It differs from that of a cluster that
/// `up` started, since the kernel of a test machine may have both, and two kubelets in one cgroup
/// would remove each other's pods as orphans.
fn find_joined_cgroup(settings: &Settings) -> Option<String> {
    if settings.membership.is_none() && settings.joined_control_plane().is_none() {
        return None;
    }
    match settings.instance().as_str() {
        "" => None,
        word => Some(format!("ironclad-{word}")),
    }
}

impl Settings {
    /// Returns the nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<ClusterNode> {
        (1..=self.node_count)
            .map(|number| ClusterNode::new(self, number))
            .collect()
    }

    /// Returns the first node, which runs the control plane.
    #[must_use]
    pub fn first_node(&self) -> ClusterNode {
        ClusterNode::new(self, 1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::Runtime;

    #[test]
    fn nodes_share_no_name_address_range_or_cgroup() {
        for runtime in [Runtime::Own, Runtime::Simulated] {
            let settings = Settings {
                runtime,
                ..Settings::with_nodes(3)
            };
            let nodes = settings.nodes();
            assert_eq!(nodes.len(), 3);
            for (index, one) in nodes.iter().enumerate() {
                for other in nodes.iter().skip(index + 1) {
                    assert_ne!(one.name, other.name);
                    assert_ne!(one.address, other.address);
                    assert_ne!(one.pods, other.pods);
                    assert_ne!(one.process_name("kubelet"), other.process_name("kubelet"));
                    assert_ne!(one.link(&settings), other.link(&settings));
                    if settings.runs_pods() {
                        assert_ne!(one.cgroup_root, other.cgroup_root);
                    } else {
                        assert_ne!(one.loopback, other.loopback);
                    }
                }
            }
        }
    }

    #[test]
    fn first_node_is_the_machine_also_beside_others() {
        let alone = Settings::example().nodes();
        assert_eq!(alone[0], Settings::with_nodes(3).nodes()[0]);
        let node = &alone[0];
        assert_eq!((node.name.as_str(), node.is_isolated), ("n1", false));
        assert_eq!(node.process_name("kubelet"), "kubelet");
        assert_eq!(node.pods.to_string(), "10.244.0.0/24");
    }

    /// The kernel allows 15 bytes for the name of a device.
    #[test]
    fn names_of_devices_are_short_enough_and_no_bridges_of_pods() {
        for data_dir in ["/var/lib/ironclad", "/a"] {
            let settings = Settings {
                data_dir: data_dir.into(),
                ..Settings::with_nodes(MAX_NODES)
            };
            let nodes = settings.nodes();
            let mut names: Vec<_> = nodes.iter().map(|node| node.link(&settings)).collect();
            names.push(settings.link_bridge());
            for name in names {
                assert!(name.len() <= 15 && !Settings::is_bridge(&name), "{name}");
            }
        }
    }
}
