//! Counts by topology domain, cheap to copy once they are frozen.

use std::collections::HashMap;
use std::sync::Arc;

type CountsByKey = HashMap<String, HashMap<String, i64>>;

/// Counts by topology domain. Changes after [`TopologyCounts::freeze_counts`] go into an overlay,
/// which stays small.
#[derive(Clone, Debug, Default)]
pub(super) struct TopologyCounts {
    base: Arc<CountsByKey>,
    changes: CountsByKey,
    /// Number of domains with a positive count.
    positive: usize,
}

fn look_up(numbers: &CountsByKey, key: &str, value: &str) -> i64 {
    numbers
        .get(key)
        .and_then(|values| values.get(value))
        .copied()
        .unwrap_or(0)
}

impl TopologyCounts {
    pub(super) fn add_count(&mut self, key: &str, value: &str, by: i64) {
        let before = self.get(key, value);
        // Two look-ups instead of `entry`, which would allocate a key for each of the many repeated
        // topologies.
        let values = match self.changes.get_mut(key) {
            Some(values) => values,
            None => self.changes.entry(key.to_owned()).or_default(),
        };
        match values.get_mut(value) {
            Some(count) => *count += by,
            None => drop(values.insert(value.to_owned(), by)),
        }
        // The filter asks for each node whether any domain has a match; the number is kept up to
        // date instead of counted.
        match (before > 0, before + by > 0) {
            (false, true) => self.positive += 1,
            (true, false) => self.positive -= 1,
            _ => {}
        }
    }

    pub(super) fn get(&self, key: &str, value: &str) -> i64 {
        look_up(&self.base, key, value) + look_up(&self.changes, key, value)
    }

    /// Returns the topology keys.
    pub(super) fn topology_keys(&self) -> impl Iterator<Item = &str> {
        let new = self
            .changes
            .keys()
            .filter(|key| !self.base.contains_key(*key));
        self.base.keys().chain(new).map(String::as_str)
    }

    /// Returns whether no count was ever added.
    pub(super) fn is_empty(&self) -> bool {
        self.base.is_empty() && self.changes.is_empty()
    }

    /// Returns whether no domain has a positive count.
    pub(super) fn is_void(&self) -> bool {
        self.positive == 0
    }

    /// Ends the collection: copies share the counts added so far.
    pub(super) fn freeze_counts(&mut self) {
        self.base = Arc::new(std::mem::take(&mut self.changes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_of_a_copy_after_freezing_does_not_change_the_original() {
        let mut places = TopologyCounts::default();
        places.add_count("zone", "a", 1);
        places.freeze_counts();
        let mut tried = places.clone();
        tried.add_count("zone", "a", -1);
        tried.add_count("host", "n", 2);
        assert_eq!((tried.get("zone", "a"), tried.get("host", "n")), (0, 2));
        assert!(!tried.is_void() && !places.is_void());
        tried.add_count("host", "n", -2);
        assert!(tried.is_void() && !tried.is_empty() && places.get("zone", "a") == 1);
    }
}
