//! Tracked connections of addresses that pods have released.
//!
//! Packets of tracked connections pass. The kernel tracks a connection by addresses and ports only:
//! a peer that keeps its entry, or sends a SYN with the ports of the entry, would reach the next
//! pod with the address.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use net_nft::{ConnectionError, Family, delete_connections, list_connections};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Timeout of the deletions for one family. They run beside the agent.
const DELETIONS_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Addresses whose entries must be deleted.
///
/// A node has up to some 100,000 entries, and each call of `conntrack` reads all of them. So the
/// deletion runs beside the agent: it must not delay the rules of other pods.
#[derive(Default)]
pub(crate) struct ConnectionCleaner {
    stale: Mutex<BTreeSet<IpAddr>>,
    changes: Notify,
}

impl ConnectionCleaner {
    /// Adds addresses. The rules of their present pods must have been applied: packets would create
    /// the entries again.
    pub(crate) fn add(&self, addresses: BTreeSet<IpAddr>) {
        if !addresses.is_empty() {
            self.stale.lock().extend(addresses);
            self.changes.notify_one();
        }
    }

    /// Deletes the entries of addresses as they are added, until it is dropped.
    pub(crate) async fn delete_entries(&self) {
        let mut has_failed = false;
        loop {
            self.changes.notified().await;
            let stale = std::mem::take(&mut *self.stale.lock());
            match delete_stale(&stale).await {
                Ok(()) => has_failed = false,
                Err(error) => {
                    if !has_failed {
                        tracing::error!(
                            %error,
                            "connections to released addresses of pods may bypass NetworkPolicies; trying again (`conntrack -D -d ADDRESS` deletes them)"
                        );
                    }
                    has_failed = true;
                    self.add(stale);
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }
}

async fn delete_stale(stale: &BTreeSet<IpAddr>) -> Result<(), ConnectionError> {
    for family in [Family::V4, Family::V6] {
        let has_family = |address: &IpAddr| Family::of(*address) == family;
        if stale.iter().any(has_family) {
            let listing = list_connections(family).await?;
            delete_connections(&find_stale_connections(stale, &listing), DELETIONS_TIMEOUT).await?;
        }
    }
    Ok(())
}

/// Returns the entries to delete from a listing, as arguments of `conntrack`: those of all
/// protocols from and to the addresses, also through Services. One call deletes all entries of an
/// address that have it in the same place. Pure.
#[must_use]
pub fn find_stale_connections(stale: &BTreeSet<IpAddr>, listing: &str) -> Vec<Vec<String>> {
    let found: BTreeSet<(&str, IpAddr)> = listing
        .lines()
        .flat_map(read_ends)
        .filter(|(_, address)| stale.contains(address))
        .collect();
    found
        .into_iter()
        .map(|(end, address)| {
            let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
            let words = ["-D", "-f", family, end].map(str::to_owned);
            words.into_iter().chain([address.to_string()]).collect()
        })
        .collect()
}

/// Returns the addresses in an entry with the arguments that select them.
fn read_ends(line: &str) -> impl Iterator<Item = (&'static str, IpAddr)> {
    // Both directions of an entry have a source and a destination.
    let ends = [
        ("src=", 0, "--orig-src"),
        ("dst=", 0, "--orig-dst"),
        ("src=", 1, "--reply-src"),
    ];
    ends.into_iter()
        .filter_map(move |(field, index, argument)| {
            let mut values = line
                .split_whitespace()
                .filter_map(|word| word.strip_prefix(field));
            Some((argument, values.nth(index)?.parse().ok()?))
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn entries_of_an_address_are_found_at_each_end_and_behind_services() {
        let listing = "\
tcp      6 431999 ESTABLISHED src=10.244.0.2 dst=10.96.0.1 sport=1 dport=80 src=10.244.0.3 dst=10.244.0.2 sport=8080 dport=1 [ASSURED] mark=0 use=1
udp      17 20 src=10.244.0.30 dst=192.0.2.1 sport=1 dport=2 [UNREPLIED] src=192.0.2.1 dst=10.244.0.30 sport=2 dport=1 mark=0 use=1
sctp     132 9 src=10.244.0.4 dst=10.244.0.3 sport=1 dport=2 src=10.244.0.3 dst=10.244.0.4 sport=2 dport=1
icmpv6   58 29 src=fd00::2 dst=fd00::3 type=128 code=0 id=1 src=fd00::3 dst=fd00::2 type=129 code=0 id=1
odd line src=x dst=
";
        let find = |address: &str| {
            let stale = BTreeSet::from([address.parse().unwrap()]);
            let calls = find_stale_connections(&stale, listing);
            calls
                .iter()
                .map(|words| words[2..].join(" "))
                .collect::<Vec<_>>()
        };
        assert_eq!(find("10.244.0.2"), ["ipv4 --orig-src 10.244.0.2"]);
        assert_eq!(
            find("10.244.0.3"),
            ["ipv4 --orig-dst 10.244.0.3", "ipv4 --reply-src 10.244.0.3"]
        );
        assert_eq!(
            find("fd00::3"),
            ["ipv6 --orig-dst fd00::3", "ipv6 --reply-src fd00::3"]
        );
        assert_eq!(find("10.244.0.9"), [""; 0]);
    }
}
