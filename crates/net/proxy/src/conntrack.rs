//! conntrack cleanup. UDP has no connections whose end the kernel could see, so entries of removed
//! endpoints must be deleted, or the kernel keeps sending packets to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use net_nft::Family;

/// Timeout of the deletions of a sync for one family. Other changes wait for them, and one Service
/// can have 10,000 removed ports and endpoints.
const DELETIONS_TIMEOUT: Duration = Duration::from_secs(3);

/// Addresses with port that receive UDP packets, with the endpoints of each.
type Fronts = BTreeMap<SocketAddr, BTreeSet<IpAddr>>;

/// Replaces fronts at the unspecified address, which stands for all of its family, by fronts at
/// each of the node's addresses. Without the address, entries of connections to other hosts would
/// be deleted, too.
#[must_use]
pub fn expand_fronts(fronts: &Fronts, node_addresses: impl FnOnce() -> Vec<IpAddr>) -> Fronts {
    let is_whole = |front: &SocketAddr| front.ip().is_unspecified();
    if !fronts.keys().any(is_whole) {
        return fronts.clone();
    }
    let own = node_addresses();
    let expand = |front: &SocketAddr| -> Vec<SocketAddr> {
        if !is_whole(front) {
            return vec![*front];
        }
        let same = |ip: &&IpAddr| ip.is_ipv4() == front.is_ipv4();
        let with_port = |ip: &IpAddr| SocketAddr::new(*ip, front.port());
        own.iter().filter(same).map(with_port).collect()
    };
    let expanded = fronts.iter().flat_map(|(front, targets)| {
        let at_targets = |front| (front, targets.clone());
        expand(front).into_iter().map(at_targets)
    });
    expanded.collect()
}

/// Returns the entries to delete, as arguments of `conntrack -D`. Pure.
///
/// These are entries of removed endpoints. If a port had no endpoint before, these are all of its
/// entries, because clients that kept sending have an entry without translation.
#[must_use]
pub fn find_stale(before: &Fronts, now: &Fronts) -> Vec<Vec<String>> {
    let none = BTreeSet::new();
    let mut out = Vec::new();
    for (front, targets) in before {
        let left = now.get(front).unwrap_or(&none);
        for gone in targets.difference(left) {
            out.push(
                [
                    delete_arguments(front, gone.is_ipv6()),
                    vec!["--dst-nat".into(), gone.to_string()],
                ]
                .concat(),
            );
        }
    }
    for (front, targets) in now {
        if before.get(front).is_none_or(BTreeSet::is_empty)
            && let Some(target) = targets.first()
        {
            out.push(delete_arguments(front, target.is_ipv6()));
        }
    }
    out
}

fn delete_arguments(front: &SocketAddr, v6: bool) -> Vec<String> {
    let mut out = vec!["-D".to_owned(), "-p".to_owned(), "udp".to_owned()];
    if v6 {
        out.extend(["-f".to_owned(), "ipv6".to_owned()]);
    }
    let (ip, port) = (front.ip().to_string(), front.port().to_string());
    out.extend([
        "--orig-dst".to_owned(),
        ip,
        "--orig-port-dst".to_owned(),
        port,
    ]);
    out
}

/// Returns the entries to delete from a listing of `conntrack -L -p udp`: entries of a front that
/// do not lead to one of its targets. Valid entries stay, so that a restart of the proxy interrupts
/// no client. Pure.
#[must_use]
pub fn find_misrouted(listing: &str, fronts: &Fronts) -> Vec<Vec<String>> {
    listing
        .lines()
        .filter_map(|line| astray_entry(line, fronts))
        .collect()
}

fn astray_entry(line: &str, fronts: &Fronts) -> Option<Vec<String>> {
    let all = |name: &str| {
        line.split_whitespace()
            .filter_map(|word| word.strip_prefix(name))
            .collect::<Vec<_>>()
    };
    let (sources, targets, from, to) = (all("src="), all("dst="), all("sport="), all("dport="));
    let port: u16 = to.first()?.parse().ok()?;
    let destination: IpAddr = targets.first()?.parse().ok()?;
    let answering: IpAddr = sources.get(1)?.parse().ok()?;
    let wanted = fronts.get(&SocketAddr::new(destination, port))?;
    let served = wanted.contains(&answering) || (wanted.is_empty() && answering == destination);
    (!served).then(|| {
        let words = [
            "-D",
            "-p",
            "udp",
            "-s",
            sources.first()?,
            "-d",
            targets.first()?,
            "--sport",
            from.first()?,
            "--dport",
            to.first()?,
        ];
        Some(words.iter().map(|&word| word.to_owned()).collect())
    })?
}

/// Deletes entries; returns the number of them for each family that has any. A failure is logged:
/// clients of removed endpoints repeat their requests.
pub async fn delete_connections(calls: &[Vec<String>]) -> Vec<(Family, u64)> {
    let is_v6 = |call: &&Vec<String>| call.iter().any(|word| word.contains(':'));
    let (v6, v4): (Vec<_>, Vec<_>) = calls.iter().partition(is_v6);
    let mut deleted = Vec::new();
    for (family, calls) in [(Family::V4, v4), (Family::V6, v6)] {
        if calls.is_empty() {
            continue;
        }
        let calls: Vec<_> = calls.into_iter().cloned().collect();
        match net_nft::delete_connections(&calls, DELETIONS_TIMEOUT).await {
            Ok(count) => deleted.push((family, count)),
            Err(error) => tracing::warn!(
                %error,
                "entries of removed UDP endpoints can't be deleted; their clients may reach no \
                 endpoint until the entries time out"
            ),
        }
    }
    deleted
}

/// Lists all UDP entries; none if they can't be listed, which is logged.
pub async fn list_connections() -> String {
    net_nft::list_udp_connections()
        .await
        .unwrap_or_else(|error| {
            tracing::warn!(
                %error,
                "UDP entries can't be listed; clients of removed endpoints may reach none until \
                 their entries time out"
            );
            String::new()
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn front_of_a_whole_family_stands_for_the_addresses_of_the_node() {
        let own = ["192.0.2.2", "198.51.100.3", "fd00::1"].map(|ip| ip.parse().unwrap());
        for (front, expect) in [
            ("0.0.0.0:30053", "192.0.2.2:30053 198.51.100.3:30053"),
            ("[::]:30053", "[fd00::1]:30053"),
            ("10.96.0.10:53", "10.96.0.10:53"),
        ] {
            let fronts = map(front.parse().unwrap(), &["10.0.0.1"]);
            let found = expand_fronts(&fronts, || own.to_vec());
            let found: Vec<String> = found.keys().map(ToString::to_string).collect();
            assert_eq!(found.join(" "), expect, "{front}");
        }
    }

    fn map(front: SocketAddr, targets: &[&str]) -> BTreeMap<SocketAddr, BTreeSet<IpAddr>> {
        BTreeMap::from([(
            front,
            targets.iter().map(|ip| ip.parse().unwrap()).collect(),
        )])
    }

    #[test]
    fn a_restart_forgets_only_what_leads_astray() {
        let front = map("10.96.0.10:53".parse().unwrap(), &["10.0.0.1"]);
        let entry = |answering: &str| {
            format!(
                "udp 17 28 src=10.0.0.9 dst=10.96.0.10 sport=4000 dport=53 src={answering} dst=10.0.0.9 sport=53 dport=4000"
            )
        };
        assert_eq!(find_misrouted(&entry("10.0.0.1"), &front).len(), 0);
        assert_eq!(find_misrouted(&entry("10.96.0.10"), &front).len(), 1);
        assert_eq!(
            find_misrouted(&entry("10.0.0.2"), &front)[0].join(" "),
            "-D -p udp -s 10.0.0.9 -d 10.96.0.10 --sport 4000 --dport 53"
        );
        assert_eq!(
            find_misrouted(
                "udp 17 1 src=10.0.0.9 dst=10.0.0.1 sport=1 dport=53 src=10.0.0.1 dst=10.0.0.9",
                &front
            )
            .len(),
            0
        );
    }

    #[test]
    fn what_is_forgotten() {
        let front = "10.96.0.10:53".parse().unwrap();
        let forget = |before: &[&str], now: &[&str]| {
            find_stale(&map(front, before), &map(front, now))
                .iter()
                .map(|args| args[3..].join(" "))
                .collect::<Vec<_>>()
        };
        let base = "--orig-dst 10.96.0.10 --orig-port-dst 53";
        assert_eq!(forget(&["10.0.0.1"], &["10.0.0.1"]), Vec::<String>::new());
        assert_eq!(
            forget(&["10.0.0.1"], &["10.0.0.2"]),
            [format!("{base} --dst-nat 10.0.0.1")]
        );
        assert_eq!(
            forget(&["10.0.0.1"], &[]),
            [format!("{base} --dst-nat 10.0.0.1")]
        );
        assert_eq!(forget(&[], &["10.0.0.1"]), [base]);
    }

    /// A pod that talks to another host keeps its connection, whatever ports that host uses.
    #[test]
    fn node_port_leaves_connections_to_other_hosts_alone() {
        let front = map("192.0.2.2:30053".parse().unwrap(), &["10.0.0.1"]);
        let elsewhere = "udp 17 28 src=10.0.0.9 dst=203.0.113.5 sport=4000 dport=30053 src=203.0.113.5 dst=192.0.2.2 sport=30053 dport=4000";
        assert_eq!(find_misrouted(elsewhere, &front), Vec::<Vec<String>>::new());
        let args = find_stale(&front, &BTreeMap::new()).concat().join(" ");
        assert!(
            args.contains("--orig-dst 192.0.2.2 --orig-port-dst 30053"),
            "{args}"
        );
    }
}
