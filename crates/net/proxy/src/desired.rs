//! The desired rules, and the difference to the installed ones.
//!
//! Invariant: the work and the difference are proportional to the change, not to the number of
//! Services. Two Services may use the same element (an external address, for instance): the first
//! by name gets it, and when that is deleted the other does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use net_nft::Family;

use crate::difference::{Difference, Element, FamilyDifference};
use crate::part::{ElementId, ElementValue, Part};
use crate::service_rules::ServiceRules;

/// Renders the rules of a Service in a family, in the words of a back end.
pub type Render = fn(&ServiceRules, Family) -> Part;

type Key = (Family, &'static str, String);

/// The desired rules of all Services.
#[derive(Debug)]
pub struct DesiredRules {
    render: Render,
    rules_by_service: BTreeMap<Arc<str>, ServiceRules>,
    owners_by_element: BTreeMap<Key, Owners>,
    /// Elements without a verdict, with the number of Services that want each.
    counts_by_element: BTreeMap<Key, u32>,
}

/// The Services that want an element, sorted. Nearly always one: a set for each element would need
/// several times its memory. Their values are rendered when an element moves to another Service.
type Owners = Vec<Arc<str>>;

impl DesiredRules {
    /// Creates an empty set of rules.
    #[must_use]
    pub fn new(render: Render) -> Self {
        Self {
            render,
            rules_by_service: BTreeMap::new(),
            owners_by_element: BTreeMap::new(),
            counts_by_element: BTreeMap::new(),
        }
    }

    /// Sets the rules of a Service (empty if it was deleted); returns the difference.
    pub fn set_rules(&mut self, service: &str, mut rules: ServiceRules) -> Difference {
        // Stored again below unless it is empty, so that deleted Services leave no entry.
        let old = self.rules_by_service.remove_entry(service);
        let (name, old) = old.unwrap_or_else(|| (service.into(), ServiceRules::default()));
        rules.keep_order(&old);
        let mut out = Difference::default();
        // A change of one family leaves the rules of the other untouched.
        for family in [Family::V4, Family::V6] {
            if old.are_same_in(&rules, family) {
                continue;
            }
            // Rendered again and not kept: the text of all rules is ten times their size.
            let (before, now) = ((self.render)(&old, family), (self.render)(&rules, family));
            let mut changed = FamilyDifference::between(&before, &now);
            self.update_elements(&name, family, (&before, &now), &mut changed);
            out.insert(family, changed);
        }
        if rules != ServiceRules::default() {
            self.rules_by_service.insert(name, rules);
        }
        out
    }

    /// Returns the current rules of a Service.
    #[must_use]
    pub fn rules_for(&self, service: &str) -> Option<&ServiceRules> {
        self.rules_by_service.get(service)
    }

    /// Yields the rules of all Services.
    pub fn rules_by_service(&self) -> impl Iterator<Item = (&Arc<str>, &ServiceRules)> {
        self.rules_by_service.iter()
    }

    /// Yields the chains and sets of all rules of a family, Service by Service.
    pub fn chains(&self, family: Family) -> impl Iterator<Item = FamilyDifference> {
        let parts = self.rules_by_service.values();
        let parts = parts.map(move |rules| (self.render)(rules, family));
        parts.map(|part| FamilyDifference::between(&Part::default(), &part))
    }

    /// Yields the elements of a family.
    pub fn elements(&self, family: Family) -> impl Iterator<Item = Element> {
        let counted = self.counts_by_element.keys();
        let counted = counted.filter(move |(own, _, _)| *own == family);
        let counted = counted.map(|(_, set, key)| new_element((*set, key.clone()), String::new()));
        let services = self.rules_by_service.iter();
        let owned = services.flat_map(move |(service, rules)| {
            let elements = (self.render)(rules, family).elements;
            let owned = elements.into_iter().filter(move |((set, key), value)| {
                let is_owner = |owners: &Owners| owners.first() == Some(service);
                let owners = || self.owners_by_element.get(&(family, set, key.clone()));
                !value.verdict.is_empty() && owners().is_some_and(is_owner)
            });
            owned.flat_map(|(id, value)| {
                let dependents = value.dependents.into_iter();
                let dependents = dependents.map(|(id, value)| new_element(id, value));
                std::iter::once(new_element(id, value.verdict)).chain(dependents)
            })
        });
        counted.chain(owned)
    }

    /// Returns whether any Service has session affinity.
    #[must_use]
    pub fn has_affinity(&self) -> bool {
        let mut ports = self.rules_by_service.values().flat_map(|r| &r.ports);
        ports.any(|port| port.affinity.is_some())
    }

    /// Returns the commands that restore the clients of a listing of sets (`nft -j list sets`).
    #[must_use]
    pub fn keep_affinity(&self, listing: &str) -> String {
        let services = self.rules_by_service.values();
        let sticky = services.filter(|rules| rules.ports.iter().any(|p| p.affinity.is_some()));
        let families = [Family::V4, Family::V6];
        let parts = sticky.flat_map(|rules| families.map(|f| (f, (self.render)(rules, f))));
        let sets: BTreeSet<(Family, String)> = parts
            .flat_map(|(family, part)| part.sets.into_keys().map(move |set| (family, set)))
            .collect();
        crate::affinity::restore_affinity(listing, &sets)
    }

    fn update_elements(
        &mut self,
        service: &Arc<str>,
        family: Family,
        (before, now): (&Part, &Part),
        out: &mut FamilyDifference,
    ) {
        // Elements before and after, so that removals release addresses for other Services.
        let touched: BTreeSet<_> = before.elements.keys().chain(now.elements.keys()).collect();
        for id in touched {
            let (had, has) = (before.elements.get(id), now.elements.get(id));
            let entry = (family, id.0, id.1.clone());
            let has_verdict = [had, has]
                .into_iter()
                .flatten()
                .any(|v| !v.verdict.is_empty());
            let (had, has) = match has_verdict {
                true => self.change_owner(entry, service, (had, has)),
                false => self.change_count(entry, had.is_some(), has.is_some()),
            };
            out.add_change(id, had.as_ref(), has.as_ref());
        }
    }

    /// Sets whether a Service wants an element, with its values before and after; returns those of
    /// the owner. Both are absent if another Service is the owner before and after.
    fn change_owner(
        &mut self,
        entry: Key,
        service: &Arc<str>,
        (had, has): (Option<&ElementValue>, Option<&ElementValue>),
    ) -> (Option<ElementValue>, Option<ElementValue>) {
        let owners = self.owners_by_element.entry(entry.clone());
        let owners = owners.or_insert_with(|| Vec::with_capacity(1));
        // The owner is the first Service by name. Any fixed rule does; a stable one keeps
        // connections on their Service.
        let owner_before = owners.first().cloned();
        owners.retain(|owner| owner != service);
        if has.is_some() {
            let at = owners.partition_point(|owner| owner < service);
            owners.insert(at, service.clone());
        }
        let owner = owners.first().cloned();
        if owners.is_empty() {
            self.owners_by_element.remove(&entry);
        }
        if owner == owner_before && owner.as_ref() != Some(service) {
            return (None, None);
        }
        let value = |owner: Option<Arc<str>>, own: Option<&ElementValue>| {
            let owner = owner?;
            match owner == *service {
                true => own.cloned(),
                false => self.render_element(&owner, &entry),
            }
        };
        (value(owner_before, had), value(owner, has))
    }

    /// Renders an element of another Service.
    fn render_element(&self, service: &str, (family, set, key): &Key) -> Option<ElementValue> {
        let rules = self.rules_by_service.get(service)?;
        let mut part = (self.render)(rules, *family);
        part.elements.remove(&(*set, key.clone()))
    }

    /// Counts a Service that wants an element without a verdict, or no longer does; returns the
    /// values before and after.
    fn change_count(
        &mut self,
        entry: Key,
        wanted_before: bool,
        wanted: bool,
    ) -> (Option<ElementValue>, Option<ElementValue>) {
        let before = self.counts_by_element.get(&entry).copied().unwrap_or(0);
        let left = before.saturating_sub(u32::from(wanted_before));
        let now = left + u32::from(wanted);
        match now {
            0 => self.counts_by_element.remove(&entry),
            now => self.counts_by_element.insert(entry, now),
        };
        let value = |count: u32| (count > 0).then(ElementValue::default);
        (value(before), value(now))
    }
}

fn new_element((set, key): ElementId, value: String) -> Element {
    Element { set, key, value }
}

#[cfg(test)]
#[path = "desired_tests.rs"]
mod tests;
