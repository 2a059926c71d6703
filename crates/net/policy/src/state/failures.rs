//! Transactions that fail. The kernel applies all of a transaction or nothing, so the policies of
//! one namespace could prevent all changes of others: its policies are closed instead.

use std::collections::BTreeMap;

use crate::closing::ClosedNamespace;

use super::{PolicyState, namespace_of};

/// Number of calls of [`PolicyState::retry_closed`] after which a closed namespace is opened again,
/// although its policies have not changed: the failure may have had another reason. kube-proxy
/// calls it every 30 s, so it takes 10 minutes.
const RETRY_AFTER: u32 = 20;

impl PolicyState {
    /// Closes a namespace after a failed transaction; returns its name. The namespaces that have
    /// changed come first, then the one that needs most. If none is left, the failure has another
    /// reason: returns None, and all namespaces are opened.
    pub fn close_suspect(&mut self) -> Option<String> {
        for state in self.closed_namespaces.values_mut() {
            if *state == ClosedNamespace::Suspected {
                // It was closed, and the transaction failed nevertheless.
                *state = ClosedNamespace::Retried;
            }
        }
        let sizes = self.measure_namespaces();
        let open = sizes
            .into_iter()
            .filter(|(name, _)| !self.closed_namespaces.contains_key(name));
        let found = open.max_by_key(|(name, size)| (self.suspects.contains(name), *size));
        let Some((namespace, _)) = found else {
            self.open_namespaces(|_| true);
            return None;
        };
        self.closed_namespaces
            .insert(namespace.clone(), ClosedNamespace::Suspected);
        self.mark_policies(&namespace);
        Some(namespace)
    }

    /// Records that a transaction with all changes has succeeded.
    pub fn confirm_applied(&mut self) {
        self.suspects.clear();
        for state in self.closed_namespaces.values_mut() {
            if *state == ClosedNamespace::Suspected {
                *state = ClosedNamespace::Offending(0);
            }
        }
    }

    /// Marks closed policies and namespaces that may be opened again; returns whether there are
    /// any. It is called at intervals: an author who changes a policy all the time must not make a
    /// transaction fail each time.
    pub fn retry_closed(&mut self) -> bool {
        for state in self.closed_namespaces.values_mut() {
            match state {
                ClosedNamespace::Offending(retries) if *retries < RETRY_AFTER => *retries += 1,
                _ => *state = ClosedNamespace::Retried,
            }
        }
        self.open_namespaces(|state| state == ClosedNamespace::Retried);
        self.changed_policies
            .extend(self.closed_policies.iter().cloned());
        !self.changed_policies.is_empty()
    }

    /// Records a change of a policy: a closed namespace may be opened at the next retry.
    pub(super) fn note_changed_policy(&mut self, namespace: &str) {
        if let Some(state @ ClosedNamespace::Offending(_)) =
            self.closed_namespaces.get_mut(namespace)
        {
            *state = ClosedNamespace::Retried;
        }
    }

    fn open_namespaces(&mut self, which: impl Fn(ClosedNamespace) -> bool) {
        let closed = self.closed_namespaces.iter();
        let opened: Vec<String> = closed
            .filter(|(_, state)| which(**state))
            .map(|(namespace, _)| namespace.clone())
            .collect();
        for namespace in opened {
            self.closed_namespaces.remove(&namespace);
            self.mark_policies(&namespace);
        }
    }

    /// Marks all policies of a namespace as changed.
    fn mark_policies(&mut self, namespace: &str) {
        let keys = self.policies_by_namespace.get(namespace);
        self.changed_policies
            .extend(keys.into_iter().flatten().cloned());
    }

    /// Returns the number of terms and elements of open policies, by namespace.
    fn measure_namespaces(&self) -> BTreeMap<String, usize> {
        let mut sizes = BTreeMap::new();
        for (key, installed) in &self.installed {
            if installed.is_open {
                let namespace = namespace_of(key);
                let size = sizes
                    .entry(namespace.to_owned())
                    .or_insert_with(|| self.sets.count_elements(namespace));
                *size += installed.policy.count_terms();
            }
        }
        sizes
    }
}
