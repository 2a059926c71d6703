//! The changes that the informers record for the next sync.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use net_nft::Family;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::metrics::ChangeMetrics;

/// The time of the change of a pod or Service that caused the change of a slice, written by the
/// controller of EndpointSlices.
pub(crate) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Times that are kept for one Service while syncs fail.
const MAX_TRIGGERS: usize = 100;
/// The most Services whose times are kept while syncs fail. The times only serve a metric.
const MAX_SERVICES: usize = 10_000;

/// Times of changes by Service.
pub(crate) type Triggers = BTreeMap<String, BTreeSet<(Family, Timestamp)>>;

/// Changes since the last sync.
pub(crate) struct DirtyServices {
    pub(crate) services: Mutex<BTreeSet<String>>,
    pub(crate) node: Mutex<bool>,
    pub(crate) wake: Notify,
    triggers: Mutex<Triggers>,
    started: Timestamp,
    changes: ChangeMetrics,
}

impl DirtyServices {
    pub(crate) fn new(changes: ChangeMetrics) -> Self {
        Self {
            services: Mutex::default(),
            node: Mutex::default(),
            wake: Notify::new(),
            triggers: Mutex::default(),
            started: Timestamp::now(),
            changes,
        }
    }

    pub(crate) fn mark_service(&self, key: String) {
        self.changes.services.inc();
        self.changes.services_pending.inc();
        self.mark(key);
    }

    pub(crate) fn mark_node(&self) {
        *self.node.lock() = true;
        self.wake.notify_one();
    }

    /// Marks the Service of a slice that changed.
    pub(crate) fn mark_endpoints(
        &self,
        key: String,
        old: Option<&EndpointSlice>,
        new: &EndpointSlice,
    ) {
        self.changes.endpoints.inc();
        self.changes.endpoints_pending.inc();
        let trigger = read_trigger(new).filter(|_| old.and_then(read_trigger) != read_trigger(new));
        // A time before the start would count the downtime of the proxy.
        if let Some(trigger) = trigger.filter(|(_, time)| *time > self.started) {
            let mut triggers = self.triggers.lock();
            let times = triggers.entry(key.clone()).or_default();
            if times.len() < MAX_TRIGGERS {
                times.insert(trigger);
            }
        }
        self.mark(key);
    }

    /// Marks the Service of a slice that was deleted. Its annotation has the time of another
    /// change.
    pub(crate) fn mark_deleted_endpoints(&self, key: String) {
        self.changes.endpoints.inc();
        self.changes.endpoints_pending.inc();
        self.triggers.lock().remove(&key);
        self.mark(key);
    }

    /// Takes the changed Services and the times of their changes.
    pub(crate) fn take_services(&self) -> (BTreeSet<String>, Triggers) {
        let keys = std::mem::take(&mut *self.services.lock());
        self.changes.services_pending.set(0);
        self.changes.endpoints_pending.set(0);
        (keys, std::mem::take(&mut *self.triggers.lock()))
    }

    /// Keeps the times of a sync that failed for the next one.
    pub(crate) fn restore_triggers(&self, taken: Triggers) {
        let mut triggers = self.triggers.lock();
        for (key, times) in taken {
            if triggers.len() >= MAX_SERVICES && !triggers.contains_key(&key) {
                continue;
            }
            let kept = triggers.entry(key).or_default();
            let room = MAX_TRIGGERS.saturating_sub(kept.len());
            kept.extend(times.into_iter().take(room));
        }
    }

    fn mark(&self, key: String) {
        self.services.lock().insert(key);
        self.wake.notify_one();
    }
}

fn read_trigger(slice: &EndpointSlice) -> Option<(Family, Timestamp)> {
    let families = [Family::V4, Family::V6].into_iter();
    let family = families
        .into_iter()
        .find(|f| f.api_name() == slice.address_type)?;
    let time = slice.metadata.annotations.as_ref()?.get(TRIGGER_TIME)?;
    Some((family, time.parse().ok()?))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn slice(kind: &str, time: &str) -> EndpointSlice {
        let tree = json!({ "metadata": { "annotations": { TRIGGER_TIME: time } },
            "addressType": kind, "endpoints": [] });
        serde_json::from_value(tree).unwrap()
    }

    #[test]
    fn new_trigger_times_are_kept_until_a_sync() {
        let (later, old) = ("2999-01-01T00:00:00.5Z", "2020-01-01T00:00:00Z");
        let v4 = |time: &str| slice("IPv4", time);
        for (before, now, expect) in [
            (None, v4(later), 1),
            (None, v4(old), 0),
            (None, v4("soon"), 0),
            (None, slice("FQDN", later), 0),
            (Some(v4(old)), v4(later), 1),
            (Some(v4(later)), v4(later), 0),
        ] {
            let dirty = DirtyServices::new(ChangeMetrics::default());
            dirty.mark_endpoints("ns/web".into(), before.as_ref(), &now);
            let (keys, triggers) = dirty.take_services();
            assert_eq!(keys.len(), 1);
            let count = triggers.values().map(BTreeSet::len).sum::<usize>();
            assert_eq!(count, expect, "{before:?} {now:?}");
            dirty.restore_triggers(triggers.clone());
            assert_eq!(dirty.take_services().1, triggers);
        }
    }

    #[test]
    fn deleted_slice_has_no_trigger_time() {
        let dirty = DirtyServices::new(ChangeMetrics::default());
        dirty.mark_endpoints(
            "ns/web".into(),
            None,
            &slice("IPv6", "2999-01-01T00:00:00Z"),
        );
        dirty.mark_deleted_endpoints("ns/web".into());
        assert!(dirty.take_services().1.is_empty());
    }

    #[test]
    fn trigger_times_of_a_service_are_bounded() {
        let dirty = DirtyServices::new(ChangeMetrics::default());
        for year in 3000..3300 {
            let time = format!("{year}-01-01T00:00:00Z");
            dirty.mark_endpoints("ns/web".into(), None, &slice("IPv4", &time));
        }
        assert_eq!(dirty.take_services().1["ns/web"].len(), MAX_TRIGGERS);
    }
}
