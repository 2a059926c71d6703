//! The pods of this node: their verdicts, and the chains of the policies that isolate them.
//!
//! Pods that the same policies isolate share one chain. A pod that is deleted while it is isolated
//! is retained until another pod has its address: its containers may still run, if it was deleted
//! without waiting for them, and must not escape the policies that way.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

use net_nft::Family;

use crate::base_chains::{SAME_POD, verdict_map};
use crate::direction::Direction;
use crate::guard::IsolationCounts;
use crate::names::object_name;
use crate::pod::PolicyPod;
use crate::rules::policy_chain;
use crate::tables::RuleTables;

/// Maximum number of retained pods: about the number of addresses of a node, so that a node whose
/// addresses are not used again (IPv6) does not collect them forever.
const MAX_RETAINED: usize = 1024;

/// Keys of the policies that isolate a pod, in order, by [`Direction::index`].
pub(crate) type IsolatingPolicies = [Vec<String>; 2];

#[derive(Debug)]
struct LocalPod {
    pod: PolicyPod,
    isolating_policies: IsolatingPolicies,
    is_retained: bool,
}

impl LocalPod {
    fn is_isolated(&self) -> [bool; 2] {
        [
            !self.isolating_policies[0].is_empty(),
            !self.isolating_policies[1].is_empty(),
        ]
    }
}

/// The pods of this node.
#[derive(Debug, Default)]
pub(crate) struct LocalPods {
    families: Vec<Family>,
    pods: BTreeMap<String, LocalPod>,
    keys_by_namespace: HashMap<String, BTreeSet<String>>,
    keys_by_address: HashMap<IpAddr, BTreeSet<String>>,
    /// Pods by the policies that isolate them.
    group_sizes: HashMap<(Direction, Vec<String>), usize>,
    /// Pods and directions by the policy that isolates them.
    policy_uses: HashMap<String, usize>,
    /// Policies that began or ended to isolate pods since these were taken last.
    changed_policies: BTreeSet<String>,
    /// Keys of retained pods, the oldest first.
    retained: VecDeque<String>,
    /// Number of pods that have been retained so far.
    retained_count: u64,
    counts: IsolationCounts,
}

impl LocalPods {
    pub(crate) fn new(families: Vec<Family>) -> Self {
        Self {
            families,
            ..Self::default()
        }
    }

    /// Returns the keys and labels of the pods of a namespace, retained ones included.
    pub(crate) fn pods_of_namespace(&self, namespace: &str) -> Vec<(String, PolicyPod)> {
        let keys = self.keys_by_namespace.get(namespace).into_iter().flatten();
        keys.filter_map(|key| Some((key.clone(), self.pods.get(key)?.pod.clone())))
            .collect()
    }

    /// Adds or changes a pod.
    pub(crate) fn set_pod(
        &mut self,
        key: &str,
        pod: PolicyPod,
        policies: IsolatingPolicies,
        tables: &mut RuleTables,
    ) {
        if self.pods.get(key).is_some_and(|old| old.pod.uid != pod.uid) {
            // Another pod of the same name, as those of StatefulSets.
            self.delete_pod(key, tables);
        }
        self.remove(key, tables);
        for address in &pod.addresses {
            self.release_address(*address, tables);
        }
        let is_retained = false;
        let pod = LocalPod {
            pod,
            isolating_policies: policies,
            is_retained,
        };
        self.insert(key.to_owned(), pod, tables);
    }

    /// Changes the policies that isolate a pod.
    pub(crate) fn set_policies(
        &mut self,
        key: &str,
        policies: IsolatingPolicies,
        tables: &mut RuleTables,
    ) {
        if self
            .pods
            .get(key)
            .is_none_or(|local| local.isolating_policies == policies)
        {
            return;
        }
        let Some(mut local) = self.remove(key, tables) else {
            return;
        };
        local.isolating_policies = policies;
        if !local.is_retained || local.is_isolated().contains(&true) {
            self.insert(key.to_owned(), local, tables);
        } else {
            // It would count for the limit, and make another pod lose its isolation early.
            self.retained.retain(|retained| retained != key);
        }
    }

    /// Deletes a pod. If it is isolated, it is retained under another key.
    pub(crate) fn delete_pod(&mut self, key: &str, tables: &mut RuleTables) {
        let Some(mut local) = self.remove(key, tables) else {
            return;
        };
        if local.pod.addresses.is_empty() || !local.is_isolated().contains(&true) {
            return;
        }
        local.is_retained = true;
        // No name has a space, so that no pod has this key. A UID would not do: a pod that has
        // terminated may run again, if its node says so.
        self.retained_count += 1;
        let key = format!("{key} {}", self.retained_count);
        self.insert(key.clone(), local, tables);
        self.retained.push_back(key);
        while self.retained.len() > MAX_RETAINED {
            if let Some(oldest) = self.retained.pop_front() {
                self.remove(&oldest, tables);
            }
        }
    }

    /// Returns whether a policy isolates a pod of this node.
    pub(crate) fn is_isolated_by(&self, policy: &str) -> bool {
        self.policy_uses.contains_key(policy)
    }

    /// Returns the policies that began or ended to isolate pods since the last call.
    pub(crate) fn take_changed_policies(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed_policies)
    }

    /// Writes the chains of unknown addresses.
    pub(crate) fn write_guards(&self, tables: &mut RuleTables) {
        self.counts.write_chains(&self.families, tables);
    }

    /// Returns the number of retained pods that count for the limit.
    #[cfg(test)]
    pub(crate) fn count_retained(&self) -> usize {
        self.retained.len()
    }

    /// Removes all retained pods.
    #[cfg(test)]
    pub(crate) fn release_retained(&mut self, tables: &mut RuleTables) {
        for key in std::mem::take(&mut self.retained) {
            self.remove(&key, tables);
        }
    }

    /// Takes an address from retained pods, because another pod has it now. Their other addresses
    /// stay isolated.
    fn release_address(&mut self, address: IpAddr, tables: &mut RuleTables) {
        let keys = self.keys_by_address.get(&address).cloned();
        for key in keys.into_iter().flatten() {
            if self.pods.get(&key).is_none_or(|local| !local.is_retained) {
                continue;
            }
            let Some(mut local) = self.remove(&key, tables) else {
                continue;
            };
            local.pod.addresses.retain(|own| *own != address);
            if local.pod.addresses.is_empty() {
                self.retained.retain(|retained| *retained != key);
            } else {
                self.insert(key, local, tables);
            }
        }
    }

    fn insert(&mut self, key: String, local: LocalPod, tables: &mut RuleTables) {
        let pod = &local.pod;
        if !local.is_retained {
            // A retained pod has a known address, and no other sandbox will be made for it.
            self.counts.add_pod(local.is_isolated());
        }
        self.keys_by_namespace
            .entry(pod.namespace.clone())
            .or_default()
            .insert(key.clone());
        for policy in local.isolating_policies.iter().flatten() {
            let uses = self.policy_uses.entry(policy.clone()).or_default();
            *uses += 1;
            if *uses == 1 {
                self.changed_policies.insert(policy.clone());
            }
        }
        for direction in Direction::BOTH {
            let policies = local.isolating_policies[direction.index()].clone();
            if !policies.is_empty() {
                self.add_to_group(direction, policies, tables);
            }
        }
        let addresses = pod.addresses.clone();
        self.pods.insert(key.clone(), local);
        for address in addresses {
            let keys = self.keys_by_address.entry(address).or_default();
            keys.insert(key.clone());
            self.write_verdicts(address, tables);
        }
    }

    fn remove(&mut self, key: &str, tables: &mut RuleTables) -> Option<LocalPod> {
        let local = self.pods.remove(key)?;
        let pod = &local.pod;
        if !local.is_retained {
            self.counts.remove_pod(local.is_isolated());
        }
        remove_key(&mut self.keys_by_namespace, &pod.namespace, key);
        for address in &pod.addresses {
            remove_key(&mut self.keys_by_address, address, key);
            self.write_verdicts(*address, tables);
        }
        for policy in local.isolating_policies.iter().flatten() {
            match self.policy_uses.get_mut(policy) {
                Some(uses) if *uses > 1 => *uses -= 1,
                _ => {
                    self.policy_uses.remove(policy);
                    self.changed_policies.insert(policy.clone());
                }
            }
        }
        for direction in Direction::BOTH {
            let policies = local.isolating_policies[direction.index()].clone();
            if !policies.is_empty() {
                self.remove_from_group(direction, policies, tables);
            }
        }
        Some(local)
    }

    fn add_to_group(
        &mut self,
        direction: Direction,
        policies: Vec<String>,
        tables: &mut RuleTables,
    ) {
        let size = self
            .group_sizes
            .entry((direction, policies.clone()))
            .or_default();
        *size += 1;
        if *size > 1 {
            return;
        }
        // Each policy accepts what it allows. What none of them accepts is dropped.
        let mut rules: Vec<String> = policies
            .iter()
            .map(|policy| format!("jump {}", policy_chain(direction, policy)))
            .collect();
        rules.push("drop".to_owned());
        let name = group_chain(direction, &policies);
        for family in &self.families {
            tables.set_chain(*family, &name, rules.clone());
        }
    }

    fn remove_from_group(
        &mut self,
        direction: Direction,
        policies: Vec<String>,
        tables: &mut RuleTables,
    ) {
        let name = group_chain(direction, &policies);
        let id = (direction, policies);
        match self.group_sizes.get_mut(&id) {
            Some(size) if *size > 1 => *size -= 1,
            _ => {
                self.group_sizes.remove(&id);
                for family in &self.families {
                    tables.remove_chain(*family, &name);
                }
            }
        }
    }

    /// Writes the verdicts of the pod that has an address.
    fn write_verdicts(&self, address: IpAddr, tables: &mut RuleTables) {
        let family = Family::of(address);
        if !self.families.contains(&family) {
            return;
        }
        let keys = self.keys_by_address.get(&address).into_iter().flatten();
        let pods: Vec<&LocalPod> = keys.filter_map(|key| self.pods.get(key)).collect();
        let element = address.to_string();
        for direction in Direction::BOTH {
            // Two pods have the same address for a moment if the end of the first one arrives late.
            // An isolated one comes first, so that no order of events opens it. Then the newer one;
            // the UID makes the order total.
            let owner = pods.iter().max_by_key(|local| {
                let is_isolated = local.is_isolated()[direction.index()];
                let age = (&local.pod.created, &local.pod.uid);
                (!local.is_retained, is_isolated, age)
            });
            let verdict = owner.map(|local| match &local.isolating_policies[direction.index()] {
                policies if policies.is_empty() => "accept".to_owned(),
                policies => format!("goto {}", group_chain(direction, policies)),
            });
            tables.set_element(family, &verdict_map(direction), &element, verdict);
        }
        let itself = (!pods.is_empty()).then(String::new);
        let pair = format!("{element} . {element}");
        tables.set_element(family, SAME_POD, &pair, itself);
    }
}

fn remove_key<K: std::hash::Hash + Eq>(
    index: &mut HashMap<K, BTreeSet<String>>,
    value: &K,
    key: &str,
) {
    if let Some(keys) = index.get_mut(value) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(value);
        }
    }
}

/// Returns the name of the chain of the pods that these policies isolate.
fn group_chain(direction: Direction, policies: &[String]) -> String {
    let first = policies.first().map_or("", String::as_str);
    // Names have no line breaks, so that different lists have different texts.
    object_name(
        &format!("pods-{}", direction.name()),
        &policies.join("\n"),
        first,
    )
}
