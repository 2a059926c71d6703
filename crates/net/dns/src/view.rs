//! The view of the cluster: informers' stores with indexes for DNS.

use std::net::IpAddr;
use std::sync::Arc;

use base_task::Tasks;
use client::{Client, Informer, ListParams, Store};
use k8s_openapi::api::core::v1::{Namespace, Pod, PodStatus, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::zone::{View, lookup::service_name};

/// A view fed by informers.
#[derive(Clone)]
pub struct InformerView {
    services: Store<Service>,
    slices: Store<EndpointSlice>,
    namespaces: Store<Namespace>,
    /// Only for the search paths of pods.
    pods: Option<Store<Pod>>,
}

impl InformerView {
    /// Starts the informers; that of pods only `with_pods`.
    #[must_use]
    pub fn start(client: &Client, tasks: &Tasks, with_pods: bool) -> Self {
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
        let pods = with_pods.then(|| start_pods(client, tasks));
        Self {
            services,
            slices,
            namespaces,
            pods,
        }
    }

    /// Waits until the informers have synced.
    pub async fn wait_until_synced(&self) {
        self.services.wait_until_synced().await;
        self.slices.wait_until_synced().await;
        self.namespaces.wait_until_synced().await;
    }
}

/// Starts the informer of the pods that may send requests.
fn start_pods(client: &Client, tasks: &Tasks) -> Store<Pod> {
    // The address of a pod that has ended may be that of another one by now.
    let alive = "status.phase!=Succeeded,status.phase!=Failed";
    Informer::new(client.api::<Pod>(), ListParams::new().with_fields(alive))
        .transform(keep_addresses)
        .index("address", pod_addresses)
        .spawn(tasks)
}

/// Removes everything but name and addresses. The address of a node is not one of its pods alone.
fn keep_addresses(pod: &mut Pod) {
    let is_on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    let status = pod.status.take().filter(|_| !is_on_host);
    pod.spec = None;
    pod.metadata.annotations = None;
    pod.metadata.labels = None;
    pod.metadata.managed_fields = None;
    pod.metadata.owner_references = None;
    pod.status = status.map(|status| PodStatus {
        pod_ips: status.pod_ips,
        ..PodStatus::default()
    });
}

fn pod_addresses(pod: &Pod) -> Vec<String> {
    let status = pod.status.as_ref();
    let addresses = status.and_then(|status| status.pod_ips.as_ref());
    addresses
        .into_iter()
        .flatten()
        .map(|ip| ip.ip.clone())
        .collect()
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

    fn namespace_of_pod(&self, address: IpAddr) -> Option<String> {
        let pods = self
            .pods
            .as_ref()?
            .by_index("address", &address.to_string());
        // Two pods have one address for a moment, after one has ended.
        match pods.as_slice() {
            [pod] => pod.metadata.namespace.clone(),
            _ => None,
        }
    }

    fn has_synced(&self) -> bool {
        self.services.has_synced() && self.slices.has_synced() && self.namespaces.has_synced()
    }
}
