//! A range split into subnets of one size.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A cluster range and the size of a node's subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The cluster's range (`--cluster-cidr`).
    pub cluster: IpNet,
    /// Prefix length of a node's subnet (`--node-cidr-mask-size`).
    pub mask: u8,
}

/// The subnets of a range by their position. Allocation does not scan: `lowest` only moves up past
/// allocated positions, and back to released ones.
#[derive(Debug)]
pub struct Pool {
    range: Range,
    /// Number of networks that overlap a position; free positions have no entry.
    taken: HashMap<u128, u32>,
    /// All positions below are allocated.
    lowest: u128,
}

impl Pool {
    /// Creates a pool without allocations.
    pub fn new(range: Range) -> Self {
        Self {
            range,
            taken: HashMap::new(),
            lowest: 0,
        }
    }

    /// Marks every subnet that overlaps a network as allocated.
    pub fn occupy(&mut self, net: IpNet) {
        for position in self.overlapped_positions(net) {
            // Counted, because networks may overlap: the end of one of them must not free the
            // subnet of another.
            *self.taken.entry(position).or_default() += 1;
        }
    }

    /// Reverts one [`Pool::occupy`].
    pub fn release(&mut self, net: IpNet) {
        for position in self.overlapped_positions(net) {
            if let Some(count) = self.taken.get_mut(&position) {
                *count -= 1;
                if *count == 0 {
                    self.taken.remove(&position);
                    self.lowest = self.lowest.min(position);
                }
            }
        }
    }

    /// Returns the first free subnet without allocating it.
    pub fn free(&mut self) -> Option<IpNet> {
        let end = self.count_subnets();
        while self.lowest < end && self.taken.contains_key(&self.lowest) {
            self.lowest += 1;
        }
        if self.lowest < end {
            self.subnet_at(self.lowest)
        } else {
            None
        }
    }

    /// Returns the number of subnets.
    fn count_subnets(&self) -> u128 {
        1u128
            .checked_shl(u32::from(
                self.range
                    .mask
                    .saturating_sub(self.range.cluster.prefix_len()),
            ))
            .unwrap_or(u128::MAX)
    }

    /// Returns the number of host bits of a subnet.
    fn host_bits(&self) -> u32 {
        u32::from(
            self.range
                .cluster
                .max_prefix_len()
                .saturating_sub(self.range.mask),
        )
    }

    fn subnet_at(&self, position: u128) -> Option<IpNet> {
        let address = address_bits(self.range.cluster.network())
            | position.checked_shl(self.host_bits()).unwrap_or(0);
        match self.range.cluster {
            IpNet::V4(_) => Ipv4Net::new(u32::try_from(address).ok()?.into(), self.range.mask)
                .ok()
                .map(IpNet::V4),
            IpNet::V6(_) => Ipv6Net::new(address.into(), self.range.mask)
                .ok()
                .map(IpNet::V6),
        }
    }

    /// Returns the positions of the subnets that a network overlaps.
    fn overlapped_positions(&self, net: IpNet) -> std::ops::Range<u128> {
        let cluster = self.range.cluster;
        let overlaps = cluster.contains(&net) || net.contains(&cluster);
        if !overlaps {
            return 0..0;
        }
        let first = address_bits(cluster.network());
        let at = |address: IpAddr| {
            let inside = address_bits(address).clamp(first, address_bits(cluster.broadcast()));
            (inside - first).checked_shr(self.host_bits()).unwrap_or(0)
        };
        at(net.network())..at(net.broadcast()) + 1
    }
}

fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(u32::from(four)),
        IpAddr::V6(six) => six.into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn pool(cluster: &str, mask: u8) -> Pool {
        Pool::new(Range {
            cluster: cluster.parse().unwrap(),
            mask,
        })
    }

    fn take(pool: &mut Pool) -> Option<String> {
        let net = pool.free()?;
        pool.occupy(net);
        Some(net.to_string())
    }

    #[test]
    fn first_free_subnet_is_found_in_both_families() {
        for (cluster, mask, expect) in [
            (
                "10.1.0.0/22",
                24,
                ["10.1.0.0/24", "10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24"],
            ),
            (
                "fd00::/62",
                64,
                [
                    "fd00::/64",
                    "fd00:0:0:1::/64",
                    "fd00:0:0:2::/64",
                    "fd00:0:0:3::/64",
                ],
            ),
        ] {
            let mut pool = pool(cluster, mask);
            for net in expect {
                assert_eq!(take(&mut pool).as_deref(), Some(net));
            }
            assert_eq!(take(&mut pool), None);
            pool.release(expect[1].parse().unwrap());
            assert_eq!(take(&mut pool).as_deref(), Some(expect[1]));
        }
    }

    #[test]
    fn networks_of_other_sizes_take_what_they_overlap() {
        let mut pool = pool("10.1.0.0/22", 24);
        pool.occupy("10.1.0.0/23".parse().unwrap());
        assert_eq!(pool.free().unwrap().to_string(), "10.1.2.0/24");
        pool.occupy("10.1.2.7/32".parse().unwrap());
        assert_eq!(pool.free().unwrap().to_string(), "10.1.3.0/24");
        pool.occupy("10.0.0.0/8".parse().unwrap());
        assert_eq!(pool.free(), None);
        pool.release("10.0.0.0/8".parse().unwrap());
        pool.occupy("192.168.0.0/16".parse().unwrap());
        assert_eq!(pool.free().unwrap().to_string(), "10.1.3.0/24");
    }

    #[test]
    fn a_single_subnet_may_be_the_whole_range() {
        let mut pool = pool("10.1.0.0/24", 24);
        assert_eq!(take(&mut pool).as_deref(), Some("10.1.0.0/24"));
        assert_eq!(take(&mut pool), None);
    }
}
