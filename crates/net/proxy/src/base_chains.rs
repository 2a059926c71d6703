//! The base chains: the part of the table that does not depend on any Service (hooks, maps, and
//! their chains).

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use net_nft::Family;

use crate::local::Masquerade;
use crate::picks::{MARK, declare_picks};

/// Name of the table in each family.
pub const TABLE: &str = "kube-proxy";
/// Set of all cluster IPs.
pub const CLUSTER_IPS: &str = "cluster-ips";
/// Set of the addresses of node ports.
pub const NODE_PORT_IPS: &str = "nodeport-ips";
/// Map from address, protocol and port to a Service.
pub const SERVICE_IPS: &str = "service-ips";
/// Map from protocol and node port to a Service.
pub const SERVICE_NODE_PORTS: &str = "service-nodeports";
/// Map of Services without endpoints.
pub const NO_ENDPOINT_SERVICES: &str = "no-endpoint-services";
/// Map of node ports without endpoints.
pub const NO_ENDPOINT_NODE_PORTS: &str = "no-endpoint-nodeports";
/// Map of addresses with restricted sources.
pub const FIREWALL_IPS: &str = "firewall-ips";
/// Set of the connections of endpoints to themselves, by both addresses.
pub const HAIRPINS: &str = "hairpin-connections";
/// Chain that rejects a connection.
pub const REJECT: &str = "reject-chain";

/// Closes CVE-2020-8558: where `route_localnet` is set (the portmap plugin does, for host ports),
/// the kernel delivers packets for 127.0.0.0/8 from pods and neighbours to the node's local
/// services. A loopback address on the wire is never legitimate. The hook runs before the
/// translation of replies is reverted, so translated connections of local clients are not affected.
/// The kernel itself drops ::1 on the wire.
const LOOPBACK_GUARD: &str = r#"  chain loopback-guard {
    type filter hook prerouting priority raw; policy accept;
    iifname != "lo" ip daddr 127.0.0.0/8 drop;
    iifname != "lo" ip saddr 127.0.0.0/8 drop;
  }
"#;

/// The chains with hooks that are the same in both families.
///
/// In the output hook, priority -110 runs before DNAT (-100) and -90 after it. The endpoints check
/// comes after DNAT, because the node's own connections to a Service with the policy Local may use
/// endpoints of other nodes.
const HOOKS: &str = r#"  chain filter-prerouting {
    type filter hook prerouting priority -110; policy accept;
    ct state new jump firewall-check;
  }
  chain filter-input {
    type filter hook input priority -110; policy accept;
    ct state new jump nodeport-endpoints-check;
    ct state new jump service-endpoints-check;
  }
  chain filter-forward {
    type filter hook forward priority -110; policy accept;
    ct state new jump service-endpoints-check;
    ct state new jump cluster-ips-check;
  }
  chain filter-output {
    type filter hook output priority -110; policy accept;
    ct state new jump firewall-check;
  }
  chain filter-output-post-dnat {
    type filter hook output priority -90; policy accept;
    ct state new jump service-endpoints-check;
    ct state new jump cluster-ips-check;
  }
  chain nat-prerouting {
    type nat hook prerouting priority dstnat; policy accept;
    jump services;
  }
  chain nat-output {
    type nat hook output priority -100; policy accept;
    jump services;
  }
  chain nat-postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    jump masquerading;
  }
"#;

/// Options of the base chains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BaseChainOptions {
    /// Bit of the packet mark for masquerading.
    pub masquerade_bit: u8,
    /// Addresses of node ports.
    pub node_port_addresses: Vec<IpAddr>,
    /// Families of which all local addresses except loopback accept node ports.
    pub node_port_families: Vec<Family>,
    /// Ranges of cluster IPs: packets to addresses there that no Service has are dropped.
    pub service_ranges: Vec<IpNet>,
    /// Sources that are masqueraded at cluster IPs; absent for none.
    pub masquerade: BTreeMap<Family, Masquerade>,
}

/// Returns commands that replace a family's table by one with base chains only, within a
/// transaction.
#[must_use]
pub fn build_base_chains(family: Family, options: &BaseChainOptions) -> String {
    let word = family.nft_name();
    let address = family.address_type();
    let guard = match family {
        Family::V4 => LOOPBACK_GUARD,
        Family::V6 => "",
    };
    let unallocated = match_unallocated(family, options);
    let (node_port, local_node_port) = match_node_ports(family, options);
    let masquerade = options.masquerade.get(&family).unwrap_or(&Masquerade::None);
    let picks = declare_picks(family, masquerade);
    // The bit is masked, so that a wrong option can not make the shift panic.
    let mark = format!("{:#x}", 1u32 << (options.masquerade_bit & 31));
    let node_ips: Vec<String> = options
        .node_port_addresses
        .iter()
        .filter(|ip| Family::of(**ip) == family)
        .map(ToString::to_string)
        .collect();
    // nft rejects a set with an empty list of elements.
    let elements = match node_ips.as_slice() {
        [] => String::new(),
        own => format!("elements = {{ {} }}", own.join(", ")),
    };
    format!(
        r#"add table {word} {TABLE}
delete table {word} {TABLE}
table {word} {TABLE} {{
  comment "rules for kube-proxy"
  set {CLUSTER_IPS} {{ type {address}; comment "Active ClusterIPs"; }}
  set {NODE_PORT_IPS} {{ type {address}; comment "IPs that accept NodePort traffic"; {elements} }}
  set {HAIRPINS} {{ type {address} . {address}; comment "Endpoints that reach themselves"; }}
  map {SERVICE_IPS} {{ type {address} . inet_proto . inet_service : verdict; }}
  map {SERVICE_NODE_PORTS} {{ type inet_proto . inet_service : verdict; }}
  map {NO_ENDPOINT_SERVICES} {{ type {address} . inet_proto . inet_service : verdict; }}
  map {NO_ENDPOINT_NODE_PORTS} {{ type inet_proto . inet_service : verdict; }}
  map {FIREWALL_IPS} {{ type {address} . inet_proto . inet_service : verdict; }}
  chain {REJECT} {{
    meta l4proto tcp reject with tcp reset comment "not subject to the limit on ICMP errors";
    reject;
  }}
  chain {MARK} {{ meta mark set mark or {mark}; }}
  chain masquerading {{
    ct status dnat {word} saddr . {word} daddr @{HAIRPINS} masquerade fully-random;
    meta mark & {mark} == 0 return;
    meta mark set mark xor {mark};
    masquerade fully-random;
  }}
  chain services {{
    {word} daddr . meta l4proto . th dport vmap @{SERVICE_IPS};
    {local_node_port} meta l4proto . th dport vmap @{SERVICE_NODE_PORTS};
  }}
  chain firewall-check {{ {word} daddr . meta l4proto . th dport vmap @{FIREWALL_IPS}; }}
  chain service-endpoints-check {{ {word} daddr . meta l4proto . th dport vmap @{NO_ENDPOINT_SERVICES}; }}
  chain nodeport-endpoints-check {{ {node_port} meta l4proto . th dport vmap @{NO_ENDPOINT_NODE_PORTS}; }}
  chain cluster-ips-check {{
    {word} daddr @{CLUSTER_IPS} goto {REJECT} comment "ports that no Service has";
{unallocated}  }}
{guard}{picks}{HOOKS}}}
"#
    )
}

/// Returns the rule that drops packets to cluster IPs that no Service has. Without it, they would
/// leave the node by its default route, and may return from there.
fn match_unallocated(family: Family, options: &BaseChainOptions) -> String {
    let ranges = options.service_ranges.iter();
    let own = ranges.filter(|range| Family::of(range.addr()) == family);
    let own: Vec<String> = own.map(ToString::to_string).collect();
    match own.as_slice() {
        [] => String::new(),
        own => format!(
            "    {} daddr {{ {} }} drop;\n",
            family.nft_name(),
            own.join(", ")
        ),
    }
}

/// Returns the matches of destinations that accept node ports, for two hooks. The first hook has
/// packets to this node only. Packets for other hosts pass the second one, too.
fn match_node_ports(family: Family, options: &BaseChainOptions) -> (String, String) {
    if !options.node_port_families.contains(&family) {
        let listed = format!("{} daddr @{NODE_PORT_IPS}", family.nft_name());
        return (listed.clone(), listed);
    }
    let other = match family {
        Family::V4 => "ip daddr != 127.0.0.0/8",
        Family::V6 => "ip6 daddr != ::1",
    };
    (other.to_owned(), format!("fib daddr type local {other}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_ips_without_a_service_are_dropped() {
        for (ranges, family, expect) in [
            (
                "10.96.0.0/16 10.97.0.0/16",
                Family::V4,
                Some("ip daddr { 10.96.0.0/16, 10.97.0.0/16 } drop;"),
            ),
            (
                "10.96.0.0/16 fd00::/108",
                Family::V6,
                Some("ip6 daddr { fd00::/108 } drop;"),
            ),
            ("10.96.0.0/16", Family::V6, None),
        ] {
            let options = BaseChainOptions {
                service_ranges: ranges.split(' ').flat_map(str::parse).collect(),
                ..BaseChainOptions::default()
            };
            let text = build_base_chains(family, &options);
            let found = text
                .lines()
                .map(str::trim)
                .find(|line| line.contains("daddr {"));
            assert_eq!(found, expect, "{ranges} {family:?}");
        }
    }

    #[test]
    fn node_ports_are_accepted_at_listed_addresses_or_all() {
        for (families, expect) in [
            (vec![Family::V6], "    ip daddr @nodeport-ips meta l4proto"),
            (
                vec![Family::V4],
                "    fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto",
            ),
        ] {
            let options = BaseChainOptions {
                masquerade_bit: 14,
                node_port_families: families,
                ..BaseChainOptions::default()
            };
            let text = build_base_chains(Family::V4, &options);
            assert!(text.contains(expect), "{text}");
        }
    }

    #[test]
    fn base_chains_drop_loopback_addresses_on_the_wire() {
        let options = BaseChainOptions {
            masquerade_bit: 14,
            ..BaseChainOptions::default()
        };
        assert!(
            build_base_chains(Family::V4, &options)
                .contains("iifname != \"lo\" ip daddr 127.0.0.0/8 drop;")
        );
        assert!(!build_base_chains(Family::V6, &options).contains("loopback-guard"));
    }

    /// Translation comes first: the node's own connections to a Service with the policy Local may
    /// use other nodes' endpoints.
    #[test]
    fn node_connections_are_checked_for_endpoints_after_translation() {
        let text = build_base_chains(
            Family::V4,
            &BaseChainOptions {
                masquerade_bit: 14,
                ..BaseChainOptions::default()
            },
        );
        let chain = |name: &str| {
            text.split(&format!("chain {name} {{"))
                .nth(1)
                .and_then(|rest| rest.split('}').next())
        };
        assert!(
            !chain("filter-output")
                .unwrap_or_default()
                .contains("service-endpoints-check")
        );
        assert!(
            chain("filter-output-post-dnat")
                .unwrap_or_default()
                .contains("service-endpoints-check")
        );
    }
}
