//! The view of the cluster: informers' stores with indexes for DNS.

use std::net::IpAddr;
use std::sync::Arc;

use base_task::Tasks;
use client::{Client, Informer, ListParams, Store};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::zone::{View, lookup::service_name};

/// A view fed by informers.
#[derive(Clone)]
pub struct InformerView {
    services: Store<Service>,
    slices: Store<EndpointSlice>,
    namespaces: Store<Namespace>,
}

impl InformerView {
    /// Starts the informers.
    #[must_use]
    pub fn start(client: &Client, tasks: &Tasks) -> Self {
        let services = Informer::new(client.api::<Service>(), ListParams::new())
            // Annotations such as the last applied configuration are larger than the rest, and DNS
            // reads none.
            .transform(|service: &mut Service| service.metadata.annotations = None)
            .index("address", cluster_addresses)
            .spawn(tasks);
        let slices = Informer::new(client.api::<EndpointSlice>(), ListParams::new())
            .transform(|slice: &mut EndpointSlice| slice.metadata.annotations = None)
            .index("service", |slice| service_key(slice).into_iter().collect())
            .index("address", |slice| {
                slice
                    .endpoints
                    .iter()
                    .flatten()
                    .flat_map(|e| e.addresses.clone())
                    .collect()
            })
            .spawn(tasks);
        let namespaces = Informer::new(client.api::<Namespace>(), ListParams::new()).spawn(tasks);
        Self {
            services,
            slices,
            namespaces,
        }
    }

    /// Waits until the informers have synced.
    pub async fn wait_until_synced(&self) {
        self.services.wait_until_synced().await;
        self.slices.wait_until_synced().await;
        self.namespaces.wait_until_synced().await;
    }
}

fn cluster_addresses(service: &Service) -> Vec<String> {
    let Some(spec) = &service.spec else {
        return Vec::new();
    };
    spec.cluster_ips
        .clone()
        .unwrap_or_default()
        .into_iter()
        .filter(|ip| ip != "None")
        .collect()
}

fn service_key(slice: &EndpointSlice) -> Option<String> {
    Some(format!(
        "{}/{}",
        slice.metadata.namespace.as_deref()?,
        service_name(slice)?
    ))
}

impl View for InformerView {
    fn find_service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        self.services.get(&format!("{namespace}/{name}"))
    }

    fn list_slices(&self, namespace: &str, name: &str) -> Vec<Arc<EndpointSlice>> {
        self.slices
            .by_index("service", &format!("{namespace}/{name}"))
    }

    fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.get(name).is_some()
    }

    fn find_service_by_address(&self, address: IpAddr) -> Option<Arc<Service>> {
        self.services
            .by_index("address", &address.to_string())
            .into_iter()
            .next()
    }

    fn list_slices_by_address(&self, address: IpAddr) -> Vec<Arc<EndpointSlice>> {
        self.slices.by_index("address", &address.to_string())
    }

    fn has_synced(&self) -> bool {
        self.services.has_synced() && self.slices.has_synced() && self.namespaces.has_synced()
    }
}
