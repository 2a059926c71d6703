//! ResourceClaims, ResourceSlices and DeviceClasses: informers' stores behind the trait of plugins.

use std::sync::{Arc, OnceLock};

use api_semantics::devices::is_allocated;
use client::{Client, Event, Informer, ListParams, Object, Store};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use parking_lot::Mutex;
use scheduler_devices::{Allocated, DeviceView, Ledger, Pools};
use scheduler_framework::ClusterEvent;

/// Index of the claims with devices.
const ALLOCATED: &str = "allocated";

struct Stores {
    claims: Store<ResourceClaim>,
    slices: Store<ResourceSlice>,
    classes: Store<DeviceClass>,
}

/// A value and the version from which it was computed.
type Computed<V, T> = Mutex<Option<(V, Arc<T>)>>;

/// The view; empty until [`DeviceStores::start_informers`].
#[derive(Default)]
pub(crate) struct DeviceStores {
    stores: OnceLock<Stores>,
    ledger: Ledger,
    pools: Computed<u64, Pools>,
    /// By the versions of the claims and of the ledger.
    allocated: Computed<(u64, u64), Allocated>,
}

impl DeviceStores {
    /// Starts the informers; `notify` is called for changes that may help a pod.
    pub(crate) fn start_informers<F>(&self, client: &Client, tasks: &base_task::Tasks, notify: &F)
    where
        F: Fn(ClusterEvent) + Clone + Send + Sync + 'static,
    {
        fn notify_of_devices<K, F: Fn(ClusterEvent)>(notify: F) -> impl Fn(Event<K>) {
            move |_| notify(ClusterEvent::DevicesChanged)
        }
        let of_claim = notify.clone();
        let index = |claim: &ResourceClaim| {
            let value = is_allocated(claim).then(|| ALLOCATED.to_owned());
            value.into_iter().collect::<Vec<_>>()
        };
        let stores = Stores {
            claims: Informer::new(client.api(), ListParams::new())
                .index(ALLOCATED, index)
                .on_event(move |event| of_claim(describe_change(&event)))
                .spawn(tasks),
            slices: Informer::new(client.api(), ListParams::new())
                .on_event(notify_of_devices(notify.clone()))
                .spawn(tasks),
            classes: Informer::new(client.api(), ListParams::new())
                .on_event(notify_of_devices(notify.clone()))
                .spawn(tasks),
        };
        let (claims, slices) = (stores.claims.clone(), stores.slices.clone());
        let (classes, notify) = (stores.classes.clone(), notify.clone());
        tasks.spawn("informers of devices", async move {
            claims.wait_until_synced().await;
            slices.wait_until_synced().await;
            classes.wait_until_synced().await;
            // For the pods that were tried before.
            notify(ClusterEvent::DevicesChanged);
        });
        // The scheduler starts its informers once.
        let _ = self.stores.set(stores);
    }
}

fn describe_change(event: &Event<ResourceClaim>) -> ClusterEvent {
    let claim = event.object();
    let freed = match event {
        Event::Applied { old, new } => {
            old.as_ref().is_some_and(|old| is_allocated(old)) && !is_allocated(new)
        }
        Event::Deleted(last) => is_allocated(last),
    };
    let meta = claim.meta();
    ClusterEvent::ResourceClaimChanged {
        namespace: meta.namespace.as_deref().unwrap_or_default().into(),
        name: meta.name.as_deref().unwrap_or_default().into(),
        freed,
    }
}

impl DeviceView for DeviceStores {
    fn has_synced(&self) -> bool {
        self.stores.get().is_some_and(|stores| {
            stores.claims.has_synced() && stores.slices.has_synced() && stores.classes.has_synced()
        })
    }

    fn resource_claim(&self, namespace: &str, name: &str) -> Option<Arc<ResourceClaim>> {
        let claims = &self.stores.get()?.claims;
        // Also where no pod has a claim without devices, for which the ledger is read.
        self.ledger.forget_shown(claims.version());
        let key = format!("{namespace}/{name}");
        let shown = claims.get(&key)?;
        let newest = self.ledger.newest_claim(shown.clone());
        if !Arc::ptr_eq(&newest, &shown) {
            return Some(newest);
        }
        // Read again: the ledger may have forgotten a state that the informer shows only now.
        claims.get(&key)
    }

    fn device_class(&self, name: &str) -> Option<Arc<DeviceClass>> {
        self.stores.get()?.classes.get(name)
    }

    fn pools(&self) -> Arc<Pools> {
        let Some(stores) = self.stores.get() else {
            return Arc::default();
        };
        // Read first: a change in between makes the next call compute again.
        let version = stores.slices.version();
        let mut computed = self.pools.lock();
        if let Some((_, pools)) = computed.as_ref().filter(|(known, _)| *known == version) {
            return pools.clone();
        }
        let pools = Arc::new(Pools::new(stores.slices.list()));
        *computed = Some((version, pools.clone()));
        pools
    }

    fn allocated(&self) -> Arc<Allocated> {
        let Some(stores) = self.stores.get() else {
            return Arc::default();
        };
        // Forgotten before the store is read, which then shows at least this version.
        let version = stores.claims.version();
        self.ledger.forget_shown(version);
        // As for the pools: read before the value is computed.
        let versions = (version, self.ledger.revision());
        let mut computed = self.allocated.lock();
        if let Some((_, known)) = computed.as_ref().filter(|(known, _)| *known == versions) {
            return known.clone();
        }
        let shown = stores.claims.by_index(ALLOCATED, ALLOCATED);
        let allocated = Arc::new(self.ledger.count_allocated(shown.iter()));
        *computed = Some((versions, allocated.clone()));
        allocated
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}
