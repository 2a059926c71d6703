//! The state of the cluster as far as policies depend on it, and the rules that follow from it.
//!
//! Invariant: after any sequence of changes the rules are those that the same objects give at once.
//! The work of a change is proportional to what it changes: the sets and policies that may select a
//! pod, or the pods that a policy or a namespace may concern. A policy that begins to isolate a pod
//! of the node, as the first one, costs the pods that its selectors may select.

mod admission;
mod failures;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api_semantics::selectors::{Labels, labels_match};
use net_nft::{Commands, Family};

use crate::base_chains::{
    GuardedNetwork, ObjectCounts, UnknownAddressVerdict, build_base_chains, count_base_objects,
};
use crate::closing::{ClosedNamespace, InstalledPolicy};
use crate::direction::Direction;
use crate::limits::MAX_POLICIES;
use crate::local_pods::{IsolatingPolicies, LocalPods};
use crate::pod::PolicyPod;
use crate::pod_sets::PodSets;
use crate::policy::Policy;
use crate::selector::{PodSelector, Scope};
use crate::tables::RuleTables;

#[derive(Debug)]
struct KnownPod {
    pod: PolicyPod,
    /// Names of the sets with the pod.
    sets: BTreeSet<String>,
}

/// Pods, namespaces and policies, with the rules of this node.
#[derive(Debug)]
pub struct PolicyState {
    families: Vec<Family>,
    network: GuardedNetwork,
    pods: HashMap<String, KnownPod>,
    pods_by_namespace: HashMap<String, BTreeSet<String>>,
    namespaces: HashMap<String, Labels>,
    policies: BTreeMap<String, Arc<Policy>>,
    /// Policies whose chains and sets exist: those that isolate pods of this node.
    installed: HashMap<String, InstalledPolicy>,
    /// Installed policies that allow nothing.
    closed_policies: BTreeSet<String>,
    /// Policies that were closed since these were taken last.
    newly_closed: BTreeSet<String>,
    /// Namespaces that are closed because transactions failed.
    closed_namespaces: BTreeMap<String, ClosedNamespace>,
    /// Namespaces whose installed policies changed since the last transaction that succeeded.
    suspects: BTreeSet<String>,
    /// Policies that changed since the rules were updated last.
    changed_policies: BTreeSet<String>,
    policies_by_namespace: HashMap<String, BTreeSet<String>>,
    sets: PodSets,
    local: LocalPods,
    tables: RuleTables,
    /// Addresses whose tracked connections may be those of an earlier pod.
    stale: BTreeSet<IpAddr>,
    comparisons: u64,
}

impl PolicyState {
    /// Creates the state of a node without pods.
    #[must_use]
    pub fn new(families: Vec<Family>, network: GuardedNetwork) -> Self {
        Self {
            local: LocalPods::new(families.clone()),
            families,
            network,
            pods: HashMap::new(),
            pods_by_namespace: HashMap::new(),
            namespaces: HashMap::new(),
            policies: BTreeMap::new(),
            installed: HashMap::new(),
            closed_policies: BTreeSet::new(),
            newly_closed: BTreeSet::new(),
            closed_namespaces: BTreeMap::new(),
            suspects: BTreeSet::new(),
            changed_policies: BTreeSet::new(),
            policies_by_namespace: HashMap::new(),
            sets: PodSets::default(),
            tables: RuleTables::default(),
            stale: BTreeSet::new(),
            comparisons: 0,
        }
    }

    /// Returns the number of selectors that have been compared with pods: the work done so far.
    #[must_use]
    pub fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// Returns the number of policies.
    #[must_use]
    pub fn policy_count(&self) -> usize {
        self.policies.len()
    }

    /// Sets a pod by its key `namespace/name`; None if it was deleted or no longer counts.
    pub fn set_pod(&mut self, key: &str, pod: Option<PolicyPod>) {
        if self.pods.get(key).map(|known| &known.pod) == pod.as_ref() {
            // Most updates of a pod change nothing that the rules depend on.
            return;
        }
        let old = self.forget_pod(key);
        let was_local = old.as_ref().is_some_and(|old| old.is_local);
        let Some(pod) = pod else {
            if was_local {
                self.local.delete_pod(key, &mut self.tables);
            }
            self.mark_lost_addresses(old.as_ref(), None);
            return;
        };
        self.mark_lost_addresses(old.as_ref(), Some(&pod));
        let namespace = self.namespaces.get(&pod.namespace);
        let sets = self.sets.find_sets(&pod, namespace, &mut self.comparisons);
        for name in &sets {
            self.add_member(name, key, &pod);
        }
        if was_local && !pod.is_local {
            // Another pod of the same name, on another node.
            self.local.delete_pod(key, &mut self.tables);
        }
        if pod.is_local {
            let policies = self.find_policies(&pod);
            if policies.iter().any(|policies| !policies.is_empty()) {
                // The address may have been used after its release, by a pod that was deleted with
                // force, or while no agent ran. Other pods accept all connections anyway.
                self.mark_lost_addresses(Some(&pod), old.as_ref());
            }
            self.local
                .set_pod(key, pod.clone(), policies, &mut self.tables);
        }
        self.pods_by_namespace
            .entry(pod.namespace.clone())
            .or_default()
            .insert(key.to_owned());
        self.pods.insert(key.to_owned(), KnownPod { pod, sets });
        self.close_overgrown();
    }

    /// Sets the labels of a namespace; None if it was deleted.
    pub fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        let old = match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
        let now = self.namespaces.get(name);
        if old.as_ref() == now {
            return;
        }
        let mut changed = Vec::new();
        for set in self.sets.sets_by_labels_of_namespace() {
            self.comparisons += 1;
            let Some(selector) = self.sets.get(set).map(|set| &set.selector) else {
                continue;
            };
            let before = selector.matches_namespace(name, old.as_ref());
            let after = selector.matches_namespace(name, now);
            if before != after {
                changed.push((set.clone(), selector.clone(), after));
            }
        }
        let keys: Vec<String> = self.keys_of_namespace(name);
        for (set, selector, is_selected) in changed {
            for key in &keys {
                self.set_membership(&set, &selector, key, is_selected);
            }
            self.close_overgrown();
        }
    }

    /// Sets a policy by its key `namespace/name`; None if it was deleted.
    pub fn set_policy(&mut self, key: &str, policy: Option<Policy>) {
        if self.policies.get(key).map(Arc::as_ref) == policy.as_ref() {
            return;
        }
        let old = self.policies.remove(key);
        let policy = policy.map(Arc::new);
        self.note_changed_policy(namespace_of(key));
        self.changed_policies.insert(key.to_owned());
        let namespaces: BTreeSet<String> = old
            .iter()
            .chain(&policy)
            .map(|policy| policy.namespace.clone())
            .collect();
        if let Some(old) = &old
            && let Some(keys) = self.policies_by_namespace.get_mut(&old.namespace)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.policies_by_namespace.remove(&old.namespace);
            }
        }
        if let Some(policy) = policy {
            self.policies_by_namespace
                .entry(policy.namespace.clone())
                .or_default()
                .insert(key.to_owned());
            self.policies.insert(key.to_owned(), policy);
        }
        for namespace in namespaces {
            for (key, pod) in self.local.pods_of_namespace(&namespace) {
                let policies = self.find_policies(&pod);
                self.local.set_policies(&key, policies, &mut self.tables);
            }
        }
    }

    /// Returns the addresses that pods of this node have lost, and those that isolated pods have
    /// got, since the last call. Their tracked connections must be deleted: they would let packets
    /// pass to the next pod with the address.
    pub fn take_stale_addresses(&mut self) -> BTreeSet<IpAddr> {
        std::mem::take(&mut self.stale)
    }

    /// Returns the commands for all changes since the last call.
    pub fn take_changes(&mut self) -> Commands {
        self.update_rules();
        self.tables.take_changes()
    }

    /// Returns the commands that replace the tables, and counts all changes as taken.
    pub fn install_commands(&mut self) -> String {
        self.update_rules();
        self.base_chains(UnknownAddressVerdict::Accepted) + &self.tables.install_commands()
    }

    /// Returns the commands for tables that drop packets of all pods of this node, until the pods
    /// are known.
    #[must_use]
    pub fn closed_commands(&self) -> String {
        self.base_chains(UnknownAddressVerdict::Dropped)
    }

    /// Returns the number of objects in a family's table once all changes are applied.
    pub(crate) fn count_objects(&self, family: Family) -> ObjectCounts {
        let (base, own) = (
            count_base_objects(family, &self.network),
            self.tables.count_objects(family),
        );
        ObjectCounts {
            chains: base.chains + own.chains,
            rules: base.rules + own.rules,
            sets: base.sets + own.sets,
        }
    }

    fn base_chains(&self, unknown: UnknownAddressVerdict) -> String {
        let families = self.families.iter();
        families
            .map(|family| build_base_chains(*family, &self.network, unknown))
            .collect()
    }

    /// Marks the addresses of a pod of this node that another state of the pod does not have.
    fn mark_lost_addresses(&mut self, pod: Option<&PolicyPod>, other: Option<&PolicyPod>) {
        let Some(pod) = pod.filter(|pod| pod.is_local) else {
            return;
        };
        let other = other.filter(|other| other.is_local && other.uid == pod.uid);
        let addresses = pod.addresses.iter().filter(|&address| {
            // The connections of an address that the pod keeps are its own.
            !other.is_some_and(|other| other.addresses.contains(address))
        });
        self.stale.extend(addresses);
    }

    /// Removes a pod from sets and indexes; returns it.
    fn forget_pod(&mut self, key: &str) -> Option<PolicyPod> {
        let known = self.pods.remove(key)?;
        for name in &known.sets {
            self.remove_member(name, key, &known.pod);
        }
        if let Some(keys) = self.pods_by_namespace.get_mut(&known.pod.namespace) {
            keys.remove(key);
            if keys.is_empty() {
                self.pods_by_namespace.remove(&known.pod.namespace);
            }
        }
        Some(known.pod)
    }

    fn keys_of_namespace(&self, namespace: &str) -> Vec<String> {
        let keys = self.pods_by_namespace.get(namespace);
        keys.into_iter().flatten().cloned().collect()
    }

    /// Returns the policies that isolate a pod. Of those beyond the limit, which allow nothing, the
    /// first one is enough.
    fn find_policies(&mut self, pod: &PolicyPod) -> IsolatingPolicies {
        let mut found = IsolatingPolicies::default();
        let mut is_complete = [false; 2];
        let keys = self.policies_by_namespace.get(&pod.namespace);
        for (rank, key) in keys.into_iter().flatten().enumerate() {
            let Some(policy) = self.policies.get(key) else {
                continue;
            };
            if is_complete == [true; 2] {
                break;
            }
            self.comparisons += 1;
            if !labels_match(Some(&policy.pods), Some(&pod.labels)) {
                continue;
            }
            for direction in Direction::BOTH.map(Direction::index) {
                if policy.rules[direction].is_some() && !is_complete[direction] {
                    found[direction].push(key.clone());
                    is_complete[direction] = rank >= MAX_POLICIES;
                }
            }
        }
        found
    }

    /// Writes what depends on all changes together: the chains and sets of policies, and the chains
    /// of unknown addresses.
    fn update_rules(&mut self) {
        let mut changed = std::mem::take(&mut self.changed_policies);
        changed.extend(self.local.take_changed_policies());
        for key in &changed {
            if self.find_isolating_policy(key).is_none() {
                self.replace_installed(key, None);
            }
        }
        let namespaces: BTreeSet<&str> = changed.iter().map(|key| namespace_of(key)).collect();
        for namespace in namespaces {
            self.admit_policies(namespace);
        }
        self.local.write_guards(&mut self.tables);
    }

    /// Adds a user of a selector's set, in the namespace of its policy.
    fn use_set(&mut self, selector: &PodSelector, namespace: &str) {
        if !self.sets.add_user(selector, namespace) {
            return;
        }
        let name = selector.set_name();
        for family in &self.families {
            let address = family.address_type();
            let declaration = match selector.port {
                None => format!("type {address};"),
                Some(_) => format!("type {address} . inet_proto . inet_service;"),
            };
            self.tables.add_set(*family, &name, declaration);
        }
        let keys: Vec<String> = match &selector.scope {
            Scope::Namespace(namespace) => self.keys_of_namespace(namespace),
            Scope::All => self.pods.keys().cloned().collect(),
            Scope::Selected(_) => {
                let namespaces = self.namespaces.iter();
                namespaces
                    .filter(|(name, labels)| selector.matches_namespace(name, Some(labels)))
                    .flat_map(|(name, _)| self.keys_of_namespace(name))
                    .collect()
            }
        };
        for key in keys {
            self.set_membership(&name, selector, &key, true);
        }
    }

    fn release_set(&mut self, selector: &PodSelector, namespace: &str) {
        let Some(set) = self.sets.remove_user(selector, namespace) else {
            return;
        };
        let name = selector.set_name();
        for key in &set.members {
            if let Some(known) = self.pods.get_mut(key) {
                known.sets.remove(&name);
                let change = |tables: &mut RuleTables, family, element: &str| {
                    tables.remove_owner(family, &name, element);
                };
                write_elements(
                    &mut self.tables,
                    &self.families,
                    selector,
                    &known.pod,
                    change,
                );
            }
        }
        for family in &self.families {
            self.tables.remove_set(*family, &name);
        }
    }

    /// Puts a known pod into a set if the set's labels select it, or takes it out.
    fn set_membership(&mut self, name: &str, selector: &PodSelector, key: &str, selected: bool) {
        if self.sets.get(name).is_none() {
            // The set's policies have been closed.
            return;
        }
        let Some(known) = self.pods.get_mut(key) else {
            return;
        };
        self.comparisons += 1;
        if !labels_match(Some(&selector.pods), Some(&known.pod.labels)) {
            return;
        }
        let pod = known.pod.clone();
        if selected && known.sets.insert(name.to_owned()) {
            self.add_member(name, key, &pod);
        } else if !selected && known.sets.remove(name) {
            self.remove_member(name, key, &pod);
        }
    }

    fn add_member(&mut self, name: &str, key: &str, pod: &PolicyPod) {
        if let Some(set) = self.sets.get(name) {
            let change = |tables: &mut RuleTables, family, element: &str| {
                tables.add_owner(family, name, element);
            };
            let (tables, families) = (&mut self.tables, &self.families);
            let count = write_elements(tables, families, &set.selector, pod, change);
            self.sets.add_member(name, key, count);
        }
    }

    fn remove_member(&mut self, name: &str, key: &str, pod: &PolicyPod) {
        if let Some(set) = self.sets.get(name) {
            let change = |tables: &mut RuleTables, family, element: &str| {
                tables.remove_owner(family, name, element);
            };
            let (tables, families) = (&mut self.tables, &self.families);
            let count = write_elements(tables, families, &set.selector, pod, change);
            self.sets.remove_member(name, key, count);
        }
    }
}

/// Calls `change` for each element of a pod in a selector's set; returns their number.
fn write_elements(
    tables: &mut RuleTables,
    families: &[Family],
    selector: &PodSelector,
    pod: &PolicyPod,
    change: impl Fn(&mut RuleTables, Family, &str),
) -> usize {
    let mut count = 0;
    for address in &pod.addresses {
        let family = Family::of(*address);
        if !families.contains(&family) {
            continue;
        }
        if selector.port.is_none() {
            change(tables, family, &address.to_string());
            count += 1;
        }
        for (protocol, number) in selector.port_numbers(pod) {
            let protocol = protocol.nft_name();
            change(
                tables,
                family,
                &format!("{address} . {protocol} . {number}"),
            );
            count += 1;
        }
    }
    count
}

/// Returns the namespace in the key of an object.
fn namespace_of(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests;
