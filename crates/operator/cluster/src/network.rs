//! The pod network of each node: kernel settings, the bridge, a route for Services, masquerading to
//! the outside, and a guard for the node's loopback addresses.
//!
//! Everything is idempotent: `up` does it, and the supervisor does it again after a reboot.

mod choose;
mod device;
mod isolation;
mod link;
mod plugin;
mod rules;

use std::fs;
use std::path::Path;

use crate::cni_plugin::{ENCRYPTED_TUNNEL, TUNNEL};
use crate::command::{run_command, run_with_input};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::node::ClusterNode;
use crate::other_clusters::find_other_cluster;
use crate::routes::remove_routes;
use crate::settings::Settings;
pub use choose::choose_node_network;
use device::{ensure_device, family_option, remove_device};
pub use isolation::end_node_processes;
pub use plugin::{link_plugins, plugin_program};

// Without the second one, traffic between pods of one bridge bypasses kube-proxy's rules.
const SYSCTLS: [(&str, &str); 3] = [
    ("net/ipv4/ip_forward", "1"),
    ("net/bridge/bridge-nf-call-iptables", "1"),
    ("net/ipv4/conf/all/route_localnet", "0"),
];
/// Those of clusters with IPv6.
const SYSCTLS_V6: [(&str, &str); 2] = [
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/bridge/bridge-nf-call-ip6tables", "1"),
];
/// The protocol number of the routes of the pod network's agent.
const AGENT_ROUTES: &str = "120";
/// The device with the address of a node's DNS server.
const DNS_DEVICE: &str = "ironclad-dns";

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
    let for_v6 = settings.has_ipv6().then_some(SYSCTLS_V6);
    // br_netfilter must be loaded first: its sysctl does not exist before.
    for (name, value) in SYSCTLS.into_iter().chain(for_v6.into_iter().flatten()) {
        set_sysctl(name, value)?;
    }
    if settings.has_bridge() {
        // The gateways of the pods: the plugin gives them the other addresses of the ranges.
        ensure_device(&settings.bridge(), "bridge", node.bridge_addresses())?;
    }
    if let Some(address) = settings.node_dns {
        // A bridge without ports: unlike the type `dummy`, each kernel that runs pods has it.
        ensure_device(DNS_DEVICE, "bridge", [address.into()])?;
    }
    add_service_routes(settings, node)?;
    run_with_input("nft", &["-f", "-"], &rules::build_rules(settings, node)).map(drop)
}

fn set_sysctl(name: &str, value: &str) -> Result<()> {
    let path = Path::new("/proc/sys").join(name);
    // In a container /proc/sys is often read-only and already right.
    if fs::read_to_string(&path).is_ok_and(|present| present.trim() == value) {
        return Ok(());
    }
    fs::write(&path, value).map_err(Error::io(path))
}

/// Adds routes for Services: a packet that the node itself sends to a Service needs some route
/// before it is translated. The route must not lead back to the bridge: the kernel would then send
/// redirects to pods, which use up its limit of ICMP errors.
fn add_service_routes(settings: &Settings, node: &ClusterNode) -> Result<()> {
    for range in settings.service_cidr.iter() {
        let (family, is_v4) = (family_option(range), range.addr().is_ipv4());
        let default = run_command("ip", &[family, "route", "show", "default"])?;
        if !default.trim().is_empty() {
            continue;
        }
        let range = range.to_string();
        let source = node
            .address_of_family(is_v4)
            .map(|source| source.to_string());
        let mut words = vec![family, "route", "replace", &range, "dev", "lo"];
        if let Some(source) = &source {
            words.extend(["src", source]);
        }
        run_command("ip", &words)?;
    }
    Ok(())
}

/// Removes everything that `prepare_network` created, except the kernel's settings, on which other
/// programs may depend.
pub fn remove_network(settings: &Settings) -> Result<()> {
    let bridge = settings.bridge();
    for range in settings.service_cidr.iter() {
        let text = range.to_string();
        // Exists only if there was no default route.
        let _ = run_command(
            "ip",
            &[family_option(range), "route", "delete", &text, "dev", "lo"],
        );
    }
    // The kernel removes the ends of the links with their other ends, perhaps a moment later.
    let mut devices: Vec<_> = settings
        .nodes()
        .iter()
        .filter(|node| node.is_isolated)
        .map(|node| node.link(settings))
        .collect();
    devices.extend([settings.link_bridge(), bridge.clone()]);
    // Tables with the name of this cluster are always its own: those of this program, of the plugin
    // and of its agent.
    let names = [
        settings.table(),
        format!("hostports-{bridge}"),
        format!("pods-{bridge}"),
    ];
    let mut tables: Vec<(&str, String)> = names
        .iter()
        .flat_map(|name| ["ip", "ip6"].map(|family| (family, name.clone())))
        .collect();
    // kube-proxy's tables and these devices have the same names in every cluster, and the routes
    // the same protocol numbers. If another cluster runs here, they belong to it, and it removes
    // routes that are not its own.
    if find_other_cluster(settings)?.is_none() {
        remove_routes()?;
        for family in ["-4", "-6"] {
            let flushed = run_command("ip", &[family, "route", "flush", "proto", AGENT_ROUTES]);
            // A machine without IPv6 has no such routes, and may not know the family.
            if family == "-4" || settings.has_ipv6() {
                flushed?;
            }
        }
        devices.extend([DNS_DEVICE, TUNNEL, ENCRYPTED_TUNNEL].map(str::to_owned));
        for table in ["kube-proxy", "kube-proxy-policy"] {
            tables.extend([("ip", table.to_owned()), ("ip6", table.to_owned())]);
        }
    }
    devices
        .iter()
        .try_for_each(|device| remove_device(device))?;
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
    use super::has_rules;

    #[test]
    fn an_empty_base_chain_is_no_rule() {
        let empty = "table ip nat {\n\tchain PREROUTING {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t}\n}\n";
        assert!(!has_rules(empty));
        assert!(has_rules(
            &empty.replace("accept;\n", "accept;\n\t\tjump DOCKER\n")
        ));
    }
}
