//! The installed policies. Those of a namespace are open in the order of their names, until one
//! exceeds a limit; that one and all later ones are closed.
//!
//! Invariant: a policy that is not open isolates its pods all the same.

use std::sync::Arc;

use crate::closing::{ClosingReason, InstalledPolicy};
use crate::direction::Direction;
use crate::limits::{MAX_ELEMENTS, MAX_POLICIES, MAX_TERMS};
use crate::policy::Policy;
use crate::rules::write_chains;

use super::{PolicyState, namespace_of};

impl PolicyState {
    /// Returns the number of policies that allow nothing, because of a limit or a failed
    /// transaction.
    #[must_use]
    pub fn count_closed_policies(&self) -> usize {
        self.closed_policies.len()
    }

    /// Returns the keys of the policies that were closed since the last call, with the reasons.
    pub fn take_newly_closed(&mut self) -> Vec<(String, ClosingReason)> {
        let taken = std::mem::take(&mut self.newly_closed).into_iter();
        taken
            .filter(|key| self.closed_policies.contains(key))
            .map(|key| {
                let reason = match self.closed_namespaces.contains_key(namespace_of(&key)) {
                    true => ClosingReason::Transaction,
                    false => ClosingReason::Limit,
                };
                (key, reason)
            })
            .collect()
    }

    /// Returns a policy if it isolates a pod of this node. Others are not installed: policies of
    /// any namespace would cost all nodes their chains, and sets with the pods of the cluster.
    pub(super) fn find_isolating_policy(&self, key: &str) -> Option<Arc<Policy>> {
        let policy = self.policies.get(key);
        policy.filter(|_| self.local.is_isolated_by(key)).cloned()
    }

    /// Installs the policies of a namespace, as far as they isolate pods of this node.
    pub(super) fn admit_policies(&mut self, namespace: &str) {
        let keys = self.policies_by_namespace.get(namespace).cloned();
        let mut is_open = !self.closed_namespaces.contains_key(namespace);
        let mut terms = 0;
        for (rank, key) in keys.iter().flatten().enumerate() {
            let Some(policy) = self.find_isolating_policy(key) else {
                continue;
            };
            if is_open {
                terms += policy.count_terms();
                is_open =
                    rank < MAX_POLICIES && terms <= MAX_TERMS && self.open_policy(key, &policy);
            }
            if !is_open {
                self.close_policy(key, policy);
            }
        }
    }

    /// Closes the last policies of namespaces whose sets have grown beyond the limit.
    pub(super) fn close_overgrown(&mut self) {
        while let Some(namespace) = self.sets.take_overgrown() {
            self.make_room(&namespace, "");
        }
    }

    /// Opens a policy; returns whether its namespace has room for the elements of its sets. Later
    /// policies of the namespace are closed for it.
    fn open_policy(&mut self, key: &str, policy: &Arc<Policy>) -> bool {
        let namespace = namespace_of(key);
        if self.is_open(key, policy) {
            return self.make_room(namespace, key) && self.is_open(key, policy);
        }
        // The sets of the new rules are made before those of the old ones are released, so that
        // sets in both stay.
        for (index, selector) in policy.selectors().enumerate() {
            self.use_set(selector, namespace);
            if !self.make_room(namespace, key) {
                for selector in policy.selectors().take(index + 1) {
                    self.release_set(selector, namespace);
                }
                return false;
            }
        }
        let (policy, is_open) = (policy.clone(), true);
        self.replace_installed(key, Some(InstalledPolicy { policy, is_open }));
        true
    }

    fn is_open(&self, key: &str, policy: &Arc<Policy>) -> bool {
        let installed = self.installed.get(key);
        installed.is_some_and(|known| known.is_open && Arc::ptr_eq(&known.policy, policy))
    }

    fn close_policy(&mut self, key: &str, policy: Arc<Policy>) {
        let installed = self.installed.get(key);
        if installed.is_some_and(|known| !known.is_open && Arc::ptr_eq(&known.policy, &policy)) {
            return;
        }
        let is_open = false;
        self.replace_installed(key, Some(InstalledPolicy { policy, is_open }));
    }

    /// Closes policies of a namespace, the last one first and none before `first`, while its sets
    /// have too many elements. Returns whether that was enough.
    fn make_room(&mut self, namespace: &str, first: &str) -> bool {
        while self.sets.count_elements(namespace) > MAX_ELEMENTS {
            let keys = self.policies_by_namespace.get(namespace);
            let mut later = keys
                .into_iter()
                .flat_map(|keys| keys.range(first.to_owned()..).rev());
            let last =
                later.find(|key| self.installed.get(*key).is_some_and(|known| known.is_open));
            let Some(last) = last.cloned() else {
                return false;
            };
            let Some(policy) = self.policies.get(&last).cloned() else {
                return false;
            };
            self.close_policy(&last, policy);
        }
        true
    }

    /// Replaces the chains of a policy, and releases the sets of the old ones.
    pub(super) fn replace_installed(&mut self, key: &str, new: Option<InstalledPolicy>) {
        let old = self.installed.remove(key);
        if old.is_none() && new.is_none() {
            return;
        }
        let namespace = namespace_of(key);
        self.suspects.insert(namespace.to_owned());
        self.write_policy_chains(key, old.as_ref(), new.as_ref());
        let released = old.filter(|old| old.is_open);
        for selector in released.iter().flat_map(|old| old.policy.selectors()) {
            self.release_set(selector, namespace);
        }
        let is_closed = new.as_ref().is_some_and(|new| !new.is_open);
        if !is_closed {
            self.closed_policies.remove(key);
        } else if self.closed_policies.insert(key.to_owned()) {
            self.newly_closed.insert(key.to_owned());
        }
        if let Some(new) = new {
            self.installed.insert(key.to_owned(), new);
        }
    }

    fn write_policy_chains(
        &mut self,
        key: &str,
        old: Option<&InstalledPolicy>,
        new: Option<&InstalledPolicy>,
    ) {
        for direction in Direction::BOTH {
            for family in self.families.clone() {
                let chains_of = |installed: Option<&InstalledPolicy>| {
                    let installed = installed?;
                    let rules = installed.policy.rules[direction.index()].as_ref()?;
                    let rules = if installed.is_open {
                        rules.as_slice()
                    } else {
                        &[]
                    };
                    Some(write_chains(key, rules, direction, family))
                };
                // Removed chains that are written again have no command.
                for (name, _) in chains_of(old).into_iter().flatten() {
                    self.tables.remove_chain(family, &name);
                }
                for (name, rules) in chains_of(new).into_iter().flatten() {
                    self.tables.set_chain(family, &name, rules);
                }
            }
        }
    }
}
