//! The interfaces on which addresses are announced.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use api_address_pool::AddressPool;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{LinkAddr, SockaddrStorage};

use crate::ethernet::Mac;
use crate::ndp::Advertiser;

/// Maximum number of links: each is a comparison for each received frame.
pub(crate) const MAX_LINKS: usize = 32;
/// The kernel's number of the hardware type Ethernet.
const ETHERNET: u16 = 1;

/// An interface on an Ethernet link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The kernel's index.
    pub index: u32,
    /// Name of the interface.
    pub name: String,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Networks whose addresses are on the link.
    pub networks: Vec<IpNet>,
    /// Link-local address of IPv6.
    pub link_local: Option<Ipv6Addr>,
    /// The address of the link for the kernel; None in tests of decisions.
    pub device: Option<LinkAddr>,
}

impl Link {
    /// Returns the prefix length of the smallest network with the address.
    pub(crate) fn find_prefix(&self, address: IpAddr) -> Option<u8> {
        let fitting = self.networks.iter().filter(|n| n.contains(&address));
        fitting.map(IpNet::prefix_len).max()
    }

    /// Returns whether a host of the link can have the address. The first and the last one of a
    /// network of IPv4 are for all hosts.
    pub(crate) fn is_host_address(&self, address: IpAddr) -> bool {
        !self.networks.iter().any(|network| match network {
            IpNet::V4(v4) if v4.prefix_len() < 31 => {
                address == IpAddr::from(v4.network()) || address == IpAddr::from(v4.broadcast())
            }
            _ => false,
        })
    }

    pub(crate) fn advertiser(&self) -> Advertiser {
        Advertiser {
            mac: self.mac,
            address: self.link_local,
        }
    }
}

/// Selection of interfaces.
#[derive(Debug, Clone)]
pub struct LinkSelection {
    /// Interfaces with networks of the pool are used.
    pub pool: AddressPool,
    /// The only interface, for the whole pool. Its networks don't matter.
    pub interface: Option<String>,
}

impl LinkSelection {
    /// Reads the interfaces of this machine; returns those of the selection in the order of their
    /// index, 32 at most, and the addresses of the pool that any interface has.
    ///
    /// # Errors
    /// The kernel does not list the interfaces.
    pub(crate) fn read_links(&self) -> std::io::Result<(Vec<Link>, HashSet<IpAddr>)> {
        let mut links: BTreeMap<String, Link> = BTreeMap::new();
        let mut own = HashSet::new();
        let entries: Vec<_> = getifaddrs()?.collect();
        for entry in &entries {
            if let Some(link) = parse_link(entry) {
                links.insert(entry.interface_name.clone(), link);
            }
        }
        for entry in &entries {
            let Some((address, prefix)) = parse_address(entry) else {
                continue;
            };
            if self.pool.contains(address) {
                own.insert(address);
            }
            if let Some(link) = links.get_mut(&entry.interface_name) {
                add_address(link, address, prefix);
            }
        }
        let mut links: Vec<_> = links.into_values().filter_map(|l| self.select(l)).collect();
        links.sort_by_key(|link| link.index);
        links.truncate(MAX_LINKS);
        Ok((links, own))
    }

    fn select(&self, mut link: Link) -> Option<Link> {
        if let Some(name) = &self.interface {
            link.networks = vec![Ipv4Net::default().into(), Ipv6Net::default().into()];
            return (link.name == *name).then_some(link);
        }
        let mut networks = link.networks.iter();
        networks.any(|n| self.pool.overlaps(n)).then_some(link)
    }
}

/// Returns the link of an entry with an Ethernet address whose interface is up and has a carrier.
fn parse_link(entry: &InterfaceAddress) -> Option<Link> {
    let device = *entry.address.as_ref()?.as_link_addr()?;
    let needed = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    if device.hatype() != ETHERNET || !entry.flags.contains(needed) {
        return None;
    }
    let mac: Mac = device.addr()?;
    Some(Link {
        index: u32::try_from(device.ifindex()).ok()?,
        name: entry.interface_name.clone(),
        mac,
        networks: Vec::new(),
        link_local: None,
        device: Some(device),
    })
}

/// Returns the address and the prefix length of an entry of IPv4 or IPv6.
fn parse_address(entry: &InterfaceAddress) -> Option<(IpAddr, u8)> {
    let address = parse_ip(entry.address.as_ref()?)?;
    let mask = entry.netmask.as_ref().and_then(parse_ip);
    let prefix = mask.and_then(|mask| ipnet::ip_mask_to_prefix(mask).ok());
    let longest = if address.is_ipv4() { 32 } else { 128 };
    Some((address, prefix.unwrap_or(longest)))
}

fn parse_ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
}

fn add_address(link: &mut Link, address: IpAddr, prefix: u8) {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            link.link_local.get_or_insert(v6);
        }
        _ => {
            let network = IpNet::new(address, prefix).map(|network| network.trunc());
            // A network of one address has no other host.
            let network = network.ok().filter(|n| n.prefix_len() < n.max_prefix_len());
            link.networks
                .extend(network.filter(|n| !link.networks.contains(n)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn link(addresses: &[(&str, u8)]) -> Link {
        let mut link = Link {
            index: 2,
            name: "eth0".to_owned(),
            mac: [2; 6],
            networks: Vec::new(),
            link_local: None,
            device: None,
        };
        for (address, prefix) in addresses {
            add_address(&mut link, address.parse().unwrap(), *prefix);
        }
        link
    }

    #[test]
    fn networks_are_those_of_addresses_with_neighbours() {
        let link = link(&[
            ("192.0.2.7", 24),
            ("192.0.2.8", 24),
            ("192.0.2.9", 32),
            ("fe80::1", 64),
            ("2001:db8::7", 64),
        ]);
        let networks: Vec<_> = link.networks.iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["192.0.2.0/24", "2001:db8::/64"]);
        assert_eq!(link.link_local, Some("fe80::1".parse().unwrap()));
        assert_eq!(link.find_prefix("192.0.2.99".parse().unwrap()), Some(24));
        assert_eq!(link.find_prefix("198.51.100.1".parse().unwrap()), None);
    }

    #[test]
    fn addresses_for_all_hosts_are_not_announced() {
        let link = link(&[("192.0.2.7", 24), ("198.51.100.0", 31)]);
        for (address, expect) in [
            ("192.0.2.0", false),
            ("192.0.2.1", true),
            ("192.0.2.255", false),
            ("198.51.100.0", true),
            ("2001:db8::", true),
        ] {
            assert_eq!(
                link.is_host_address(address.parse().unwrap()),
                expect,
                "{address}"
            );
        }
    }

    #[test]
    fn interfaces_are_selected_by_the_pool_or_by_name() {
        let select = |pool: &str, interface: Option<&str>| {
            let selection = LinkSelection {
                pool: pool.parse().unwrap(),
                interface: interface.map(str::to_owned),
            };
            selection.select(link(&[("192.0.2.7", 24)]))
        };
        assert!(select("192.0.2.100-192.0.2.110", None).is_some());
        assert!(select("198.51.100.0/24", None).is_none());
        assert!(select("192.0.2.100", Some("eth1")).is_none());
        let named = select("198.51.100.0/24", Some("eth0")).unwrap();
        assert_eq!(named.find_prefix("198.51.100.9".parse().unwrap()), Some(0));
        assert!(named.is_host_address("198.51.100.9".parse().unwrap()));
    }
}
