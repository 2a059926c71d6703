//! The rules of host ports: a table for each family, and one lookup for each new connection,
//! whatever the number of ports. Pure.

use std::fmt::Write;
use std::net::IpAddr;

use ipnet::IpNet;
use net_link::DeviceName;
use net_nft::Family;

use crate::port_mapping::HostPort;
use crate::records::Record;

/// Before kube-proxy's chains, whose priority is -100: a host port wins over a node port.
const PRIORITY: i32 = -105;
/// Mark of new connections to a host port: the bit of the CNI project's portmap plugin.
const MARK: u32 = 0x2000;

/// Returns the name of the tables of a bridge, which are of all networks with this bridge.
pub(crate) fn table_name(bridge: &DeviceName) -> String {
    format!("hostports-{bridge}")
}

/// A host port with the pod's address of one family.
struct Mapping<'a> {
    port: &'a HostPort,
    pod: IpAddr,
}

/// Returns a transaction that replaces the tables by those of the records. A family without ports
/// has no table.
pub(crate) fn build_rules(
    bridge: &DeviceName,
    subnets: &[IpNet],
    families: &[Family],
    records: &[&Record],
) -> String {
    let build = |family: &Family| {
        let mappings = find_mappings(*family, records);
        build_table(bridge, subnets, *family, &mappings)
    };
    families.iter().map(build).collect()
}

fn find_mappings<'a>(family: Family, records: &[&'a Record]) -> Vec<Mapping<'a>> {
    let mut mappings: Vec<Mapping<'a>> = Vec::new();
    for record in records {
        let pod = record
            .addresses
            .iter()
            .find(|address| Family::of(**address) == family);
        let Some(pod) = pod else {
            continue;
        };
        let ports = record.host_ports.iter();
        mappings.extend(
            ports
                .filter(|port| port.has_family(family))
                .map(|port| Mapping { port, pod: *pod }),
        );
    }
    mappings
}

/// Returns the rule for clients that are pods of the bridge themselves.
fn format_hairpin(family: Family, bridge: &DeviceName, subnets: &[IpNet]) -> String {
    let sources: Vec<_> = subnets
        .iter()
        .filter(|subnet| Family::of(subnet.addr()) == family)
        .map(IpNet::to_string)
        .collect();
    if sources.is_empty() {
        return String::new();
    }
    let (word, sources) = (family.nft_name(), sources.join(", "));
    format!(
        "\t\t{word} saddr {{ {sources} }} oifname \"{bridge}\" meta mark and {MARK:#x} == {MARK:#x} masquerade fully-random\n"
    )
}

fn build_table(
    bridge: &DeviceName,
    subnets: &[IpNet],
    family: Family,
    mappings: &[Mapping<'_>],
) -> String {
    let (word, table) = (family.nft_name(), table_name(bridge));
    // Added before it is deleted, so that the first run succeeds.
    let mut rules = format!("add table {word} {table}\ndelete table {word} {table}\n");
    if mappings.is_empty() {
        return rules;
    }
    let address = family.address_type();
    let (any, addressed) = list_elements(mappings);
    let guard = format_loopback_guard(family);
    let loopback = format_loopback_source(family, bridge);
    // The kernel never sends from ::1 to another device: a local service keeps the port there.
    let local = match family {
        Family::V4 => "",
        Family::V6 => "ip6 daddr != ::1 ",
    };
    let hairpin = format_hairpin(family, bridge, subnets);
    // By the source and not by the device: where br_netfilter returns a packet to the bridge, the
    // chain sees no device. The mark is of connections to a host port. If their client is a pod on
    // the bridge too, the answers would not pass the node, unless they go to its address. Without a
    // mapping, no `dnat` ends the chain, and the mark is removed.
    let _ = write!(
        rules,
        "table {word} {table} {{\n\
         \tmap any {{ type inet_proto . inet_service : {address} . inet_service; {any}}}\n\
         \tmap addressed {{ type {address} . inet_proto . inet_service : {address} . inet_service; {addressed}}}\n\
         \tchain mappings {{\n\
         \t\tmeta mark set meta mark or {MARK:#x}\n\
         \t\tdnat {word} to {word} daddr . meta l4proto . th dport map @addressed\n\
         \t\tdnat {word} to meta l4proto . th dport map @any\n\
         \t\tmeta mark set meta mark and {:#x}\n\
         \t}}\n\
         \tchain prerouting {{\n\
         \t\ttype nat hook prerouting priority {PRIORITY}; policy accept;\n\
         \t\tfib daddr type local jump mappings\n\
         \t}}\n\
         \tchain output {{\n\
         \t\ttype nat hook output priority {PRIORITY}; policy accept;\n\
         \t\t{local}fib daddr type local jump mappings\n\
         \t}}\n\
         \tchain postrouting {{\n\
         \t\ttype nat hook postrouting priority srcnat - 5; policy accept;\n\
         {hairpin}\
         {loopback}\
         \t}}\n\
         {guard}\
         }}\n",
        !MARK
    );
    rules
}

/// Returns the elements of the maps `any` and `addressed`.
fn list_elements(mappings: &[Mapping<'_>]) -> (String, String) {
    let (mut any, mut addressed) = (Vec::new(), Vec::new());
    for Mapping { port, pod } in mappings {
        let HostPort {
            protocol,
            port,
            target,
            address,
            ..
        } = port;
        match address {
            None => any.push(format!("{protocol} . {port} : {pod} . {target}")),
            Some(address) => addressed.push(format!(
                "{address} . {protocol} . {port} : {pod} . {target}"
            )),
        }
    }
    (format_elements(any), format_elements(addressed))
}

fn format_elements(mut elements: Vec<String>) -> String {
    elements.sort();
    elements.dedup();
    match elements.is_empty() {
        true => String::new(),
        false => format!("elements = {{ {} }}; ", elements.join(", ")),
    }
}

/// Returns the chain that closes CVE-2020-8558. For host ports on 127.0.0.1 the bridge has
/// `route_localnet`, with which the kernel delivers a pod's frame for 127.0.0.1 to local services.
fn format_loopback_guard(family: Family) -> &'static str {
    match family {
        Family::V4 => {
            "\tchain loopback-guard {\n\
             \t\ttype filter hook prerouting priority raw; policy accept;\n\
             \t\tiifname != \"lo\" ip daddr 127.0.0.0/8 drop\n\
             \t\tiifname != \"lo\" ip saddr 127.0.0.0/8 drop\n\
             \t}\n"
        }
        Family::V6 => "",
    }
}

fn format_loopback_source(family: Family, bridge: &DeviceName) -> String {
    match family {
        Family::V4 => {
            format!("\t\tip saddr 127.0.0.0/8 oifname \"{bridge}\" masquerade\n")
        }
        // The kernel never sends from ::1 to another device.
        Family::V6 => String::new(),
    }
}
