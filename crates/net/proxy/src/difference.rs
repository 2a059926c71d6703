//! The difference between two states of the rules, without the words of a back end's commands.

use std::collections::BTreeMap;

use net_nft::Family;

use crate::part::{ElementId, ElementValue, Part};

/// The difference between two states of the rules: that of each family that changed.
pub type Difference = BTreeMap<Family, FamilyDifference>;

/// The difference in one family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FamilyDifference {
    /// Sets that are new, with their declaration.
    pub new_sets: Vec<(String, String)>,
    /// Chains that are new or changed, with all their rules.
    pub chains: Vec<(String, Vec<String>)>,
    /// Elements that are deleted before others are added.
    pub deleted_elements: Vec<Element>,
    /// Elements that are added.
    pub added_elements: Vec<Element>,
    /// Chains without a use.
    pub unused_chains: Vec<String>,
    /// Sets without a use.
    pub unused_sets: Vec<String>,
}

/// An element of a set, map or shared chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The set.
    pub set: &'static str,
    /// The key.
    pub key: String,
    /// The verdict; empty in sets.
    pub value: String,
}

impl FamilyDifference {
    /// Returns the difference of the sets and chains; that of elements depends on other Services.
    #[must_use]
    pub fn between(before: &Part, now: &Part) -> Self {
        // The name of a set contains its timeout, so an existing one never changes.
        let new_sets = now
            .sets
            .iter()
            .filter(|(n, _)| !before.sets.contains_key(*n));
        // A changed chain is filled again: a single rule could be replaced only by its handle.
        let chains = now.chains.iter();
        let chains = chains.filter(|(name, rules)| before.chains.get(*name) != Some(*rules));
        let unused = before.chains.keys();
        let unused = unused.filter(|name| !now.chains.contains_key(*name));
        let unused_sets = before.sets.keys();
        let unused_sets = unused_sets.filter(|name| !now.sets.contains_key(*name));
        let own = |(name, content): (&String, &String)| (name.clone(), content.clone());
        Self {
            new_sets: new_sets.map(own).collect(),
            chains: chains
                .map(|(n, rules)| (n.clone(), rules.clone()))
                .collect(),
            unused_chains: unused.cloned().collect(),
            unused_sets: unused_sets.cloned().collect(),
            ..Self::default()
        }
    }

    /// Returns whether no chain and no set changes.
    pub(crate) fn changes_elements_only(&self) -> bool {
        let Self {
            new_sets,
            chains,
            deleted_elements: _,
            added_elements: _,
            unused_chains: _,
            unused_sets: _,
        } = self;
        // Unused chains and sets are removed by another transaction.
        new_sets.is_empty() && chains.is_empty()
    }

    /// Adds the change of an element and its dependents. An equal one needs no command, for
    /// instance if another Service still has the element.
    pub(crate) fn add_change(
        &mut self,
        id: &ElementId,
        had: Option<&ElementValue>,
        has: Option<&ElementValue>,
    ) {
        let verdict = |value: Option<&ElementValue>| value.map(|value| value.verdict.clone());
        self.add_value(id, verdict(had), verdict(has));
        let none = BTreeMap::new();
        let dependents = |value| Option::map_or(value, &none, |v: &ElementValue| &v.dependents);
        let (had, has) = (dependents(had), dependents(has));
        let added = has.keys().filter(|id| !had.contains_key(*id));
        for id in had.keys().chain(added) {
            self.add_value(id, had.get(id).cloned(), has.get(id).cloned());
        }
    }

    fn add_value(&mut self, (set, key): &ElementId, had: Option<String>, has: Option<String>) {
        if had == has {
            return;
        }
        let element = |value| Element {
            set,
            key: key.clone(),
            value,
        };
        self.deleted_elements.extend(had.map(element));
        self.added_elements.extend(has.map(element));
    }
}
