//! The rules of the pod network that do not change while the cluster runs. Pure.

use ipnet::IpNet;

use crate::node::ClusterNode;
use crate::node_dns::DNS_PORT;
use crate::settings::Settings;

/// A family of addresses, with its words.
struct Family {
    is_v4: bool,
    /// Name in rules.
    word: &'static str,
    multicast: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family {
        is_v4: true,
        word: "ip",
        multicast: "224.0.0.0/4",
    },
    Family {
        is_v4: false,
        word: "ip6",
        multicast: "ff00::/8",
    },
];

impl Family {
    /// Returns the ranges of the family.
    fn select(&self, ranges: impl IntoIterator<Item = IpNet>) -> Vec<String> {
        let all = ranges.into_iter();
        all.filter(|range| range.addr().is_ipv4() == self.is_v4)
            .map(|range| range.to_string())
            .collect()
    }
}

/// Returns a transaction that replaces the tables of a node.
///
/// `postrouting`: traffic of pods to addresses outside the cluster gets the machine's address;
/// between pods and nodes the source is kept. Nodes with namespaces of their own send such traffic
/// through the machine, so they need no rule. Where an agent or another network does that for pods,
/// the rule is for the addresses of such nodes only.
///
/// `loopback-guard` closes CVE-2020-8558. For host ports on 127.0.0.1 the portmap plugin sets
/// `route_localnet` on the bridge. The kernel then delivers a pod's frame for 127.0.0.1 to the
/// node's local services. A loopback address on the wire is never legitimate; for IPv6 the kernel
/// drops such packets itself. The hook runs before the translation of replies is reverted, so host
/// ports on 127.0.0.1 work.
pub(super) fn build_rules(settings: &Settings, node: &ClusterNode) -> String {
    let families = FAMILIES
        .iter()
        .filter(|family| family.is_v4 || settings.has_ipv6());
    families
        .map(|family| build_table(family, settings, node))
        .collect()
}

fn build_table(family: &Family, settings: &Settings, node: &ClusterNode) -> String {
    let (word, table) = (family.word, settings.table());
    let mut chains = String::new();
    if family.is_v4 {
        chains += LOOPBACK_GUARD;
    }
    chains += &format_dns_chains(family, settings);
    if !node.is_isolated {
        chains += &format_masquerading(family, settings);
    }
    chains += &format_source_chain(family, settings, node);
    // The table is added before it is deleted, so that the first run succeeds. One transaction does
    // both, so that no packet passes between.
    format!(
        "add table {word} {table}\n\
         delete table {word} {table}\n\
         table {word} {table} {{\n\
         \tcomment \"pod network of ironclad\"\n\
         {chains}\
         }}\n"
    )
}

const LOOPBACK_GUARD: &str = "\tchain loopback-guard {\n\
     \t\ttype filter hook prerouting priority raw; policy accept;\n\
     \t\tiifname != \"lo\" ip daddr 127.0.0.0/8 drop\n\
     \t\tiifname != \"lo\" ip saddr 127.0.0.0/8 drop\n\
     \t}\n";

/// Returns the chains that exclude packets of the node's DNS server from connection tracking, as
/// upstream's node-cache does. So no translation, such as that of a pod's host port 53, redirects
/// them, and lookups use no entries. Packets with the server's address as source are accepted from
/// this node only.
fn format_dns_chains(family: &Family, settings: &Settings) -> String {
    let Some(server) = settings
        .node_dns
        .filter(|server| server.is_ipv4() == family.is_v4)
    else {
        return String::new();
    };
    let word = family.word;
    format!(
        "\tchain dns-requests {{\n\
         \t\ttype filter hook prerouting priority raw; policy accept;\n\
         \t\tiifname != \"lo\" {word} saddr {server} drop\n\
         \t\t{word} daddr {server} meta l4proto {{ tcp, udp }} th dport {DNS_PORT} notrack\n\
         \t}}\n\
         \tchain dns-responses {{\n\
         \t\ttype filter hook output priority raw; policy accept;\n\
         \t\t{word} saddr {server} meta l4proto {{ tcp, udp }} th sport {DNS_PORT} notrack\n\
         \t\t{word} daddr {server} meta l4proto {{ tcp, udp }} th dport {DNS_PORT} notrack\n\
         \t}}\n"
    )
}

/// Returns the chain that sets the source of a joined machine's own packets to pods of other
/// machines: an address in its range of pods. For direct connections the route does so. For those
/// to a Service the source is chosen before the address is translated, and cluster DNS serves
/// addresses of pods only.
fn format_source_chain(family: &Family, settings: &Settings, node: &ClusterNode) -> String {
    let address = node.address_of_family(family.is_v4);
    let mut sources = node.bridge_addresses();
    let source = sources.find(|source| source.addr().is_ipv4() == family.is_v4);
    let pods = family.select(settings.pod_cidr.iter());
    let (Some(address), Some(source), [pods]) = (address, source, pods.as_slice()) else {
        return String::new();
    };
    if settings.membership.is_none() || !settings.has_bridge() {
        return String::new();
    }
    let (bridge, word, source) = (settings.bridge(), family.word, source.addr());
    // Before kube-proxy's chain, which would give the packets the machine's address.
    format!(
        "\tchain node-source {{\n\
         \t\ttype nat hook postrouting priority srcnat - 5; policy accept;\n\
         \t\t{word} saddr {address} {word} daddr {pods} oifname != \"{bridge}\" snat to {source}\n\
         \t}}\n"
    )
}

fn format_masquerading(family: &Family, settings: &Settings) -> String {
    let pods = family.select(settings.pod_cidr.iter());
    let nodes = family.select(settings.link_ranges());
    let masquerades_pods = settings.has_bridge() && !settings.has_network_agent();
    let own = if masquerades_pods { &pods[..] } else { &[] };
    let sources = [own, &nodes].concat().join(", ");
    if sources.is_empty() {
        return String::new();
    }
    let services = family.select(settings.service_cidr.iter());
    let kept = [&pods[..], &services, &[family.multicast.to_owned()], &nodes].concat();
    let (kept, word) = (kept.join(", "), family.word);
    let mut bridges = vec![format!("\"{}\"", settings.bridge())];
    bridges.extend((!nodes.is_empty()).then(|| format!("\"{}\"", settings.link_bridge())));
    let bridges = bridges.join(", ");
    format!(
        "\tchain postrouting {{\n\
         \t\ttype nat hook postrouting priority srcnat; policy accept;\n\
         \t\t{word} saddr {{ {sources} }} {word} daddr != {{ {kept} }} oifname != {{ {bridges} }} masquerade\n\
         \t}}\n"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cni_plugin::CniPlugin;

    fn find_rules(settings: &Settings, node: &ClusterNode, end: &str) -> Vec<String> {
        let rules = build_rules(settings, node);
        let found = rules.lines().filter(|line| line.contains(end));
        found.map(|line| line.trim().to_owned()).collect()
    }

    fn dual(settings: Settings) -> Settings {
        Settings {
            cni: CniPlugin::Ironclad,
            pod_cidr: "10.244.0.0/16,fd00::/48".parse().unwrap(),
            service_cidr: "10.96.0.0/16,fd01::/112".parse().unwrap(),
            ..settings
        }
    }

    #[test]
    fn table_drops_loopback_addresses_that_arrive_from_a_pod() {
        let settings = Settings::with_nodes(2);
        for node in settings.nodes() {
            let rules = build_rules(&settings, &node);
            for rule in [
                "iifname != \"lo\" ip daddr 127.0.0.0/8 drop",
                "iifname != \"lo\" ip saddr 127.0.0.0/8 drop",
            ] {
                assert!(rules.contains(rule), "{rule} is not in {rules}");
            }
        }
    }

    #[test]
    fn joined_machine_sends_to_pods_of_other_machines_from_its_range_of_pods() {
        let joined = Settings::example_joined();
        let rules = build_rules(&joined, &joined.first_node());
        let rule = format!(
            "ip saddr 192.0.2.3 ip daddr 10.244.0.0/16 oifname != \"{}\" snat to 10.244.7.1",
            joined.bridge()
        );
        assert!(rules.contains(&rule), "{rules}");
        assert!(rules.contains("masquerade"), "{rules}");
        let cluster = Settings::example();
        assert!(!build_rules(&cluster, &cluster.first_node()).contains("snat to"));
        let foreign = Settings {
            cni: CniPlugin::None,
            ..joined
        };
        let rules = build_rules(&foreign, &foreign.first_node());
        assert!(!rules.contains("snat to") && !rules.contains("masquerade"));
    }

    #[test]
    fn only_connections_to_the_outside_are_masqueraded() {
        let settings = Settings::example();
        let expected = format!(
            "ip saddr {{ 10.244.0.0/16 }} ip daddr != {{ 10.244.0.0/16, 10.96.0.0/16, 224.0.0.0/4 }} oifname != {{ \"{}\" }} masquerade",
            settings.bridge()
        );
        let found = find_rules(&settings, &settings.first_node(), "masquerade");
        assert_eq!(found, [expected]);
    }

    /// Addresses of nodes are translated like those of pods, but not between nodes.
    #[test]
    fn traffic_between_nodes_is_not_masqueraded() {
        let settings = Settings::with_nodes(2);
        let nodes = settings.nodes();
        let expected = format!(
            "ip saddr {{ 10.244.0.0/16, 198.18.7.0/24 }} ip daddr != {{ 10.244.0.0/16, 10.96.0.0/16, 224.0.0.0/4, \
             198.18.7.0/24 }} oifname != {{ \"{}\", \"{}\" }} masquerade",
            settings.bridge(),
            settings.link_bridge()
        );
        assert_eq!(find_rules(&settings, &nodes[0], "masquerade"), [expected]);
        assert!(find_rules(&settings, &nodes[1], "masquerade").is_empty());
    }

    #[test]
    fn with_an_agent_only_nodes_without_an_address_outside_are_masqueraded() {
        let settings = dual(Settings::example());
        let node = settings.first_node();
        assert!(find_rules(&settings, &node, "masquerade").is_empty());
        let settings = dual(Settings::with_nodes(2));
        let rules = find_rules(&settings, &settings.nodes()[0], "masquerade");
        assert_eq!(rules.len(), 2, "{rules:?}");
        assert!(rules[0].starts_with("ip saddr { 198.18.7.0/24 } ip daddr != { 10.244.0.0/16,"));
        assert!(rules[1].starts_with("ip6 saddr { fdc6:1207::/64 } ip6 daddr != { fd00::/48,"));
    }

    #[test]
    fn packets_of_the_dns_server_of_a_node_are_not_translated() {
        let settings = Settings {
            node_dns: "169.254.20.10".parse().ok(),
            ..dual(Settings::example())
        };
        let rules = find_rules(&settings, &settings.first_node(), "169.254.20.10");
        assert_eq!(rules.len(), 4, "{rules:?}");
        assert_eq!(rules[0], "iifname != \"lo\" ip saddr 169.254.20.10 drop");
        assert!(rules[1..].iter().all(|rule| rule.ends_with("notrack")));
        let settings = Settings::example();
        assert!(find_rules(&settings, &settings.first_node(), "notrack").is_empty());
    }
}
