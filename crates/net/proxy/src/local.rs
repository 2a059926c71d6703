//! Properties of the node that affect the rules.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::ensure;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::NodeAddress;

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
    /// Interface of pods; it replaces the ranges.
    pub pod_interface: Option<PodMatch>,
    /// Masquerade all connections.
    pub masquerade_all: bool,
    /// Own addresses of the node, the first one of each family.
    pub node_addresses: Vec<IpAddr>,
    /// Addresses of node ports, except of the families below.
    pub node_port_addresses: Vec<IpAddr>,
    /// Families of which all local addresses except loopback accept node ports.
    pub node_port_families: Vec<Family>,
    /// Ranges of cluster IPs.
    pub service_ranges: Vec<IpNet>,
}

/// A match of connections from pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodMatch {
    /// They come in by this interface.
    Interface(String),
    /// They come in by an interface whose name begins so.
    Prefix(String),
    /// Their source is in this range.
    Range(IpNet),
}

/// Sources whose connections to cluster IPs are masqueraded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Masquerade {
    /// None: it is unknown which of them are pods.
    None,
    /// All.
    All,
    /// All except pods.
    AllExcept(PodMatch),
}

impl LocalNode {
    /// Returns the sources that are masqueraded at cluster IPs of a family.
    #[must_use]
    pub fn masquerade_at(&self, family: Family) -> Masquerade {
        if self.masquerade_all {
            return Masquerade::All;
        }
        // Without a range of pods it is unknown who is foreign, and nothing is masqueraded.
        let pods = self.match_pods(family);
        pods.map_or(Masquerade::None, Masquerade::AllExcept)
    }

    /// Returns the sources that are masqueraded at cluster IPs, by family.
    #[must_use]
    pub fn masquerade(&self) -> BTreeMap<Family, Masquerade> {
        let families = self.families.iter();
        families
            .map(|family| (*family, self.masquerade_at(*family)))
            .collect()
    }

    /// Returns the match of connections from pods of the node; None if pods can't be detected.
    #[must_use]
    pub fn match_pods(&self, family: Family) -> Option<PodMatch> {
        if let Some(interface) = &self.pod_interface {
            return Some(interface.clone());
        }
        let mut ranges = self.pod_ranges.iter();
        let range = ranges.find(|range| Family::of(range.addr()) == family)?;
        Some(PodMatch::Range(*range))
    }

    /// Returns the addresses of health check ports: those of node ports. An unspecified address is
    /// all of its family.
    #[must_use]
    pub fn check_addresses(&self) -> Vec<IpAddr> {
        let whole = |family: Family| self.node_port_families.contains(&family);
        let unspecified = self.node_port_families.iter().map(|f| f.unspecified());
        let listed = self.node_port_addresses.iter().copied();
        let listed = listed.filter(|ip| !whole(Family::of(*ip)));
        // A link-local address is bound with its interface, which load balancers don't know.
        let link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        unspecified
            .chain(listed.filter(|ip| !link_local(ip)))
            .collect()
    }
}

/// The setting `nodePortAddresses`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// The node's own addresses.
    Primary,
    /// Addresses of interfaces in these ranges.
    Ranges(Vec<IpNet>),
}

impl NodePortAddresses {
    /// Parses the list of the setting. An empty one selects the node's own addresses, or all
    /// (`empty_is_all`, as upstream in the mode iptables).
    ///
    /// # Errors
    /// An entry is no range, or `primary` is not the only entry.
    pub fn parse(list: &[String], empty_is_all: bool) -> anyhow::Result<Self> {
        if list.is_empty() && empty_is_all {
            let whole = |family: Family| IpNet::new(family.unspecified(), 0);
            let families = [Family::V4, Family::V6];
            return Ok(Self::Ranges(families.into_iter().flat_map(whole).collect()));
        }
        if list.is_empty() || list == ["primary"] {
            return Ok(Self::Primary);
        }
        let ranges: Vec<IpNet> = list.iter().flat_map(|text| text.trim().parse()).collect();
        ensure!(
            ranges.len() == list.len(),
            "nodePortAddresses {list:?} is neither \"primary\" nor a list of ranges such as 192.0.2.0/24"
        );
        Ok(Self::Ranges(ranges))
    }

    /// Returns the families of which all addresses are selected.
    #[must_use]
    pub fn whole_families(&self) -> Vec<Family> {
        let Self::Ranges(ranges) = self else {
            return Vec::new();
        };
        let whole = |family: &Family| {
            let all =
                |range: &IpNet| range.prefix_len() == 0 && Family::of(range.addr()) == *family;
            ranges.iter().any(all)
        };
        [Family::V4, Family::V6].into_iter().filter(whole).collect()
    }

    /// Returns the selected addresses, without those of whole families: their rules match any
    /// address, and each pod that starts or ends changes the addresses. Loopback is excluded: a
    /// connection from outside the node could be forged there, and masquerading would need
    /// `route_localnet`.
    #[must_use]
    pub fn select(&self, node_addresses: &[IpAddr]) -> Vec<IpAddr> {
        let mut found: Vec<IpAddr> = match self {
            Self::Primary => node_addresses.to_vec(),
            Self::Ranges(ranges) => {
                let whole = self.whole_families();
                let selected = |ip: &IpAddr| {
                    !whole.contains(&Family::of(*ip)) && ranges.iter().any(|r| r.contains(ip))
                };
                interface_addresses().into_iter().filter(selected).collect()
            }
        };
        found.retain(|ip| !ip.is_loopback());
        // A fixed order keeps the rules equal when interfaces are listed in another one.
        found.sort();
        found.dedup();
        found
    }
}

/// Returns the node's own addresses: the first of its status, and the first of the other family.
/// Internal addresses come before external ones. `bind` replaces that of its family.
#[must_use]
pub fn primary_addresses(listed: &[NodeAddress], bind: Option<IpAddr>) -> Vec<IpAddr> {
    let of_type = |kind: &'static str| {
        let typed = listed.iter().filter(move |address| address.type_ == kind);
        typed.filter_map(|address| address.address.parse::<IpAddr>().ok())
    };
    let bind = bind.filter(|ip| !ip.is_unspecified());
    let mut found: Vec<IpAddr> = Vec::new();
    for ip in bind
        .into_iter()
        .chain(of_type("InternalIP"))
        .chain(of_type("ExternalIP"))
    {
        if found
            .iter()
            .all(|other| Family::of(*other) != Family::of(ip))
        {
            found.push(ip);
        }
    }
    found
}

/// Returns the addresses of all interfaces. Link-local ones are excluded: each interface of a pod
/// has one.
#[must_use]
pub fn all_addresses() -> Vec<IpAddr> {
    let mut found = interface_addresses();
    found.retain(|ip| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn node_port_addresses_are_primary_or_ranges() {
        let parse = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|&text| text.to_owned()).collect();
            NodePortAddresses::parse(&list, false)
        };
        assert_eq!(parse(&[]).unwrap(), NodePortAddresses::Primary);
        assert_eq!(parse(&["primary"]).unwrap(), NodePortAddresses::Primary);
        for wrong in [
            &["primary", "10.0.0.0/8"][..],
            &["10.0.0.1"],
            &["10.0.0.0/8", "x"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        let both = vec![Family::V4, Family::V6];
        for (list, expect) in [
            (&["10.0.0.0/8"][..], vec![]),
            (&["10.0.0.0/8", "0.0.0.0/0"], vec![Family::V4]),
            (&["::/0", "0.0.0.0/0"], both),
        ] {
            assert_eq!(parse(list).unwrap().whole_families(), expect, "{list:?}");
        }
        let loopback = parse(&["127.0.0.0/8"]).unwrap();
        assert_eq!(loopback.select(&[]), Vec::<IpAddr>::new());
    }

    /// A pod that starts or ends changes the addresses of interfaces; all rules would be installed
    /// again with the next write of the Node.
    #[test]
    fn addresses_of_a_whole_family_are_not_selected() {
        let list = ["0.0.0.0/0", "::/0"].map(String::from);
        for setting in [
            NodePortAddresses::parse(&[], true),
            NodePortAddresses::parse(&list, false),
        ] {
            assert_eq!(setting.unwrap().select(&[]), Vec::<IpAddr>::new());
        }
    }

    #[test]
    fn first_address_of_each_family_is_primary() {
        let listed: Vec<NodeAddress> = [
            ("ExternalIP", "198.51.100.1"),
            ("ExternalIP", "2001:db8::9"),
            ("InternalIP", "192.0.2.1"),
            ("InternalIP", "192.0.2.2"),
            ("Hostname", "192.0.2.3"),
        ]
        .map(|(type_, address)| NodeAddress {
            type_: type_.into(),
            address: address.into(),
        })
        .into();
        for (bind, expect) in [
            (None, "192.0.2.1 2001:db8::9"),
            (Some("0.0.0.0"), "192.0.2.1 2001:db8::9"),
            (Some("192.0.2.7"), "192.0.2.7 2001:db8::9"),
            (Some("fd00::7"), "fd00::7 192.0.2.1"),
        ] {
            let found = primary_addresses(&listed, bind.map(|ip| ip.parse().unwrap()));
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found.join(" "), expect, "{bind:?}");
        }
    }

    #[test]
    fn health_checks_listen_where_node_ports_are_open() {
        let addresses = ["192.0.2.1", "fd00::1", "fe80::1"];
        for (families, expect) in [
            (vec![], "192.0.2.1 fd00::1"),
            (vec![Family::V4], "0.0.0.0 fd00::1"),
            (vec![Family::V4, Family::V6], "0.0.0.0 ::"),
        ] {
            let node = LocalNode {
                node_port_addresses: addresses.map(|ip| ip.parse().unwrap()).into(),
                node_port_families: families,
                ..LocalNode::default()
            };
            let found = node.check_addresses().into_iter().map(|ip| ip.to_string());
            assert_eq!(found.collect::<Vec<_>>().join(" "), expect);
        }
    }

    #[test]
    fn pods_are_matched_by_range_or_interface() {
        let range = "10.0.0.0/8".parse().unwrap();
        let by_range = LocalNode {
            pod_ranges: vec![range],
            ..LocalNode::default()
        };
        let prefix = PodMatch::Prefix("veth".into());
        let by_interface = LocalNode {
            pod_interface: Some(prefix.clone()),
            ..by_range.clone()
        };
        for (node, family, expect) in [
            (&by_range, Family::V4, Some(PodMatch::Range(range))),
            (&by_range, Family::V6, None),
            (&by_interface, Family::V4, Some(prefix.clone())),
            (&by_interface, Family::V6, Some(prefix)),
        ] {
            assert_eq!(node.match_pods(family), expect);
        }
    }
}
