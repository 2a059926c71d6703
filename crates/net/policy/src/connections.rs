//! Tracked connections of addresses that pods have released.
//!
//! A peer that keeps sending keeps its entry of UDP, and packets of existing connections pass. The
//! next pod with the address must not receive them. TCP needs no such step: the new pod's kernel
//! rejects segments of connections that it does not know.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// Returns the entries to delete, as arguments of `conntrack`: those from and to the addresses, also
/// through Services.
#[must_use]
pub fn find_stale_connections(released: &BTreeSet<IpAddr>) -> Vec<Vec<String>> {
    let ends = ["--orig-src", "--orig-dst", "--reply-src"];
    let calls = released
        .iter()
        .flat_map(|address| ends.map(|end| (*address, end)));
    calls
        .map(|(address, end)| {
            let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
            let words = ["-D", "-p", "udp", "-f", family, end];
            let words = words.iter().map(|&word| word.to_owned());
            words.chain([address.to_string()]).collect()
        })
        .collect()
}
