//! Tracked connections of addresses that pods have released.
//!
//! Packets of tracked connections pass. The kernel tracks a connection by addresses and ports only: a
//! peer that keeps its entry, or sends a SYN with the ports of the entry, would reach the next pod with
//! the address.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// Returns the entries to delete, as arguments of `conntrack`: those of all protocols from and to the
/// addresses, also through Services.
#[must_use]
pub fn find_stale_connections(stale: &BTreeSet<IpAddr>) -> Vec<Vec<String>> {
    let ends = ["--orig-src", "--orig-dst", "--reply-src"];
    let calls = stale
        .iter()
        .flat_map(|address| ends.map(|end| (*address, end)));
    calls
        .map(|(address, end)| {
            let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
            let words = ["-D", "-f", family, end];
            let words = words.iter().map(|&word| word.to_owned());
            words.chain([address.to_string()]).collect()
        })
        .collect()
}
