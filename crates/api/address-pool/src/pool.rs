//! Ranges of addresses, and the search for a free one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Addresses of one family from the first to the last, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressRange {
    pub(crate) first: IpAddr,
    pub(crate) last: IpAddr,
}

impl AddressRange {
    /// Returns whether the range has the address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        // All addresses of IPv4 are ordered before those of IPv6.
        self.first <= address && address <= self.last
    }

    /// Returns whether the range has addresses of the network.
    pub(crate) fn overlaps(&self, network: &IpNet) -> bool {
        network.network().is_ipv4() == self.first.is_ipv4()
            && self.first <= network.broadcast()
            && network.network() <= self.last
    }

    /// Returns the lowest address from `start` on for which `is_taken` is false. It calls
    /// `is_taken` in order, so once for each taken address below the free one.
    fn find_free(&self, start: IpAddr, is_taken: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let mut next = start;
        while is_taken(next) {
            next = successor(next).filter(|next| *next <= self.last)?;
        }
        Some(next)
    }
}

/// The addresses that Services of type LoadBalancer get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressPool {
    pub(crate) ranges: Vec<AddressRange>,
}

impl AddressPool {
    /// Returns whether the pool has the address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    /// Returns whether the pool has addresses of the family.
    #[must_use]
    pub fn has_family(&self, is_ipv6: bool) -> bool {
        self.of_family(is_ipv6).next().is_some()
    }

    /// Returns an address of the family for which `is_taken` is false: the first one behind `last`,
    /// so that a released address is the last to be used again; then those before. None if all are
    /// taken.
    #[must_use]
    pub fn find_free(
        &self,
        is_ipv6: bool,
        last: Option<IpAddr>,
        is_taken: impl Fn(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        let ranges: Vec<_> = self.of_family(is_ipv6).collect();
        let at = last.and_then(|last| ranges.iter().position(|range| range.contains(last)));
        let (before, behind) = ranges.split_at(at.unwrap_or(0));
        let begun = at.and(behind.first());
        let rest = begun.and_then(|range| {
            let next = successor(last?).filter(|next| *next <= range.last)?;
            range.find_free(next, &is_taken)
        });
        let others = behind.iter().skip(usize::from(at.is_some()));
        rest.or_else(|| {
            let mut others = others.chain(before).chain(begun);
            others.find_map(|range| range.find_free(range.first, &is_taken))
        })
    }

    /// Returns whether the pool has addresses of the network.
    #[must_use]
    pub fn overlaps(&self, network: &IpNet) -> bool {
        self.ranges.iter().any(|range| range.overlaps(network))
    }

    fn of_family(&self, is_ipv6: bool) -> impl Iterator<Item = &AddressRange> {
        let ranges = self.ranges.iter();
        ranges.filter(move |range| range.first.is_ipv6() == is_ipv6)
    }
}

/// Writes the ranges in order, so that the same ranges have one text.
impl fmt::Display for AddressPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges = self.ranges.clone();
        ranges.sort();
        for (n, range) in ranges.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{}-{}", range.first, range.last)?;
        }
        Ok(())
    }
}

fn successor(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits().checked_add(1)?).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits().checked_add(1)?).into(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn search_returns_the_first_free_address_of_the_family() {
        let pool: AddressPool = "10.0.0.9-10.0.0.10,fd00::1-fd00::2,10.0.0.20"
            .parse()
            .unwrap();
        for (is_ipv6, taken, expect) in [
            (false, &[][..], Some("10.0.0.9")),
            (false, &["10.0.0.9"], Some("10.0.0.10")),
            (false, &["10.0.0.9", "10.0.0.10"], Some("10.0.0.20")),
            (false, &["10.0.0.10"], Some("10.0.0.9")),
            (false, &["10.0.0.9", "10.0.0.10", "10.0.0.20"], None),
            (true, &["10.0.0.9", "fd00::1"], Some("fd00::2")),
            (true, &["fd00::1", "fd00::2"], None),
        ] {
            let taken: Vec<IpAddr> = taken.iter().map(|ip| ip.parse().unwrap()).collect();
            let found = pool.find_free(is_ipv6, None, |ip| taken.contains(&ip));
            let expect = expect.map(|ip| ip.parse().unwrap());
            assert_eq!(found, expect, "{is_ipv6} {taken:?}");
        }
    }

    #[test]
    fn search_ends_at_the_last_address_of_the_family() {
        let range = AddressRange {
            first: Ipv4Addr::BROADCAST.into(),
            last: Ipv4Addr::BROADCAST.into(),
        };
        assert_eq!(range.find_free(range.first, |_| true), None);
    }

    #[test]
    fn pool_overlaps_networks_with_its_addresses() {
        let pool: AddressPool = "10.0.0.9-10.0.0.20,fd00::1".parse().unwrap();
        for (network, expect) in [
            ("10.0.0.0/24", true),
            ("10.0.0.20/32", true),
            ("10.0.0.0/29", false),
            ("10.0.0.21/32", false),
            ("fd00::/64", true),
            ("::/8", false),
        ] {
            assert_eq!(
                pool.overlaps(&network.parse().unwrap()),
                expect,
                "{network}"
            );
        }
    }

    #[test]
    fn text_does_not_depend_on_the_order_of_ranges() {
        for text in ["10.0.0.8/30,fd00::1", "fd00::1-fd00::1, 10.0.0.9-10.0.0.10"] {
            let pool: AddressPool = text.parse().unwrap();
            assert_eq!(pool.to_string(), "10.0.0.9-10.0.0.10,fd00::1-fd00::1");
            assert_eq!(
                pool.to_string().parse::<AddressPool>().unwrap().to_string(),
                pool.to_string()
            );
        }
    }

    #[test]
    fn families_are_those_of_the_ranges() {
        let pool: AddressPool = "10.0.0.9".parse().unwrap();
        assert!(pool.has_family(false) && !pool.has_family(true));
        assert!(!pool.contains("::a00:9".parse().unwrap()));
    }
}
