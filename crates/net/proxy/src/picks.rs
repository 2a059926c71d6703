//! Chains of nftables that pick an endpoint, and the maps that they pick it from.
//!
//! All Services share them: the key in the map begins with the address, and there is a chain for
//! each number of endpoints. So most Services have no chain of their own, and a change of their
//! endpoints is one of elements. All chains exist from the start: nft 1.0.6 rejects a rule with
//! such a map unless the same input declares the map.

use std::fmt::Write;

use net_nft::Family;

use crate::local::{Masquerade, PodMatch};

/// Map from address, protocol, port and number to an endpoint.
pub const ENDPOINTS: &str = "endpoints";
/// Map from protocol, node port and number to an endpoint.
pub const NODE_PORT_ENDPOINTS: &str = "nodeport-endpoints";
/// Chain that marks a connection for masquerading.
pub const MARK: &str = "mark-for-masquerade";

/// The most endpoints of an address that leads to a shared chain; with more, the Service has a
/// chain.
pub(crate) const MAX_SHARED_ENDPOINTS: usize = 64;
/// The most elements for the endpoints of all addresses of a port; with more, the port has a chain.
/// Each address has elements of its own, and a Service may have hundreds of external addresses.
pub(crate) const MAX_PORT_PICKS: usize = 1024;

/// The kinds of chains that Services share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PickKind {
    /// For cluster IPs: connections that are not from pods are masqueraded.
    Cluster,
    /// For addresses outside of the cluster: all are masqueraded.
    External,
    /// For node ports: as the above, at any address.
    NodePort,
}

impl PickKind {
    const ALL: [Self; 3] = [Self::Cluster, Self::External, Self::NodePort];

    /// Returns the name of the chain for a number of endpoints.
    pub(crate) fn chain(self, count: usize) -> String {
        let kind = match self {
            Self::Cluster => "cluster",
            Self::External => "external",
            Self::NodePort => "nodeport",
        };
        format!("pick-{kind}-{count}")
    }

    /// Returns the map of the endpoints.
    pub(crate) fn map(self) -> &'static str {
        match self {
            Self::Cluster | Self::External => ENDPOINTS,
            Self::NodePort => NODE_PORT_ENDPOINTS,
        }
    }

    /// Returns the rule that translates a connection to one of the endpoints of its address.
    fn pick(self, word: &str, count: usize) -> String {
        let from = match self {
            Self::Cluster | Self::External => format!("{word} daddr . "),
            Self::NodePort => String::new(),
        };
        let map = self.map();
        format!(
            "dnat {word} to {from}meta l4proto . th dport . numgen random mod {count} map @{map}"
        )
    }
}

/// Returns the declarations of the maps of endpoints, and of the chains that pick from them.
pub(crate) fn declare_picks(family: Family, masquerade: &Masquerade) -> String {
    let word = family.nft_name();
    let mut out = declare_maps(family);
    for kind in PickKind::ALL {
        let marks = match kind {
            PickKind::Cluster => mark_foreign(masquerade, word),
            PickKind::External | PickKind::NodePort => Some(format!("jump {MARK}")),
        };
        let marks = marks
            .map(|rule| format!("    {rule};\n"))
            .unwrap_or_default();
        for count in 1..=MAX_SHARED_ENDPOINTS {
            // A packet that finds the number from before a change and the endpoints from after it
            // gets the first one instead of a refusal.
            let (pick, first) = (kind.pick(word, count), kind.pick(word, 1));
            let _ = writeln!(
                out,
                "  chain {} {{\n{marks}    {pick};\n    {first};\n  }}",
                kind.chain(count)
            );
        }
    }
    out
}

/// Returns the declarations of the maps.
///
/// By `typeof`, because a number of `numgen` has no type with a name. The modulus has no effect.
fn declare_maps(family: Family) -> String {
    let word = family.nft_name();
    let map = |name: &str, from: &str| {
        let key = format!("{from}meta l4proto . th dport . numgen random mod 3");
        format!("  map {name} {{ typeof {key} : {word} daddr . th dport; }}\n")
    };
    map(ENDPOINTS, &format!("{word} daddr . ")) + &map(NODE_PORT_ENDPOINTS, "")
}

/// Returns a table that nft and the kernel reject if they are too old for the rules.
pub(crate) fn write_probe(family: Family, table: &str) -> String {
    let word = family.nft_name();
    let maps = declare_maps(family);
    let rules = PickKind::ALL.map(|kind| kind.pick(word, 2));
    format!(
        "table {word} {table} {{\n{maps}  chain nat {{\n    type nat hook prerouting priority dstnat;\n    {}\n  }}\n}}\n",
        rules.join("\n    ")
    )
}

/// Returns the rule that marks connections to cluster IPs, if there is one.
pub(crate) fn mark_foreign(masquerade: &Masquerade, word: &str) -> Option<String> {
    Some(match masquerade {
        Masquerade::None => return None,
        Masquerade::All => format!("jump {MARK}"),
        Masquerade::AllExcept(pods) => format!("{} jump {MARK}", match_pods(pods, word, false)),
    })
}

/// Returns the match of connections from pods (`equal`), or from others.
pub(crate) fn match_pods(pods: &PodMatch, word: &str, equal: bool) -> String {
    let operator = if equal { "" } else { "!= " };
    match pods {
        PodMatch::Interface(name) => format!("iifname {operator}\"{name}\""),
        PodMatch::Prefix(prefix) => format!("iifname {operator}\"{prefix}*\""),
        PodMatch::Range(range) => format!("{word} saddr {operator}{range}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pods_are_matched_by_range_or_interface() {
        let range = PodMatch::Range("10.0.0.0/8".parse().unwrap());
        let (bridge, prefix) = (
            PodMatch::Interface("cni0".into()),
            PodMatch::Prefix("veth".into()),
        );
        for (pods, equal, expect) in [
            (&range, true, "ip saddr 10.0.0.0/8"),
            (&range, false, "ip saddr != 10.0.0.0/8"),
            (&bridge, true, "iifname \"cni0\""),
            (&prefix, false, "iifname != \"veth*\""),
        ] {
            assert_eq!(match_pods(pods, "ip", equal), expect);
        }
    }

    #[test]
    fn chains_pick_one_of_their_number_and_masquerade() {
        let pods = Masquerade::AllExcept(PodMatch::Interface("cni0".into()));
        let map = "ip daddr . meta l4proto . th dport . numgen random mod";
        for (masquerade, chain, expect) in [
            (&Masquerade::None, "pick-cluster-5", ""),
            (
                &Masquerade::All,
                "pick-cluster-5",
                "    jump mark-for-masquerade;\n",
            ),
            (
                &pods,
                "pick-cluster-5",
                "    iifname != \"cni0\" jump mark-for-masquerade;\n",
            ),
            (&pods, "pick-external-5", "    jump mark-for-masquerade;\n"),
        ] {
            let text = declare_picks(Family::V4, masquerade);
            let expect = format!(
                "  chain {chain} {{\n{expect}    dnat ip to {map} 5 map @endpoints;\n    \
                 dnat ip to {map} 1 map @endpoints;\n  }}\n"
            );
            assert!(text.contains(&expect), "{expect}");
        }
    }
}
