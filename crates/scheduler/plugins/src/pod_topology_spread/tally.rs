//! Numbers of matching pods by topology domain, cheap to copy: changes on a copy go into an
//! overlay.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Default)]
struct Base {
    counts: HashMap<String, i64>,
    /// Number of domains with each count.
    places: BTreeMap<i64, usize>,
}

/// Pods by domain, with the smallest number of them.
#[derive(Clone, Default)]
pub(super) struct Tally {
    base: Arc<Base>,
    /// Domains whose count differs from the base.
    changed: HashMap<String, i64>,
    least: i64,
}

impl Tally {
    pub(super) fn new(counts: HashMap<String, i64>) -> Self {
        let mut places = BTreeMap::new();
        for count in counts.values() {
            *places.entry(*count).or_default() += 1;
        }
        let least = places.keys().next().copied().unwrap_or(0);
        Self {
            base: Arc::new(Base { counts, places }),
            changed: HashMap::new(),
            least,
        }
    }

    pub(super) fn get(&self, place: &str) -> i64 {
        self.changed
            .get(place)
            .or_else(|| self.base.counts.get(place))
            .copied()
            .unwrap_or(0)
    }

    pub(super) fn add(&mut self, place: &str, by: i64) {
        let count = self.get(place) + by;
        self.changed.insert(place.to_owned(), count);
        self.least = self.find_least_count();
    }

    /// Returns the smallest number of pods in a domain.
    pub(super) fn least_count(&self) -> i64 {
        self.least
    }

    /// Returns the number of domains.
    pub(super) fn len(&self) -> usize {
        let new = self
            .changed
            .keys()
            .filter(|place| !self.base.counts.contains_key(*place));
        self.base.counts.len() + new.count()
    }

    fn find_least_count(&self) -> i64 {
        // Works on the few changed domains: hostname constraints have as many domains as nodes, and
        // preemption asks for each of them.
        let mut replaced: HashMap<i64, usize> = HashMap::new();
        for count in self
            .changed
            .keys()
            .filter_map(|place| self.base.counts.get(place))
        {
            *replaced.entry(*count).or_default() += 1;
        }
        // A count of the base is still valid if at least one of its domains has not been changed.
        let kept =
            |(count, places): &(&i64, &usize)| replaced.get(count).copied().unwrap_or(0) < **places;
        let unchanged = self.base.places.iter().find(kept).map(|(count, _)| count);
        unchanged
            .into_iter()
            .chain(self.changed.values())
            .min()
            .copied()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_follows_changes_without_touching_other_copies() {
        let counts = [("a", 1), ("b", 1), ("c", 3)].map(|(place, count)| (place.to_owned(), count));
        let whole = Tally::new(counts.into());
        let mut tried = whole.clone();
        let steps = [
            ("a", 1, 1, 3),
            ("b", 1, 2, 3),
            ("c", -3, 0, 3),
            ("d", -1, -1, 4),
            ("d", 9, 0, 4),
            ("c", 2, 2, 4),
        ];
        for (place, by, least, len) in steps {
            tried.add(place, by);
            assert_eq!(
                (tried.least_count(), tried.len()),
                (least, len),
                "{place} {by}"
            );
        }
        assert_eq!(
            (whole.least_count(), whole.get("a"), tried.get("a")),
            (1, 1, 2)
        );
    }
}
