//! The pod network of each node: kernel settings, the bridge, a route for Services, masquerading to
//! the outside, and a guard for the node's loopback addresses.
//!
//! Everything is idempotent: `up` does it, and the supervisor does it again after a reboot.

mod choose;
mod device;
mod isolation;
mod link;
mod plugin;

use std::fs;
use std::path::Path;

use crate::bridges::find_other_cluster;
use crate::command::{run_command, run_with_input};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::node::ClusterNode;
use crate::routes::remove_routes;
use crate::settings::Settings;
pub use choose::choose_node_network;
use device::{ensure_bridge, remove_device};
pub use isolation::end_node_processes;
pub use plugin::{link_plugins, plugin_program};

// Without the second one, traffic between pods of one bridge bypasses kube-proxy's rules.
const SYSCTLS: [(&str, &str); 3] = [
    ("net/ipv4/ip_forward", "1"),
    ("net/bridge/bridge-nf-call-iptables", "1"),
    ("net/ipv4/conf/all/route_localnet", "0"),
];

/// Prepares the network of all nodes for pods.
pub fn prepare_network(settings: &Settings, layout: &Layout) -> Result<()> {
    for module in ["overlay", "br_netfilter", "nf_conntrack"] {
        // The module may be built in, or the kernel can't load modules: if it is really missing,
        // the next steps fail.
        let _ = run_command("modprobe", &["-q", module]);
    }
    link_plugins(settings, layout)?;
    let nodes = settings.nodes();
    // `up` and a supervisor that starts at the same time must not create a node twice.
    let _lock = isolation::lock_nodes(layout)?;
    for node in &nodes {
        match isolation::ensure_namespaces(settings, layout, node)? {
            None => prepare_node(settings, node)?,
            Some(namespaces) => {
                link::connect_node(settings, node, &namespaces)?;
                namespaces.run(|| prepare_node(settings, node))??;
                namespaces.run(|| link::add_routes(settings, node, &nodes))??;
            }
        }
    }
    if settings.node_count > 1 {
        link::add_routes(settings, &settings.first_node(), &nodes)?;
    }
    Ok(())
}

/// Prepares one node; runs in its namespaces.
fn prepare_node(settings: &Settings, node: &ClusterNode) -> Result<()> {
    // br_netfilter must be loaded first: its sysctl does not exist before.
    for (name, value) in SYSCTLS {
        set_sysctl(name, value)?;
    }
    create_bridge(settings, node)?;
    add_service_route(settings, node)?;
    run_with_input("nft", &["-f", "-"], &nat_table(settings, node)).map(drop)
}

fn set_sysctl(name: &str, value: &str) -> Result<()> {
    let path = Path::new("/proc/sys").join(name);
    // In a container /proc/sys is often read-only and already right.
    if fs::read_to_string(&path).is_ok_and(|present| present.trim() == value) {
        return Ok(());
    }
    fs::write(&path, value).map_err(Error::io(path))
}

fn create_bridge(settings: &Settings, node: &ClusterNode) -> Result<()> {
    // The gateway of the pods: host-local gives them the other addresses of the range.
    let address = format!("{}/{}", node.bridge_address(), node.pods.prefix_len());
    ensure_bridge(&settings.bridge(), &address)
}

/// Adds a route for Services: a packet that the node itself sends to a Service needs some route
/// before it is translated. The route must not lead back to the bridge: for packets of pods the
/// kernel would send redirects, and with them use up its limit on ICMP errors.
fn add_service_route(settings: &Settings, node: &ClusterNode) -> Result<()> {
    if run_command("ip", &["-4", "route", "show", "default"])?
        .trim()
        .is_empty()
    {
        let range = settings.service_cidr.to_string();
        let source = node.address.to_string();
        run_command(
            "ip",
            &["route", "replace", &range, "dev", "lo", "src", &source],
        )?;
    }
    Ok(())
}

/// Returns the nftables table of the pod network.
///
/// `postrouting`: traffic of pods to addresses outside the cluster gets the machine's address;
/// between pods and nodes the source is kept. Nodes with namespaces of their own send such traffic
/// through the machine, so they need no rule.
///
/// `loopback-guard` closes CVE-2020-8558. For host ports on 127.0.0.1 the portmap plugin sets
/// `route_localnet` on the bridge, and the kernel then delivers a frame for 127.0.0.1 from any pod
/// to the node's local services. A loopback address on the wire is never legitimate. The hook runs
/// before the translation of replies is reverted, so host ports on 127.0.0.1 work.
fn nat_table(settings: &Settings, node: &ClusterNode) -> String {
    let table = settings.table();
    let postrouting = if node.is_isolated {
        String::new()
    } else {
        masquerade_chain(settings)
    };
    // Added before it is deleted, so that the first run succeeds, and in one transaction, so that
    // no packet sees a gap.
    format!(
        "add table ip {table}\n\
         delete table ip {table}\n\
         table ip {table} {{\n\
         \tcomment \"pod network of ironclad\"\n\
         \tchain loopback-guard {{\n\
         \t\ttype filter hook prerouting priority raw; policy accept;\n\
         \t\tiifname != \"lo\" ip daddr 127.0.0.0/8 drop\n\
         \t\tiifname != \"lo\" ip saddr 127.0.0.0/8 drop\n\
         \t}}\n\
         {postrouting}\
         {}\
         }}\n",
        format_source_chain(settings, node)
    )
}

/// Returns the chain that gives a joined machine's own packets to pods of other machines a source
/// in its range of pods. For direct connections the route does so. For those to a Service the
/// source is chosen before the address is translated, and cluster DNS serves addresses of pods
/// only.
fn format_source_chain(settings: &Settings, node: &ClusterNode) -> String {
    if settings.membership.is_none() {
        return String::new();
    }
    let (bridge, pods) = (settings.bridge(), settings.pod_cidr);
    let (address, source) = (node.address, node.bridge_address());
    // Before kube-proxy's chain, which would give the packets the machine's address.
    format!(
        "\tchain node-source {{\n\
         \t\ttype nat hook postrouting priority srcnat - 5; policy accept;\n\
         \t\tip saddr {address} ip daddr {pods} oifname != \"{bridge}\" snat to {source}\n\
         \t}}\n"
    )
}

fn masquerade_chain(settings: &Settings) -> String {
    let (bridge, pods, services) = (settings.bridge(), settings.pod_cidr, settings.service_cidr);
    let (sources, others, bridges) = match settings.node_network {
        None => (pods.to_string(), String::new(), format!("\"{bridge}\"")),
        Some(nodes) => (
            format!("{{ {pods}, {nodes} }}"),
            format!(", {nodes}"),
            format!("{{ \"{bridge}\", \"{}\" }}", settings.link_bridge()),
        ),
    };
    format!(
        "\tchain postrouting {{\n\
         \t\ttype nat hook postrouting priority srcnat; policy accept;\n\
         \t\tip saddr {sources} ip daddr != {{ {pods}, {services}, 224.0.0.0/4{others} }} oifname != {bridges} masquerade\n\
         \t}}\n"
    )
}

/// Removes everything that `prepare_network` created.
pub fn remove_network(settings: &Settings) -> Result<()> {
    let bridge = settings.bridge();
    // Exists only if there was no default route.
    let _ = run_command(
        "ip",
        &[
            "route",
            "delete",
            &settings.service_cidr.to_string(),
            "dev",
            "lo",
        ],
    );
    // The ends of the links go with their other ends; the kernel may need a moment for that.
    let mut devices: Vec<_> = settings
        .nodes()
        .iter()
        .filter(|node| node.is_isolated)
        .map(|node| node.link(settings))
        .collect();
    devices.extend([settings.link_bridge(), bridge.clone()]);
    devices
        .iter()
        .try_for_each(|device| remove_device(device))?;
    // The table of the pod network has the name of the cluster, and is always its own.
    let mut tables = vec![("ip", settings.table())];
    // Host ports of the cluster's own plugin.
    let host_ports = format!("hostports-{bridge}");
    tables.extend(["ip", "ip6"].map(|family| (family, host_ports.clone())));
    // kube-proxy's tables have the same names in every cluster, and the routes the same protocol
    // number: if another cluster runs here, they belong to it. It removes routes that are not its
    // own.
    if find_other_cluster(&bridge)?.is_none() {
        remove_routes()?;
        for table in ["kube-proxy", "kube-proxy-policy"] {
            tables.extend([("ip", table.to_owned()), ("ip6", table.to_owned())]);
        }
    }
    for (family, table) in tables {
        run_with_input(
            "nft",
            &["-f", "-"],
            &format!("add table {family} {table}\ndelete table {family} {table}\n"),
        )?;
    }
    remove_port_mappings();
    Ok(())
}

/// Removes the portmap plugin's (empty) chains from the nat tables of iptables, and a table without
/// other content.
fn remove_port_mappings() {
    for (family, program) in [("ip", "iptables"), ("ip6", "ip6tables")] {
        let Ok(rules) = run_command("nft", &["list", "table", family, "nat"]) else {
            continue;
        };
        if rules.contains("CNI-HOSTPORT") {
            remove_plugin_chains(program);
        }
        // The table is shared with Docker and others: it is removed only if nothing but empty base
        // chains is left.
        if run_command("nft", &["list", "table", family, "nat"])
            .is_ok_and(|rules| !has_rules(&rules))
        {
            let _ = run_command("nft", &["delete", "table", family, "nat"]);
        }
    }
}

fn remove_plugin_chains(program: &str) {
    for chain in ["PREROUTING", "OUTPUT"] {
        let jump = [
            "-t",
            "nat",
            "-D",
            chain,
            "-m",
            "addrtype",
            "--dst-type",
            "LOCAL",
            "-j",
            "CNI-HOSTPORT-DNAT",
        ];
        // Failures are ignored: an earlier `down` may have removed a part, and the rest must still
        // be removed.
        let _ = run_command(program, &jump);
    }
    let comment = [
        "-m",
        "comment",
        "--comment",
        "CNI portfwd requiring masquerade",
    ];
    let masquerade = ["-j", "CNI-HOSTPORT-MASQ"];
    let _ = run_command(
        program,
        &[
            &["-t", "nat", "-D", "POSTROUTING"],
            &comment[..],
            &masquerade,
        ]
        .concat(),
    );
    for chain in [
        "CNI-HOSTPORT-DNAT",
        "CNI-HOSTPORT-MASQ",
        "CNI-HOSTPORT-SETMARK",
    ] {
        // A chain can be deleted only when it is empty.
        let _ = run_command(program, &["-t", "nat", "-F", chain]);
        let _ = run_command(program, &["-t", "nat", "-X", chain]);
    }
}

/// Returns whether a listed table has anything besides empty base chains.
fn has_rules(listing: &str) -> bool {
    listing.lines().map(str::trim).any(|line| {
        !(line.is_empty()
            || line == "}"
            || line.starts_with('#')
            || line.starts_with("table ")
            || line.starts_with("chain ")
            || line.starts_with("type "))
    })
}

#[cfg(test)]
mod tests {
    use super::{has_rules, nat_table};
    use crate::settings::Settings;

    #[test]
    fn table_drops_loopback_addresses_that_arrive_from_a_pod() {
        let settings = Settings::with_nodes(2);
        for node in settings.nodes() {
            let rules = nat_table(&settings, &node);
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
        let rules = nat_table(&joined, &joined.first_node());
        let rule = format!(
            "ip saddr 192.0.2.3 ip daddr 10.244.0.0/16 oifname != \"{}\" snat to 10.244.7.1",
            joined.bridge()
        );
        assert!(rules.contains(&rule), "{rules}");
        assert!(rules.contains("masquerade"), "{rules}");
        let cluster = Settings::example();
        assert!(!nat_table(&cluster, &cluster.first_node()).contains("snat to"));
    }

    #[test]
    fn an_empty_base_chain_is_no_rule() {
        let empty = "table ip nat {\n\tchain PREROUTING {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t}\n}\n";
        assert!(!has_rules(empty));
        assert!(has_rules(
            &empty.replace("accept;\n", "accept;\n\t\tjump DOCKER\n")
        ));
    }

    #[test]
    fn only_connections_to_the_outside_are_masqueraded() {
        let rules = nat_table(&Settings::example(), &Settings::example().first_node());
        let rule = rules.lines().find(|line| line.ends_with("masquerade"));
        let expected = format!(
            "\t\tip saddr 10.244.0.0/16 ip daddr != {{ 10.244.0.0/16, 10.96.0.0/16, 224.0.0.0/4 }} oifname != \"{}\" masquerade",
            Settings::example().bridge()
        );
        assert_eq!(rule, Some(expected.as_str()));
    }

    /// Addresses of nodes are translated like those of pods, but not between nodes.
    #[test]
    fn traffic_between_nodes_is_not_masqueraded() {
        let settings = Settings::with_nodes(2);
        let nodes = settings.nodes();
        let rules = nat_table(&settings, &nodes[0]);
        let rule = rules.lines().find(|line| line.ends_with("masquerade"));
        let expected = format!(
            "\t\tip saddr {{ 10.244.0.0/16, 198.18.7.0/24 }} ip daddr != {{ 10.244.0.0/16, 10.96.0.0/16, 224.0.0.0/4, \
             198.18.7.0/24 }} oifname != {{ \"{}\", \"{}\" }} masquerade",
            settings.bridge(),
            settings.link_bridge()
        );
        assert_eq!(rule, Some(expected.as_str()));
        assert!(!nat_table(&settings, &nodes[1]).contains("masquerade"));
    }
}
