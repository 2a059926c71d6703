//! Deletions of objects of every kind, from the garbage collector's metadata watches to other
//! controllers.

use std::sync::Arc;

use parking_lot::RwLock;

/// Callbacks for every deletion that the garbage collector's watches see: group, plural, namespace.
#[derive(Clone, Default)]
pub struct Deletions {
    listeners: Arc<RwLock<Vec<Listener>>>,
}

type Listener = Box<dyn Fn(&str, &str, &str) + Send + Sync>;

impl std::fmt::Debug for Deletions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Deletions")
    }
}

impl Deletions {
    /// Registers a callback.
    pub fn subscribe(&self, listener: impl Fn(&str, &str, &str) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    /// Calls all callbacks.
    pub fn notify(&self, group: &str, plural: &str, namespace: &str) {
        self.listeners
            .read()
            .iter()
            .for_each(|l| l(group, plural, namespace));
    }
}
