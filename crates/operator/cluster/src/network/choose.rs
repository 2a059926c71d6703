//! Chooses the address range of the link between the nodes.

use std::net::Ipv4Addr;
use std::path::Path;

use ipnet::Ipv4Net;

use crate::command::run_command;
use crate::error::{Error, Result};
use crate::ranges::Ranges;

/// Range for tests between network devices (RFC 2544): not routed on the Internet, and unlike the
/// private ranges rarely used by sites.
const CANDIDATES: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const CANDIDATE_COUNT: u32 = 512;

/// Chooses a /24 for the link that nothing on this machine uses. `others` are the cluster's ranges.
pub fn choose_node_network(data_dir: &Path, others: &[Ranges]) -> Result<Ipv4Net> {
    // Without `ip` there are no links either, only simulated nodes.
    let routes = run_command("ip", &["-4", "route", "show", "table", "all"]).unwrap_or_default();
    let mut used = parse_routes(&routes);
    used.extend(others.iter().filter_map(Ranges::v4));
    let digest = crate::files::digest_hex(data_dir.as_os_str().as_encoded_bytes());
    // Clusters begin at different candidates, so that two which start at once rarely collide.
    let start = u32::from_str_radix(&digest[..6], 16).unwrap_or_default();
    find_free(start, &used).ok_or_else(|| {
        Error::Refused("no /24 of 198.18.0.0/15 is free for the link between the nodes".into())
    })
}

/// Returns the first candidate from `start` on that overlaps none of `used`.
fn find_free(start: u32, used: &[Ipv4Net]) -> Option<Ipv4Net> {
    (0..CANDIDATE_COUNT)
        .map(|step| CANDIDATES + ((start.wrapping_add(step) % CANDIDATE_COUNT) << 8))
        .filter_map(|base| Ipv4Net::new(Ipv4Addr::from(base), 24).ok())
        .find(|candidate| {
            !used
                .iter()
                .any(|net| net.contains(candidate) || candidate.contains(net))
        })
}

/// Returns the networks and addresses in a listing of `ip route`. Half of all addresses or more is
/// a default route in disguise.
fn parse_routes(listing: &str) -> Vec<Ipv4Net> {
    let words = listing.split_whitespace();
    words
        .filter_map(|word| {
            let address = || word.parse::<Ipv4Addr>().ok().map(Ipv4Net::from);
            word.parse::<Ipv4Net>().ok().or_else(address)
        })
        .filter(|net| net.prefix_len() >= 8)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn range_in_use_is_passed_over() {
        let routes = "default via 192.0.2.1 dev eth0\n0.0.0.0/1 dev tun0\n\
                      198.18.5.0/24 dev a proto kernel src 198.18.5.1\nlocal 198.18.6.9 dev b\n";
        let used = parse_routes(routes);
        assert_eq!(find_free(5, &used), "198.18.7.0/24".parse().ok());
        assert_eq!(find_free(511, &used), "198.19.255.0/24".parse().ok());
        assert_eq!(find_free(512, &[]), "198.18.0.0/24".parse().ok());
        assert_eq!(find_free(0, &["198.18.0.0/15".parse().unwrap()]), None);
    }
}
