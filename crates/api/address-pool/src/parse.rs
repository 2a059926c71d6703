//! The text form of a pool: ranges separated by commas, each a CIDR, `FIRST-LAST` or an address.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::pool::{AddressPool, AddressRange};

/// Maximum number of ranges: a longer list is a mistake, and each look-up reads all of them.
const MAX_RANGES: usize = 64;

/// A pool that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No range.
    #[error("the pool has no range; write for instance 192.0.2.100-192.0.2.150")]
    Empty,
    /// Too many ranges.
    #[error("the pool has more than {MAX_RANGES} ranges; join neighbouring ones")]
    TooManyRanges,
    /// Text that is no range.
    #[error("{0:?} is neither a CIDR nor FIRST-LAST nor an address")]
    Syntax(String),
    /// The first address is after the last one, or of the other family.
    #[error("{0:?} does not go from a lower to a higher address of one family")]
    Order(String),
    /// Addresses that no host can have, or that have a meaning on each link.
    #[error(
        "{0:?} has loopback, link-local, multicast or unspecified addresses; a Service can't have one"
    )]
    Special(String),
}

impl FromStr for AddressPool {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let words = text.split(',').map(str::trim).filter(|w| !w.is_empty());
        // One more than allowed shows that there are too many.
        let ranges: Vec<_> = words
            .take(MAX_RANGES + 1)
            .map(parse_range)
            .collect::<Result<_, _>>()?;
        match ranges.len() {
            0 => Err(Error::Empty),
            1..=MAX_RANGES => Ok(Self { ranges }),
            _ => Err(Error::TooManyRanges),
        }
    }
}

fn parse_range(text: &str) -> Result<AddressRange, Error> {
    let parse = |word: &str| -> Result<IpAddr, Error> {
        let address = word.trim().parse();
        address.map_err(|_| Error::Syntax(text.to_owned()))
    };
    let range = if let Some((first, last)) = text.split_once('-') {
        AddressRange {
            first: parse(first)?,
            last: parse(last)?,
        }
    } else if text.contains('/') {
        let network = text.parse();
        list_hosts(network.map_err(|_| Error::Syntax(text.to_owned()))?)
    } else {
        let address = parse(text)?;
        AddressRange {
            first: address,
            last: address,
        }
    };
    if range.first > range.last || range.first.is_ipv4() != range.last.is_ipv4() {
        return Err(Error::Order(text.to_owned()));
    }
    if has_special_addresses(&range) {
        return Err(Error::Special(text.to_owned()));
    }
    Ok(range)
}

/// Returns the addresses of hosts. The first address of a network is that of the network, or of any
/// of its routers in IPv6; the last one of IPv4 is for broadcasts. `FIRST-LAST` has them.
fn list_hosts(network: IpNet) -> AddressRange {
    let (first, last) = match network {
        // Two addresses are both ends of a link, one is a host.
        IpNet::V4(v4) if v4.prefix_len() >= 31 => (v4.network().into(), v4.broadcast().into()),
        IpNet::V6(v6) if v6.prefix_len() >= 127 => (v6.network().into(), v6.broadcast().into()),
        IpNet::V4(v4) => (next_v4(v4.network(), 1), next_v4(v4.broadcast(), -1)),
        IpNet::V6(v6) => {
            let first = v6.network().to_bits().saturating_add(1);
            (
                std::net::Ipv6Addr::from_bits(first).into(),
                v6.broadcast().into(),
            )
        }
    };
    AddressRange { first, last }
}

fn next_v4(address: std::net::Ipv4Addr, step: i32) -> IpAddr {
    std::net::Ipv4Addr::from_bits(address.to_bits().saturating_add_signed(step)).into()
}

fn has_special_addresses(range: &AddressRange) -> bool {
    const SPECIAL: [&str; 9] = [
        "0.0.0.0/8",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "224.0.0.0/3",
        "::/127",
        // IPv4 in the notation of IPv6: one address would have two texts.
        "::ffff:0:0/96",
        "fe80::/10",
        "ff00::/8",
        "64:ff9b::/96",
    ];
    let mut networks = SPECIAL.iter().filter_map(|text| text.parse().ok());
    networks.any(|network| range.overlaps(&network))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranges_have_their_first_and_last_address() {
        for (text, first, last) in [
            ("192.0.2.100-192.0.2.150", "192.0.2.100", "192.0.2.150"),
            (" 192.0.2.9 ", "192.0.2.9", "192.0.2.9"),
            ("192.0.2.8/29", "192.0.2.9", "192.0.2.14"),
            ("192.0.2.9/29", "192.0.2.9", "192.0.2.14"),
            ("192.0.2.8/31", "192.0.2.8", "192.0.2.9"),
            ("192.0.2.8/32", "192.0.2.8", "192.0.2.8"),
            ("2001:db8::/126", "2001:db8::1", "2001:db8::3"),
            ("2001:db8::a/128", "2001:db8::a", "2001:db8::a"),
        ] {
            let pool: AddressPool = text.parse().unwrap();
            let [range] = pool.ranges.as_slice() else {
                panic!("{text}")
            };
            assert_eq!(range.first.to_string(), first, "{text}");
            assert_eq!(range.last.to_string(), last, "{text}");
        }
        let both: AddressPool = "192.0.2.9,2001:db8::a,".parse().unwrap();
        assert_eq!(both.ranges.len(), 2);
    }

    #[test]
    fn wrong_ranges_are_named() {
        let many = ["192.0.2.1"; MAX_RANGES + 1].join(",");
        let named = |text: &str| text.to_owned();
        for (text, expect) in [
            ("", Error::Empty),
            (" , ", Error::Empty),
            (&*many, Error::TooManyRanges),
            ("192.0.2.300", Error::Syntax(named("192.0.2.300"))),
            ("192.0.2.0/33", Error::Syntax(named("192.0.2.0/33"))),
            (
                "192.0.2.2-192.0.2.1",
                Error::Order(named("192.0.2.2-192.0.2.1")),
            ),
            (
                "192.0.2.2-fd00::1",
                Error::Order(named("192.0.2.2-fd00::1")),
            ),
            ("127.0.0.5", Error::Special(named("127.0.0.5"))),
            ("0.0.0.0/0", Error::Special(named("0.0.0.0/0"))),
            ("::/0", Error::Special(named("::/0"))),
            (
                "223.0.0.1-240.0.0.1",
                Error::Special(named("223.0.0.1-240.0.0.1")),
            ),
            ("fe80::1", Error::Special(named("fe80::1"))),
            (
                "::ffff:192.0.2.1",
                Error::Special(named("::ffff:192.0.2.1")),
            ),
        ] {
            let parsed: Result<AddressPool, _> = text.parse();
            assert_eq!(parsed, Err(expect), "{text}");
        }
    }
}
