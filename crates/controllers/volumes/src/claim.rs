//! Decisions about one claim or one volume: a claim is bound to the smallest volume that fits.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use controllers_runtime::{Action, Meta, object_reference, time};

use crate::matching;

const BOUND: &str = "pv.kubernetes.io/bind-completed";
const BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const NONE: &str = "kubernetes.io/no-provisioner";

/// The objects that matter for a claim.
#[derive(Default)]
pub struct ClaimView {
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
pub fn reconcile_claim(
    claim: &PersistentVolumeClaim,
    view: &ClaimView,
    now: Timestamp,
) -> Vec<Action> {
    let spec = claim.spec.clone().unwrap_or_default();
    if spec.volume_name.as_deref().is_some_and(|n| !n.is_empty()) {
        return bind_named_volume(claim, view.named.as_deref(), now);
    }
    if claim.is_deleting() {
        return Vec::new();
    }
    // A volume that names the claim was reserved for it, by an administrator or by an interrupted
    // binding.
    if let Some(volume) = view
        .reserved
        .iter()
        .find(|v| claimed_by(v).is_some_and(|o| is_claim_of(o, claim)))
    {
        return write_binding(claim, volume, now);
    }
    let class = view.class.as_deref();
    // With WaitForFirstConsumer only the scheduler chooses volumes: they must be reachable from the
    // pod's node.
    let late = class.is_some_and(waits_for_consumer);
    if let Some(volume) = matching::find_best_volume(claim, &view.free).filter(|_| !late) {
        return write_binding(claim, volume, now);
    }
    // Retroactive default class: only after no volume without a class was found, because that binds
    // first upstream as well.
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
            &object_reference(claim),
            "WaitForFirstConsumer",
            text,
        )];
    }
    report_unbound(claim, class)
}

/// Returns the actions for a claim that names its volume.
fn bind_named_volume(
    claim: &PersistentVolumeClaim,
    volume: Option<&PersistentVolume>,
    now: Timestamp,
) -> Vec<Action> {
    let Some(volume) = volume else {
        // Only a claim that was bound once can lose its data; before, its volume may simply not
        // exist yet.
        let lost = claim.annotation(BOUND).is_some();
        return if lost {
            update_claim_phase(claim, "Lost", None)
        } else {
            Vec::new()
        };
    };
    match claimed_by(volume) {
        // The volume belongs to another claim. This one stays pending, in case the volume becomes
        // free.
        Some(owner) if !is_claim_of(owner, claim) => Vec::new(),
        Some(_) => write_binding(claim, volume, now),
        None if claim.annotation(BOUND).is_some() => write_binding(claim, volume, now),
        None => match matching::find_mismatch(claim, volume) {
            None => write_binding(claim, volume, now),
            Some(problem) => {
                let text = format!(
                    "Cannot bind to requested volume {:?}: {problem}",
                    volume.name()
                );
                vec![Action::warning(
                    &object_reference(claim),
                    "VolumeMismatch",
                    text,
                )]
            }
        },
    }
}

/// Returns whether claims of the class are bound only when a pod that uses them is scheduled.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

fn report_unbound(claim: &PersistentVolumeClaim, class: Option<&StorageClass>) -> Vec<Action> {
    let about = object_reference(claim);
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
    // External provisioners watch for this annotation: a claim without it gets no volume.
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
fn write_binding(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    now: Timestamp,
) -> Vec<Action> {
    let known = claimed_by(volume).and_then(|r| r.uid.as_deref()) == Some(claim.uid());
    // The volume first: with both names in place, an interrupted binding is completed instead of
    // started with another volume.
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
        // The annotation records that the controller chose the volume, so it may also undo the
        // choice.
        if !prebound {
            taken
                .metadata
                .annotations
                .get_or_insert_default()
                .insert(BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
        return vec![Action::update(&taken)];
    }
    if volume_phase(volume) != "Bound" {
        return update_volume_phase(volume, "Bound", now);
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
    update_claim_phase(claim, "Bound", Some(volume))
}

fn update_claim_phase(
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
pub fn reconcile_volume(
    volume: &PersistentVolume,
    claim: Option<&PersistentVolumeClaim>,
    now: Timestamp,
) -> Vec<Action> {
    let Some(owner) = claimed_by(volume) else {
        return update_volume_phase(volume, "Available", now);
    };
    match (&owner.uid, claim) {
        // A reference without UID was written by an administrator: it reserves the volume and binds
        // nothing yet.
        (None, _) => update_volume_phase(volume, "Available", now),
        // Another UID means that the claim was deleted and created again: the data belongs to the
        // old one.
        (Some(uid), Some(claim)) if claim.uid() == uid => Vec::new(),
        _ => update_volume_phase(volume, "Released", now),
    }
}

fn update_volume_phase(volume: &PersistentVolume, desired: &str, now: Timestamp) -> Vec<Action> {
    if volume_phase(volume) == desired {
        return Vec::new();
    }
    let mut fresh = volume.clone();
    let status = fresh.status.get_or_insert_default();
    status.phase = Some(desired.to_owned());
    status.last_phase_transition_time = Some(time::api_time(now));
    vec![Action::update_status(&fresh)]
}

fn volume_phase(volume: &PersistentVolume) -> &str {
    volume
        .status
        .as_ref()
        .and_then(|s| s.phase.as_deref())
        .unwrap_or_default()
}

/// Returns the claim that a volume names.
pub fn claimed_by(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

fn is_claim_of(owner: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    owner.namespace.as_deref() == Some(claim.namespace())
        && owner.name.as_deref() == Some(claim.name())
        && owner
            .uid
            .as_deref()
            .is_none_or(|uid| uid.is_empty() || uid == claim.uid())
}

#[cfg(test)]
mod tests;
