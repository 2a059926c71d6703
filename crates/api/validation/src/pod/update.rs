//! Changes of pods.

use super::options::PodOptions;
use super::{annotations, container, gated, object, ratchet, scheduling};
use crate::field::{Errors, Path};
use api_meta::tree::{each_mut, equal, get, has, int, list, make, remove, same, set, text};
use serde_json::Value;
use std::collections::HashSet;

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

fn read_options(old: &Value) -> PodOptions {
    PodOptions {
        is_pod: true,
        ..ratchet::read_update_options(get(old, "metadata"), get(old, "spec"))
    }
}

/// Validates what all changes of a pod's spec share.
fn validate_changed_object(new: &Value, old: &Value, options: &PodOptions, errors: &mut Errors) {
    // The whole pod is validated again, with exemptions for what the old one had. Upstream reports
    // these errors before those of the change.
    object::validate_pod_object(new, options, errors);
    let path = Path::ROOT.child("metadata");
    let (after, before) = (get(new, "metadata"), get(old, "metadata"));
    annotations::validate_annotation_updates(after, before, &path, errors);
    // A second time, as upstream: clients see each of these errors twice.
    annotations::validate_pod_annotations(after, get(new, "spec"), options, &path, errors);
}

/// Validates a changed pod.
pub fn validate_pod_update(new: &Value, old: &Value, errors: &mut Errors) {
    let options = read_options(old);
    validate_changed_object(new, old, &options, errors);
    let path = Path::ROOT.child("spec");
    let (n, o) = (get(new, "spec"), get(old, "spec"));
    for field in ["containers", "initContainers"] {
        // The comparisons below pair the containers by position, so nothing else can be said about
        // a list of another length.
        if list(n, field).len() != list(o, field).len() {
            let detail = "pod updates may not add or remove containers";
            errors.forbidden(&path.child(field), detail);
            return;
        }
        validate_changed_images(n, field, &path.child(field), errors);
    }
    // Upstream returns here, so a client with two mistakes sees this one alone.
    if !validate_deadline_update(n, o, &path, errors) {
        return;
    }
    validate_tolerations_update(n, o, &options, &path, errors);
    validate_scheduling_gates_update(n, o, &path.child("schedulingGates"), errors);
    // The scheduler has not seen the pod yet, so its placement may still change, but only to fewer
    // nodes: an admission controller approved the wider choice (KEP-3838).
    let gated = !list(o, "schedulingGates").is_empty();
    if gated {
        gated::validate_narrower_node_selector(n, o, &path.child("nodeSelector"), errors);
        gated::validate_narrower_node_affinity(n, o, &path.child("affinity"), errors);
    }
    // A new field of the API is immutable without a rule of its own: everything must be equal after
    // the mutable fields are put back.
    let munged = copy_mutable_fields(n, o, gated);
    // The kubelet reads most of a spec once, when it starts the pod. A change would be stored, but
    // never happen.
    if !equal(&munged, o) {
        let difference = describe_difference(&munged, o);
        errors.forbidden(&path, format!("{UPDATABLE}\n{difference}"));
    }
}

/// Validates images a second time, as upstream: clients see each of these errors twice.
fn validate_changed_images(spec: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    for (i, container) in list(spec, field).iter().enumerate() {
        if text(container, "image").is_empty() {
            errors.required(&path.index(i).child("image"), "");
        }
    }
    container::validate_images(spec, &[field], &Path::ROOT.child("spec"), errors);
}

/// Returns the new spec with all mutable fields reset to their old values.
fn copy_mutable_fields(new: &Value, old: &Value, gated: bool) -> Value {
    let mut munged = new.clone();
    // Images may change: the kubelet restarts only the container, and the pod keeps its node and
    // address.
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
    // Absent and null differ in the comparison below, so a field that the old spec lacks is
    // removed.
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
    // Pod affinities of a gated pod are immutable: upstream lifts the rule for node affinity only.
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

/// Validates a changed deadline. Returns whether other changes are to be validated, too.
fn validate_deadline_update(
    new: &Value,
    old: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) -> bool {
    let field = "activeDeadlineSeconds";
    let at = path.child(field);
    match (int(new, field), int(old, field)) {
        (Some(n), _) if !(0..=i64::from(i32::MAX)).contains(&n) => {
            errors.invalid(&at, n, "must be between 0 and 2147483647, inclusive");
            false
        }
        // The kubelet may have ended the pod by the old deadline already, so it can only become
        // shorter.
        (Some(n), Some(o)) if n > o => {
            errors.invalid(&at, n, "must be less than or equal to previous value");
            false
        }
        // Removing the deadline would extend it without bound, which a change may not do.
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.invalid(&at, Value::Null, detail);
            true
        }
        _ => true,
    }
}

fn validate_tolerations_update(
    new: &Value,
    old: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // Taint eviction has perhaps started its timer for a toleration. A longer or shorter time
    // restarts it; another key or effect would move the pod's ground.
    let bare = |t: &Value| {
        let mut t = t.clone();
        remove(&mut t, "tolerationSeconds");
        t
    };
    // Additions are allowed: the node lifecycle controller and admission plugins add tolerations to
    // running pods.
    let kept: Vec<Value> = list(new, "tolerations").iter().map(bare).collect();
    // Most are found by their hash: with two loops, a pod with many thousands of tolerations would
    // take minutes.
    let known: HashSet<&Value> = kept.iter().collect();
    let is_kept = |t: &Value| known.contains(t) || kept.iter().any(|k| equal(k, t));
    let mut before = list(old, "tolerations").iter().map(bare);
    if before.any(|t| !is_kept(&t)) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden(&path.child("tolerations"), detail);
        return;
    }
    // A second time, as upstream does: clients see each of these errors twice.
    scheduling::validate_pod_tolerations(new, options, path, errors);
}

fn validate_scheduling_gates_update(
    new: &Value,
    old: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let before: HashSet<&str> = list(old, "schedulingGates")
        .iter()
        .map(|g| text(g, "name"))
        .collect();
    // The scheduler may have taken the pod out of its queue already. A new gate could not bring it
    // back (KEP-3521).
    for (i, gate) in list(new, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !before.contains(name) {
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
        "resize" => super::resize::validate_resize(new, old, &read_options(old), errors),
        "status" => super::status::validate_status_update(new, old, &read_options(old), errors),
        _ => {}
    }
}

fn validate_ephemeral_containers_update(new: &Value, old: &Value, errors: &mut Errors) {
    let before = get(get(old, "metadata"), "annotations");
    if before.get(super::claims::MIRROR).is_some() {
        // The kubelet runs the pod of the file, which the API server cannot change.
        errors.0.clear();
        let detail = "static pods do not support ephemeral containers";
        errors.forbidden(&Path::ROOT.child(""), detail);
        return;
    }
    validate_changed_object(new, old, &read_options(old), errors);
    let path = Path::ROOT.child("spec");
    let at = path.child("ephemeralContainers");
    let after = list(get(new, "spec"), "ephemeralContainers");
    // The list only grows, so a debugging session can't be hidden by its removal.
    for before in list(get(old, "spec"), "ephemeralContainers") {
        let name = text(before, "name");
        // The kubelet has perhaps started the container, and nothing restarts or stops an ephemeral
        // container before the pod ends.
        let change = match after.iter().rfind(|c| text(c, "name") == name) {
            None => "removed",
            Some(now) if !equal(now, before) => "changed",
            Some(_) => continue,
        };
        let quoted = crate::field::go_quote(name);
        let detail = format!("existing ephemeral containers {quoted} may not be {change}\n");
        errors.forbidden(&at, detail);
    }
}
