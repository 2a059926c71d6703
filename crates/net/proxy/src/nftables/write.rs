//! Writes differences and installations as commands of nft.

use std::collections::BTreeMap;
use std::fmt::Write;

use net_nft::{Commands, Family};

use crate::base_chains::TABLE;
use crate::desired::DesiredRules;
use crate::difference::{Difference, Element, FamilyDifference};

/// Elements in one command. The kernel looks the set up for each command, among all sets of the
/// table.
const ELEMENTS_PER_COMMAND: usize = 500;

/// Commands about the elements of each set, and the number of elements.
type CommandsBySet = BTreeMap<&'static str, (String, usize)>;

/// Returns the commands for a difference.
#[must_use]
pub fn write_difference(difference: &Difference) -> Commands {
    let mut out = Commands::default();
    for (family, changed) in difference {
        // Chains are declared before rules refer to them, and elements come last, so that no
        // verdict leads to an empty chain.
        write_chains(&mut out.change, *family, changed);
        // nft has no replacement of an element: a changed verdict is a deletion and an addition
        // in one transaction.
        let deleted = changed.deleted_elements.iter().cloned();
        write_elements(&mut out.change, "delete", *family, deleted);
        let added = changed.added_elements.iter().cloned();
        write_elements(&mut out.change, "add", *family, added);
        write_removal(&mut out.removal, *family, changed);
    }
    out
}

/// Returns the commands that install all rules of a family after its base chains.
#[must_use]
pub fn write_installation(desired: &DesiredRules, family: Family) -> String {
    let mut out = String::new();
    for part in desired.chains(family) {
        write_chains(&mut out, family, &part);
    }
    write_elements(&mut out, "add", family, desired.elements(family));
    out
}

fn write_chains(out: &mut String, family: Family, changed: &FamilyDifference) {
    let word = family.nft_name();
    for (name, declaration) in &changed.new_sets {
        write_line(
            out,
            format_args!("add set {word} {TABLE} {name} {{ {declaration} }}"),
        );
    }
    for (name, _) in &changed.chains {
        write_line(out, format_args!("add chain {word} {TABLE} {name}"));
    }
    for (name, rules) in &changed.chains {
        write_line(out, format_args!("flush chain {word} {TABLE} {name}"));
        for rule in rules {
            write_line(out, format_args!("add rule {word} {TABLE} {name} {rule}"));
        }
    }
}

/// Writes elements in any order; those of a set are written together.
fn write_elements(
    out: &mut String,
    verb: &str,
    family: Family,
    elements: impl Iterator<Item = Element>,
) {
    let mut commands = CommandsBySet::new();
    for Element { set, key, value } in elements {
        let (text, count) = commands.entry(set).or_default();
        if *count % ELEMENTS_PER_COMMAND != 0 {
            text.push_str(", ");
        } else {
            close_elements(text);
            let word = family.nft_name();
            let _ = write!(text, "{verb} element {word} {TABLE} {set} {{ ");
        }
        *count += 1;
        text.push_str(&key);
        if !value.is_empty() {
            let _ = write!(text, " : {value}");
        }
    }
    for (mut text, _) in commands.into_values() {
        close_elements(&mut text);
        out.push_str(&text);
    }
}

fn close_elements(out: &mut String) {
    if !out.is_empty() {
        out.push_str(" }\n");
    }
}

fn write_removal(out: &mut String, family: Family, changed: &FamilyDifference) {
    let word = family.nft_name();
    // Flushed first: a chain that another one still jumps to cannot be deleted.
    for name in &changed.unused_chains {
        write_line(out, format_args!("flush chain {word} {TABLE} {name}"));
    }
    for name in &changed.unused_chains {
        write_line(out, format_args!("delete chain {word} {TABLE} {name}"));
    }
    for name in &changed.unused_sets {
        write_line(out, format_args!("delete set {word} {TABLE} {name}"));
    }
}

fn write_line(to: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = writeln!(to, "{text}");
}
