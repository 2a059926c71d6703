//! The options and results of the allocators of Services' addresses and ports.

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
    pub(crate) options: ServiceOptions,
}

/// Allocations of one write, and allocations that it replaces.
#[derive(Debug, Default)]
pub struct ServiceAllocation {
    pub(crate) service: ServiceName,
    pub(crate) allocated: AllocatedSet,
    pub(crate) replaced: AllocatedSet,
}

/// The Service that holds an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, Default)]
pub(crate) struct AllocatedSet {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) ports: Vec<u16>,
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
