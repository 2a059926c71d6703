//! Limits of the rules that objects of one kind have together.

use std::collections::HashMap;

/// Maximum number of rules, counted for each host for which they are served: of one namespace, and
/// in all.
pub(crate) const MAX_RULES_OF_NAMESPACE: usize = 10_000;
const MAX_RULES: usize = 200_000;

/// Rules that are counted already. Older objects must be counted first.
#[derive(Debug, Default)]
pub(crate) struct RuleBudget {
    of_namespace: HashMap<String, usize>,
    total: usize,
    refused_hosts: HashMap<String, usize>,
}

impl RuleBudget {
    /// Counts rules of a namespace; false if there is no room for all of them.
    pub(crate) fn take(&mut self, namespace: &str, count: usize) -> bool {
        let used = self.of_namespace.get(namespace).copied();
        let used = used.unwrap_or_default().saturating_add(count);
        let total = self.total.saturating_add(count);
        let has_room = used <= MAX_RULES_OF_NAMESPACE && total <= MAX_RULES;
        if has_room {
            self.of_namespace.insert(namespace.to_owned(), used);
            self.total = total;
        }
        has_room
    }

    /// Counts hosts of a namespace whose rules were refused. They are claimed nevertheless, so that
    /// rules of others can't take hosts from their owners; false if there are too many to keep.
    /// Others can't cause that: the limit is of the namespace alone, and beyond the record of its
    /// hosts.
    pub(crate) fn keep_hosts(&mut self, namespace: &str, count: usize) -> bool {
        let used = self.refused_hosts.get(namespace).copied();
        let used = used.unwrap_or_default().saturating_add(count);
        let has_room = used <= MAX_RULES_OF_NAMESPACE;
        if has_room {
            self.refused_hosts.insert(namespace.to_owned(), used);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_limited_for_each_namespace_and_in_all() {
        let mut budget = RuleBudget::default();
        assert!(!budget.take("a", MAX_RULES_OF_NAMESPACE + 1));
        assert!(budget.take("a", MAX_RULES_OF_NAMESPACE));
        assert!(!budget.take("a", 1));
        for n in 1..MAX_RULES / MAX_RULES_OF_NAMESPACE {
            assert!(budget.take(&n.to_string(), MAX_RULES_OF_NAMESPACE), "{n}");
        }
        assert!(!budget.take("last", 1));
    }

    #[test]
    fn hosts_of_refused_rules_are_limited_for_each_namespace_only() {
        let mut budget = RuleBudget::default();
        for n in 0..MAX_RULES / MAX_RULES_OF_NAMESPACE + 1 {
            let namespace = n.to_string();
            assert!(budget.keep_hosts(&namespace, MAX_RULES_OF_NAMESPACE), "{n}");
            assert!(!budget.keep_hosts(&namespace, 1), "{n}");
        }
    }
}
