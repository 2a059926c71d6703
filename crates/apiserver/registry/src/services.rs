//! Allocation of cluster IPs and node ports.
//!
//! Invariant: no address or port is allocated twice, whatever the number of API servers. An address
//! is allocated by creating its IPAddress object, a node port by a compare-and-swap on the range's
//! bitmap, both before the Service is written. If the write fails they are released. A crash in
//! between leaks at most one Service's allocations, which `repair` finds.

mod addresses;
mod families;
mod ports;
mod repair;

pub use addresses::first as first_address;

use crate::registry::Registry;
use crate::write::Write;
use api_kinds::Resource;
use api_meta::{ApiError, Meta};
use api_validation::validate_create;
use ipnet::IpNet;
use serde_json::Value;
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
    options: ServiceOptions,
}

/// Allocations of one write, and allocations that it replaces.
#[derive(Debug, Default)]
pub struct Claim {
    taken: Taken,
    replaced: Taken,
}

#[derive(Debug, Default)]
struct Taken {
    addresses: Vec<IpAddr>,
    ports: Vec<u16>,
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

    /// Allocates the addresses and ports of a new or changed Service and writes them into the
    /// object. Does nothing for other kinds.
    pub(crate) async fn claim_for(
        &self,
        registry: &Registry,
        write: &mut Write,
        service: &mut Value,
        old: Option<&Value>,
    ) -> Result<Claim, ApiError> {
        if !is_service(write.row) || !write.subresource.is_empty() {
            return Ok(Claim::default());
        }
        if old.is_none() {
            // Validates the client's values before any field is filled in or dropped.
            write.check(service.name(), validate_create(write.kind(), service))?;
        }
        families::fill(&self.options, service, old)?;
        let mut claim = Claim::default();
        let done = match self
            .addresses(registry, write, service, old, &mut claim)
            .await
        {
            Ok(()) => self.ports(registry, write, service, old, &mut claim).await,
            Err(e) => Err(e),
        };
        match done {
            Ok(()) => Ok(claim),
            Err(e) => {
                self.give_back(registry, claim).await;
                Err(e)
            }
        }
    }

    /// Releases the allocations of a failed write.
    pub(crate) async fn give_back(&self, registry: &Registry, claim: Claim) {
        self.free(registry, &claim.taken).await;
    }

    /// Releases the allocations that a successful write replaced.
    pub(crate) async fn release_replaced(&self, registry: &Registry, claim: Claim) {
        self.free(registry, &claim.replaced).await;
    }

    /// Releases the allocations of a deleted Service.
    pub(crate) async fn forget(&self, registry: &Registry, row: &Resource, service: &Value) {
        if is_service(row) {
            let had = Taken {
                addresses: addresses::of(service),
                ports: ports::of(service),
            };
            self.free(registry, &had).await;
        }
    }

    async fn free(&self, registry: &Registry, taken: &Taken) {
        for address in &taken.addresses {
            addresses::release(registry, *address).await;
        }
        if !taken.ports.is_empty()
            && let Err(e) = ports::release(registry, &self.options.node_ports, &taken.ports).await
        {
            tracing::warn!(error = %e, ports = ?taken.ports, "node ports could not be released; the next round of repair does it");
        }
    }
}

fn is_service(row: &Resource) -> bool {
    row.group.is_empty() && row.plural == "services"
}

fn spec_str<'a>(service: &'a Value, field: &str) -> &'a str {
    service
        .pointer("/spec")
        .and_then(|spec| spec.get(field)?.as_str())
        .unwrap_or_default()
}

fn service_type(service: &Value) -> &str {
    match spec_str(service, "type") {
        "" => "ClusterIP",
        ty => ty,
    }
}

/// Builds a 422 about a field of a Service.
fn refused(service: &Value, field: &str, value: &Value, why: &str) -> ApiError {
    let cause = api_meta::Cause {
        reason: "FieldValueInvalid".into(),
        message: format!("Invalid value: {value}: {why}"),
        field: field.into(),
    };
    ApiError::invalid("", "Service", service.name(), vec![cause])
}
