//! Changes of pods.

use super::{gated, spec};
use crate::field::{Errors, Path};
use api_meta::tree::{each_mut, equal, get, has, int, list, make, remove, same, set, text};
use serde_json::Value;

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Validates a changed pod.
pub fn validate_pod_update(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    let (n, o) = (get(new, "spec"), get(old, "spec"));
    spec::validate_pod_spec(n, get(new, "metadata"), &path, errors);
    for field in ["containers", "initContainers"] {
        // The comparisons below pair the containers by position, so nothing else can be said about
        // a list of another length.
        if list(n, field).len() != list(o, field).len() {
            errors.forbidden(
                &path.child(field),
                "pod updates may not add or remove containers",
            );
            return;
        }
    }
    validate_deadline_update(n, o, &path, errors);
    validate_tolerations_update(n, o, &path.child("tolerations"), errors);
    validate_scheduling_gates_update(n, o, &path.child("schedulingGates"), errors);
    let gated = !list(o, "schedulingGates").is_empty();
    // A new field of the API is immutable without a rule of its own: everything must be equal after
    // the mutable fields are put back.
    let munged = copy_mutable_fields(n, o, gated);
    if !equal(&munged, o) {
        errors.forbidden(
            &path,
            format!("{UPDATABLE}\n{}", describe_difference(&munged, o)),
        );
    }
    // The scheduler has not seen the pod yet, so its placement may still change, but only to fewer
    // nodes: an admission controller approved the wider choice (KEP-3838).
    if gated {
        gated::validate_narrower_node_selector(n, o, &path.child("nodeSelector"), errors);
        gated::validate_narrower_node_affinity(n, o, &path.child("affinity"), errors);
    }
}

/// Returns the new spec with all mutable fields reset to their old values.
fn copy_mutable_fields(new: &Value, old: &Value, gated: bool) -> Value {
    let mut munged = new.clone();
    for field in ["containers", "initContainers"] {
        let images: Vec<Value> = list(old, field)
            .iter()
            .map(|c| get(c, "image").clone())
            .collect();
        for (container, image) in each_mut(&mut munged, field).zip(images) {
            set(container, "image", image);
        }
    }
    let mut back = vec!["activeDeadlineSeconds", "tolerations", "schedulingGates"];
    let grace = |v: &Value| int(v, "terminationGracePeriodSeconds").unwrap_or(0);
    // Old releases accepted negative values. Such a pod may be repaired with 1, the value that the
    // kubelet uses for them.
    if grace(old) < 0 && grace(new) == 1 {
        back.push("terminationGracePeriodSeconds");
    }
    if gated {
        back.push("nodeSelector");
        restore_node_affinity(&mut munged, old);
    }
    for field in back {
        if has(old, field) {
            set(&mut munged, field, get(old, field).clone());
        } else {
            remove(&mut munged, field);
        }
    }
    munged
}

/// Resets the node affinity; pod affinities remain.
fn restore_node_affinity(munged: &mut Value, old: &Value) {
    let before = get(get(old, "affinity"), "nodeAffinity").clone();
    if !has(munged, "affinity") && before.is_null() {
        return;
    }
    if let Some(affinity) = make(munged, "affinity") {
        set(affinity, "nodeAffinity", before);
    }
}

/// Returns the names of the fields that differ, in the form of upstream's diff.
fn describe_difference(new: &Value, old: &Value) -> String {
    let mut fields: Vec<&String> = new
        .as_object()
        .into_iter()
        .chain(old.as_object())
        .flat_map(|m| m.keys())
        .collect();
    fields.sort();
    // A field that both objects have occurs twice in the list.
    fields.dedup();
    let changed = fields.into_iter().filter(|f| !same(new, old, f));
    let lines: Vec<String> = changed
        .map(|f| format!("- {f}: {}\n+ {f}: {}", get(old, f), get(new, f)))
        .collect();
    lines.join("\n")
}

fn validate_deadline_update(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("activeDeadlineSeconds");
    match (
        int(new, "activeDeadlineSeconds"),
        int(old, "activeDeadlineSeconds"),
    ) {
        (Some(n), Some(o)) if n > o => {
            errors.invalid(&at, n, "must be less than or equal to previous value")
        }
        // Removing the deadline would extend it without bound, which a change may not do.
        (None, Some(_)) => errors.invalid(
            &at,
            Value::Null,
            "must not update from a positive integer to nil value",
        ),
        _ => {}
    }
}

fn validate_tolerations_update(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Taint eviction has perhaps started its timer for a toleration. A longer or shorter time
    // restarts it; another key or effect would move the pod's ground.
    let bare = |t: &Value| {
        let mut t = t.clone();
        remove(&mut t, "tolerationSeconds");
        t
    };
    let kept: Vec<Value> = list(new, "tolerations").iter().map(bare).collect();
    if list(old, "tolerations")
        .iter()
        .any(|t| !kept.contains(&bare(t)))
    {
        errors.forbidden(
            path,
            "existing toleration can not be modified except its tolerationSeconds",
        );
    }
}

fn validate_scheduling_gates_update(
    new: &Value,
    old: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let before: Vec<&str> = list(old, "schedulingGates")
        .iter()
        .map(|g| text(g, "name"))
        .collect();
    // The scheduler may have taken the pod out of its queue already. A new gate could not bring it
    // back (KEP-3521).
    for (i, gate) in list(new, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !before.contains(&name) {
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&path.index(i).child("name"), detail);
        }
    }
}

/// Validates writes to a pod's subresources.
pub fn validate_subresource(subresource: &str, new: &Value, old: &Value, errors: &mut Errors) {
    match subresource {
        "ephemeralcontainers" => validate_ephemeral_containers_update(new, old, errors),
        "resize" => super::resize::validate_resize(new, old, errors),
        "status" => super::status::validate_status_update(new, old, errors),
        _ => {}
    }
}

fn validate_ephemeral_containers_update(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    spec::validate_pod_spec(get(new, "spec"), get(new, "metadata"), &path, errors);
    let at = path.child("ephemeralContainers");
    let after = list(get(new, "spec"), "ephemeralContainers");
    for before in list(get(old, "spec"), "ephemeralContainers") {
        let name = text(before, "name");
        match after.iter().find(|c| text(c, "name") == name) {
            // The kubelet has perhaps started the container, and nothing restarts or stops an
            // ephemeral container before the pod ends.
            None => errors.forbidden(
                &at,
                format!("existing ephemeral containers {name:?} may not be removed\n"),
            ),
            Some(now) if !equal(now, before) => {
                errors.forbidden(
                    &at,
                    format!("existing ephemeral containers {name:?} may not be changed\n"),
                );
            }
            Some(_) => {}
        }
    }
}
