//! At the start: allocations are made to agree with the Services that there are.

use super::{addresses, ports};
use crate::errors::store_error;
use crate::registry::Registry;
use api_meta::{ApiError, Meta};
use apiserver_convert::encode_stored;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

impl Registry {
    /// Frees addresses and ports of Services that are gone, and takes those of Services that lack them.
    ///
    /// # Errors
    /// The store can't be reached.
    pub async fn repair_allocations(&self) -> Result<(), ApiError> {
        let Some(cache) = self.caches.of("", "services") else { return Ok(()) };
        let snapshot = cache.snapshot(0);
        let services: Vec<Arc<Value>> = snapshot.range("", "").filter_map(|e| e.tree().ok()).map(Arc::new).collect();
        let used: BTreeSet<u16> = services.iter().flat_map(|s| ports::of(s)).collect();
        let range = &self.options.services.options.node_ports;
        ports::reset(self, range, &used).await.map_err(|e| store_error(&e))?;
        self.repair_addresses(&services).await
    }

    async fn repair_addresses(&self, services: &[Arc<Value>]) -> Result<(), ApiError> {
        let Some(cache) = self.caches.of("networking.k8s.io", "ipaddresses") else { return Ok(()) };
        let mut wanted: BTreeMap<IpAddr, &Value> = BTreeMap::new();
        for service in services {
            wanted.extend(addresses::of(service).into_iter().map(|a| (a, &**service)));
        }
        for entry in cache.snapshot(0).range("", "") {
            let ours = entry.label("ipaddress.kubernetes.io/managed-by") == Some("ipallocator.k8s.io");
            let Ok(address) = entry.name().parse::<IpAddr>() else { continue };
            if wanted.remove(&address).is_none() && ours {
                tracing::info!(%address, "an address without a Service is given back");
                addresses::release(self, address).await;
            }
        }
        for (address, service) in wanted {
            let object = addresses::ip_address(service, service.namespace(), address);
            let key = self.caches.store_key(cache.kind(), "", &address.to_string());
            let bytes = encode_stored(cache.kind().row, &object).into();
            if let Err(e) = self.store.create(&key, bytes, None).await {
                tracing::warn!(%address, error = %e, "the IPAddress of a Service could not be made");
            }
        }
        Ok(())
    }
}
