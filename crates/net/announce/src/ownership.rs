//! The owner of an address: rendezvous hashing, so that the end of a node moves its own addresses
//! only, and each node has about the same number.

use std::hash::Hasher;
use std::net::IpAddr;

use fnv::FnvHasher;

/// A node that may own addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'n> {
    pub(crate) node: &'n str,
    pub(crate) hash: u64,
}

impl<'n> Candidate<'n> {
    pub(crate) fn new(node: &'n str) -> Self {
        Self {
            node,
            hash: hash(node.as_bytes()),
        }
    }
}

/// Returns the owner of an address; None without candidates.
pub(crate) fn choose_owner<'n>(
    address: IpAddr,
    candidates: impl Iterator<Item = Candidate<'n>>,
) -> Option<&'n str> {
    let key = match address {
        IpAddr::V4(v4) => hash(&v4.octets()),
        IpAddr::V6(v6) => hash(&v6.octets()),
    };
    // The name decides between equal scores.
    let scores = candidates.map(|candidate| (mix(key ^ candidate.hash), candidate.node));
    scores.max().map(|(_, node)| node)
}

/// Returns the hash of bytes. It is part of the protocol: all nodes must compute the same.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    mix(hasher.finish())
}

/// Spreads the difference of similar values over all bits (SplitMix64).
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashMap;
    use std::net::Ipv4Addr;

    const NODES: [&str; 5] = ["node-1", "node-2", "node-3", "node-4", "node-5"];

    fn nodes() -> impl DoubleEndedIterator<Item = Candidate<'static>> {
        NODES.into_iter().map(Candidate::new)
    }

    fn addresses() -> impl Iterator<Item = IpAddr> {
        (0..1000u32).map(|n| Ipv4Addr::from_bits(0xc0a8_0000 + n).into())
    }

    #[test]
    fn addresses_are_spread_over_the_nodes() {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for address in addresses() {
            let owner = choose_owner(address, nodes()).unwrap();
            *counts.entry(owner).or_default() += 1;
        }
        for node in NODES {
            assert!((150..250).contains(&counts[node]), "{counts:?}");
        }
    }

    #[test]
    fn end_of_a_node_moves_its_addresses_only() {
        for address in addresses() {
            let before = choose_owner(address, nodes());
            let after = choose_owner(address, nodes().filter(|n| n.node != "node-3"));
            if before != Some("node-3") {
                assert_eq!(before, after, "{address}");
            }
        }
    }

    #[test]
    fn order_of_the_nodes_does_not_matter() {
        for address in addresses() {
            let forward = choose_owner(address, nodes());
            assert_eq!(forward, choose_owner(address, nodes().rev()));
        }
        assert_eq!(
            choose_owner(Ipv4Addr::LOCALHOST.into(), std::iter::empty()),
            None
        );
    }

    /// Nodes of two versions must agree.
    #[test]
    fn scores_are_those_of_the_protocol() {
        let owners = ["192.0.2.10", "192.0.2.11", "2001:db8::10"].map(|text| {
            let address = text.parse().unwrap();
            choose_owner(address, nodes()).unwrap()
        });
        assert_eq!(owners, ["node-2", "node-5", "node-4"]);
    }
}
