//! The desired content of the tables, and the commands for what changed since they were taken last.
//!
//! Invariant: the work and the commands are proportional to the change. Each change records the
//! state before it, once; a change that is reverted before the commands are taken needs no command.

use std::collections::BTreeMap;
use std::fmt::Write;

use net_nft::{Commands, Family};

use crate::base_chains::{ObjectCounts, TABLE};

/// A chain, a set or an element of a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ObjectKey {
    Set(Family, String),
    Chain(Family, String),
    Element(Family, String, String),
}

/// State of an object that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ObjectState {
    /// Declaration of the set.
    Set(String),
    /// Rules of the chain.
    Chain(Vec<String>),
    /// Verdict of the element; empty in sets that are no maps.
    Element(String),
}

/// The desired content, beside the base chains.
#[derive(Debug, Default)]
pub(crate) struct RuleTables {
    objects: BTreeMap<ObjectKey, ObjectState>,
    /// Owners of each element of a set: two pods may have the same address for a moment.
    owner_counts: BTreeMap<(Family, String, String), usize>,
    /// States when the commands were taken last.
    before: BTreeMap<ObjectKey, Option<ObjectState>>,
}

impl RuleTables {
    pub(crate) fn add_set(&mut self, family: Family, name: &str, declaration: String) {
        let key = ObjectKey::Set(family, name.to_owned());
        self.put(key, Some(ObjectState::Set(declaration)));
    }

    /// Removes a set. Its elements must have been removed before.
    pub(crate) fn remove_set(&mut self, family: Family, name: &str) {
        self.put(ObjectKey::Set(family, name.to_owned()), None);
    }

    pub(crate) fn set_chain(&mut self, family: Family, name: &str, rules: Vec<String>) {
        let key = ObjectKey::Chain(family, name.to_owned());
        self.put(key, Some(ObjectState::Chain(rules)));
    }

    pub(crate) fn remove_chain(&mut self, family: Family, name: &str) {
        self.put(ObjectKey::Chain(family, name.to_owned()), None);
    }

    /// Adds an owner of an element; the element exists as long as it has one.
    pub(crate) fn add_owner(&mut self, family: Family, set: &str, element: &str) {
        let id = (family, set.to_owned(), element.to_owned());
        let count = self.owner_counts.entry(id).or_default();
        *count += 1;
        if *count == 1 {
            self.set_element(family, set, element, Some(String::new()));
        }
    }

    pub(crate) fn remove_owner(&mut self, family: Family, set: &str, element: &str) {
        let id = (family, set.to_owned(), element.to_owned());
        match self.owner_counts.get_mut(&id) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.owner_counts.remove(&id);
                self.set_element(family, set, element, None);
            }
        }
    }

    /// Sets the verdict of an element of a map, or removes the element.
    pub(crate) fn set_element(
        &mut self,
        family: Family,
        set: &str,
        element: &str,
        verdict: Option<String>,
    ) {
        let key = ObjectKey::Element(family, set.to_owned(), element.to_owned());
        self.put(key, verdict.map(ObjectState::Element));
    }

    /// Returns the commands for the changes since the last call.
    pub(crate) fn take_changes(&mut self) -> Commands {
        let mut writer = CommandWriter::default();
        for (key, before) in std::mem::take(&mut self.before) {
            let now = self.objects.get(&key);
            if before.as_ref() != now {
                writer.write_change(&key, before.as_ref(), now);
            }
        }
        writer.into_commands()
    }

    /// Returns the commands that create everything after the base chains, and counts everything as
    /// taken.
    pub(crate) fn install_commands(&mut self) -> String {
        self.before.clear();
        let mut writer = CommandWriter::default();
        for (key, now) in &self.objects {
            writer.write_change(key, None, Some(now));
        }
        writer.into_commands().change
    }

    /// Returns the number of objects of a family.
    pub(crate) fn count_objects(&self, family: Family) -> ObjectCounts {
        let mut counts = ObjectCounts::default();
        for (key, state) in &self.objects {
            match (key, state) {
                (ObjectKey::Set(own, _), _) if *own == family => counts.sets += 1,
                (ObjectKey::Chain(own, _), ObjectState::Chain(rules)) if *own == family => {
                    counts.chains += 1;
                    counts.rules += rules.len();
                }
                _ => {}
            }
        }
        counts
    }

    fn put(&mut self, key: ObjectKey, state: Option<ObjectState>) {
        let old = match state {
            Some(state) => self.objects.insert(key.clone(), state),
            None => self.objects.remove(&key),
        };
        self.before.entry(key).or_insert(old);
    }
}

/// Commands grouped by their required order.
#[derive(Default)]
struct CommandWriter {
    declarations: String,
    rules: String,
    deleted_elements: ElementLists,
    added_elements: ElementLists,
    flushes: String,
    removals: String,
}

/// Elements by family and set.
type ElementLists = BTreeMap<(Family, String), Vec<String>>;

impl CommandWriter {
    fn write_change(
        &mut self,
        key: &ObjectKey,
        before: Option<&ObjectState>,
        now: Option<&ObjectState>,
    ) {
        match key {
            ObjectKey::Set(family, name) => self.write_set(*family, name, now),
            ObjectKey::Chain(family, name) => self.write_chain(*family, name, now),
            ObjectKey::Element(family, set, element) => {
                // nft has no replacement of an element: a changed verdict is a deletion and an
                // addition in one transaction.
                for (lists, state) in [
                    (&mut self.deleted_elements, before),
                    (&mut self.added_elements, now),
                ] {
                    if let Some(ObjectState::Element(verdict)) = state {
                        let text = match verdict.is_empty() {
                            true => element.clone(),
                            false => format!("{element} : {verdict}"),
                        };
                        let list = lists.entry((*family, set.clone())).or_default();
                        list.push(text);
                    }
                }
            }
        }
    }

    fn write_set(&mut self, family: Family, name: &str, now: Option<&ObjectState>) {
        let word = family.nft_name();
        match now {
            Some(ObjectState::Set(declaration)) => write_line(
                &mut self.declarations,
                format_args!("add set {word} {TABLE} {name} {{ {declaration} }}"),
            ),
            _ => write_line(
                &mut self.removals,
                format_args!("delete set {word} {TABLE} {name}"),
            ),
        }
    }

    fn write_chain(&mut self, family: Family, name: &str, now: Option<&ObjectState>) {
        let word = family.nft_name();
        let Some(ObjectState::Chain(rules)) = now else {
            // Flushed first: a chain that another one still jumps to can't be deleted.
            write_line(
                &mut self.flushes,
                format_args!("flush chain {word} {TABLE} {name}"),
            );
            return write_line(
                &mut self.removals,
                format_args!("delete chain {word} {TABLE} {name}"),
            );
        };
        write_line(
            &mut self.declarations,
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

    fn into_commands(self) -> Commands {
        let deleted = write_elements("delete", &self.deleted_elements);
        let added = write_elements("add", &self.added_elements);
        // Chains are declared before rules refer to them, and elements come last, so that no
        // verdict leads to a chain without its rules.
        Commands {
            change: [self.declarations, self.rules, deleted, added].concat(),
            removal: self.flushes + &self.removals,
        }
    }
}

fn write_elements(verb: &str, lists: &ElementLists) -> String {
    let mut text = String::new();
    for ((family, set), elements) in lists {
        let (word, elements) = (family.nft_name(), elements.join(", "));
        write_line(
            &mut text,
            format_args!("{verb} element {word} {TABLE} {set} {{ {elements} }}"),
        );
    }
    text
}

fn write_line(to: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = writeln!(to, "{text}");
}

#[cfg(test)]
impl RuleTables {
    /// Returns the rules of a chain.
    pub(crate) fn chain(&self, family: Family, name: &str) -> Option<&[String]> {
        match self
            .objects
            .get(&ObjectKey::Chain(family, name.to_owned()))?
        {
            ObjectState::Chain(rules) => Some(rules),
            _ => None,
        }
    }

    /// Returns the verdict of an element of a map, or an empty text for one of a set.
    pub(crate) fn element(&self, family: Family, set: &str, element: &str) -> Option<&str> {
        let key = ObjectKey::Element(family, set.to_owned(), element.to_owned());
        match self.objects.get(&key)? {
            ObjectState::Element(verdict) => Some(verdict),
            _ => None,
        }
    }

    /// Returns all objects as text, to compare two contents.
    pub(crate) fn dump(&self) -> String {
        format!("{:#?}", self.objects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &str = "pods-1";

    #[test]
    fn change_that_is_reverted_needs_no_command() {
        let mut tables = RuleTables::default();
        tables.add_set(Family::V4, SET, "type ipv4_addr;".to_owned());
        tables.add_owner(Family::V4, SET, "10.0.0.1");
        assert!(tables.take_changes().change.contains("10.0.0.1"));
        tables.remove_owner(Family::V4, SET, "10.0.0.1");
        tables.add_owner(Family::V4, SET, "10.0.0.1");
        assert_eq!(tables.take_changes(), Commands::default());
    }

    #[test]
    fn element_of_two_owners_stays_until_both_are_removed() {
        let mut tables = RuleTables::default();
        tables.add_owner(Family::V4, SET, "10.0.0.1");
        tables.add_owner(Family::V4, SET, "10.0.0.1");
        tables.take_changes();
        tables.remove_owner(Family::V4, SET, "10.0.0.1");
        assert_eq!(tables.take_changes(), Commands::default());
        tables.remove_owner(Family::V4, SET, "10.0.0.1");
        assert_eq!(
            tables.take_changes().change,
            "delete element ip kube-proxy-policy pods-1 { 10.0.0.1 }\n"
        );
    }

    #[test]
    fn chains_exist_before_verdicts_lead_to_them_and_are_removed_after() {
        let mut tables = RuleTables::default();
        tables.set_chain(Family::V4, "a", vec!["drop".to_owned()]);
        tables.set_element(Family::V4, "m", "10.0.0.1", Some("goto a".to_owned()));
        let added = tables.take_changes();
        assert_eq!(
            added.change,
            "add chain ip kube-proxy-policy a\nflush chain ip kube-proxy-policy a\n\
             add rule ip kube-proxy-policy a drop\n\
             add element ip kube-proxy-policy m { 10.0.0.1 : goto a }\n"
        );
        tables.set_element(Family::V4, "m", "10.0.0.1", Some("accept".to_owned()));
        tables.remove_chain(Family::V4, "a");
        let changed = tables.take_changes();
        assert_eq!(
            changed.change,
            "delete element ip kube-proxy-policy m { 10.0.0.1 : goto a }\n\
             add element ip kube-proxy-policy m { 10.0.0.1 : accept }\n"
        );
        assert_eq!(
            changed.removal,
            "flush chain ip kube-proxy-policy a\ndelete chain ip kube-proxy-policy a\n"
        );
        assert_eq!(
            tables.install_commands(),
            "add element ip kube-proxy-policy m { 10.0.0.1 : accept }\n"
        );
    }
}
