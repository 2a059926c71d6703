//! The changes that the informers record for the next sync.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use tokio::sync::Notify;

/// Changes since the last sync.
#[derive(Default)]
pub(crate) struct DirtyServices {
    pub(crate) services: Mutex<BTreeSet<String>>,
    pub(crate) node: Mutex<bool>,
    pub(crate) wake: Notify,
}

impl DirtyServices {
    pub(crate) fn mark_service(&self, key: String) {
        self.services.lock().insert(key);
        self.wake.notify_one();
    }

    pub(crate) fn mark_node(&self) {
        *self.node.lock() = true;
        self.wake.notify_one();
    }
}

/// Returns the key of an object in its store.
pub(crate) fn object_key(
    meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> String {
    format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    )
}
