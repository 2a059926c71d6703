//! The optional DNS server of each node (`--node-local-dns`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::settings::Settings;

/// The name of its process on the first node.
pub(crate) const NODE_DNS: &str = "node-dns";
/// Its port.
pub(crate) const DNS_PORT: u16 = 53;
/// The address of upstream's NodeLocal DNSCache.
const USUAL_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 20, 10);
/// A unique local address (RFC 4193) with the same digits. Pods can't use link-local ones, which
/// need the name of a device.
const USUAL_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x169, 0x254, 0x20, 0, 0, 0, 0x10);

/// The address of each node's DNS server, as an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeDns {
    /// The usual address of the cluster's primary family.
    Usual,
    /// The given address.
    Address(IpAddr),
}

impl NodeDns {
    pub(crate) fn address(self, is_v4: bool) -> IpAddr {
        match (self, is_v4) {
            (Self::Address(address), _) => address,
            (Self::Usual, true) => USUAL_V4.into(),
            (Self::Usual, false) => USUAL_V6.into(),
        }
    }
}

impl FromStr for NodeDns {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Usual),
            _ => text
                .parse()
                .map(Self::Address)
                .map_err(|_| "is no IP address"),
        }
    }
}

impl fmt::Display for NodeDns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual => f.write_str("auto"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Rejects an address that each node can't have.
pub(crate) fn check_address(settings: &Settings, address: IpAddr) -> Result<()> {
    let option = match settings.membership {
        None => "--node-local-dns",
        // An option that `join` does not have.
        Some(_) => "--node-local-dns of the cluster",
    };
    let refuse = |problem: &str| Err(Error::Refused(format!("{option}: {address} {problem}")));
    if !settings.runs_pods() {
        return refuse("would be used by no pod: simulated ones send nothing; leave the flag out");
    }
    let families = settings.pod_cidr.families();
    if !families.contains(&address.is_ipv4()) {
        return refuse("is of a family that pods do not have");
    }
    let is_special = match address {
        IpAddr::V4(address) => address.is_broadcast(),
        // Programs need a device for them, and resolv.conf of a pod names another one.
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    if is_special || address.is_loopback() || address.is_unspecified() || address.is_multicast() {
        return refuse("can't be reached from pods");
    }
    let ranges = [settings.pod_cidr, settings.service_cidr];
    let in_use = ranges.iter().any(|ranges| ranges.contains(address))
        || settings
            .link_ranges()
            .iter()
            .any(|range| range.contains(&address))
        || settings.node_addresses().any(|own| own == address);
    match in_use {
        true => refuse("is an address of pods, Services or nodes; take one that nothing else has"),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::Runtime;

    #[test]
    fn address_is_one_that_nothing_else_has() {
        let settings = Settings::example();
        for (text, valid) in [
            ("169.254.20.10", true),
            ("192.0.2.200", true),
            ("192.0.2.2", false),
            ("10.244.0.9", false),
            ("10.96.0.10", false),
            ("127.0.0.53", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("fd00::53", false),
        ] {
            let checked = check_address(&settings, text.parse().unwrap());
            assert_eq!(checked.is_ok(), valid, "{text}: {checked:?}");
        }
        let dual = Settings {
            pod_cidr: "10.244.0.0/16,fd00::/48".parse().unwrap(),
            ..Settings::example()
        };
        assert!(check_address(&dual, USUAL_V6.into()).is_ok());
        assert!(check_address(&dual, "fe80::1".parse().unwrap()).is_err());
        let simulated = Settings {
            runtime: Runtime::Simulated,
            ..Settings::example()
        };
        assert!(check_address(&simulated, USUAL_V4.into()).is_err());
    }

    #[test]
    fn usual_address_is_of_the_primary_family() {
        let usual: NodeDns = "auto".parse().unwrap();
        assert_eq!(usual.address(true), IpAddr::from(USUAL_V4));
        assert_eq!(usual.address(false), IpAddr::from(USUAL_V6));
        let given: NodeDns = "169.254.1.1".parse().unwrap();
        assert_eq!(given.address(true).to_string(), given.to_string());
        assert!("x".parse::<NodeDns>().is_err());
    }
}
