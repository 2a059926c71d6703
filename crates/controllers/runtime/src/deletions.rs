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
        // The lock is held during the calls, so a callback must not subscribe.
        self.listeners
            .read()
            .iter()
            .for_each(|l| l(group, plural, namespace));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use parking_lot::Mutex;

    #[test]
    fn every_subscriber_receives_a_deletion() {
        let deletions = Deletions::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..2 {
            let seen = seen.clone();
            deletions.subscribe(move |group, plural, namespace| {
                seen.lock().push(format!("{group}/{plural} {namespace}"));
            });
        }
        deletions.clone().notify("apps", "deployments", "n");
        assert_eq!(*seen.lock(), ["apps/deployments n", "apps/deployments n"]);
    }
}
