//! The definitions that have to be looked at, fed by the watch cache.

use crate::definition::is_terminating;
use crate::known::KnownNames;
use api_meta::Meta;
use apiserver_request::{GroupResource, ObjectEvent, Observer};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// The definitions that have to be looked at, with the names that changed ones have accepted:
/// decisions about one definition depend on the names of all.
pub(crate) type Due = BTreeMap<String, Option<KnownNames>>;

/// Names of definitions that changed or have to be tried again, and of those that are being
/// deleted.
#[derive(Debug, Default)]
pub struct Backlog {
    state: Mutex<State>,
    changed: Notify,
    // Read by each create of a custom resource.
    terminating: RwLock<HashSet<String>>,
}

#[derive(Debug, Default)]
struct State {
    due: Due,
    /// Failed: the time of the next attempt.
    later: HashMap<String, Instant>,
    failures: HashMap<String, u32>,
}

impl Observer for Backlog {
    fn object_changed(&self, _: &GroupResource, event: &ObjectEvent) {
        let (definition, deleted) = match event {
            ObjectEvent::Applied(definition) => (definition, false),
            ObjectEvent::Deleted(definition) => (definition, true),
        };
        let name = definition.name();
        if !deleted && is_terminating(definition) {
            self.terminating.write().insert(name.to_owned());
        } else if self.terminating.read().contains(name) {
            // Locked for a write only if it changes, so that other events block no create.
            self.terminating.write().remove(name);
        }
        let names = (!deleted).then(|| KnownNames::read(definition));
        self.state.lock().due.insert(name.to_owned(), names);
        self.changed.notify_one();
    }
}

impl Backlog {
    /// Returns whether the definition of a resource is being deleted.
    pub fn is_terminating(&self, group: &str, plural: &str) -> bool {
        let terminating = self.terminating.read();
        !terminating.is_empty() && terminating.contains(&format!("{plural}.{group}"))
    }

    pub(crate) fn add_due(&self, name: &str) {
        // Names that an event has brought are kept, and not replaced by none.
        self.state.lock().due.entry(name.to_owned()).or_default();
        self.changed.notify_one();
    }

    /// Adds a definition again after a pause that grows with each failure.
    pub(crate) fn retry(&self, name: &str) {
        let mut state = self.state.lock();
        let failures = state.failures.entry(name.to_owned()).or_default();
        *failures = failures.saturating_add(1);
        let pause = FIRST_RETRY
            // Ten doublings exceed the limit already. More would overflow the shift.
            .saturating_mul(1 << (*failures - 1).min(10))
            .min(LAST_RETRY);
        state.later.insert(name.to_owned(), Instant::now() + pause);
        drop(state);
        self.changed.notify_one();
    }

    pub(crate) fn forget_failures(&self, name: &str) {
        self.state.lock().failures.remove(name);
    }

    /// Returns the definitions that are due now.
    pub(crate) fn take_due(&self) -> Due {
        let mut state = self.state.lock();
        let now = Instant::now();
        let again = state.later.extract_if(|_, at| *at <= now);
        let again: Vec<String> = again.map(|(name, _)| name).collect();
        let mut due = std::mem::take(&mut state.due);
        for name in again {
            due.entry(name).or_default();
        }
        due
    }

    /// Waits until definitions are due, and returns them.
    pub(crate) async fn wait_due(&self) -> Due {
        loop {
            let due = self.take_due();
            if !due.is_empty() {
                return due;
            }
            let next = self.state.lock().later.values().min().copied();
            match next {
                Some(at) => {
                    // Either way, the state decides what is due.
                    let _ = tokio::time::timeout_at(at, self.changed.notified()).await;
                }
                // `Notify` keeps one permit: a change since the look at the state ends the wait at
                // once.
                None => self.changed.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn event(name: &str, deleting: bool) -> Arc<serde_json::Value> {
        let mut object = json!({"metadata": {"name": name}});
        if deleting {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(object)
    }

    fn observe(backlog: &Backlog, event: ObjectEvent) {
        backlog.object_changed(&GroupResource::new("", ""), &event);
    }

    #[test]
    fn changed_definition_is_due_once() {
        let backlog = Backlog::default();
        observe(
            &backlog,
            ObjectEvent::Applied(event("foos.example.com", false)),
        );
        observe(
            &backlog,
            ObjectEvent::Applied(event("foos.example.com", false)),
        );
        assert_eq!(backlog.take_due().len(), 1);
        assert!(backlog.take_due().is_empty());
    }

    #[test]
    fn definition_is_terminating_until_it_is_gone() {
        let backlog = Backlog::default();
        observe(
            &backlog,
            ObjectEvent::Applied(event("foos.example.com", true)),
        );
        assert!(backlog.is_terminating("example.com", "foos"));
        assert!(!backlog.is_terminating("example.com", "bars"));
        observe(
            &backlog,
            ObjectEvent::Deleted(event("foos.example.com", true)),
        );
        assert!(!backlog.is_terminating("example.com", "foos"));
    }

    #[tokio::test]
    async fn failed_definition_is_due_after_growing_pauses() {
        let backlog = Backlog::default();
        for pause in [100, 200, 400] {
            backlog.retry("a");
            let begun = Instant::now();
            let due = backlog.wait_due().await;
            assert_eq!(due.keys().collect::<Vec<_>>(), ["a"]);
            let waited = begun.elapsed().as_millis();
            assert!(waited >= pause, "{waited}");
        }
        backlog.forget_failures("a");
        backlog.retry("a");
        let next = backlog.state.lock().later["a"];
        assert!(next <= Instant::now() + FIRST_RETRY);
    }
}
