//! Writes differences as input of `iptables-restore --noflush`.

use std::fmt::Write;

use net_nft::Commands;

use super::options::IptablesOptions;
use crate::difference::{Element, FamilyDifference};

/// Chains in one transaction of the nft variant. For each line of its input it searches a list of
/// the chains before (`cache_chain_list_insert`), so that the time grows with their square: 60,000
/// chains at once take minutes, and seconds in such groups.
pub(super) const MAX_CHAINS: usize = 1000;

/// Divides changes into groups that are applied one after the other.
pub fn divide_changes<'a>(
    changes: impl IntoIterator<Item = &'a FamilyDifference>,
    more: IptablesOptions,
) -> Vec<Vec<&'a FamilyDifference>> {
    let mut groups = Vec::new();
    let (mut group, mut chains) = (Vec::new(), 0);
    for changed in changes {
        group.push(changed);
        chains += changed.chains.len() + changed.unused_chains.len();
        if chains >= MAX_CHAINS && more.is_nft_variant {
            groups.push(std::mem::take(&mut group));
            chains = 0;
        }
    }
    groups.push(group);
    groups.retain(|group| !group.is_empty());
    groups
}

/// Returns the input for the differences of several Services, in their order. The second
/// transaction removes unused chains.
#[must_use]
pub fn write_iptables_changes<'a>(
    changes: impl IntoIterator<Item = &'a FamilyDifference>,
) -> Commands {
    let (mut nat, mut filter, mut removal) = (String::new(), String::new(), String::new());
    for changed in changes {
        write_chains(&mut nat, changed);
        for (verb, elements) in [
            ("-D", &changed.deleted_elements),
            // On top: the last rule of the chain of Services leads to node ports.
            ("-I", &changed.added_elements),
        ] {
            write_elements(&mut nat, verb, "nat", elements.iter().cloned());
            write_elements(&mut filter, verb, "filter", elements.iter().cloned());
        }
        for name in &changed.unused_chains {
            let _ = writeln!(removal, ":{name} - [0:0]");
        }
        for name in &changed.unused_chains {
            let _ = writeln!(removal, "-X {name}");
        }
    }
    Commands {
        change: enclose("filter", &filter) + &enclose("nat", &nat),
        removal: enclose("nat", &removal),
    }
}

/// Returns the lines as those of a table; empty if there are none.
pub(super) fn enclose(table: &str, lines: &str) -> String {
    match lines {
        "" => String::new(),
        lines => format!("*{table}\n{lines}COMMIT\n"),
    }
}

/// Writes chains with their rules; the line of a chain empties it.
pub(super) fn write_chains(out: &mut String, changed: &FamilyDifference) {
    for (name, _) in &changed.chains {
        let _ = writeln!(out, ":{name} - [0:0]");
    }
    for (name, rules) in &changed.chains {
        for rule in rules {
            let _ = writeln!(out, "-A {name} {rule}");
        }
    }
}

/// Writes the elements of a table: the set of each is its table and chain.
pub(super) fn write_elements(
    out: &mut String,
    verb: &str,
    table: &str,
    elements: impl Iterator<Item = Element>,
) {
    for Element { set, key, value } in elements {
        let Some((_, chain)) = set.split_once(' ').filter(|(of, _)| *of == table) else {
            continue;
        };
        let _ = writeln!(out, "{verb} {chain} {key} {value}");
    }
}
