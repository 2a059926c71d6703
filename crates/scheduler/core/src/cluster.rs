//! Other objects that plugins read: informers' stores behind the framework's traits.

use std::sync::{Arc, OnceLock};

use api_semantics::selectors::Labels;
use client::{Client, Event, Informer, ListParams, Object, ObjectExt, Store};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use scheduler_devices::DeviceView;
use scheduler_framework::{ClaimView, Cluster, ClusterEvent, WaitingPods};

use crate::devices::DeviceStores;

const NAMESPACE: &str = "namespace";
const CLASS: &str = "class";

pub(crate) struct Stores {
    pub(crate) claims: Store<PersistentVolumeClaim>,
    pub(crate) volumes: Store<PersistentVolume>,
    pub(crate) classes: Store<StorageClass>,
    pub(crate) budgets: Store<PodDisruptionBudget>,
    pub(crate) services: Store<Service>,
}

/// The view; empty until [`ClusterView::start_informers`].
#[derive(Default)]
pub(crate) struct ClusterView {
    stores: OnceLock<Stores>,
    devices: DeviceStores,
    waiting: WaitingPods,
}

fn by_namespace<K: Object + k8s_openapi::Resource>(client: &Client) -> Informer<K> {
    Informer::new(client.api(), ListParams::new())
        .index(NAMESPACE, |object: &K| vec![object.namespace().to_owned()])
}

impl ClusterView {
    /// Starts the informers; `notify` is called for changes that may help a pod.
    pub(crate) fn start_informers<F>(
        &self,
        client: &Client,
        tasks: &base_task::Tasks,
        notify: F,
    ) -> Option<&Stores>
    where
        F: Fn(ClusterEvent) + Clone + Send + Sync + 'static,
    {
        fn notify_on_change<K, F: Fn(ClusterEvent)>(notify: F) -> impl Fn(Event<K>) {
            move |_| notify(ClusterEvent::StorageChanged)
        }
        self.devices.start_informers(client, tasks, &notify);
        let stores = Stores {
            claims: Informer::new(client.api(), ListParams::new())
                .on_event(notify_on_change(notify.clone()))
                .spawn(tasks),
            volumes: Informer::new(client.api(), ListParams::new())
                .index(CLASS, |volume: &PersistentVolume| {
                    let class = volume
                        .spec
                        .as_ref()
                        .and_then(|spec| spec.storage_class_name.clone());
                    vec![class.unwrap_or_default()]
                })
                .on_event(notify_on_change(notify.clone()))
                .spawn(tasks),
            classes: Informer::new(client.api(), ListParams::new())
                .on_event(notify_on_change(notify))
                .spawn(tasks),
            budgets: by_namespace(client).spawn(tasks),
            services: by_namespace(client)
                .transform(|service: &mut Service| {
                    service.status = None;
                    // Only the selector is read.
                    service.metadata.annotations = None;
                })
                .spawn(tasks),
        };
        // Plugins are built before the client's informers start, so they hold a view that is filled
        // once.
        self.stores.set(stores).ok()?;
        self.stores.get()
    }
}

impl ClaimView for ClusterView {
    fn persistent_volume_claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<PersistentVolumeClaim>> {
        self.stores
            .get()?
            .claims
            .get(&format!("{namespace}/{name}"))
    }

    fn persistent_volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.stores.get()?.volumes.get(name)
    }

    fn volumes_of_class(&self, class: &str) -> Vec<Arc<PersistentVolume>> {
        self.stores
            .get()
            .map(|stores| stores.volumes.by_index(CLASS, class))
            .unwrap_or_default()
    }

    fn storage_class(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.stores.get()?.classes.get(name)
    }
}

impl Cluster for ClusterView {
    fn disruption_budgets(&self, namespace: &str) -> Vec<Arc<PodDisruptionBudget>> {
        self.stores
            .get()
            .map(|stores| stores.budgets.by_index(NAMESPACE, namespace))
            .unwrap_or_default()
    }

    fn claim_view(&self) -> &dyn ClaimView {
        self
    }

    fn service_selectors(&self, namespace: &str, labels: &Labels) -> Vec<Labels> {
        let Some(stores) = self.stores.get() else {
            return Vec::new();
        };
        let services = stores.services.by_index(NAMESPACE, namespace);
        let selectors = services
            .iter()
            .filter_map(|service| service.spec.as_ref()?.selector.clone());
        let selects = |selector: &Labels| {
            // A Service without a selector selects nothing. Its empty selector would match every
            // pod.
            !selector.is_empty()
                && selector
                    .iter()
                    .all(|(key, value)| labels.get(key) == Some(value))
        };
        selectors.filter(selects).collect()
    }

    fn device_view(&self) -> &dyn DeviceView {
        &self.devices
    }

    fn waiting_pods(&self) -> WaitingPods {
        self.waiting.clone()
    }
}
