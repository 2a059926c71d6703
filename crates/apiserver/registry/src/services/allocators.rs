//! The allocators' options and results.

use ipnet::IpNet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The ranges.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// `--service-cluster-ip-range`; the first CIDR decides the primary family.
    pub cidrs: Vec<IpNet>,
    /// `--service-node-port-range`.
    pub node_ports: RangeInclusive<u16>,
}

/// The allocators of cluster IPs and node ports.
pub struct Allocators {
    pub(super) options: ServiceOptions,
}

/// Allocations of one write, and allocations that it replaces.
#[derive(Debug, Default)]
pub struct ServiceAllocation {
    pub(super) service: ServiceName,
    pub(super) allocated: AllocatedSet,
    pub(super) replaced: AllocatedSet,
}

/// The Service that holds an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServiceName {
    pub(super) namespace: String,
    pub(super) name: String,
}

#[derive(Debug, Default)]
pub(super) struct AllocatedSet {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) ports: Vec<u16>,
}

impl Allocators {
    /// Creates allocators of these ranges.
    pub fn new(options: ServiceOptions) -> Self {
        Allocators { options }
    }

    /// Returns the ranges.
    pub fn options(&self) -> &ServiceOptions {
        &self.options
    }
}
