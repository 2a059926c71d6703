//! Event handlers that enqueue keys: the object itself, its controller, or controllers that could
//! adopt it.

use std::sync::Arc;

use client::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::controller::Queue;
use crate::informers::{Cache, Kind};
use crate::labels;
use crate::object::{Meta, Object};

/// Enqueues the object itself.
pub fn itself<K: Object>(queue: &Queue) -> impl Fn(&Event<K>) + Send + Sync + 'static {
    let queue = queue.clone();
    move |event| queue.add(event.object().key())
}

/// Enqueues the object's controller of kind `O`, before and after the change; for an orphan, every
/// `O` of the namespace whose selector matches.
pub fn claimant<O: Object, K: Object>(
    queue: &Queue,
    owners: Cache<O>,
    selector: impl Fn(&O) -> LabelSelector + Send + Sync + 'static,
) -> impl Fn(&Event<K>) + Send + Sync + 'static {
    let queue = queue.clone();
    move |event| {
        let (old, new) = match event {
            Event::Applied { old, new } => (old.as_ref(), Some(new)),
            Event::Deleted(last) => (Some(last), None),
        };
        let before = old.and_then(|o| owner_key::<O, K>(o));
        let after = new.and_then(|o| owner_key::<O, K>(o));
        queue_all(&queue, before.into_iter().chain(after));
        let Some(orphan) = new.filter(|o| o.controller().is_none()) else {
            return;
        };
        let relabelled =
            old.is_none_or(|o| o.meta().labels != orphan.meta().labels || o.controller().is_some());
        if relabelled {
            queue_all(&queue, claimants(&owners, &selector, orphan.as_ref()));
        }
    }
}

/// Returns the key of the object's controller if that is an `O`.
pub fn owner_key<O: Object, K: Object>(object: &Arc<K>) -> Option<String> {
    let owner = object.controller()?;
    let group = owner
        .api_version
        .split_once('/')
        .map_or("", |(group, _)| group);
    (owner.kind == O::KIND && group == O::GROUP)
        .then(|| format!("{}/{}", object.namespace(), owner.name))
}

fn claimants<O: Object, K: Object>(
    owners: &Cache<O>,
    selector: &impl Fn(&O) -> LabelSelector,
    orphan: &K,
) -> Vec<String> {
    let takes = |o: &Arc<O>| {
        let selector = selector(o);
        !labels::is_empty(&selector)
            && labels::labels_match(Some(&selector), orphan.meta().labels.as_ref())
    };
    owners
        .within(orphan.namespace())
        .iter()
        .filter(|o| takes(o))
        .map(|o| o.key())
        .collect()
}

fn queue_all(queue: &Queue, keys: impl IntoIterator<Item = String>) {
    for key in keys {
        queue.add(key);
    }
}

/// Registers the handlers of a controller of `O`s that own `K`s.
pub fn on_owned<O: Object, K: Object>(
    kind: Kind<'_, K>,
    queue: &Queue,
    owners: &Cache<O>,
    selector: impl Fn(&O) -> LabelSelector + Send + Sync + 'static,
) -> Cache<K> {
    kind.index_claims()
        .on(claimant::<O, K>(queue, owners.clone(), selector))
        .cache()
}
