//! Read access of plugins to claims, classes and devices.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};

use crate::allocated::Allocated;
use crate::ledger::Ledger;
use crate::pools::Pools;

/// Claims, classes and devices, as the informers and the scheduler's own decisions show them.
pub trait DeviceView: Send + Sync {
    /// Returns whether the informers have synced. Before that a device may look free.
    fn has_synced(&self) -> bool;
    /// Returns a claim by namespace and name.
    fn resource_claim(&self, namespace: &str, name: &str) -> Option<Arc<ResourceClaim>>;
    /// Returns a class by name.
    fn device_class(&self, name: &str) -> Option<Arc<DeviceClass>>;
    /// Returns all pools.
    fn pools(&self) -> Arc<Pools>;
    /// Returns the devices that are allocated, or about to be.
    fn allocated(&self) -> Arc<Allocated>;
    /// Returns the scheduler's decisions that the informers do not show yet.
    fn ledger(&self) -> &Ledger;
}

/// A cluster without devices.
#[derive(Debug, Default)]
pub struct NoDevices {
    ledger: Ledger,
}

impl DeviceView for NoDevices {
    fn has_synced(&self) -> bool {
        true
    }

    fn resource_claim(&self, _namespace: &str, _name: &str) -> Option<Arc<ResourceClaim>> {
        None
    }

    fn device_class(&self, _name: &str) -> Option<Arc<DeviceClass>> {
        None
    }

    fn pools(&self) -> Arc<Pools> {
        Arc::default()
    }

    fn allocated(&self) -> Arc<Allocated> {
        Arc::default()
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}
