//! The devices that a node can reach, with what is in use of them.

use std::cell::OnceCell;

use api_cel::value::Value;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};

use crate::allocated::{Allocated, Use};
use crate::pools::{Counters, NodePool, PoolState, Pools, consumption, devices_of, is_for_node};
use crate::selectors::device_value;

/// A device that may be allocated.
#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) driver: &'a str,
    pub(crate) pool: &'a str,
    /// Index of the pool, for its counters.
    pub(crate) pool_index: usize,
    pub(crate) device: &'a Device,
    pub(crate) slice: &'a ResourceSlice,
    pub(crate) in_use: Option<&'a Use>,
    value: OnceCell<Result<Value<'static>, String>>,
}

impl Candidate<'_> {
    /// Returns whether several claims can have a part of the device.
    pub(crate) fn allows_multiple(&self) -> bool {
        self.device.allow_multiple_allocations == Some(true)
    }

    /// Returns the device for selectors.
    pub(crate) fn value(&self) -> &Result<Value<'static>, String> {
        self.value
            .get_or_init(|| device_value(self.driver, self.device))
    }
}

/// The devices of a node.
#[derive(Debug)]
pub(crate) struct NodeDevices<'a> {
    pub(crate) candidates: Vec<Candidate<'a>>,
    /// Counters that are left, by pool.
    pub(crate) counters: Vec<Counters<'a>>,
    /// A pool that is being published.
    pub(crate) incomplete: Option<String>,
    /// A pool that contradicts itself.
    pub(crate) invalid: Option<String>,
}

impl<'a> NodeDevices<'a> {
    pub(crate) fn list(pools: &'a Pools, allocated: &'a Allocated, node: &Node) -> Self {
        let mut found = Self {
            candidates: Vec::new(),
            counters: Vec::new(),
            incomplete: None,
            invalid: None,
        };
        for pool in pools.list_for_node(node) {
            let name = || Some(format!("{}/{}", pool.driver, pool.name));
            match pool.state {
                PoolState::Complete => found.add_pool(pool, allocated, node),
                PoolState::Incomplete => found.incomplete = name(),
                PoolState::Invalid => found.invalid = name(),
            }
        }
        found
    }

    fn add_pool(&mut self, pool: NodePool<'a>, allocated: &'a Allocated, node: &Node) {
        let pool_index = self.counters.len();
        for slice in &pool.slices {
            let devices = devices_of(slice).iter();
            let usable = devices.filter(|device| is_for_node(slice, device, node));
            self.candidates.extend(usable.map(|device| Candidate {
                driver: pool.driver,
                pool: pool.name,
                pool_index,
                device,
                slice,
                in_use: allocated.find_use(pool.driver, pool.name, &device.name),
                value: OnceCell::new(),
            }));
        }
        self.counters.push(counters_left(pool, allocated));
    }
}

/// Returns the counters of a pool without those of its allocated devices. What is left may be
/// negative.
fn counters_left<'a>(pool: NodePool<'a>, allocated: &Allocated) -> Counters<'a> {
    let mut left = pool.counters;
    if left.is_empty() {
        return left;
    }
    let slices = pool.slices.iter().chain(&pool.others);
    let devices = slices.flat_map(|slice| devices_of(slice));
    let used = devices.filter(|device| {
        allocated
            .find_use(pool.driver, pool.name, &device.name)
            .is_some()
    });
    for (counter, amount) in used.flat_map(consumption).flatten() {
        if let Some(value) = left.get_mut(&counter) {
            *value = value.minus(amount);
        }
    }
    left
}
