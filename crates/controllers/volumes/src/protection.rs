//! Finalizers that keep claims while pods use them, volumes while claims are bound to them, and
//! attribute classes while claims or volumes name them.

use client::Event;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;

use controllers_runtime::{Action, Cache, Decide, Meta, Object, Queue, Setup, pods, wake};

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";
const CLASS: &str = "kubernetes.io/vac-protection";
/// Index of claims and volumes by the attribute classes that they name.
const BY_CLASS: &str = "attributes-class";

/// Adds or removes a finalizer; the object keeps it while `used`.
pub fn reconcile_finalizer<K: Object>(object: &K, finalizer: &str, used: bool) -> Vec<Action> {
    let mut fresh = object.clone();
    let held = object.has_finalizer(finalizer);
    let all = fresh.metadata_mut().finalizers.get_or_insert_default();
    // The finalizer is added before any use: an object that is deleted first can't get one any
    // more.
    match (object.is_deleting(), held) {
        (false, false) => all.push(finalizer.to_owned()),
        (true, true) if !used => all.retain(|f| f != finalizer),
        _ => return Vec::new(),
    }
    vec![Action::update(&fresh).ignore_absent()]
}

/// Returns the keys of the claims that a pod uses.
fn claims_of_pod(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let names = volumes.filter_map(|v| {
        let named = v
            .persistent_volume_claim
            .as_ref()
            .map(|c| c.claim_name.clone());
        // The claim of an ephemeral volume has no entry in the pod; its name follows from pod and
        // volume.
        named.or_else(|| {
            v.ephemeral
                .as_ref()
                .map(|_| format!("{}-{}", pod.name(), v.name))
        })
    });
    names
        .map(|name| format!("{}/{name}", pod.namespace()))
        .collect()
}

struct Claims {
    claims: Cache<PersistentVolumeClaim>,
    pods: Cache<Pod>,
}

/// Sets up the protection of claims in use.
pub fn add_claim_protection(setup: &mut Setup) {
    let queue = Queue::new();
    let all = setup
        .informers
        .for_kind::<PersistentVolumeClaim>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let waiting = queue.clone();
    let pods = setup
        .informers
        .for_kind::<Pod>()
        .index("claims", claims_of_pod)
        .on_event(move |event| {
            let ended = match event {
                Event::Deleted(pod) => Some(pod),
                // A terminated pod uses its claims no more, even if its object remains for long.
                Event::Applied { new, .. } => Some(new).filter(|p| pods::is_terminal(p)),
            };
            ended
                .into_iter()
                .flat_map(|p| claims_of_pod(p))
                .for_each(|key| waiting.add(key));
        });
    let pods = pods.cache();
    setup.add_reconciler(
        "pvc-protection-controller",
        1,
        queue,
        Claims { claims: all, pods },
    );
}

impl Decide for Claims {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let Some(claim) = self.claims.get(key) else {
            return Vec::new();
        };
        // An unbound pod does not use the claim yet: upstream lets the claim be deleted and the pod
        // wait.
        let used = self
            .pods
            .by_index("claims", key)
            .iter()
            .any(|p| !pods::is_terminal(p) && !pods::node_name(p).is_empty());
        reconcile_finalizer(claim.as_ref(), CLAIM, used)
    }
}

struct Volumes {
    volumes: Cache<PersistentVolume>,
}

/// Sets up the protection of bound volumes.
pub fn add_volume_protection(setup: &mut Setup) {
    let queue = Queue::new();
    let volumes = setup
        .informers
        .for_kind::<PersistentVolume>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    setup.add_reconciler("pv-protection-controller", 1, queue, Volumes { volumes });
}

impl Decide for Volumes {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let Some(volume) = self.volumes.get(key) else {
            return Vec::new();
        };
        // The phase decides: a Released volume may be deleted, because no claim uses it any more.
        let bound = volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
        reconcile_finalizer(volume.as_ref(), VOLUME, bound)
    }
}

/// Returns the attribute classes of a claim: current, previous and desired.
fn classes_of_claim(claim: &PersistentVolumeClaim) -> Vec<String> {
    let status = claim.status.as_ref();
    let names = [
        claim
            .spec
            .as_ref()
            .and_then(|s| s.volume_attributes_class_name.clone()),
        status.and_then(|s| s.current_volume_attributes_class_name.clone()),
        status.and_then(|s| {
            s.modify_volume_status
                .as_ref()?
                .target_volume_attributes_class_name
                .clone()
        }),
    ];
    let mut names: Vec<_> = names
        .into_iter()
        .flatten()
        .filter(|name| !name.is_empty())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn class_of_volume(volume: &PersistentVolume) -> Vec<String> {
    let name = volume
        .spec
        .as_ref()
        .and_then(|s| s.volume_attributes_class_name.clone());
    name.into_iter().filter(|name| !name.is_empty()).collect()
}

/// Enqueues the classes that an object no longer names.
fn enqueue_released_classes<K: Object>(
    queue: &Queue,
    classes: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
) -> impl Fn(&Event<K>) + Send + Sync + 'static {
    let queue = queue.clone();
    move |event| {
        let (before, now) = match event {
            Event::Applied { old, new } => (
                old.as_ref().map(|o| classes(o)).unwrap_or_default(),
                classes(new),
            ),
            Event::Deleted(last) => (classes(last), Vec::new()),
        };
        before
            .into_iter()
            // A class that is still named can't lose its finalizer, so only released ones need a
            // reconcile.
            .filter(|name| !now.contains(name))
            .for_each(|name| queue.add(name));
    }
}

struct Classes {
    classes: Cache<VolumeAttributesClass>,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
}

/// Sets up the protection of attribute classes in use.
pub fn add_attributes_class_protection(setup: &mut Setup) {
    let queue = Queue::new();
    let classes = setup
        .informers
        .for_kind::<VolumeAttributesClass>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let claims = setup
        .informers
        .for_kind::<PersistentVolumeClaim>()
        .index(BY_CLASS, classes_of_claim);
    let claims = claims
        .on_event(enqueue_released_classes(&queue, classes_of_claim))
        .cache();
    let volumes = setup
        .informers
        .for_kind::<PersistentVolume>()
        .index(BY_CLASS, class_of_volume);
    let volumes = volumes
        .on_event(enqueue_released_classes(&queue, class_of_volume))
        .cache();
    let logic = Classes {
        classes,
        claims,
        volumes,
    };
    setup.add_reconciler(
        "volumeattributesclass-protection-controller",
        1,
        queue,
        logic,
    );
}

impl Decide for Classes {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let Some(class) = self.classes.get(key) else {
            return Vec::new();
        };
        let used = !self.claims.by_index(BY_CLASS, key).is_empty()
            || !self.volumes.by_index(BY_CLASS, key).is_empty();
        reconcile_finalizer(class.as_ref(), CLASS, used)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use controllers_runtime::describe_actions;
    use serde_json::json;

    #[test]
    fn attributes_class_is_released_when_no_object_names_it() {
        let class = |deleting: bool, held: bool| -> VolumeAttributesClass {
            let finalizers = if held { vec![CLASS] } else { Vec::new() };
            serde_json::from_value(
                json!({"driverName": "d", "metadata": {"name": "gold", "finalizers": finalizers,
                "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z")}}),
            )
            .unwrap()
        };
        let cases = [
            (class(true, true), false, true),
            (class(true, true), true, false),
            (class(false, false), false, true),
            (class(false, true), false, false),
        ];
        for (class, used, writes) in cases {
            let got = describe_actions(&reconcile_finalizer(&class, CLASS, used));
            assert_eq!(!got.is_empty(), writes, "{class:?} used: {used}");
        }
    }

    #[test]
    fn claim_names_its_present_and_its_future_class() {
        let claim = serde_json::from_value(
            json!({"spec": {"volumeAttributesClassName": "gold"}, "status": {
            "currentVolumeAttributesClassName": "silver",
            "modifyVolumeStatus": {"status": "Pending", "targetVolumeAttributesClassName": "gold"}}}),
        );
        assert_eq!(classes_of_claim(&claim.unwrap()), ["gold", "silver"]);
    }

    #[test]
    fn claims_of_a_pod_are_those_of_its_volumes_named_or_ephemeral() {
        let pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"},
            "spec": {"containers": [], "volumes": [
                {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "b", "ephemeral": {}}, {"name": "c", "emptyDir": {}}]}}))
        .unwrap();
        assert_eq!(claims_of_pod(&pod), ["n/data", "n/p-b"]);
    }

    #[test]
    fn claim_in_deletion_keeps_its_finalizer_while_a_bound_pod_runs() {
        let claim: PersistentVolumeClaim =
            serde_json::from_value(json!({"metadata": {"name": "data",
            "namespace": "n", "finalizers": [CLAIM], "deletionTimestamp": "2026-01-01T00:00:00Z"}}))
            .unwrap();
        for (node, phase, released) in [
            ("node", "Running", false),
            ("node", "Succeeded", true),
            ("", "Pending", true),
        ] {
            let pod: Pod =
                serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"},
                "spec": {"containers": [], "nodeName": node, "volumes": [
                    {"name": "a", "persistentVolumeClaim": {"claimName": "data"}}]},
                "status": {"phase": phase}}))
                .unwrap();
            let index = ("claims", Box::new(claims_of_pod) as Box<_>);
            let logic = Claims {
                claims: Cache::with_objects(vec![claim.clone()]),
                pods: Cache::with_indexes(vec![pod], vec![index]),
            };
            let got = logic.reconcile("n/data", Timestamp::UNIX_EPOCH);
            assert_eq!(!got.is_empty(), released, "{node} {phase}");
        }
    }

    #[test]
    fn bound_volume_keeps_its_finalizer() {
        for (phase, released) in [("Bound", false), ("Released", true), ("Available", true)] {
            let volume: PersistentVolume = serde_json::from_value(json!({"metadata": {"name": "v",
                "finalizers": [VOLUME], "deletionTimestamp": "2026-01-01T00:00:00Z"},
                "status": {"phase": phase}}))
            .unwrap();
            let logic = Volumes {
                volumes: Cache::with_objects(vec![volume]),
            };
            let got = logic.reconcile("v", Timestamp::UNIX_EPOCH);
            assert_eq!(!got.is_empty(), released, "{phase}");
        }
    }
}
