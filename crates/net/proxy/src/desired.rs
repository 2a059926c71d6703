//! The desired rules, and the commands that change the installed rules to them.
//!
//! Invariant: the work and the commands are proportional to the change, not to the number of
//! Services. Two Services may use the same element (an external address, for instance): the first
//! by name gets it, and when that is deleted the other does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use net_nft::{Commands, Family};

use crate::base_chains::TABLE;
use crate::service_rules::{Part, ServiceRules};

type Key = (Family, &'static str, String);

/// The desired rules of all Services.
#[derive(Debug, Default)]
pub struct DesiredRules {
    rules_by_service: BTreeMap<String, ServiceRules>,
    owners_by_element: BTreeMap<Key, BTreeMap<String, String>>,
}

impl DesiredRules {
    /// Sets the rules of a Service (empty if it was deleted); returns the commands for
    /// the difference.
    pub fn set_rules(&mut self, service: &str, rules: ServiceRules) -> Commands {
        // Stored again below unless it is empty, so that deleted Services leave no entry.
        let old = self.rules_by_service.remove(service).unwrap_or_default();
        let mut out = Diff::default();
        // A change of one family leaves the table of the other untouched.
        for family in [Family::V4, Family::V6] {
            let (before, now) = (old.parts.get(&family), rules.parts.get(&family));
            let empty = Part::default();
            let (before, now) = (before.unwrap_or(&empty), now.unwrap_or(&empty));
            if before == now {
                continue;
            }
            out.add_objects(family, before, now);
            self.update_owners(service, family, before, now, &mut out);
        }
        if rules != ServiceRules::default() {
            self.rules_by_service.insert(service.to_owned(), rules);
        }
        out.into_commands()
    }

    /// Returns the current rules of a Service.
    #[must_use]
    pub fn rules_for(&self, service: &str) -> Option<&ServiceRules> {
        self.rules_by_service.get(service)
    }

    /// Yields the rules of all Services.
    pub fn rules_by_service(&self) -> impl Iterator<Item = (&String, &ServiceRules)> {
        self.rules_by_service.iter()
    }

    /// Returns the commands that install all rules after the base chains.
    #[must_use]
    pub fn install_commands(&self) -> String {
        let mut out = Diff::default();
        for rules in self.rules_by_service.values() {
            for (family, part) in &rules.parts {
                out.add_objects(*family, &Part::default(), part);
            }
        }
        for ((family, set, key), owners) in &self.owners_by_element {
            if let Some(value) = owners.values().next() {
                out.write_element("add", *family, set, key, value);
            }
        }
        out.into_commands().change
    }

    /// Returns whether any Service has session affinity.
    #[must_use]
    pub fn has_affinity(&self) -> bool {
        self.rules_by_service
            .values()
            .flat_map(|rules| rules.parts.values())
            .any(|part| !part.sets.is_empty())
    }

    /// Returns the commands that restore the clients of a listing of sets (`nft -j list sets`).
    #[must_use]
    pub fn keep_affinity(&self, listing: &str) -> String {
        let parts = self
            .rules_by_service
            .values()
            .flat_map(|rules| &rules.parts);
        let sets = parts
            .flat_map(|(family, part)| part.sets.keys().map(|set| (*family, set.as_str())))
            .collect();
        crate::affinity::restore_affinity(listing, &sets)
    }

    fn update_owners(
        &mut self,
        service: &str,
        family: Family,
        before: &Part,
        now: &Part,
        out: &mut Diff,
    ) {
        // Elements before and after, so that removals release addresses for other Services.
        let touched: BTreeSet<_> = before.elements.keys().chain(now.elements.keys()).collect();
        for (set, key) in touched {
            let id = (*set, key.clone());
            let owners = self
                .owners_by_element
                .entry((family, set, key.clone()))
                .or_default();
            // The owner is the first Service by name. Any fixed rule does; a stable one keeps
            // connections on their Service.
            let had = owners.values().next().cloned();
            match now.elements.get(&id) {
                Some(value) => owners.insert(service.to_owned(), value.clone()),
                None => owners.remove(service),
            };
            let has = owners.values().next().cloned();
            if owners.is_empty() {
                self.owners_by_element.remove(&(family, *set, key.clone()));
            }
            // Another Service still has the element with the same verdict: the kernel needs no
            // change.
            if had == has {
                continue;
            }
            // nft has no replacement of an element: a changed verdict is a deletion and an addition
            // in one transaction.
            if let Some(value) = had {
                out.write_element("delete", family, set, key, &value);
            }
            if let Some(value) = has {
                out.write_element("add", family, set, key, &value);
            }
        }
    }
}

/// Commands grouped by their required order.
#[derive(Default)]
struct Diff {
    declare: String,
    rules: String,
    delete_elements: String,
    add_elements: String,
    flush: String,
    remove: String,
}

impl Diff {
    fn add_objects(&mut self, family: Family, before: &Part, now: &Part) {
        let word = family.nft_name();
        for (name, declaration) in &now.sets {
            // The name of a set contains its timeout, so an existing one never changes.
            if !before.sets.contains_key(name) {
                write_line(
                    &mut self.declare,
                    format_args!("add set {word} {TABLE} {name} {{ {declaration} }}"),
                );
            }
        }
        // A changed chain is filled again: nft replaces a single rule only by its handle.
        for (name, rules) in &now.chains {
            if before.chains.get(name) == Some(rules) {
                continue;
            }
            write_line(
                &mut self.declare,
                format_args!("add chain {word} {TABLE} {name}"),
            );
            write_line(
                &mut self.rules,
                format_args!("flush chain {word} {TABLE} {name}"),
            );
            for rule in rules {
                write_line(
                    &mut self.rules,
                    format_args!("add rule {word} {TABLE} {name} {rule}"),
                );
            }
        }
        for name in before
            .chains
            .keys()
            .filter(|name| !now.chains.contains_key(*name))
        {
            write_line(
                &mut self.flush,
                format_args!("flush chain {word} {TABLE} {name}"),
            );
            write_line(
                &mut self.remove,
                format_args!("delete chain {word} {TABLE} {name}"),
            );
        }
        for name in before
            .sets
            .keys()
            .filter(|name| !now.sets.contains_key(*name))
        {
            write_line(
                &mut self.remove,
                format_args!("delete set {word} {TABLE} {name}"),
            );
        }
    }

    fn write_element(&mut self, verb: &str, family: Family, set: &str, key: &str, value: &str) {
        let word = family.nft_name();
        let to = if verb == "add" {
            &mut self.add_elements
        } else {
            &mut self.delete_elements
        };
        let value = if value.is_empty() {
            String::new()
        } else {
            format!(" : {value}")
        };
        write_line(
            to,
            format_args!("{verb} element {word} {TABLE} {set} {{ {key}{value} }}"),
        );
    }

    fn into_commands(self) -> Commands {
        let Self {
            declare,
            rules,
            delete_elements,
            add_elements,
            flush,
            remove,
        } = self;
        // Chains are declared before rules refer to them, and elements come last, so that no
        // verdict leads to an empty chain.
        let change = [declare, rules, delete_elements, add_elements].concat();
        Commands {
            change,
            // Flushed first: a chain that another one still jumps to cannot be deleted.
            removal: flush + &remove,
        }
    }
}

fn write_line(to: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = writeln!(to, "{text}");
}

#[cfg(test)]
#[path = "desired_tests.rs"]
mod tests;
