//! Writes to the subresources `status` and `approval`.

use crate::claim::drop_deallocated_devices;
use crate::disabled::drop_disabled_status;
use crate::fields::keep_field;
use crate::rules::{StatusRule, status_rule};
use api_meta::Kind;
use api_meta::tree::{
    at_mut, each_mut, fill, fill_int, get, has, int, list, make, remove, set, text,
};
use serde_json::Value;

/// Prepares a write to `status`: everything else is taken from the old object.
pub(crate) fn prepare_status_update(kind: Kind<'_>, new: &mut Value, old: &Value) {
    let written = remove(new, "status");
    let metadata = remove(new, "metadata");
    let takes_metadata = metadata.is_some() && status_rule(kind) != StatusRule::Alone;
    // The old object with the new status, and not the reverse: a field that a release adds to the
    // spec is protected without a rule.
    let mut result = take_old_members(new, old, |name| {
        name != "status" && !(takes_metadata && name == "metadata")
    });
    if let Some(status) = written {
        set(&mut result, "status", status);
    }
    match metadata {
        Some(metadata) if takes_metadata => set(&mut result, "metadata", metadata),
        // As upstream, also where the metadata stays: they record the owners of this write.
        Some(metadata) if has(&metadata, "managedFields") => {
            if let Some(kept) = make(&mut result, "metadata") {
                keep_field(kept, &metadata, "managedFields");
            }
        }
        _ => {}
    }
    match (kind.group, kind.kind) {
        ("", "PersistentVolume") => set_phase_transition_time(&mut result, old),
        // As upstream: a status write never changes the labels of a Deployment.
        ("apps", "Deployment") => keep_metadata(&mut result, old, "labels"),
        ("", "Pod") => {
            // Old kubelets send incomplete owner references, which would break garbage collection.
            keep_metadata(&mut result, old, "ownerReferences");
            let class = get(get(old, "status"), "qosClass").clone();
            if let Some(status) = make(&mut result, "status") {
                if !class.is_null() {
                    fill(status, "qosClass", class);
                }
                keep_observed_generations(status, get(old, "status"));
            }
            drop_disabled_status(&mut result, old);
        }
        ("resource.k8s.io", "ResourceClaim") => drop_deallocated_devices(&mut result, old),
        // Gate `DRAWorkloadResourceClaims`.
        ("scheduling.k8s.io", "PodGroup")
            if list(get(old, "spec"), "resourceClaims").is_empty() =>
        {
            if let Some(status) = at_mut(&mut result, "status") {
                remove(status, "resourceClaimStatuses");
            }
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            keep_decisions(&mut result, old);
            set_condition_times(&mut result, old);
        }
        _ => {}
    }
    *new = result;
}

/// Returns an object with these members of the old one. Those that are equal in the new object, as
/// most are, are moved from there instead of being copied.
fn take_old_members(new: &mut Value, old: &Value, is_kept: impl Fn(&str) -> bool) -> Value {
    let members = old.as_object().into_iter().flatten();
    let kept = members.filter(|(name, _)| is_kept(name));
    let taken = kept.map(|(name, value)| {
        let sent = remove(new, name).filter(|sent| sent == value);
        (name.clone(), sent.unwrap_or_else(|| value.clone()))
    });
    Value::Object(taken.collect())
}

/// Keeps the observed generations of a pod's status and conditions, if the writer does not know the
/// field. There may be several conditions of one type, which are paired in their order.
fn keep_observed_generations(status: &mut Value, old: &Value) {
    const FIELD: &str = "observedGeneration";
    let before = int(old, FIELD).unwrap_or(0);
    if before != 0 {
        fill_int(status, FIELD, before);
    }
    let mut known: Vec<(&str, i64)> = list(old, "conditions")
        .iter()
        .map(|c| (text(c, "type"), int(c, FIELD).unwrap_or(0)))
        .collect();
    for condition in each_mut(status, "conditions") {
        let Some(i) = known
            .iter()
            .position(|(kind, _)| *kind == text(condition, "type"))
        else {
            continue;
        };
        let (_, before) = known.remove(i);
        if before != 0 {
            fill_int(condition, FIELD, before);
        }
    }
}

/// Resets a field of the metadata for status writes of some kinds, because old clients send it
/// incompletely.
fn keep_metadata(new: &mut Value, old: &Value, field: &str) {
    if let Some(metadata) = make(new, "metadata") {
        keep_field(metadata, get(old, "metadata"), field);
    }
}

/// Sets the time of a volume's last phase change, unless the writer has set it.
fn set_phase_transition_time(new: &mut Value, old: &Value) {
    let (after, before) = (get(new, "status"), get(old, "status"));
    let is_changed = text(after, "phase") != text(before, "phase");
    let given = text(after, "lastPhaseTransitionTime");
    // The controller's cache holds the time of the former phase; sending it back must not keep it.
    if is_changed && (given.is_empty() || given == text(before, "lastPhaseTransitionTime")) {
        let now = api_meta::time::now();
        if let Some(status) = make(new, "status") {
            set(status, "lastPhaseTransitionTime", now);
        }
    }
}

fn is_decision(condition: &Value) -> bool {
    matches!(text(condition, "type"), "Approved" | "Denied")
}

/// Resets Approved and Denied, which are only written by `approval`.
// `approve` is a permission of its own, beyond `update` of the status.
fn keep_decisions(new: &mut Value, old: &Value) {
    let before = list(get(old, "status"), "conditions")
        .iter()
        .filter(|c| is_decision(c))
        .cloned();
    let after = list(get(new, "status"), "conditions")
        .iter()
        .filter(|c| !is_decision(c))
        .cloned();
    let all: Vec<Value> = before.chain(after).collect();
    if let Some(status) = make(new, "status")
        && (!all.is_empty() || has(status, "conditions"))
    {
        set(status, "conditions", all);
    }
}

/// Prepares a write to `approval` of a CertificateSigningRequest: only conditions and metadata
/// change.
pub(crate) fn prepare_approval(new: &mut Value, old: &Value) {
    let conditions = get(get(new, "status"), "conditions").clone();
    let metadata = new.get("metadata").cloned();
    let mut result = old.clone();
    if let Some(metadata) = metadata {
        set(&mut result, "metadata", metadata);
    }
    if let Some(status) = make(&mut result, "status") {
        match conditions.is_null() {
            true => drop(remove(status, "conditions")),
            false => set(status, "conditions", conditions),
        }
    }
    set_condition_times(&mut result, old);
    *new = result;
}

/// Sets the times of conditions that the writer omitted.
fn set_condition_times(new: &mut Value, old: &Value) {
    let before = list(get(old, "status"), "conditions").to_vec();
    let now = api_meta::time::now();
    let Some(status) = make(new, "status") else {
        return;
    };
    for condition in each_mut(status, "conditions") {
        let same = before
            .iter()
            .find(|c| {
                text(c, "type") == text(condition, "type")
                    && text(c, "status") == text(condition, "status")
            })
            .map(|c| text(c, "lastTransitionTime").to_owned());
        fill(condition, "lastUpdateTime", now.as_str());
        fill(
            condition,
            "lastTransitionTime",
            same.filter(|t| !t.is_empty())
                .unwrap_or_else(|| now.clone()),
        );
    }
}
