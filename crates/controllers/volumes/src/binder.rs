//! The binder: which events enqueue which claims and volumes, and the caches that it reads.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, wake};

use crate::claim::{ClaimView, claimed_by, reconcile_claim, reconcile_volume, waits_for_consumer};
use crate::matching::{self, class_of};

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Index of claims without a volume, by class.
const OPEN: &str = "open";
/// Index of volumes without a claim, by class.
const FREE: &str = "free";
/// Index of volumes by the claim that they name.
const RESERVED: &str = "reserved";

/// Returns the values of a claim in the index `OPEN`: its class if it waits for a volume.
fn index_open_claim(claim: &PersistentVolumeClaim) -> Vec<String> {
    let spec = claim.spec.as_ref();
    let bound = spec
        .and_then(|s| s.volume_name.as_deref())
        .is_some_and(|name| !name.is_empty());
    if bound {
        Vec::new()
    } else {
        vec![class_of(spec.and_then(|s| s.storage_class_name.as_ref()))]
    }
}

/// Returns the values of a volume in the index `FREE`: its class if it names no claim.
fn index_free_volume(volume: &PersistentVolume) -> Vec<String> {
    let Some(spec) = volume.spec.as_ref().filter(|s| s.claim_ref.is_none()) else {
        return Vec::new();
    };
    vec![class_of(spec.storage_class_name.as_ref())]
}

/// Returns the key of the claim that a volume names.
fn claim_key(volume: &PersistentVolume) -> Option<String> {
    let owner = claimed_by(volume)?;
    Some(format!(
        "{}/{}",
        owner.namespace.as_deref()?,
        owner.name.as_deref()?
    ))
}

/// The index of volumes by the claim that they name, as [`claim_key`] gives it.
fn index_reserved_volume(volume: &PersistentVolume) -> Vec<String> {
    claim_key(volume).into_iter().collect()
}

/// Returns the keys of what must be looked at after a change of a volume: the volume, the claim
/// that it names, and the open claims that it could serve.
fn keys_enqueued_by(
    volume: &PersistentVolume,
    claims: &Cache<PersistentVolumeClaim>,
    classes: &Cache<StorageClass>,
) -> Vec<String> {
    let mut keys = vec![volume.name().to_owned()];
    keys.extend(claim_key(volume));
    for class in index_free_volume(volume) {
        // With WaitForFirstConsumer the scheduler binds, so a new volume changes nothing for these
        // claims.
        if !classes.get(&class).is_some_and(|c| waits_for_consumer(&c)) {
            let open = claims.by_index(OPEN, &class);
            keys.extend(
                open.iter()
                    .filter(|c| matching::is_match(c, volume))
                    .map(|c| c.key()),
            );
        }
    }
    keys
}

/// Decides about claims and volumes by their keys.
#[derive(Debug)]
pub struct Binder {
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
}

/// Sets up the binder. Keys of claims have a slash, keys of volumes have none: one queue with one
/// worker, so that no volume is bound twice.
pub fn add_volume_binder(setup: &mut Setup) {
    let queue = Queue::new();
    let claims = setup
        .informers
        .for_kind::<PersistentVolumeClaim>()
        .index(OPEN, index_open_claim)
        .on_event(wake::enqueue_object(&queue))
        .on_event({
            let queue = queue.clone();
            move |event| {
                let named = event
                    .object()
                    .spec
                    .as_ref()
                    .and_then(|s| s.volume_name.clone());
                named.into_iter().for_each(|name| queue.add(name));
            }
        });
    let claims = claims.cache();
    let (waiting, known) = (queue.clone(), claims.clone());
    let classes = setup
        .informers
        .for_kind::<StorageClass>()
        .on_event(move |event| {
            // Claims may be older than their class, and those without a class use the default one.
            for class in [event.object().name(), ""] {
                known
                    .by_index(OPEN, class)
                    .iter()
                    .for_each(|claim| waiting.add(claim.key()));
            }
        });
    let classes = classes.cache();
    let (waiting, known, modes) = (queue.clone(), claims.clone(), classes.clone());
    let volumes = setup
        .informers
        .for_kind::<PersistentVolume>()
        .index(FREE, index_free_volume);
    let volumes = volumes
        .index(RESERVED, index_reserved_volume)
        .on_event(move |event| {
            keys_enqueued_by(event.object(), &known, &modes)
                .into_iter()
                .for_each(|key| waiting.add(key));
        });
    let volumes = volumes.cache();
    setup.add_reconciler(
        "persistent-volume-binder",
        1,
        queue,
        Binder {
            claims,
            volumes,
            classes,
        },
    );
}

impl Binder {
    /// Returns a binder over fixed content, for tests and measurements of decisions.
    pub fn fixed(
        claims: Vec<PersistentVolumeClaim>,
        volumes: Vec<PersistentVolume>,
        classes: Vec<StorageClass>,
    ) -> Self {
        let reserved = (RESERVED, Box::new(index_reserved_volume) as Box<_>);
        Self {
            claims: Cache::with_indexes(claims, vec![(OPEN, Box::new(index_open_claim))]),
            volumes: Cache::with_indexes(
                volumes,
                vec![(FREE, Box::new(index_free_volume)), reserved],
            ),
            classes: Cache::with_objects(classes),
        }
    }

    /// Returns the keys of what must be looked at after a change of a volume.
    pub fn keys_enqueued_by(&self, volume: &PersistentVolume) -> Vec<String> {
        keys_enqueued_by(volume, &self.claims, &self.classes)
    }

    fn view_claim(&self, claim: &PersistentVolumeClaim) -> ClaimView {
        let spec = claim.spec.as_ref();
        if let Some(name) = spec
            .and_then(|s| s.volume_name.as_deref())
            .filter(|name| !name.is_empty())
        {
            return ClaimView {
                named: self.volumes.get(name),
                ..ClaimView::default()
            };
        }
        let class = class_of(spec.and_then(|s| s.storage_class_name.as_ref()));
        ClaimView {
            named: None,
            reserved: self.volumes.by_index(RESERVED, &claim.key()),
            free: self.volumes.by_index(FREE, &class),
            class: self.classes.get(&class),
            default_class: self.default_class(),
        }
    }

    /// Returns the newest class that is marked as default.
    fn default_class(&self) -> Option<Arc<StorageClass>> {
        let marked = self
            .classes
            .list()
            .into_iter()
            .filter(|c| c.annotation(DEFAULT_CLASS) == Some("true"));
        // Several default classes are allowed. The newest wins, as in admission, and the name
        // decides a tie.
        marked.max_by(|a, b| {
            a.created_at()
                .cmp(&b.created_at())
                .then_with(|| b.name().cmp(a.name()))
        })
    }
}

impl Decide for Binder {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        if key.contains('/') {
            let Some(found) = self.claims.get(key) else {
                return Vec::new();
            };
            return reconcile_claim(&found, &self.view_claim(&found), now);
        }
        let Some(found) = self.volumes.get(key) else {
            return Vec::new();
        };
        let owner = claim_key(&found).and_then(|key| self.claims.get(&key));
        reconcile_volume(&found, owner.as_deref(), now)
    }
}

#[cfg(test)]
mod tests;
