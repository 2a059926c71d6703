//! The sets of pods that rules refer to, with indexes that find the sets of a pod.
//!
//! Equal selectors of all policies share one set. A change of a pod looks only at the sets whose
//! scope is its namespace or a selector of namespaces, and whose anchor is one of its labels.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api_semantics::selectors::Labels;

use crate::limits::MAX_ELEMENTS;
use crate::pod::PolicyPod;
use crate::selector::{Anchor, PodSelector, Scope};

/// A set with the pods in it.
#[derive(Debug)]
pub(crate) struct PodSet {
    pub(crate) selector: PodSelector,
    /// Keys of the pods in the set.
    pub(crate) members: BTreeSet<String>,
    /// Elements of the pods in the set.
    elements: usize,
    /// Rules that refer to the set, by the namespace of their policy.
    users: BTreeMap<String, usize>,
}

/// All sets by their names.
#[derive(Debug, Default)]
pub(crate) struct PodSets {
    sets: HashMap<String, PodSet>,
    /// Names by namespace (None for selected namespaces) and anchor.
    by_anchor: HashMap<(Option<String>, Anchor), BTreeSet<String>>,
    /// Names of sets that select namespaces by labels.
    by_labels_of_namespace: BTreeSet<String>,
    /// Elements of all sets that the policies of a namespace use.
    elements_by_namespace: HashMap<String, usize>,
    /// Namespaces with more elements than [`MAX_ELEMENTS`] since these were taken last.
    overgrown: BTreeSet<String>,
}

impl PodSets {
    /// Adds a user of a selector's set, in the namespace of its policy; returns whether the set is
    /// new.
    pub(crate) fn add_user(&mut self, selector: &PodSelector, namespace: &str) -> bool {
        let name = selector.set_name();
        if let Some(set) = self.sets.get_mut(&name) {
            let users = set.users.entry(namespace.to_owned()).or_default();
            *users += 1;
            if *users == 1 {
                let elements = set.elements;
                self.add_to_namespace(namespace, elements);
            }
            return false;
        }
        let key = index_key(selector);
        self.by_anchor.entry(key).or_default().insert(name.clone());
        if matches!(selector.scope, Scope::Selected(_)) {
            self.by_labels_of_namespace.insert(name.clone());
        }
        let set = PodSet {
            selector: selector.clone(),
            members: BTreeSet::new(),
            elements: 0,
            users: BTreeMap::from([(namespace.to_owned(), 1)]),
        };
        self.sets.insert(name, set);
        true
    }

    /// Removes a user of a selector's set; returns the set if that was the last one.
    pub(crate) fn remove_user(
        &mut self,
        selector: &PodSelector,
        namespace: &str,
    ) -> Option<PodSet> {
        let name = selector.set_name();
        let set = self.sets.get_mut(&name)?;
        match set.users.get_mut(namespace) {
            Some(users) if *users > 1 => *users -= 1,
            _ => {
                set.users.remove(namespace);
                let (elements, is_used) = (set.elements, !set.users.is_empty());
                self.remove_from_namespace(namespace, elements);
                if !is_used {
                    return self.remove_set(selector, &name);
                }
            }
        }
        None
    }

    fn remove_set(&mut self, selector: &PodSelector, name: &str) -> Option<PodSet> {
        let key = index_key(selector);
        if let Some(names) = self.by_anchor.get_mut(&key) {
            names.remove(name);
            if names.is_empty() {
                self.by_anchor.remove(&key);
            }
        }
        self.by_labels_of_namespace.remove(name);
        self.sets.remove(name)
    }

    /// Adds a pod with its elements to a set.
    pub(crate) fn add_member(&mut self, name: &str, pod: &str, elements: usize) {
        if let Some(set) = self.sets.get_mut(name) {
            set.members.insert(pod.to_owned());
            set.elements += elements;
            for namespace in set.users.keys().cloned().collect::<Vec<_>>() {
                self.add_to_namespace(&namespace, elements);
            }
        }
    }

    /// Removes a pod with its elements from a set.
    pub(crate) fn remove_member(&mut self, name: &str, pod: &str, elements: usize) {
        if let Some(set) = self.sets.get_mut(name) {
            set.members.remove(pod);
            set.elements = set.elements.saturating_sub(elements);
            for namespace in set.users.keys().cloned().collect::<Vec<_>>() {
                self.remove_from_namespace(&namespace, elements);
            }
        }
    }

    /// Returns the number of elements of all sets that the policies of a namespace use.
    pub(crate) fn count_elements(&self, namespace: &str) -> usize {
        self.elements_by_namespace
            .get(namespace)
            .copied()
            .unwrap_or_default()
    }

    /// Returns a namespace that has exceeded [`MAX_ELEMENTS`] since the last call.
    pub(crate) fn take_overgrown(&mut self) -> Option<String> {
        self.overgrown.pop_first()
    }

    fn add_to_namespace(&mut self, namespace: &str, elements: usize) {
        let total = self
            .elements_by_namespace
            .entry(namespace.to_owned())
            .or_default();
        *total += elements;
        if *total > MAX_ELEMENTS {
            self.overgrown.insert(namespace.to_owned());
        }
    }

    fn remove_from_namespace(&mut self, namespace: &str, elements: usize) {
        if let Some(total) = self.elements_by_namespace.get_mut(namespace) {
            *total = total.saturating_sub(elements);
            if *total == 0 {
                self.elements_by_namespace.remove(namespace);
            }
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&PodSet> {
        self.sets.get(name)
    }

    /// Returns the names of the sets that may select namespaces by labels.
    pub(crate) fn sets_by_labels_of_namespace(&self) -> impl Iterator<Item = &String> {
        self.by_labels_of_namespace.iter()
    }

    /// Returns the names of the sets that select a pod, and counts the selectors that were
    /// compared.
    pub(crate) fn find_sets(
        &self,
        pod: &PolicyPod,
        namespace: Option<&Labels>,
        comparisons: &mut u64,
    ) -> BTreeSet<String> {
        let anchors = || {
            let labels = pod.labels.iter();
            labels
                .map(|(key, value)| Some((key.clone(), value.clone())))
                .chain([None])
        };
        let mut found = BTreeSet::new();
        for scope in [Some(pod.namespace.clone()), None] {
            for anchor in anchors() {
                let candidates = self.by_anchor.get(&(scope.clone(), anchor));
                for name in candidates.into_iter().flatten() {
                    *comparisons += 1;
                    let selects = self
                        .sets
                        .get(name)
                        .is_some_and(|set| set.selector.matches(pod, namespace));
                    if selects {
                        found.insert(name.clone());
                    }
                }
            }
        }
        found
    }
}

/// Returns the key of a selector in the index.
fn index_key(selector: &PodSelector) -> (Option<String>, Anchor) {
    let namespace = match &selector.scope {
        Scope::Namespace(name) => Some(name.clone()),
        Scope::Selected(_) | Scope::All => None,
    };
    (namespace, selector.anchor())
}
