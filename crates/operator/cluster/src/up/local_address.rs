//! Chooses the addresses of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::error::{Error, Result};
use crate::ranges::Ranges;
use crate::settings::Settings;

/// Returns the address from which this machine sends packets to `target`, without sending one.
pub(crate) fn local_address_for(target: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match target.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a UDP socket only looks up the route.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(target).ok()?;
    let local = socket.local_addr().ok()?.ip();
    (!local.is_unspecified()).then_some(local)
}

/// Returns the address of the default route of a family, or of any interface, or loopback.
pub(crate) fn choose_address(is_v4: bool) -> IpAddr {
    find_address(is_v4).unwrap_or(match is_v4 {
        true => Ipv4Addr::LOCALHOST.into(),
        false => Ipv6Addr::LOCALHOST.into(),
    })
}

/// Rejects more addresses than the cluster has families: they would have no effect.
///
/// # Errors
/// There are more.
pub(crate) fn check_count(given: &[IpAddr], pods: &Ranges) -> Result<()> {
    match given.len() > pods.families().len() {
        true => Err(Error::Refused(format!(
            "--node-ip has more addresses than the cluster has families ({pods}); give one of each"
        ))),
        false => Ok(()),
    }
}

/// Returns the address of the second family of a cluster with both: the given one, that of the link
/// between the nodes, or that of this machine. None if the machine has none.
pub(crate) fn choose_second(
    settings: &Settings,
    given: &[IpAddr],
    known: Option<IpAddr>,
) -> Option<IpAddr> {
    let is_v4 = *settings.pod_cidr.families().get(1)?;
    let given = given.get(1).copied().or(known);
    // All nodes of this machine reach the address on the link without a gateway.
    let of_link = || settings.link_address(1, is_v4);
    given.or_else(of_link).or_else(|| find_address(is_v4))
}

fn find_address(is_v4: bool) -> Option<IpAddr> {
    // Addresses for documentation (RFC 5737, RFC 3849).
    let outside: IpAddr = match is_v4 {
        true => Ipv4Addr::new(192, 0, 2, 1).into(),
        false => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    local_address_for(SocketAddr::new(outside, 9))
        .filter(|address| is_usable(*address))
        // A machine without a way to the Internet may have no default route.
        .or_else(|| find_any_address(is_v4))
}

fn find_any_address(is_v4: bool) -> Option<IpAddr> {
    let addresses = nix::ifaddrs::getifaddrs().ok()?;
    addresses
        // The bridges of an earlier cluster may still be there.
        .filter(|entry| !is_own_device(&entry.interface_name))
        .filter_map(|entry| {
            let address = entry.address?;
            let v4 = address
                .as_sockaddr_in()
                .map(|socket| IpAddr::V4(socket.ip()));
            let v6 = || {
                address
                    .as_sockaddr_in6()
                    .map(|socket| IpAddr::V6(socket.ip()))
            };
            v4.or_else(v6)
        })
        .find(|address| address.is_ipv4() == is_v4 && is_usable(*address))
}

/// Returns whether other hosts can reach an address.
fn is_usable(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_loopback() || is_link_local)
}

/// Returns whether a device belongs to a cluster, this one or another.
fn is_own_device(name: &str) -> bool {
    Settings::is_bridge(name) || name.starts_with("ironclad-") || name.starts_with("icn")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn second_address_is_of_the_other_family() {
        let own: IpAddr = "2001:db8::7".parse().unwrap();
        let first: IpAddr = "192.0.2.2".parse().unwrap();
        let dual = Settings {
            pod_cidr: "10.244.0.0/16,fd00::/48".parse().unwrap(),
            ..Settings::with_nodes(2)
        };
        assert_eq!(choose_second(&dual, &[first, own], None), Some(own));
        assert_eq!(choose_second(&dual, &[first], Some(own)), Some(own));
        let of_link = choose_second(&dual, &[], None).map(|address| address.to_string());
        assert_eq!(of_link.as_deref(), Some("fdc6:1207::1"));
        assert_eq!(choose_second(&Settings::example(), &[], Some(own)), None);
        assert!(check_count(&[first, own], &dual.pod_cidr).is_ok());
        assert!(check_count(&[first, own], &Settings::example().pod_cidr).is_err());
    }
}
