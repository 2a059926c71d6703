//! Allocation of cluster IPs and node ports.
//!
//! Invariant: no address or port is allocated twice, whatever the number of API servers. An address
//! is allocated by creating its IPAddress object, a node port by a compare-and-swap on the range's
//! bitmap, both before the Service is written. If the write fails they are released. A crash in
//! between leaks at most one Service's allocations, which `repair` finds.

mod addresses;
mod families;
pub(crate) mod finding_queue;
mod findings;
mod ports;
mod repair;
mod spec;

pub use addresses::first_address;

#[cfg(test)]
pub(crate) use repair::Leaks;

use crate::allocators::{AllocatedSet, Allocators, ServiceAllocation, ServiceName};
use crate::registry::Registry;
use crate::write::Write;
use api_kinds::Resource;
use api_meta::{ApiError, Meta};
use api_validation::validate_create;
use serde_json::Value;

impl Allocators {
    /// Allocates the addresses and ports of a new or changed Service and writes them into the
    /// object. Does nothing for other kinds.
    pub(crate) async fn allocate_for(
        &self,
        registry: &Registry,
        write: &mut Write,
        service: &mut Value,
        old: Option<&Value>,
    ) -> Result<ServiceAllocation, ApiError> {
        // A status update must not allocate: it does not write the spec.
        if !is_service(&write.resource) || !write.subresource.is_empty() {
            return Ok(ServiceAllocation::default());
        }
        if old.is_none() {
            // Validates the client's values before any field is filled in or dropped.
            write.reject_invalid(service.name(), validate_create(write.kind(), service))?;
        }
        // Families come first, because they decide how many addresses are allocated, and of which
        // range.
        families::fill_families(&self.options, service, old)?;
        let mut allocation = ServiceAllocation {
            service: ServiceName {
                namespace: write.namespace.clone(),
                name: service.name().to_owned(),
            },
            ..ServiceAllocation::default()
        };
        let done = match self
            .allocate_addresses(registry, write, service, old, &mut allocation)
            .await
        {
            Ok(()) => {
                self.allocate_ports(registry, write, service, old, &mut allocation)
                    .await
            }
            Err(e) => Err(e),
        };
        match done {
            Ok(()) => Ok(allocation),
            Err(e) => {
                // The addresses may be allocated already when the ports fail.
                self.release_allocated(registry, allocation).await;
                Err(e)
            }
        }
    }

    /// Releases the allocations of a failed write.
    pub(crate) async fn release_allocated(
        &self,
        registry: &Registry,
        allocation: ServiceAllocation,
    ) {
        self.release_set(registry, &allocation.service, &allocation.allocated)
            .await;
    }

    /// Releases the allocations that a successful write replaced.
    pub(crate) async fn release_replaced(
        &self,
        registry: &Registry,
        allocation: ServiceAllocation,
    ) {
        self.release_set(registry, &allocation.service, &allocation.replaced)
            .await;
    }

    /// Releases the allocations of a deleted Service.
    pub(crate) async fn release_deleted(
        &self,
        registry: &Registry,
        resource: &Resource,
        service: &Value,
    ) {
        if is_service(resource) {
            let held = AllocatedSet {
                addresses: addresses::cluster_ips(service),
                ports: ports::node_ports(service),
            };
            let name = ServiceName {
                namespace: service.namespace().to_owned(),
                name: service.name().to_owned(),
            };
            self.release_set(registry, &name, &held).await;
        }
    }

    async fn release_set(
        &self,
        registry: &Registry,
        service: &ServiceName,
        allocated: &AllocatedSet,
    ) {
        for address in &allocated.addresses {
            addresses::release_address(registry, service, *address).await;
        }
        if !allocated.ports.is_empty()
            && let Err(e) =
                ports::release_ports(registry, &self.options.node_ports, &allocated.ports).await
        {
            tracing::warn!(error = %e, ports = ?allocated.ports, "node ports could not be released; the next round of repair does it");
        }
    }
}

fn is_service(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "services"
}
