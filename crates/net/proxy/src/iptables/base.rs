//! The part of the rules that does not depend on any Service: shared chains, and the jumps to them
//! from the chains of the kernel.

use std::collections::BTreeSet;
use std::fmt::Write;

use ipnet::IpNet;
use net_nft::{Commands, Family};

use super::jumps::{JUMPS, Jump};
use super::names::{
    CANARY, FORWARD, LOOPBACK_GUARD, MARK, NODE_PORTS, POSTROUTING, SERVICES, SOURCE_GUARD,
    is_service_chain,
};
use super::options::IptablesOptions;
use super::render::SHARED_CHAINS;
use super::saved::SavedTables;
use super::write::{MAX_CHAINS, divide_changes, enclose, write_chains, write_elements};
use crate::base_chains::BaseChainOptions;
use crate::desired::DesiredRules;
use crate::difference::FamilyDifference;

/// Tables that have a canary.
pub(super) const TABLES: [&str; 3] = ["mangle", "filter", "nat"];

/// Drops packets of pods and neighbours for the loopback addresses of the node, which the kernel
/// accepts with `route_localnet` (CVE-2020-8558). The same rule as that of upstream's kubelet.
/// It begins with the comment by which a listing is searched for it.
const GUARD_RULE: &str = "-m comment --comment \"block incoming localnet connections\" \
     ! -s 127.0.0.0/8 -d 127.0.0.0/8 \
     -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP";

/// Drops packets with a loopback address as source that do not come from the node. The rule above
/// leaves them, and `route_localnet` admits them. In a chain that only INPUT leads to, because the
/// chain OUTPUT has no interface of origin, and before the chain that admits health checks.
const SOURCE_GUARD_RULE: &str = "! -i lo -s 127.0.0.0/8 -j DROP";

/// Returns the inputs of `iptables-restore --noflush`, in their order, that install all rules of a
/// family and remove chains of Services that are not desired.
///
/// Each table changes in one transaction. With many Services and the nft variant, that does not
/// hold for the chains of Services: new ones are installed before a rule leads to them.
///
/// `saved` is a listing of the installed rules.
#[must_use]
pub fn write_iptables_installation(
    desired: &DesiredRules,
    family: Family,
    options: &BaseChainOptions,
    more: IptablesOptions,
    saved: &str,
) -> Vec<String> {
    let saved = SavedTables::parse(saved);
    let mut inputs = Vec::new();
    let mut last = String::new();
    for lines in write_service_chains(desired, family, more) {
        let former = std::mem::replace(&mut last, lines);
        if !former.is_empty() {
            inputs.push(enclose("nat", &former));
        }
    }
    if let Some(first) = inputs.first_mut()
        && !saved.chains("nat").any(|chain| chain == MARK)
    {
        // The chains of Services refer to it.
        first.insert_str(0, &enclose("nat", &mark_chain(options)));
    }
    inputs.push(write_tables(desired, family, options, more, &saved, &last));
    inputs.extend(remove_stale_chains(desired, family, more, &saved));
    inputs
}

/// Returns the chains of all Services as lines of the table nat, divided into transactions.
fn write_service_chains(
    desired: &DesiredRules,
    family: Family,
    more: IptablesOptions,
) -> Vec<String> {
    let parts: Vec<FamilyDifference> = desired.chains(family).collect();
    let mut out = Vec::new();
    for group in divide_changes(parts.iter(), more) {
        let mut lines = String::new();
        group.iter().for_each(|part| write_chains(&mut lines, part));
        out.push(lines);
    }
    out
}

/// Returns the input with all tables, without the chains of Services except for `service_chains`.
fn write_tables(
    desired: &DesiredRules,
    family: Family,
    options: &BaseChainOptions,
    more: IptablesOptions,
    saved: &SavedTables<'_>,
    service_chains: &str,
) -> String {
    let mut out = format!("*mangle\n:{CANARY} - [0:0]\nCOMMIT\n");
    for table in ["filter", "nat"] {
        let _ = writeln!(out, "*{table}\n:{CANARY} - [0:0]");
        for (_, chain) in SHARED_CHAINS.iter().filter(|(of, _)| *of == table) {
            let _ = writeln!(out, ":{chain} - [0:0]");
        }
        if table == "filter" {
            write_filter(&mut out, family, options, more, saved);
        } else {
            write_nat(&mut out, options, more);
            out.push_str(service_chains);
        }
        write_elements(&mut out, "-A", table, desired.elements(family));
        if table == "nat" {
            write_node_port_jumps(&mut out, family, options, more);
        }
        write_jumps(&mut out, table, family, saved);
        out.push_str("COMMIT\n");
    }
    out
}

/// Replaces the jumps: a rule that exists is deleted by its text in the listing, so that a version
/// of iptables that writes it otherwise adds no second one.
fn write_jumps(out: &mut String, table: &str, family: Family, saved: &SavedTables<'_>) {
    for (chain, rule) in saved.jumps(table) {
        let _ = writeln!(out, "-D {chain} {rule}");
    }
    for jump in family_jumps(family).filter(|jump| jump.table == table) {
        let _ = writeln!(out, "-I {} {}", jump.from, jump.rule());
    }
}

/// Returns whether a listing of a chain of the kernel (`iptables -S`) has all jumps.
pub(super) fn has_jumps(listing: &str, family: Family, table: &str, chain: &str) -> bool {
    let start = format!("-A {chain} ");
    let rules: Vec<&str> = listing
        .lines()
        .filter_map(|line| line.strip_prefix(&start))
        .collect();
    let mut wanted = family_jumps(family).filter(|jump| jump.table == table && jump.from == chain);
    wanted.all(|jump| rules.iter().any(|rule| jump.is_rule(rule)))
}

fn family_jumps(family: Family) -> impl Iterator<Item = &'static Jump> {
    // The kernel itself drops ::1 on the wire.
    JUMPS.iter().filter(move |jump| {
        family == Family::V4 || ![LOOPBACK_GUARD, SOURCE_GUARD].contains(&jump.to)
    })
}

/// Returns the mark of connections that are masqueraded. The bit is masked, so that a wrong option
/// can not make the shift panic.
fn mark(options: &BaseChainOptions) -> String {
    format!("{:#x}", 1u32 << (options.masquerade_bit & 31))
}

fn write_filter(
    out: &mut String,
    family: Family,
    options: &BaseChainOptions,
    more: IptablesOptions,
    saved: &SavedTables<'_>,
) {
    let mark = mark(options);
    if family == Family::V4 {
        // Not emptied: a kubelet may have other rules there.
        if !saved.chains("filter").any(|chain| chain == LOOPBACK_GUARD) {
            let _ = writeln!(out, ":{LOOPBACK_GUARD} - [0:0]");
        }
        for rule in saved.guard_rules() {
            let _ = writeln!(out, "-D {LOOPBACK_GUARD} {rule}");
        }
        let _ = writeln!(
            out,
            "-A {LOOPBACK_GUARD} {GUARD_RULE}\n-A {SOURCE_GUARD} {SOURCE_GUARD_RULE}"
        );
    }
    // A packet of an invalid state is not translated back: the client would see the pod's address
    // and reset its connection.
    if !more.tcp_be_liberal {
        let _ = writeln!(out, "-A {FORWARD} -m conntrack --ctstate INVALID -j DROP");
    }
    // Node ports work also if the policy of the chain FORWARD is not ACCEPT.
    let _ = writeln!(
        out,
        "-A {FORWARD} -m comment --comment \"kubernetes forwarding rules\" -m mark --mark {mark}/{mark} -j ACCEPT\n\
         -A {FORWARD} -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
    );
}

/// Returns the lines of the chain that marks a connection for masquerading.
fn mark_chain(options: &BaseChainOptions) -> String {
    let mark = mark(options);
    format!(":{MARK} - [0:0]\n-A {MARK} -j MARK --or-mark {mark}\n")
}

fn write_nat(out: &mut String, options: &BaseChainOptions, more: IptablesOptions) {
    let mark = mark(options);
    let random = match more.random_fully {
        true => " --random-fully",
        false => "",
    };
    let _ = writeln!(
        out,
        "-A {POSTROUTING} -m mark ! --mark {mark}/{mark} -j RETURN\n\
         -A {POSTROUTING} -j MARK --xor-mark {mark}\n\
         -A {POSTROUTING} -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE{random}\n\
         -A {MARK} -j MARK --or-mark {mark}"
    );
}

/// Adds the last rules of the chain of Services, which lead to node ports.
fn write_node_port_jumps(
    out: &mut String,
    family: Family,
    options: &BaseChainOptions,
    more: IptablesOptions,
) {
    let comment = "-m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\"";
    let mut write = |matches: &str| {
        let _ = writeln!(out, "-A {SERVICES} {comment} {matches} -j {NODE_PORTS}");
    };
    if options.node_port_families.contains(&family) {
        let other = match family {
            Family::V4 if more.localhost_node_ports => "",
            Family::V4 => " ! -d 127.0.0.0/8",
            Family::V6 => " ! -d ::1/128",
        };
        write(&format!("-m addrtype --dst-type LOCAL{other}"));
        return;
    }
    let own = options.node_port_addresses.iter();
    for ip in own.filter(|ip| Family::of(**ip) == family) {
        write(&format!("-d {}", IpNet::from(*ip)));
    }
}

/// Returns the inputs that remove chains of Services that an earlier process left.
fn remove_stale_chains(
    desired: &DesiredRules,
    family: Family,
    more: IptablesOptions,
    saved: &SavedTables<'_>,
) -> Vec<String> {
    let own = saved.chains("nat").filter(|name| is_service_chain(name));
    let mut stale: BTreeSet<&str> = own.collect();
    if stale.is_empty() {
        return Vec::new();
    }
    for part in desired.chains(family) {
        for (name, _) in &part.chains {
            stale.remove(name.as_str());
        }
    }
    let stale: Vec<&str> = stale.into_iter().collect();
    let write = |names: &[&str], line: fn(&str) -> String| -> Vec<String> {
        let size = if more.is_nft_variant {
            MAX_CHAINS
        } else {
            usize::MAX
        };
        let groups = names.chunks(size);
        let groups = groups.map(|group| group.iter().map(|name| line(name)).collect::<String>());
        groups.map(|lines| enclose("nat", &lines)).collect()
    };
    // All are emptied before the first one is deleted: they refer to each other.
    let mut inputs = write(&stale, |name| format!(":{name} - [0:0]\n"));
    inputs.extend(write(&stale, |name| format!("-X {name}\n")));
    inputs
}

/// Returns the input that removes all rules of kube-proxy; empty if there are none. The first
/// transactions remove the jumps and empty the chains, so that no packet is translated even if the
/// second ones fail: a rule of another program may refer to a chain.
#[must_use]
pub fn write_iptables_removal(saved: &str) -> Commands {
    let saved = SavedTables::parse(saved);
    let (mut change, mut removal) = (String::new(), String::new());
    for table in TABLES {
        let shared = SHARED_CHAINS.iter().filter(|(of, _)| *of == table);
        let shared: Vec<&str> = shared.map(|(_, chain)| *chain).collect();
        let own = |name: &&str| {
            *name == CANARY || shared.contains(name) || (table == "nat" && is_service_chain(name))
        };
        // The kubelet's guard stays, with its jumps.
        let jumps = saved.jumps(table);
        let jumps = jumps.filter(|(_, rule)| !rule.ends_with(LOOPBACK_GUARD));
        let (mut emptied, mut deleted) = (String::new(), String::new());
        for (chain, rule) in jumps {
            let _ = writeln!(emptied, "-D {chain} {rule}");
        }
        for name in saved.chains(table).filter(own) {
            let _ = writeln!(emptied, ":{name} - [0:0]");
            let _ = writeln!(deleted, "-X {name}");
        }
        change += &enclose(table, &emptied);
        removal += &enclose(table, &deleted);
    }
    Commands { change, removal }
}
