//! Amounts by resource name.

use std::collections::BTreeMap;

use api_meta::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use smallvec::SmallVec;

/// Amounts by resource name, in no order. Up to four resources take no allocation.
#[derive(Clone, Debug, Default)]
pub struct ResourceList<'a>(SmallVec<[(&'a str, Quantity); 4]>);

impl<'a> ResourceList<'a> {
    /// Converts an API object's list. Text that is no quantity is left out: the API server admits
    /// none.
    pub fn new(list: Option<&'a BTreeMap<String, Text>>) -> Self {
        let entries = list.into_iter().flatten();
        Self(
            entries
                .filter_map(|(name, amount)| Some((name.as_str(), amount.0.parse().ok()?)))
                .collect(),
        )
    }

    /// Returns the amount of a resource, None if the list does not name it.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        let found = self.0.iter().find(|(own, _)| *own == name);
        found.map(|(_, amount)| *amount)
    }

    /// Returns the amount of a resource as components count it: CPU in thousandths, everything
    /// else in units, rounded up.
    pub fn count(&self, name: &str) -> i64 {
        self.get(name).map_or(0, |amount| count(name, amount))
    }

    /// Returns whether the amount is absent or zero.
    pub fn is_zero(&self, name: &str) -> bool {
        self.get(name).is_none_or(|amount| amount.is_zero())
    }

    /// Iterates over names and amounts.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Quantity)> + '_ {
        self.0.iter().copied()
    }

    /// Sets an amount.
    pub(super) fn set(&mut self, name: &'a str, amount: Quantity) {
        self.merge(name, amount, |_| amount);
    }

    /// Adds amounts.
    pub(super) fn add(&mut self, other: &Self) {
        for (name, more) in other.iter() {
            self.merge(name, more, |own| own.plus(more));
        }
    }

    /// Raises each amount to at least the other's.
    pub(super) fn raise(&mut self, other: &Self) {
        for (name, least) in other.iter() {
            self.merge(name, least, |own| own.max(least));
        }
    }

    /// Adds the default amounts of resources that the list does not name.
    pub(super) fn fill(&mut self, defaults: &[(&'a str, Quantity)]) {
        for (name, amount) in defaults {
            self.merge(name, *amount, |own| own);
        }
    }

    /// Removes a resource.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(own, _)| *own != name);
    }

    fn merge(
        &mut self,
        name: &'a str,
        absent: Quantity,
        present: impl FnOnce(Quantity) -> Quantity,
    ) {
        match self.0.iter_mut().find(|(own, _)| *own == name) {
            Some((_, own)) => *own = present(*own),
            None => self.0.push((name, absent)),
        }
    }
}

/// Returns an amount as components count it: CPU in thousandths, everything else in units, rounded
/// up.
pub fn count(name: &str, amount: Quantity) -> i64 {
    if name == "cpu" {
        amount.milli_value()
    } else {
        amount.value()
    }
}
