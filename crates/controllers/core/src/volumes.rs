//! Binding of claims to volumes that somebody made: the smallest that fits.
//!
//! A binding is written on the volume first, then on the claim: a volume that names a claim is taken,
//! whatever becomes of the second write. Dynamic provisioning is left to external provisioners.

mod matching;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, reference, time, wake};

const BOUND: &str = "pv.kubernetes.io/bind-completed";
const BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const NONE: &str = "kubernetes.io/no-provisioner";

/// Decides about one claim.
pub fn claim(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    class: Option<&StorageClass>,
    now: Timestamp,
) -> Vec<Action> {
    let spec = claim.spec.clone().unwrap_or_default();
    let named = spec.volume_name.filter(|n| !n.is_empty());
    if let Some(name) = named {
        let Some(volume) = volumes.iter().find(|v| v.name() == name) else {
            let lost = claim.annotation(BOUND).is_some();
            return if lost { phase_of_claim(claim, "Lost", None) } else { Vec::new() };
        };
        return match claimed_by(volume) {
            Some(owner) if !is_for(owner, claim) => Vec::new(),
            _ => bind(claim, volume, now),
        };
    }
    if claim.deleting() {
        return Vec::new();
    }
    let late = class.and_then(|c| c.volume_binding_mode.as_deref()) == Some("WaitForFirstConsumer");
    let reserved = volumes.iter().find(|v| claimed_by(v).is_some_and(|o| is_for(o, claim)));
    if let Some(volume) = reserved {
        return bind(claim, volume, now);
    }
    if late && claim.annotation(SELECTED_NODE).is_none() {
        let text = "waiting for first consumer to be created before binding";
        return vec![Action::event(&reference(claim), "WaitForFirstConsumer", text)];
    }
    match matching::best(claim, volumes) {
        Some(volume) => bind(claim, volume, now),
        None => wait(claim, class),
    }
}

fn wait(claim: &PersistentVolumeClaim, class: Option<&StorageClass>) -> Vec<Action> {
    let about = reference(claim);
    let Some(class) = class.filter(|c| c.provisioner != NONE) else {
        let named = claim.spec.as_ref().and_then(|s| s.storage_class_name.clone()).filter(|n| !n.is_empty());
        let (reason, text) = match named {
            Some(name) if class.is_none() => {
                ("ProvisioningFailed", format!("storageclass.storage.k8s.io \"{name}\" not found"))
            }
            _ => (
                "FailedBinding",
                "no persistent volumes available for this claim and no storage class is set".to_owned(),
            ),
        };
        let missing = reason == "ProvisioningFailed";
        return vec![if missing { Action::warning(&about, reason, text) } else { Action::event(&about, reason, text) }];
    };
    let mut actions = Vec::new();
    if claim.annotation(PROVISIONER) != Some(&class.provisioner) {
        let mut noted = claim.clone();
        noted.metadata.annotations.get_or_insert_default().insert(PROVISIONER.to_owned(), class.provisioner.clone());
        actions.push(Action::update(&noted));
    }
    let text = format!(
        "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system administrator. \
         If volume creation is delayed, please verify that the provisioner is running and correctly registered.",
        class.provisioner
    );
    actions.push(Action::event(&about, "ExternalProvisioning", text));
    actions
}

/// Writes what is still missing of a binding, one object at a time.
fn bind(claim: &PersistentVolumeClaim, volume: &PersistentVolume, now: Timestamp) -> Vec<Action> {
    let known = claimed_by(volume).and_then(|r| r.uid.as_deref()) == Some(claim.uid());
    if !known {
        let mut taken = volume.clone();
        let prebound = claimed_by(volume).is_some();
        taken.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
            kind: Some("PersistentVolumeClaim".to_owned()),
            api_version: Some("v1".to_owned()),
            namespace: claim.meta().namespace.clone(),
            name: claim.meta().name.clone(),
            uid: claim.meta().uid.clone(),
            resource_version: claim.meta().resource_version.clone(),
            field_path: None,
        });
        if !prebound {
            taken.metadata.annotations.get_or_insert_default().insert(BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
        return vec![Action::update(&taken)];
    }
    if phase(volume) != "Bound" {
        return phase_of_volume(volume, "Bound", now);
    }
    let named = claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()) == Some(volume.name());
    if !named || claim.annotation(BOUND).is_none() {
        let mut bound = claim.clone();
        let notes = bound.metadata.annotations.get_or_insert_default();
        notes.insert(BOUND.to_owned(), "yes".to_owned());
        if !named {
            notes.insert(BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
        bound.spec.get_or_insert_default().volume_name = Some(volume.name().to_owned());
        return vec![Action::update(&bound)];
    }
    phase_of_claim(claim, "Bound", Some(volume))
}

fn phase_of_claim(claim: &PersistentVolumeClaim, phase: &str, volume: Option<&PersistentVolume>) -> Vec<Action> {
    let mut fresh = claim.clone();
    let status = fresh.status.get_or_insert_default();
    status.phase = Some(phase.to_owned());
    if let Some(spec) = volume.and_then(|v| v.spec.as_ref()) {
        status.access_modes.clone_from(&spec.access_modes);
        status.capacity.clone_from(&spec.capacity);
    }
    if fresh == *claim { Vec::new() } else { vec![Action::update_status(&fresh)] }
}

/// Decides about one volume; `claim` is the one it names, if that exists.
pub fn volume(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>, now: Timestamp) -> Vec<Action> {
    let Some(owner) = claimed_by(volume) else { return phase_of_volume(volume, "Available", now) };
    match (&owner.uid, claim) {
        (None, _) => phase_of_volume(volume, "Available", now),
        (Some(uid), Some(claim)) if claim.uid() == uid => Vec::new(),
        _ => phase_of_volume(volume, "Released", now),
    }
}

fn phase_of_volume(volume: &PersistentVolume, wanted: &str, now: Timestamp) -> Vec<Action> {
    if phase(volume) == wanted {
        return Vec::new();
    }
    let mut fresh = volume.clone();
    let status = fresh.status.get_or_insert_default();
    status.phase = Some(wanted.to_owned());
    status.last_phase_transition_time = Some(time::api(now));
    vec![Action::update_status(&fresh)]
}

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

fn claimed_by(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

fn is_for(owner: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    owner.namespace.as_deref() == Some(claim.namespace())
        && owner.name.as_deref() == Some(claim.name())
        && owner.uid.as_deref().is_none_or(|uid| uid.is_empty() || uid == claim.uid())
}

struct Binder {
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
}

/// Sets up the binder. Claims have keys with a slash, volumes without: one queue, one worker, so that
/// no volume is given away twice.
pub fn volume_binder(setup: &mut Setup) {
    let queue = Queue::new();
    let claims = setup.informers.of::<PersistentVolumeClaim>().on(wake::itself(&queue)).on({
        let queue = queue.clone();
        move |event| {
            let named = event.object().spec.as_ref().and_then(|s| s.volume_name.clone());
            named.into_iter().for_each(|name| queue.add(name));
        }
    });
    let claims = claims.cache();
    let (waiting, known) = (queue.clone(), claims.clone());
    let volumes = setup.informers.of::<PersistentVolume>().on(move |event| {
        waiting.add(event.object().name().to_owned());
        let open =
            known.list().into_iter().filter(|c| c.status.as_ref().and_then(|s| s.phase.as_deref()) != Some("Bound"));
        open.for_each(|c| waiting.add(c.key()));
        if let Some(owner) = claimed_by(event.object()) {
            let text = |t: &Option<String>| t.clone().unwrap_or_default();
            waiting.add(format!("{}/{}", text(&owner.namespace), text(&owner.name)));
        }
    });
    let volumes = volumes.cache();
    let classes = setup.informers.of::<StorageClass>().cache();
    setup.decide("persistent-volume-binder", 1, queue, Binder { claims, volumes, classes });
}

impl Decide for Binder {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        if key.contains('/') {
            let Some(found) = self.claims.get(key) else { return Vec::new() };
            let class =
                found.spec.as_ref().and_then(|s| s.storage_class_name.as_deref()).and_then(|n| self.classes.get(n));
            return claim(&found, &self.volumes.list(), class.as_deref(), now);
        }
        let Some(found) = self.volumes.get(key) else { return Vec::new() };
        let owner = claimed_by(&found).and_then(|r| Some((r.namespace.as_deref()?, r.name.as_deref()?)));
        let owner = owner.and_then(|(ns, name)| self.claims.named(ns, name));
        volume(&found, owner.as_deref(), now)
    }
}
