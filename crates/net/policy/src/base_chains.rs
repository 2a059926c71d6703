//! The base chains: hooks and maps, which do not depend on any policy.
//!
//! Only the hook `forward` is filtered. A packet from the node to its pods, or from a pod to its
//! node, passes `output` or `input`: the API allows traffic between a pod and its own node, such as
//! probes. In `forward` the destination of a Service has been translated to a pod, and the source
//! of a masqueraded connection has not been translated yet, so both are the true ends.

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

/// Verdict of new tables about unknown addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownAddressVerdict {
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
    unknown: UnknownAddressVerdict,
) -> String {
    let word = family.nft_name();
    let address = family.address_type();
    let drop = match unknown {
        UnknownAddressVerdict::Accepted => "",
        UnknownAddressVerdict::Dropped => "drop;",
    };
    let [ingress, egress] =
        Direction::BOTH.map(|direction| write_base_rules(direction, family, network));
    // Two base chains, because `accept` ends only the chain of its hook: a packet that the source's
    // policies allow still has to pass those of the destination. The priorities are those of
    // filters; kube-proxy's filters (-110) have rejected what no Service accepts.
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
{egress}  }}
  chain ingress {{
    type filter hook forward priority filter - 1; policy accept;
{ingress}  }}
}}
"#
    )
}

/// Writes the rules of a base chain.
fn write_base_rules(direction: Direction, family: Family, network: &GuardedNetwork) -> String {
    let word = family.nft_name();
    let (field, device, unknown) = match direction {
        Direction::Ingress => ("daddr", "oifname", UNKNOWN_DESTINATIONS),
        Direction::Egress => ("saddr", "iifname", UNKNOWN_SOURCES),
    };
    let ranges = network.ranges.iter();
    let (own, others): (Vec<&IpNet>, Vec<&IpNet>) =
        ranges.partition(|range| Family::of(range.addr()) == family);
    let mut rules = Vec::new();
    if let Some(bridge) = &network.bridge {
        if own.is_empty() && !others.is_empty() {
            // The API has no address of this family, so no policy can allow anything.
            rules.push(format!("{device} \"{bridge}\" drop"));
        }
        if direction == Direction::Egress {
            // Only pods of the bridge have such addresses. A forged one could pass as a peer of a
            // policy.
            rules.extend(
                own.iter()
                    .map(|range| format!("iifname != \"{bridge}\" {word} saddr {range} drop")),
            );
        }
        if family == Family::V6 {
            // A pod that advertises itself as a router would give all pods addresses and a gateway.
            rules.push(format!(
                "iifname \"{bridge}\" oifname \"{bridge}\" icmpv6 type \
                 {{ nd-router-solicit, nd-router-advert, nd-redirect }} drop"
            ));
        }
    }
    rules.push("ct state established,related accept".to_owned());
    if family == Family::V6 {
        rules.extend(write_discovery_rules(network.bridge.as_deref()));
    }
    // A pod reaches itself through a Service. Other packets to itself do not leave the pod: one
    // with the same address twice, but without a translation, has been forged by another pod.
    rules.push(format!(
        "{word} saddr . {word} daddr @{SAME_POD} ct status dnat accept"
    ));
    rules.push(format!("{word} {field} vmap @{}", verdict_map(direction)));
    rules.extend(
        own.iter()
            .map(|range| format!("{word} {field} {range} jump {unknown}")),
    );
    // Pods of one bridge can also reach each other by addresses that the API does not have:
    // link-local ones, groups, and those that a pod gives itself.
    let bridge = network.bridge.iter();
    rules.extend(bridge.map(|bridge| format!("{device} \"{bridge}\" jump {unknown}")));
    rules.iter().map(|rule| format!("    {rule};\n")).collect()
}

/// Writes the rules of IPv6 for neighbour discovery and membership of multicast groups. IPv6 finds
/// link addresses by them, as IPv4 does by ARP.
fn write_discovery_rules(bridge: Option<&str>) -> Vec<String> {
    // RFC 4861 and RFC 3810 set these hop limits. A router has decremented the limit, so that no
    // routed packet has 255; one with 1 may have been routed, so that MLD needs the bridge.
    let neighbours =
        "ip6 hoplimit 255 icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept";
    let Some(bridge) = bridge else {
        return vec![neighbours.to_owned()];
    };
    let within = format!("iifname \"{bridge}\" oifname \"{bridge}\"");
    let groups = "ip6 hoplimit 1 icmpv6 type { mld-listener-query, mld-listener-report, \
                  mld-listener-done, mld2-listener-report } accept";
    [neighbours, groups]
        .map(|rule| format!("{within} {rule}"))
        .into()
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

/// The number of objects in a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ObjectCounts {
    pub(crate) chains: usize,
    pub(crate) rules: usize,
    /// Sets and maps.
    pub(crate) sets: usize,
}

/// Returns the number of objects in a family's table beside those that depend on policies.
pub(crate) fn count_base_objects(family: Family, network: &GuardedNetwork) -> ObjectCounts {
    let rules = Direction::BOTH.map(|direction| {
        let text = write_base_rules(direction, family, network);
        text.lines().count()
    });
    ObjectCounts {
        chains: Direction::BOTH.len(),
        rules: rules.iter().sum(),
        // The two maps of verdicts, and the pairs.
        sets: 3,
    }
}

/// Returns the number of objects in a family's table in the kernel; None if `nft` failed.
pub(crate) async fn count_installed_objects(family: Family) -> Option<ObjectCounts> {
    // Without the elements of sets, of which there may be some 100,000.
    let words = ["-j", "-t", "list", "table", family.nft_name(), TABLE];
    let output = net_nft::list_objects(&words).await.ok()?;
    if !output.status.success() {
        // There is no table.
        return Some(ObjectCounts::default());
    }
    count_listed_objects(&output.stdout)
}

fn count_listed_objects(listing: &[u8]) -> Option<ObjectCounts> {
    let listing: serde_json::Value = serde_json::from_slice(listing).ok()?;
    let mut counts = ObjectCounts::default();
    for object in listing.get("nftables")?.as_array()? {
        let is = |kind: &str| usize::from(object.get(kind).is_some());
        counts.chains += is("chain");
        counts.rules += is("rule");
        counts.sets += is("set") + is("map");
    }
    Some(counts)
}

/// Returns whether the tables exist with their hooks. If `nft` fails, they count as installed.
pub(crate) async fn have_base_chains(families: &[Family]) -> bool {
    for family in families {
        for direction in Direction::BOTH {
            let chain = direction.name();
            let words = ["list", "chain", family.nft_name(), TABLE, chain];
            let rule = format!("vmap @{}", verdict_map(direction));
            // Only a listing that worked and lacks the rule means that the rules were removed.
            if let Ok(output) = net_nft::list_objects(&words).await
                && !(output.status.success()
                    && String::from_utf8_lossy(&output.stdout).contains(&rule))
            {
                return false;
            }
        }
    }
    true
}
