//! Binds claims to existing volumes: the smallest that fits.
//!
//! A binding is written on the volume first, then on the claim: a volume that names a claim is
//! bound even if the second write fails. Dynamic provisioning is left to external provisioners.

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
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Index of claims without a volume, by class.
const OPEN: &str = "open";
/// Index of volumes without a claim, by class.
const FREE: &str = "free";
/// Index of volumes by the claim that they name.
const RESERVED: &str = "reserved";

/// The objects that matter for a claim.
#[derive(Default)]
pub struct View {
    /// The volume named by the claim.
    pub named: Option<Arc<PersistentVolume>>,
    /// Volumes that name the claim.
    pub reserved: Vec<Arc<PersistentVolume>>,
    /// Volumes of the claim's class that name no claim.
    pub free: Vec<Arc<PersistentVolume>>,
    /// The claim's class.
    pub class: Option<Arc<StorageClass>>,
    /// The default class, for claims without a class.
    pub default_class: Option<Arc<StorageClass>>,
}

/// Returns the actions for one claim.
pub fn claim(claim: &PersistentVolumeClaim, view: &View, now: Timestamp) -> Vec<Action> {
    let spec = claim.spec.clone().unwrap_or_default();
    if spec.volume_name.as_deref().is_some_and(|n| !n.is_empty()) {
        return named(claim, view.named.as_deref(), now);
    }
    if claim.deleting() {
        return Vec::new();
    }
    if let Some(volume) = view
        .reserved
        .iter()
        .find(|v| claimed_by(v).is_some_and(|o| is_for(o, claim)))
    {
        return bind(claim, volume, now);
    }
    let class = view.class.as_deref();
    // With WaitForFirstConsumer only the scheduler chooses volumes: they must be reachable from the
    // pod's node.
    let late = class.is_some_and(waits_for_consumer);
    if let Some(volume) = matching::best(claim, &view.free).filter(|_| !late) {
        return bind(claim, volume, now);
    }
    if let Some(default) = view
        .default_class
        .as_ref()
        .filter(|_| spec.storage_class_name.is_none())
    {
        let mut classed = claim.clone();
        classed.spec.get_or_insert_default().storage_class_name = Some(default.name().to_owned());
        return vec![Action::update(&classed)];
    }
    if late && claim.annotation(SELECTED_NODE).is_none() {
        let text = "waiting for first consumer to be created before binding";
        return vec![Action::event(
            &reference(claim),
            "WaitForFirstConsumer",
            text,
        )];
    }
    wait(claim, class)
}

/// Returns the actions for a claim that names its volume.
fn named(
    claim: &PersistentVolumeClaim,
    volume: Option<&PersistentVolume>,
    now: Timestamp,
) -> Vec<Action> {
    let Some(volume) = volume else {
        let lost = claim.annotation(BOUND).is_some();
        return if lost {
            phase_of_claim(claim, "Lost", None)
        } else {
            Vec::new()
        };
    };
    match claimed_by(volume) {
        Some(owner) if !is_for(owner, claim) => Vec::new(),
        Some(_) => bind(claim, volume, now),
        None if claim.annotation(BOUND).is_some() => bind(claim, volume, now),
        None => match matching::mismatch(claim, volume) {
            None => bind(claim, volume, now),
            Some(problem) => {
                let text = format!(
                    "Cannot bind to requested volume {:?}: {problem}",
                    volume.name()
                );
                vec![Action::warning(&reference(claim), "VolumeMismatch", text)]
            }
        },
    }
}

fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

fn wait(claim: &PersistentVolumeClaim, class: Option<&StorageClass>) -> Vec<Action> {
    let about = reference(claim);
    let Some(class) = class.filter(|c| c.provisioner != NONE) else {
        let named = claim
            .spec
            .as_ref()
            .and_then(|s| s.storage_class_name.clone())
            .filter(|n| !n.is_empty());
        let (reason, text) = match named {
            Some(name) if class.is_none() => (
                "ProvisioningFailed",
                format!("storageclass.storage.k8s.io \"{name}\" not found"),
            ),
            _ => (
                "FailedBinding",
                "no persistent volumes available for this claim and no storage class is set"
                    .to_owned(),
            ),
        };
        let missing = reason == "ProvisioningFailed";
        return vec![if missing {
            Action::warning(&about, reason, text)
        } else {
            Action::event(&about, reason, text)
        }];
    };
    let mut actions = Vec::new();
    if claim.annotation(PROVISIONER) != Some(&class.provisioner) {
        let mut noted = claim.clone();
        noted
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(PROVISIONER.to_owned(), class.provisioner.clone());
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

/// Returns the missing writes of a binding, one object at a time.
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
            taken
                .metadata
                .annotations
                .get_or_insert_default()
                .insert(BY_CONTROLLER.to_owned(), "yes".to_owned());
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

fn phase_of_claim(
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
) -> Vec<Action> {
    let mut fresh = claim.clone();
    let status = fresh.status.get_or_insert_default();
    status.phase = Some(phase.to_owned());
    if let Some(spec) = volume.and_then(|v| v.spec.as_ref()) {
        status.access_modes.clone_from(&spec.access_modes);
        status.capacity.clone_from(&spec.capacity);
    }
    if fresh == *claim {
        Vec::new()
    } else {
        vec![Action::update_status(&fresh)]
    }
}

/// Returns the actions for one volume; `claim` is the one it names, if that exists.
pub fn volume(
    volume: &PersistentVolume,
    claim: Option<&PersistentVolumeClaim>,
    now: Timestamp,
) -> Vec<Action> {
    let Some(owner) = claimed_by(volume) else {
        return phase_of_volume(volume, "Available", now);
    };
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
    volume
        .status
        .as_ref()
        .and_then(|s| s.phase.as_deref())
        .unwrap_or_default()
}

fn claimed_by(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

fn is_for(owner: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    owner.namespace.as_deref() == Some(claim.namespace())
        && owner.name.as_deref() == Some(claim.name())
        && owner
            .uid
            .as_deref()
            .is_none_or(|uid| uid.is_empty() || uid == claim.uid())
}

/// Returns the class that a claim or volume names, or an empty string.
fn class_of(name: Option<&String>) -> String {
    name.cloned().unwrap_or_default()
}

/// Returns the values of a claim in the index `OPEN`: its class if it waits for a volume.
fn open_claim(claim: &PersistentVolumeClaim) -> Vec<String> {
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
fn free_volume(volume: &PersistentVolume) -> Vec<String> {
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
fn reserved_volume(volume: &PersistentVolume) -> Vec<String> {
    claim_key(volume).into_iter().collect()
}

/// Returns the keys of what must be looked at after a change of a volume: the volume, the claim
/// that it names, and the open claims that it could serve.
fn keys_woken_by(
    volume: &PersistentVolume,
    claims: &Cache<PersistentVolumeClaim>,
    classes: &Cache<StorageClass>,
) -> Vec<String> {
    let mut keys = vec![volume.name().to_owned()];
    keys.extend(claim_key(volume));
    for class in free_volume(volume) {
        if !classes.get(&class).is_some_and(|c| waits_for_consumer(&c)) {
            let open = claims.by(OPEN, &class);
            keys.extend(
                open.iter()
                    .filter(|c| matching::fits(c, volume))
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
pub fn volume_binder(setup: &mut Setup) {
    let queue = Queue::new();
    let claims = setup
        .informers
        .of::<PersistentVolumeClaim>()
        .index(OPEN, open_claim)
        .on(wake::itself(&queue))
        .on({
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
    let classes = setup.informers.of::<StorageClass>().on(move |event| {
        // Claims may be older than their class, and those without a class use the default one.
        for class in [event.object().name(), ""] {
            known
                .by(OPEN, class)
                .iter()
                .for_each(|claim| waiting.add(claim.key()));
        }
    });
    let classes = classes.cache();
    let (waiting, known, modes) = (queue.clone(), claims.clone(), classes.clone());
    let volumes = setup
        .informers
        .of::<PersistentVolume>()
        .index(FREE, free_volume);
    let volumes = volumes.index(RESERVED, reserved_volume).on(move |event| {
        keys_woken_by(event.object(), &known, &modes)
            .into_iter()
            .for_each(|key| waiting.add(key));
    });
    let volumes = volumes.cache();
    setup.decide(
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
        let reserved = (RESERVED, Box::new(reserved_volume) as Box<_>);
        Self {
            claims: Cache::indexed(claims, vec![(OPEN, Box::new(open_claim))]),
            volumes: Cache::indexed(volumes, vec![(FREE, Box::new(free_volume)), reserved]),
            classes: Cache::fixed(classes),
        }
    }

    /// Returns the keys of what must be looked at after a change of a volume.
    pub fn keys_woken_by(&self, volume: &PersistentVolume) -> Vec<String> {
        keys_woken_by(volume, &self.claims, &self.classes)
    }

    fn view(&self, claim: &PersistentVolumeClaim) -> View {
        let spec = claim.spec.as_ref();
        if let Some(name) = spec
            .and_then(|s| s.volume_name.as_deref())
            .filter(|name| !name.is_empty())
        {
            return View {
                named: self.volumes.get(name),
                ..View::default()
            };
        }
        let class = class_of(spec.and_then(|s| s.storage_class_name.as_ref()));
        View {
            named: None,
            reserved: self.volumes.by(RESERVED, &claim.key()),
            free: self.volumes.by(FREE, &class),
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
        marked.max_by(|a, b| {
            a.created()
                .cmp(&b.created())
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
            return claim(&found, &self.view(&found), now);
        }
        let Some(found) = self.volumes.get(key) else {
            return Vec::new();
        };
        let owner = claim_key(&found).and_then(|key| self.claims.get(&key));
        volume(&found, owner.as_deref(), now)
    }
}

#[cfg(test)]
mod tests;
