//! Repairs allocations, so that they agree with the existing Services.
//!
//! An address or port of a Service that is not allocated is allocated at once. An allocation
//! without a Service is released only after several rounds: an API server allocates before it
//! writes the Service, so a recent allocation is no leak.

use super::finding_queue::{Defect, Finding};
use super::findings::{ReportedFindings, find_unrepairable};
use super::{addresses, ports};
use crate::errors::store_error;
use crate::registry::Registry;
use api_meta::{ApiError, Meta};
use apiserver_convert::encode_stored;
use apiserver_storage::StoreError;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const INTERVAL: Duration = Duration::from_secs(60);
/// Rounds without a Service after which an allocation is released; longer than any request.
const ROUNDS: u32 = 3;

/// Allocations without a Service, with the number of rounds since.
///
/// An address is counted with the revision of its IPAddress object, so that the count starts again
/// when another server has released the address and allocated it for a new Service.
#[derive(Debug)]
struct LeakCounter<T>(BTreeMap<T, u32>);

impl<T: Ord + Copy> LeakCounter<T> {
    fn new() -> Self {
        LeakCounter(BTreeMap::new())
    }

    /// Counts a round; returns the allocations that held no Service for `ROUNDS`.
    fn count_round(&mut self, unused: impl IntoIterator<Item = T>) -> Vec<T> {
        let before = std::mem::take(&mut self.0);
        self.0 = unused
            .into_iter()
            .map(|item| (item, before.get(&item).map_or(1, |rounds| rounds + 1)))
            .collect();
        let counted = self.0.iter();
        counted
            .filter(|(_, rounds)| **rounds >= ROUNDS)
            .map(|(item, _)| *item)
            .collect()
    }

    /// Starts the count again for allocations that were released.
    fn forget(&mut self, released: &[T]) {
        self.0.retain(|item, _| !released.contains(item));
    }
}

/// Possible leaks that one server's repair has seen.
#[derive(Debug)]
pub(crate) struct Leaks {
    ports: LeakCounter<u16>,
    addresses: LeakCounter<(IpAddr, i64)>,
    reported: ReportedFindings,
}

impl Leaks {
    pub(crate) fn new() -> Self {
        Leaks {
            ports: LeakCounter::new(),
            addresses: LeakCounter::new(),
            reported: ReportedFindings::default(),
        }
    }
}

impl Registry {
    /// Allocates the addresses and ports of Services that lack an allocation, and reports these.
    ///
    /// # Errors
    /// The store can't be reached.
    pub async fn repair_allocations(&self) -> Result<(), ApiError> {
        let services = self.cached_services();
        let range = &self.options.services.options.node_ports;
        let added = ports::add_ports(self, range, &used_ports(&services))
            .await
            .map_err(|e| store_error(&e))?;
        let mut findings = find_added_ports(&services, &added);
        findings.extend(self.record_addresses(&services).await);
        self.report_findings(findings);
        Ok(())
    }

    /// Reports the defects that this server has not reported yet and that repair cannot fix.
    fn report_unrepairable(&self, services: &[Arc<Value>], reported: &mut ReportedFindings) {
        let allocators = &self.options.services;
        let holder = |address| {
            let holder = addresses::find_cached_holder(self, address)?;
            let is_holder = |service: &&Arc<Value>| {
                service.namespace() == holder.namespace && service.name() == holder.name
            };
            Some(services.iter().find(is_holder)?.uid().to_owned())
        };
        let findings = find_unrepairable(
            services,
            &allocators.known_ranges(self),
            &allocators.options.node_ports,
            holder,
        );
        self.report_findings(reported.select_new(findings));
    }

    /// Repairs allocations every minute and releases leaked ones, until `stop`.
    pub async fn keep_allocations(&self, stop: &CancellationToken) {
        let mut leaks = Leaks::new();
        while stop
            .run_until_cancelled(tokio::time::sleep(INTERVAL))
            .await
            .is_some()
        {
            // A stale cache would show allocations without their Services.
            let fresh = self.wait_for_version("").await;
            let done = match fresh {
                Ok(_) => self.release_leaks(&mut leaks).await,
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                tracing::info!(%error, "allocations of Services are repaired in the next round");
            }
        }
    }

    /// Repairs allocations, counts those without a Service, and releases the leaked ones.
    pub(crate) async fn release_leaks(&self, leaks: &mut Leaks) -> Result<(), ApiError> {
        self.repair_allocations().await?;
        let range = &self.options.services.options.node_ports;
        let allocated = ports::read_ports(self, range)
            .await
            .map_err(|e| store_error(&e))?;
        let recorded = self.recorded_addresses();
        // Read the Services after the allocations, so that a Service written in between is seen.
        self.wait_for_version("").await?;
        let services = self.cached_services();
        self.report_unrepairable(&services, &mut leaks.reported);
        let used = used_ports(&services);
        let ports = leaks
            .ports
            .count_round(allocated.ports.difference(&used).copied());
        if !ports.is_empty() {
            match ports::release_leaked(self, range, &allocated, &ports).await {
                Ok(()) => {
                    tracing::info!(?ports, "node ports without a Service are released");
                    leaks.ports.forget(&ports);
                }
                // Still counted: the next round tries again.
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(store_error(&error)),
            }
        }
        let used = used_addresses(&services);
        let unused = recorded
            .into_iter()
            .filter(|(address, _)| !used.contains_key(address));
        let lost = leaks.addresses.count_round(unused);
        for (address, revision) in &lost {
            tracing::info!(%address, "an address without a Service is released");
            addresses::release_leaked(self, *address, *revision)
                .await
                .map_err(|e| store_error(&e))?;
        }
        leaks.addresses.forget(&lost);
        Ok(())
    }

    fn cached_services(&self) -> Vec<Arc<Value>> {
        let Some(cache) = self.caches.find_cache("", "services") else {
            return Vec::new();
        };
        cache
            .snapshot(0)
            .range_entries("", "")
            .filter_map(|e| e.decode_tree().ok())
            .map(Arc::new)
            .collect()
    }

    /// Returns the addresses of IPAddress objects that API servers created, with the revision of
    /// each object.
    fn recorded_addresses(&self) -> Vec<(IpAddr, i64)> {
        let Some(cache) = self.caches.find_cache("networking.k8s.io", "ipaddresses") else {
            return Vec::new();
        };
        let snapshot = cache.snapshot(0);
        let ours = snapshot.range_entries("", "").filter(|entry| {
            entry.label("ipaddress.kubernetes.io/managed-by") == Some("ipallocator.k8s.io")
        });
        ours.filter_map(|entry| Some((entry.name().parse().ok()?, entry.revision)))
            .collect()
    }

    /// Creates the missing IPAddress objects; returns a finding for each.
    async fn record_addresses(&self, services: &[Arc<Value>]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let Some(cache) = self.caches.find_cache("networking.k8s.io", "ipaddresses") else {
            return findings;
        };
        for (address, service) in used_addresses(services) {
            if cache.get(&address.to_string()).is_some() {
                continue;
            }
            let object = addresses::ip_address(service, service.namespace(), address);
            let key = self
                .caches
                .store_key(cache.kind(), "", &address.to_string());
            let bytes = encode_stored(&cache.kind().resource, &object).into();
            match self.store.create(&key, bytes, None).await {
                Ok(_) => findings.push(Finding {
                    service: service.clone(),
                    defect: Defect::AddressNotAllocated(address),
                }),
                // Another server may repair at the same time; the next round sees its object.
                Err(error) => {
                    tracing::warn!(%address, %error, "failed to create the IPAddress of a Service");
                }
            }
        }
        findings
    }
}

/// Returns a finding for each Service with one of the ports.
fn find_added_ports(services: &[Arc<Value>], added: &BTreeSet<u16>) -> Vec<Finding> {
    let each = services.iter().flat_map(|service| {
        let ports = ports::node_ports(service).into_iter();
        ports.map(move |port| (service, port))
    });
    each.filter(|(_, port)| added.contains(port))
        .map(|(service, port)| Finding {
            service: service.clone(),
            defect: Defect::PortNotAllocated(port),
        })
        .collect()
}

fn used_ports(services: &[Arc<Value>]) -> BTreeSet<u16> {
    services
        .iter()
        .flat_map(|service| ports::node_ports(service))
        .collect()
}

fn used_addresses(services: &[Arc<Value>]) -> BTreeMap<IpAddr, &Arc<Value>> {
    services
        .iter()
        .flat_map(|service| {
            addresses::cluster_ips(service)
                .into_iter()
                .map(move |address| (address, service))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_is_released_after_three_rounds_without_its_service() {
        let mut leaks = LeakCounter::new();
        assert!(leaks.count_round([30000, 30001]).is_empty());
        assert!(leaks.count_round([30000]).is_empty());
        // The Service of 30001 was written after the first round; the count starts again when it is
        // deleted.
        assert_eq!(leaks.count_round([30000, 30001]), [30000]);
        // Not released yet, for example because of a conflict.
        assert_eq!(leaks.count_round([30000]), [30000]);
        leaks.forget(&[30000]);
        assert!(leaks.count_round([30000, 30001]).is_empty());
        assert!(leaks.count_round([30000, 30001]).is_empty());
        assert_eq!(leaks.count_round([30000, 30001]), [30000, 30001]);
    }

    #[test]
    fn count_of_an_address_starts_again_with_a_new_object() {
        let mut leaks = LeakCounter::new();
        assert!(leaks.count_round([("192.0.2.1", 5)]).is_empty());
        assert!(leaks.count_round([("192.0.2.1", 5)]).is_empty());
        // Another server released the address and allocated it for a Service that is not written
        // yet.
        assert!(leaks.count_round([("192.0.2.1", 9)]).is_empty());
    }
}
