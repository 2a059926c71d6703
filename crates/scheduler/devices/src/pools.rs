//! Pools of devices, from ResourceSlices.
//!
//! A pool is spread over the slices of its newest generation. Which slices count is decided for
//! each node: a slice of one node, which that node may have forged, never replaces the pool of
//! another node. It can hide a pool that several nodes share, because the pool's length and
//! generation are those of all of its slices.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use api_meta::Quantity;
use api_semantics::selectors::node_matches;
use k8s_openapi::api::core::v1::{Node, NodeSelector};
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};

/// Driver and name of a pool.
type PoolId<'a> = (&'a str, &'a str);

/// ResourceSlices by node and by pool.
#[derive(Debug, Default)]
pub struct Pools {
    slices: Vec<Arc<ResourceSlice>>,
    by_node: HashMap<String, Vec<usize>>,
    shared: Vec<usize>,
    by_pool: HashMap<String, HashMap<String, Vec<usize>>>,
}

/// The state of a pool, which decides if its devices can be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolState {
    Complete,
    /// The driver is publishing the slices.
    Incomplete,
    /// The slices contradict each other.
    Invalid,
}

/// Amounts by counter set and counter.
pub(crate) type Counters<'a> = BTreeMap<(&'a str, &'a str), Quantity>;

/// The part of a pool that a node can reach.
#[derive(Debug)]
pub(crate) struct NodePool<'a> {
    pub(crate) driver: &'a str,
    pub(crate) name: &'a str,
    pub(crate) state: PoolState,
    /// Slices with devices for the node.
    pub(crate) slices: Vec<&'a ResourceSlice>,
    /// The pool's other slices: their devices consume the same counters.
    pub(crate) others: Vec<&'a ResourceSlice>,
    pub(crate) counters: Counters<'a>,
}

impl Pools {
    /// Indexes slices.
    pub fn new(slices: Vec<Arc<ResourceSlice>>) -> Self {
        let mut pools = Self::default();
        for (index, slice) in slices.iter().enumerate() {
            let spec = &slice.spec;
            let node = spec.node_name.as_deref().filter(|name| !name.is_empty());
            match node {
                Some(node) => pools
                    .by_node
                    .entry(node.to_owned())
                    .or_default()
                    .push(index),
                None => pools.shared.push(index),
            }
            let of_driver = pools.by_pool.entry(spec.driver.clone()).or_default();
            of_driver
                .entry(spec.pool.name.clone())
                .or_default()
                .push(index);
        }
        pools.slices = slices;
        pools
    }

    /// Returns the pools with devices for a node, in the order in which they are tried.
    pub(crate) fn list_for_node(&self, node: &Node) -> Vec<NodePool<'_>> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let local = self.by_node.get(name).into_iter().flatten();
        let mut found: BTreeMap<PoolId<'_>, Vec<&ResourceSlice>> = BTreeMap::new();
        for index in local.chain(&self.shared) {
            let Some(slice) = self.slices.get(*index) else {
                continue;
            };
            if !is_relevant(slice, node) {
                continue;
            }
            let id = (slice.spec.driver.as_str(), slice.spec.pool.name.as_str());
            let slices = found.entry(id).or_default();
            let newest = slices
                .first()
                .map_or(i64::MIN, |first| first.spec.pool.generation);
            if slice.spec.pool.generation > newest {
                slices.clear();
            }
            if slice.spec.pool.generation >= newest {
                slices.push(slice);
            }
        }
        let pools = found.into_iter();
        let mut pools: Vec<_> = pools
            .filter_map(|(id, slices)| self.build_pool(id, slices))
            .collect();
        // Devices that are ready at once come first. The sort keeps the order by name.
        pools.sort_by_key(has_binding_conditions);
        pools
    }

    /// Builds a pool of slices of one generation. None if the pool has a newer generation, without
    /// devices for the node.
    fn build_pool<'a>(
        &'a self,
        id: PoolId<'a>,
        mut slices: Vec<&'a ResourceSlice>,
    ) -> Option<NodePool<'a>> {
        let first = &slices.first()?.spec.pool;
        let (generation, count) = (first.generation, first.resource_slice_count);
        slices.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let mut others = Vec::new();
        let mut state = PoolState::Complete;
        if !has_length(&slices, count) {
            let all = self.list_pool(id);
            if all
                .iter()
                .any(|slice| slice.spec.pool.generation > generation)
            {
                return None;
            }
            let current = |slice: &&ResourceSlice| slice.spec.pool.generation == generation;
            let all: Vec<_> = all.into_iter().filter(current).collect();
            if !has_length(&all, count) {
                state = PoolState::Incomplete;
            }
            let known: HashSet<_> = slices.iter().map(|slice| &slice.metadata.name).collect();
            others = all;
            others.retain(|slice| !known.contains(&slice.metadata.name));
        }
        let mut pool = NodePool {
            driver: id.0,
            name: id.1,
            state,
            counters: Counters::new(),
            slices,
            others,
        };
        if state == PoolState::Complete && pool.read_counters().is_none() {
            pool.state = PoolState::Invalid;
        }
        Some(pool)
    }

    fn list_pool(&self, (driver, name): PoolId<'_>) -> Vec<&ResourceSlice> {
        let pool = self.by_pool.get(driver).and_then(|pools| pools.get(name));
        let indexes = pool.into_iter().flatten();
        indexes
            .filter_map(|index| self.slices.get(*index).map(|slice| &**slice))
            .collect()
    }
}

impl<'a> NodePool<'a> {
    /// Reads the counters; None if the pool's slices contradict each other.
    fn read_counters(&mut self) -> Option<()> {
        let mut names = HashSet::new();
        let mut devices = self.slices.iter().flat_map(|slice| devices_of(slice));
        if !devices.all(|device| names.insert(device.name.as_str())) {
            return None;
        }
        let mut sets = HashSet::new();
        for set in self
            .slices
            .iter()
            .flat_map(|slice| slice.spec.shared_counters.iter().flatten())
        {
            if !sets.insert(set.name.as_str()) {
                return None;
            }
            for (name, counter) in &set.counters {
                let value = counter.value.0.parse().ok()?;
                self.counters.insert((&set.name, name), value);
            }
        }
        let all = self.slices.iter().chain(&self.others);
        let mut consumed = all
            .flat_map(|slice| devices_of(slice))
            .flat_map(consumption);
        consumed
            .all(|entry| entry.is_some_and(|(counter, _)| self.counters.contains_key(&counter)))
            .then_some(())
    }
}

/// Returns the counters that a device consumes. An amount that can't be read is None.
pub(crate) fn consumption(
    device: &Device,
) -> impl Iterator<Item = Option<((&str, &str), Quantity)>> {
    let sets = device.consumes_counters.iter().flatten();
    sets.flat_map(|set| {
        set.counters.iter().map(|(name, counter)| {
            let value = counter.value.0.parse().ok()?;
            Some(((set.counter_set.as_str(), name.as_str()), value))
        })
    })
}

/// Returns the devices of a slice.
pub(crate) fn devices_of(slice: &ResourceSlice) -> &[Device] {
    slice.spec.devices.as_deref().unwrap_or_default()
}

fn has_counters(slice: &ResourceSlice) -> bool {
    slice
        .spec
        .shared_counters
        .as_ref()
        .is_some_and(|sets| !sets.is_empty())
}

fn has_length(slices: &[&ResourceSlice], count: i64) -> bool {
    i64::try_from(slices.len()) == Ok(count)
}

fn has_binding_conditions(pool: &NodePool<'_>) -> bool {
    let mut devices = pool.slices.iter().flat_map(|slice| devices_of(slice));
    devices.any(|device| device.binding_conditions.is_some())
}

/// Returns whether a slice has devices for a node, or counters of devices.
fn is_relevant(slice: &ResourceSlice, node: &Node) -> bool {
    let spec = &slice.spec;
    let is_local = spec.node_name.as_ref().is_some_and(|name| !name.is_empty());
    if has_counters(slice) && !is_local {
        return true;
    }
    if spec.per_device_node_selection == Some(true) {
        return devices_of(slice)
            .iter()
            .any(|device| is_for_node(slice, device, node));
    }
    selects_node(
        spec.node_name.as_deref(),
        spec.all_nodes,
        spec.node_selector.as_ref(),
        node,
    )
}

/// Returns whether a device of a relevant slice can be used on a node.
pub(crate) fn is_for_node(slice: &ResourceSlice, device: &Device, node: &Node) -> bool {
    if slice.spec.per_device_node_selection != Some(true) {
        return true;
    }
    let selector = device.node_selector.as_ref();
    selects_node(
        device.node_name.as_deref(),
        device.all_nodes,
        selector,
        node,
    )
}

/// Returns whether a node is selected. A selection of an unknown kind selects none.
fn selects_node(
    name: Option<&str>,
    all: Option<bool>,
    selector: Option<&NodeSelector>,
    node: &Node,
) -> bool {
    match name.filter(|name| !name.is_empty()) {
        Some(name) => node.metadata.name.as_deref() == Some(name),
        None => all == Some(true) || selector.is_some_and(|selector| node_matches(selector, node)),
    }
}
