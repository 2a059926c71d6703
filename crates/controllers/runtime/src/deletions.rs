//! Deletions of objects of every kind, from the garbage collector's metadata watches to other
//! controllers.

use std::sync::Arc;

use parking_lot::RwLock;

/// Callbacks for every deletion that the garbage collector's watches see: group, plural, namespace.
#[derive(Clone, Default)]
pub struct Deletions {
    listeners: Arc<RwLock<Vec<Listener>>>,
    gaps: Arc<RwLock<Vec<GapListener>>>,
}

type GapListener = Box<dyn Fn() + Send + Sync>;
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

    /// Registers a callback for gaps: deletions that the watches may have missed.
    pub fn subscribe_gaps(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.gaps.write().push(Box::new(listener));
    }

    /// Calls the callbacks for gaps.
    pub fn notify_gap(&self) {
        self.gaps.read().iter().for_each(|listener| listener());
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

    #[test]
    fn gap_calls_only_its_own_listeners() {
        let deletions = Deletions::default();
        let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = calls.clone();
        deletions.subscribe(|_, _, _| panic!("no deletion"));
        deletions.subscribe_gaps(move || {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        deletions.notify_gap();
        assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}
