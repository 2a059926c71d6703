//! The changes that the informers record for the next sync.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Keys of changed objects since the last sync.
#[derive(Default)]
pub(crate) struct DirtyObjects {
    pub(crate) pods: KeySet,
    pub(crate) namespaces: KeySet,
    pub(crate) policies: KeySet,
    pub(crate) wake: Notify,
}

/// Keys of changed objects of a kind.
#[derive(Default)]
pub(crate) struct KeySet(Mutex<BTreeSet<String>>);

impl KeySet {
    /// Returns the keys, and forgets them.
    pub(crate) fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.0.lock())
    }

    fn insert(&self, key: String) {
        self.0.lock().insert(key);
    }
}

impl DirtyObjects {
    pub(crate) fn mark_pod(&self, key: String) {
        self.pods.insert(key);
        self.wake.notify_one();
    }

    pub(crate) fn mark_namespace(&self, key: String) {
        self.namespaces.insert(key);
        self.wake.notify_one();
    }

    pub(crate) fn mark_policy(&self, key: String) {
        self.policies.insert(key);
        self.wake.notify_one();
    }
}
