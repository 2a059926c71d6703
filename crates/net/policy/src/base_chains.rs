//! The base chains: hooks and maps, which do not depend on any policy.
//!
//! Only the hook `forward` is filtered. A packet from the node to its pods, or from a pod to its node,
//! passes `output` or `input`: the API allows traffic between a pod and its own node, such as probes.
//! In `forward` the destination of a Service has been translated to a pod, and the source of a
//! masqueraded connection has not been translated yet, so both are the true ends.

use ipnet::IpNet;
use net_nft::{Error, Family};

use crate::direction::Direction;

/// Name of the table in each family.
pub const TABLE: &str = "kube-proxy-policy";
/// Pairs of the address of an isolated pod with itself: a pod can always reach itself.
pub(crate) const SAME_POD: &str = "same-pod";
/// Chain for destinations among this node's pods that no known pod has.
pub(crate) const UNKNOWN_DESTINATIONS: &str = "unknown-destinations";
/// Chain for sources in this node's range of pods that no known pod has.
pub(crate) const UNKNOWN_SOURCES: &str = "unknown-sources";

/// Returns the map from the address of a pod of this node to the verdict in a direction.
pub(crate) fn verdict_map(direction: Direction) -> String {
    format!("{}-pods", direction.name())
}

/// The network of this node's pods, for addresses that belong to no pod known yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuardedNetwork {
    /// Ranges of this node's pods.
    pub ranges: Vec<IpNet>,
    /// Bridge of this node's pods.
    pub bridge: Option<String>,
}

/// The treatment of unknown addresses by new tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The rules that follow decide.
    Accepted,
    /// They are dropped, until the pods are known.
    Dropped,
}

/// Returns commands that replace a family's table by one with base chains only.
#[must_use]
pub(crate) fn build_base_chains(
    family: Family,
    network: &GuardedNetwork,
    unknown: Unknown,
) -> String {
    let word = family.nft_name();
    let address = family.address_type();
    let drop = match unknown {
        Unknown::Accepted => "",
        Unknown::Dropped => "drop;",
    };
    let (destinations, sources) = guard_rules(family, network);
    // Neighbour discovery, and membership of its multicast groups, are to IPv6 what ARP is to IPv4:
    // without them, allowed packets have no link address to go to.
    let discovery = match family {
        Family::V4 => "",
        Family::V6 => {
            "    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert } accept;\n    \
             icmpv6 type { mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report } accept;\n"
        }
    };
    // Two base chains, because `accept` ends only the chain of its hook: a packet that the source's
    // policies allow still has to pass those of the destination. The priorities are those of filters;
    // kube-proxy's filters (-110) have rejected what no Service accepts.
    format!(
        r#"add table {word} {TABLE}
delete table {word} {TABLE}
table {word} {TABLE} {{
  comment "rules for NetworkPolicies"
  map egress-pods {{ type {address} : verdict; }}
  map ingress-pods {{ type {address} : verdict; }}
  set {SAME_POD} {{ type {address} . {address}; }}
  chain {UNKNOWN_SOURCES} {{ {drop} }}
  chain {UNKNOWN_DESTINATIONS} {{ {drop} }}
  chain egress {{
    type filter hook forward priority filter - 2; policy accept;
    ct state established,related accept;
{discovery}    {word} saddr . {word} daddr @{SAME_POD} accept;
    {word} saddr vmap @egress-pods;
{sources}  }}
  chain ingress {{
    type filter hook forward priority filter - 1; policy accept;
    ct state established,related accept;
{discovery}    {word} saddr . {word} daddr @{SAME_POD} accept;
    {word} daddr vmap @ingress-pods;
{destinations}  }}
}}
"#
    )
}

/// Returns the rules for destinations and sources that are no known pod.
fn guard_rules(family: Family, network: &GuardedNetwork) -> (String, String) {
    let word = family.nft_name();
    let ranges = || {
        network
            .ranges
            .iter()
            .filter(|range| Family::of(range.addr()) == family)
    };
    let mut destinations = String::new();
    let mut sources = String::new();
    for range in ranges() {
        destinations += &format!("    {word} daddr {range} jump {UNKNOWN_DESTINATIONS};\n");
        sources += &format!("    {word} saddr {range} jump {UNKNOWN_SOURCES};\n");
    }
    // Pods of one bridge can also reach each other by addresses that the API does not have.
    if let Some(bridge) = &network.bridge {
        let others = match family {
            Family::V4 => "{ 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255 }",
            Family::V6 => "{ fe80::/10, ff00::/8 }",
        };
        let link_local = match family {
            Family::V4 => "169.254.0.0/16",
            Family::V6 => "fe80::/10",
        };
        destinations += &format!(
            "    oifname \"{bridge}\" {word} daddr {others} jump {UNKNOWN_DESTINATIONS};\n"
        );
        sources += &format!(
            "    iifname \"{bridge}\" {word} saddr {link_local} jump {UNKNOWN_SOURCES};\n"
        );
    }
    (destinations, sources)
}

/// Removes the tables.
///
/// # Errors
/// `nft` failed.
pub async fn delete_tables() -> Result<(), Error> {
    for family in [Family::V4, Family::V6] {
        net_nft::delete_table(family, TABLE).await?;
    }
    Ok(())
}

/// Returns whether the tables exist with their hooks. If `nft` fails, they count as installed.
pub(crate) async fn are_installed(families: &[Family]) -> bool {
    for family in families {
        let words = ["list", "chain", family.nft_name(), TABLE, "ingress"];
        // Only a listing that worked and lacks the rule means that the rules were removed.
        if let Ok(output) = net_nft::list_objects(&words).await
            && !(output.status.success()
                && String::from_utf8_lossy(&output.stdout).contains("vmap @ingress-pods"))
        {
            return false;
        }
    }
    true
}
