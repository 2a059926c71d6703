//! Finalizers that keep claims while pods use them and volumes while claims are bound to them.

use client::Event;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};

use controllers_runtime::{Action, Cache, Decide, Meta, Object, Queue, Setup, pods, wake};

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

/// Adds or removes a finalizer; `used` holds the object back.
pub fn reconcile<K: Object>(object: &K, finalizer: &str, used: bool) -> Vec<Action> {
    let mut fresh = object.clone();
    let held = object.has_finalizer(finalizer);
    let all = fresh.metadata_mut().finalizers.get_or_insert_default();
    match (object.deleting(), held) {
        (false, false) => all.push(finalizer.to_owned()),
        (true, true) if !used => all.retain(|f| f != finalizer),
        _ => return Vec::new(),
    }
    vec![Action::update(&fresh).ignore_absent()]
}

/// The claims a pod uses, as keys.
fn claims(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let names = volumes.filter_map(|v| {
        let named = v.persistent_volume_claim.as_ref().map(|c| c.claim_name.clone());
        named.or_else(|| v.ephemeral.as_ref().map(|_| format!("{}-{}", pod.name(), v.name)))
    });
    names.map(|name| format!("{}/{name}", pod.namespace())).collect()
}

struct Claims {
    claims: Cache<PersistentVolumeClaim>,
    pods: Cache<Pod>,
}

/// Sets up the protection of claims in use.
pub fn claim_protection(setup: &mut Setup) {
    let queue = Queue::new();
    let all = setup.informers.of::<PersistentVolumeClaim>().on(wake::itself(&queue)).cache();
    let waiting = queue.clone();
    let pods = setup.informers.of::<Pod>().index("claims", claims).on(move |event| {
        let ended = match event {
            Event::Deleted(pod) => Some(pod),
            Event::Applied { new, .. } => Some(new).filter(|p| pods::is_terminal(p)),
        };
        ended.into_iter().flat_map(|p| claims(p)).for_each(|key| waiting.add(key));
    });
    let pods = pods.cache();
    setup.decide("pvc-protection-controller", 1, queue, Claims { claims: all, pods });
}

impl Decide for Claims {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let Some(claim) = self.claims.get(key) else { return Vec::new() };
        let used = self.pods.by("claims", key).iter().any(|p| !pods::is_terminal(p) && !pods::node_name(p).is_empty());
        reconcile(claim.as_ref(), CLAIM, used)
    }
}

struct Volumes {
    volumes: Cache<PersistentVolume>,
}

/// Sets up the protection of bound volumes.
pub fn volume_protection(setup: &mut Setup) {
    let queue = Queue::new();
    let volumes = setup.informers.of::<PersistentVolume>().on(wake::itself(&queue)).cache();
    setup.decide("pv-protection-controller", 1, queue, Volumes { volumes });
}

impl Decide for Volumes {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let Some(volume) = self.volumes.get(key) else { return Vec::new() };
        let bound = volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
        reconcile(volume.as_ref(), VOLUME, bound)
    }
}
