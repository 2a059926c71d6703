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
pub fn enqueue_object<K: Object>(queue: &Queue) -> impl Fn(&Event<K>) + Send + Sync + 'static {
    let queue = queue.clone();
    move |event| queue.add(event.object().key())
}

/// Enqueues the object's controller of kind `O`, before and after the change; for an orphan, every
/// `O` of the namespace whose selector matches.
pub fn enqueue_owner<O: Object, K: Object>(
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
        // The former owner, too: it must replace an object that it has lost.
        let before = old.and_then(|o| owner_key::<O, K>(o));
        let after = new.and_then(|o| owner_key::<O, K>(o));
        queue_all(&queue, before.into_iter().chain(after));
        let Some(orphan) = new.filter(|o| o.controller().is_none()) else {
            return;
        };
        // An orphan that did not change its labels was offered to the selectors before.
        let relabelled =
            old.is_none_or(|o| o.meta().labels != orphan.meta().labels || o.controller().is_some());
        if relabelled {
            queue_all(&queue, list_claimants(&owners, &selector, orphan.as_ref()));
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
    // The version is ignored: a reference keeps the version with which it was written, for instance
    // a beta one.
    (owner.kind == O::KIND && group == O::GROUP)
        .then(|| format!("{}/{}", object.namespace(), owner.name))
}

fn list_claimants<O: Object, K: Object>(
    owners: &Cache<O>,
    selector: &impl Fn(&O) -> LabelSelector,
    orphan: &K,
) -> Vec<String> {
    let takes = |o: &Arc<O>| {
        let selector = selector(o);
        // An empty selector matches every label, so its owner would adopt all orphans of the
        // namespace.
        !labels::is_empty(&selector)
            && labels::labels_match(Some(&selector), orphan.meta().labels.as_ref())
    };
    owners
        .in_namespace(orphan.namespace())
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
        .on_event(enqueue_owner::<O, K>(queue, owners.clone(), selector))
        .cache()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn pod(owner: Option<&str>, app: &str) -> Arc<Pod> {
        let refs = owner.map(|name| {
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "name": name, "uid": name, "controller": true}])
        });
        let tree = json!({"metadata": {"name": "p", "namespace": "n", "labels": {"app": app},
            "ownerReferences": refs}});
        Arc::new(serde_json::from_value(tree).unwrap())
    }

    /// Returns the keys that a change of a pod enqueues.
    async fn enqueued_by(event: Event<Pod>) -> Vec<String> {
        let sets: Vec<ReplicaSet> = ["a", "b"]
            .map(|name| {
                let tree = json!({"metadata": {"name": name, "namespace": "n"},
                    "spec": {"selector": {"matchLabels": {"app": name}}}});
                serde_json::from_value(tree).unwrap()
            })
            .into();
        let by_namespace = |s: &ReplicaSet| vec![s.namespace().to_owned()];
        let index = (crate::NAMESPACE, Box::new(by_namespace) as Box<_>);
        let sets = Cache::with_indexes(sets, vec![index]);
        let queue = Queue::new();
        let selector = |s: &ReplicaSet| s.spec.as_ref().unwrap().selector.clone();
        enqueue_owner::<ReplicaSet, Pod>(&queue, sets, selector)(&event);
        let mut keys = Vec::new();
        while !queue.is_empty() {
            keys.extend(queue.next().await);
        }
        keys.sort();
        keys
    }

    #[tokio::test]
    async fn owners_before_and_after_a_change_are_enqueued() {
        for (old, new, expect) in [
            (None, pod(Some("a"), "x"), vec!["n/a"]),
            (
                Some(pod(Some("a"), "x")),
                pod(Some("b"), "x"),
                vec!["n/a", "n/b"],
            ),
            (None, pod(None, "b"), vec!["n/b"]),
            (Some(pod(None, "b")), pod(None, "b"), vec![]),
            (Some(pod(None, "x")), pod(None, "a"), vec!["n/a"]),
        ] {
            let case = format!(
                "{:?} to {:?}",
                old.as_ref().map(|o| &o.metadata),
                new.metadata
            );
            assert_eq!(
                enqueued_by(Event::Applied { old, new }).await,
                expect,
                "{case}"
            );
        }
        assert_eq!(
            enqueued_by(Event::Deleted(pod(Some("a"), "x"))).await,
            ["n/a"]
        );
    }
}
