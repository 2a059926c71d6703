//! The sets of pods that rules refer to, with indexes that find the sets of a pod.
//!
//! Equal selectors of all policies share one set. A change of a pod looks only at the sets whose scope
//! is its namespace or a selector of namespaces, and whose anchor is one of its labels.

use std::collections::{BTreeSet, HashMap};

use api_semantics::selectors::Labels;

use crate::pod::PolicyPod;
use crate::selector::{Anchor, PodSelector, Scope};

/// A set with the pods in it.
#[derive(Debug)]
pub(crate) struct PodSet {
    pub(crate) selector: PodSelector,
    /// Keys of the pods in the set.
    pub(crate) members: BTreeSet<String>,
    /// Rules that refer to the set.
    users: usize,
}

/// All sets by their names.
#[derive(Debug, Default)]
pub(crate) struct PodSets {
    sets: HashMap<String, PodSet>,
    /// Names by namespace (None for selected namespaces) and anchor.
    by_anchor: HashMap<(Option<String>, Anchor), BTreeSet<String>>,
    /// Names of sets that select namespaces by labels.
    by_labels_of_namespace: BTreeSet<String>,
}

impl PodSets {
    /// Adds a user of a selector's set; returns whether the set is new.
    pub(crate) fn add_user(&mut self, selector: &PodSelector) -> bool {
        let name = selector.set_name();
        if let Some(set) = self.sets.get_mut(&name) {
            set.users += 1;
            return false;
        }
        let place = place_of(selector);
        self.by_anchor
            .entry(place)
            .or_default()
            .insert(name.clone());
        if matches!(selector.scope, Scope::Selected(_)) {
            self.by_labels_of_namespace.insert(name.clone());
        }
        let set = PodSet {
            selector: selector.clone(),
            members: BTreeSet::new(),
            users: 1,
        };
        self.sets.insert(name, set);
        true
    }

    /// Removes a user of a selector's set; returns the set if that was the last one.
    pub(crate) fn remove_user(&mut self, selector: &PodSelector) -> Option<PodSet> {
        let name = selector.set_name();
        let set = self.sets.get_mut(&name)?;
        set.users = set.users.saturating_sub(1);
        if set.users > 0 {
            return None;
        }
        let place = place_of(selector);
        if let Some(names) = self.by_anchor.get_mut(&place) {
            names.remove(&name);
            if names.is_empty() {
                self.by_anchor.remove(&place);
            }
        }
        self.by_labels_of_namespace.remove(&name);
        self.sets.remove(&name)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&PodSet> {
        self.sets.get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut PodSet> {
        self.sets.get_mut(name)
    }

    /// Returns the names of the sets that may select namespaces by labels.
    pub(crate) fn sets_by_labels_of_namespace(&self) -> impl Iterator<Item = &String> {
        self.by_labels_of_namespace.iter()
    }

    /// Returns the names of the sets that select a pod, and counts the selectors that were compared.
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

/// Returns the place of a selector in the index.
fn place_of(selector: &PodSelector) -> (Option<String>, Anchor) {
    let namespace = match &selector.scope {
        Scope::Namespace(name) => Some(name.clone()),
        Scope::Selected(_) | Scope::All => None,
    };
    (namespace, selector.anchor())
}
