//! Repairs allocations, so that they agree with the existing Services.
//!
//! An address or port of a Service that is not allocated is allocated at once. An allocation
//! without a Service is released only after several rounds: an API server allocates before it
//! writes the Service, so a recent allocation is no leak.

use super::{addresses, ports};
use crate::errors::store_error;
use crate::registry::Registry;
use api_meta::{ApiError, Meta};
use apiserver_convert::encode_stored;
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
            .map(|item| (item, before.get(&item).copied().unwrap_or(0) + 1))
            .collect();
        let ripe: Vec<T> = self
            .0
            .iter()
            .filter(|(_, rounds)| **rounds >= ROUNDS)
            .map(|(item, _)| *item)
            .collect();
        self.0.retain(|_, rounds| *rounds < ROUNDS);
        ripe
    }
}

impl Registry {
    /// Allocates the addresses and ports of Services that lack an allocation.
    ///
    /// # Errors
    /// The store can't be reached.
    pub async fn repair_allocations(&self) -> Result<(), ApiError> {
        let services = self.cached_services();
        let range = &self.options.services.options.node_ports;
        ports::add_ports(self, range, &used_ports(&services))
            .await
            .map_err(|e| store_error(&e))?;
        self.record_addresses(&services).await
    }

    /// Repairs allocations every minute and releases leaked ones, until `stop`.
    pub async fn keep_allocations(&self, stop: &CancellationToken) {
        let (mut lost_ports, mut lost_addresses) = (LeakCounter::new(), LeakCounter::new());
        while stop
            .run_until_cancelled(tokio::time::sleep(INTERVAL))
            .await
            .is_some()
        {
            // A stale cache would show allocations without their Services.
            let fresh = self.wait_for_version("").await;
            let done = match fresh {
                Ok(_) => {
                    self.release_leaks(&mut lost_ports, &mut lost_addresses)
                        .await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                tracing::info!(%error, "allocations of Services are repaired in the next round");
            }
        }
    }

    async fn release_leaks(
        &self,
        lost_ports: &mut LeakCounter<u16>,
        lost_addresses: &mut LeakCounter<IpAddr>,
    ) -> Result<(), ApiError> {
        self.repair_allocations().await?;
        let range = &self.options.services.options.node_ports;
        let newly_allocated = ports::allocated_ports(self, range)
            .await
            .map_err(|e| store_error(&e))?;
        let recorded = self.recorded_addresses();
        // Read the Services after the allocations, so that a Service written in between is seen.
        self.wait_for_version("").await?;
        let services = self.cached_services();
        let used = used_ports(&services);
        let ports = lost_ports.count_round(newly_allocated.difference(&used).copied());
        if !ports.is_empty() {
            tracing::info!(?ports, "node ports without a Service are released");
            ports::release_ports(self, range, &ports)
                .await
                .map_err(|e| store_error(&e))?;
        }
        let used = used_addresses(&services);
        for address in lost_addresses.count_round(
            recorded
                .into_iter()
                .filter(|address| !used.contains_key(address)),
        ) {
            tracing::info!(%address, "an address without a Service is released");
            addresses::release_address(self, address).await;
        }
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

    /// Returns the addresses of IPAddress objects that API servers created.
    fn recorded_addresses(&self) -> Vec<IpAddr> {
        let Some(cache) = self.caches.find_cache("networking.k8s.io", "ipaddresses") else {
            return Vec::new();
        };
        let snapshot = cache.snapshot(0);
        let ours = snapshot.range_entries("", "").filter(|entry| {
            entry.label("ipaddress.kubernetes.io/managed-by") == Some("ipallocator.k8s.io")
        });
        ours.filter_map(|entry| entry.name().parse().ok()).collect()
    }

    async fn record_addresses(&self, services: &[Arc<Value>]) -> Result<(), ApiError> {
        let Some(cache) = self.caches.find_cache("networking.k8s.io", "ipaddresses") else {
            return Ok(());
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
            // Another server may repair at the same time; the next round sees its object.
            if let Err(error) = self.store.create(&key, bytes, None).await {
                tracing::warn!(%address, %error, "failed to create the IPAddress of a Service");
            }
        }
        Ok(())
    }
}

fn used_ports(services: &[Arc<Value>]) -> BTreeSet<u16> {
    services
        .iter()
        .flat_map(|service| ports::node_ports(service))
        .collect()
}

fn used_addresses(services: &[Arc<Value>]) -> BTreeMap<IpAddr, &Value> {
    let each = services.iter().map(|service| &**service);
    each.flat_map(|service| {
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
        assert!(leaks.count_round([30000, 30001]).is_empty());
        assert_eq!(leaks.count_round([30001]), [30001]);
    }
}
