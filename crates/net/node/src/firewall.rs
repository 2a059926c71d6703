//! Rules of the pod network. Pure.
//!
//! - Packets of pods to addresses outside the cluster get the node's address.
//! - Pods send from addresses of the node's ranges only.
//! - With the backend `wireguard`, packets from pods come from the tunnel and from the node's own
//!   pods only, and those to pods leave to these only. With masquerading, packets to pods come from
//!   these only, too.
//! - Packets of the tunnel come from nodes only, and have addresses of pods. VXLAN has no
//!   authentication: otherwise each machine that reaches the port, and each pod, could send to pods
//!   with any source.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

use ipnet::IpNet;
use net_nft::Family;

use crate::plan::{LocalNetwork, Plan, first_address};
use crate::settings::{Backend, NodeSettings};

/// Sources of a pod's packets besides its address: neighbour discovery of IPv6.
const DISCOVERY_SOURCES: &str = "::, fe80::/10";
/// Multicast destinations, which are not routed.
const MULTICAST: [(Family, &str); 2] = [(Family::V4, "224.0.0.0/4"), (Family::V6, "ff00::/8")];

/// Returns a transaction that replaces the tables of all families.
pub(crate) fn build_rules(
    settings: &NodeSettings,
    families: &[Family],
    local: &LocalNetwork,
    plan: &Plan,
) -> String {
    let table = settings.table();
    let mut rules = String::new();
    for family in families {
        let word = family.nft_name();
        // Added before it is deleted, so that the first run succeeds.
        let _ = write!(
            rules,
            "add table {word} {table}\ndelete table {word} {table}\n\
             table {word} {table} {{\n\
             \tcomment \"pod network of ironclad\"\n"
        );
        rules += &format_sources(settings, *family, local, plan);
        rules += &format_tunnel_source(settings, *family, local);
        for chain in list_drop_chains(settings, *family) {
            rules += &chain.format();
        }
        rules += &format_masquerading(settings, *family, local, plan);
        rules += "}\n";
    }
    rules
}

/// Returns a transaction that installs the rules against unencrypted packets alone, and leaves the
/// rest of the tables as it is.
pub(crate) fn build_drops(settings: &NodeSettings, families: &[Family]) -> String {
    let table = settings.table();
    let mut text = String::new();
    for family in families {
        let word = family.nft_name();
        let chains = list_drop_chains(settings, *family);
        let formatted: String = chains.iter().map(DropChain::format).collect();
        let block = format!("table {word} {table} {{\n{formatted}}}\n");
        // Added before they are emptied, so that the first run succeeds.
        text += &block;
        for chain in &chains {
            let _ = writeln!(text, "flush chain {word} {table} {}", chain.name);
        }
        text += &block;
    }
    text
}

/// Returns the ranges of a family as a set of nft, or None if there is none.
fn format_ranges(family: Family, ranges: &[IpNet]) -> Option<String> {
    let texts: Vec<_> = ranges
        .iter()
        .filter(|range| Family::of(range.addr()) == family)
        .map(IpNet::to_string)
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn format_set(name: &str, family: Family, addresses: &BTreeSet<IpAddr>) -> String {
    let texts: Vec<_> = addresses
        .iter()
        .filter(|address| Family::of(**address) == family)
        .map(IpAddr::to_string)
        .collect();
    let elements = match texts.is_empty() {
        true => String::new(),
        false => format!(" elements = {{ {} }};", texts.join(", ")),
    };
    let kind = family.address_type();
    format!("\tset {name} {{ type {kind};{elements} }}\n")
}

fn format_sources(
    settings: &NodeSettings,
    family: Family,
    local: &LocalNetwork,
    plan: &Plan,
) -> String {
    let (bridge, vxlan) = (&settings.bridge, settings.vxlan_port);
    let ports = format_tunnel_ports(settings);
    let word = family.nft_name();
    let mut text = format_set("tunnels", family, &plan.tunnel_peers);
    text += "\tchain sources {\n\t\ttype filter hook prerouting priority raw; policy accept;\n";
    let discovery = match family {
        Family::V4 => None,
        Family::V6 => Some(DISCOVERY_SOURCES),
    };
    let own = format_ranges(family, &local.ranges);
    // A family without a range, too: devices have link-local addresses of IPv6 nevertheless.
    let allowed = [own.as_deref(), discovery].into_iter().flatten();
    let allowed = allowed.collect::<Vec<_>>().join(", ");
    let _ = match allowed.is_empty() {
        true => writeln!(text, "\t\tiifname \"{bridge}\" drop"),
        false => writeln!(
            text,
            "\t\tiifname \"{bridge}\" {word} saddr != {{ {allowed} }} drop"
        ),
    };
    if family == Family::V6 {
        let _ = writeln!(
            text,
            "\t\tiifname \"{bridge}\" icmpv6 type {{ nd-router-advert, nd-redirect }} drop"
        );
    }
    // Also without a tunnel: one of an earlier configuration may still be there.
    let _ = writeln!(
        text,
        "\t\tiifname \"{bridge}\" udp dport {ports} fib daddr type local drop"
    );
    let _ = writeln!(
        text,
        "\t\tudp dport {vxlan} fib daddr type local {word} saddr != @tunnels drop"
    );
    // A host port of the same number must not take the packets: they are not tracked, and so not
    // translated.
    let _ = writeln!(text, "\t\tudp dport {ports} fib daddr type local notrack");
    text += &format_tunnel_sources(settings, family, own.as_deref());
    text += "\t}\n";
    text
}

/// Returns the rules for packets out of the tunnel: from pods of other nodes to those of this one.
fn format_tunnel_sources(settings: &NodeSettings, family: Family, own: Option<&str>) -> String {
    let (device, word) = (settings.tunnel_device(), family.nft_name());
    let cluster = format_ranges(family, &settings.cluster_ranges);
    let (Some(own), Some(cluster)) = (own, cluster) else {
        return format!("\t\tiifname \"{device}\" drop\n");
    };
    format!(
        "\t\tiifname \"{device}\" {word} saddr != {{ {cluster} }} drop\n\
         \t\tiifname \"{device}\" {word} saddr {{ {own} }} drop\n\
         \t\tiifname \"{device}\" {word} daddr != {{ {own} }} drop\n"
    )
}

/// Returns the chain for packets of this node, or of a client outside, that go to a pod through the
/// tunnel: they get the node's address of its range, by which the other node knows them, and by
/// which the answers come back. Before kube-proxy's chain, which would choose another address.
fn format_tunnel_source(settings: &NodeSettings, family: Family, local: &LocalNetwork) -> String {
    let gateway = local
        .ranges
        .iter()
        .filter(|range| Family::of(range.addr()) == family)
        .find_map(|range| first_address(*range));
    let cluster = format_ranges(family, &settings.cluster_ranges);
    let (Some(gateway), Some(cluster)) = (gateway, cluster) else {
        return String::new();
    };
    let (device, word) = (settings.tunnel_device(), family.nft_name());
    format!(
        "\tchain tunnel-source {{\n\
         \t\ttype nat hook postrouting priority srcnat - 5; policy accept;\n\
         \t\toifname \"{device}\" {word} saddr != {{ {cluster} }} snat to {gateway} fully-random\n\
         \t}}\n"
    )
}

/// Returns the ports of tunnels as an operand of nft. That of WireGuard may belong to another
/// program, unless it is the backend.
fn format_tunnel_ports(settings: &NodeSettings) -> String {
    match settings.backend {
        Backend::Wireguard => format!("{{ {}, {} }}", settings.vxlan_port, settings.wireguard_port),
        Backend::Auto | Backend::Direct | Backend::Vxlan => settings.vxlan_port.to_string(),
    }
}

/// Returns the ranges of a family between whose addresses packets are encrypted, or None if none
/// are.
fn encrypted_ranges(settings: &NodeSettings, family: Family) -> Option<String> {
    match settings.backend {
        Backend::Wireguard => format_ranges(family, &settings.cluster_ranges),
        Backend::Auto | Backend::Direct | Backend::Vxlan => None,
    }
}

/// Returns the devices on which packets of pods are not encrypted yet, or no longer.
fn format_pod_devices(settings: &NodeSettings) -> String {
    let (bridge, tunnel) = (&settings.bridge, settings.tunnel_device());
    format!("\"{bridge}\", \"{tunnel}\", \"lo\"")
}

/// A chain that drops unencrypted packets.
struct DropChain {
    name: &'static str,
    /// Hook and priority.
    hook: &'static str,
    rules: Vec<String>,
}

impl DropChain {
    fn format(&self) -> String {
        let mut text = format!(
            "\tchain {} {{\n\t\ttype filter hook {}; policy accept;\n",
            self.name, self.hook
        );
        for rule in &self.rules {
            let _ = writeln!(text, "\t\t{rule}");
        }
        text + "\t}\n"
    }
}

/// Returns the chains that drop packets with addresses of pods which leave or arrive outside of the
/// tunnel: routes of other programs, or the default route while the tunnel does not exist, could
/// lead them out.
///
/// Without masquerading, a packet from outside to a pod may be the answer to one that the pod sent.
fn list_drop_chains(settings: &NodeSettings, family: Family) -> Vec<DropChain> {
    let Some(cluster) = encrypted_ranges(settings, family) else {
        return Vec::new();
    };
    let (devices, word) = (format_pod_devices(settings), family.nft_name());
    let drop_entry =
        |side: &str| format!("iifname != {{ {devices} }} {word} {side} {{ {cluster} }} drop");
    let mut entry = vec![drop_entry("saddr")];
    entry.extend(settings.masquerade.then(|| drop_entry("daddr")));
    vec![
        DropChain {
            name: "unencrypted-entry",
            hook: "prerouting priority raw",
            rules: entry,
        },
        DropChain {
            name: "unencrypted-exit",
            hook: "postrouting priority filter",
            rules: vec![format!(
                "oifname != {{ {devices} }} {word} daddr {{ {cluster} }} drop"
            )],
        },
    ]
}

fn format_masquerading(
    settings: &NodeSettings,
    family: Family,
    local: &LocalNetwork,
    plan: &Plan,
) -> String {
    let own = format_ranges(family, &local.ranges);
    let (true, Some(own)) = (settings.masquerade, own) else {
        return String::new();
    };
    let (bridge, word) = (&settings.bridge, family.nft_name());
    let mut kept: Vec<String> = MULTICAST
        .iter()
        .filter(|(other, _)| *other == family)
        .map(|(_, range)| (*range).to_owned())
        .collect();
    kept.extend(format_ranges(family, &settings.cluster_ranges));
    let kept = kept.join(", ");
    // Nodes behind a tunnel have no route back but through it, and packets to the node itself do
    // not take it.
    let nodes = format_set("nodes", family, &plan.linked);
    format!(
        "{nodes}\
         \tchain postrouting {{\n\
         \t\ttype nat hook postrouting priority srcnat; policy accept;\n\
         \t\t{word} saddr {{ {own} }} {word} daddr != {{ {kept} }} {word} daddr != @nodes oifname != \"{bridge}\" masquerade fully-random\n\
         \t}}\n"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn encrypt(masquerade: bool) -> NodeSettings {
        let device = |name: &str| net_link::DeviceName::parse(name).unwrap();
        NodeSettings {
            node_name: "n".to_owned(),
            cluster_ranges: vec!["10.244.0.0/16".parse().unwrap()],
            bridge: device("cni0"),
            backend: Backend::Wireguard,
            vxlan_device: device("vxlan-pods"),
            vni: 1,
            vxlan_port: 8472,
            wireguard_device: device("wireguard-pods"),
            wireguard_port: 51_820,
            mtu: None,
            masquerade,
            api_server: None,
            conf_dir: "/".into(),
            data_dir: "/".into(),
        }
    }

    #[test]
    fn drops_of_packets_to_pods_from_elsewhere_depend_on_masquerading() {
        let devices = r#"!= { "cni0", "wireguard-pods", "lo" }"#;
        let rule = |side: &str| format!("{devices} ip {side} {{ 10.244.0.0/16 }} drop");
        for masquerade in [true, false] {
            let rules = build_drops(&encrypt(masquerade), &[Family::V4]);
            let has = |side: &str| rules.contains(&format!("iifname {}", rule(side)));
            assert!(has("saddr"), "{masquerade}: {rules}");
            assert_eq!(has("daddr"), masquerade, "{rules}");
            let exit = format!("oifname {}", rule("daddr"));
            assert!(rules.contains(&exit), "{masquerade}: {rules}");
        }
    }
}
