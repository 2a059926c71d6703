//! Changed claims and their status.

use super::spec::{Options, has_source_group, validate_spec};
use crate::field::{Errors, Path};
use crate::rules::{self, read_quantity};
use crate::selector;
use api_meta::names;
use api_meta::tree::{entries, equal, get, has, opt_text, same, set, text, texts};
use api_semantics::quantities::parse_quantity;
use serde_json::Value;

const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const CLAIM_UPDATE: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n";
const RESIZE_STATUSES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

pub(super) fn validate_claim_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (n, o, path) = (get(new, "spec"), get(old, "spec"), Path::ROOT.child("spec"));
    let options = Options {
        allows_values: selector::has_invalid_values(get(o, "selector")),
        allows_groups: has_source_group(o),
    };
    validate_spec(n, options, &path, errors);
    let upgraded = is_class_moved_from_annotation(new, old);
    // Old clients read the class from here. A change would contradict the volume that is bound
    // already.
    if !upgraded && class_annotation(new) != class_annotation(old) {
        let metadata = Path::ROOT.child("metadata");
        errors.invalid(
            &metadata.child("annotations").child(CLASS),
            class_annotation(new).unwrap_or_default(),
            rules::IMMUTABLE,
        );
    }
    // Quotas and limits were checked when the claim was created.
    if !equal(
        &comparable_spec(new, old, upgraded),
        &with_volume_name(o, n),
    ) {
        errors.forbidden(&path, CLAIM_UPDATE);
    }
    // An update that changes the spec and shrinks it gets both errors, in this order.
    validate_shrinking(new, old, &path, errors);
    // Upstream's path has no `spec`.
    rules::validate_immutable(n, o, "volumeMode", &Path::ROOT, errors);
    validate_attributes_class_removal(new, old, &path, errors);
}

fn class_annotation(object: &Value) -> Option<&str> {
    opt_text(get(get(object, "metadata"), "annotations"), CLASS)
}

/// Returns whether the class moves from the annotation of old releases into its field.
fn is_class_moved_from_annotation(new: &Value, old: &Value) -> bool {
    let class = class_annotation(old);
    let field = |object| opt_text(get(object, "spec"), "storageClassName");
    class.is_some()
        && field(old).is_none()
        && field(new) == class
        && (class_annotation(new).is_none() || class_annotation(new) == class)
}

/// Returns the old spec with the volume that the binder sets once.
fn with_volume_name(old: &Value, new: &Value) -> Value {
    let mut spec = old.clone();
    // Once set, another name would take the volume from its claim, and the data with it.
    if text(old, "volumeName").is_empty() {
        set(&mut spec, "volumeName", get(new, "volumeName").clone());
    }
    spec
}

/// Returns the new spec with the old values of what may change.
fn comparable_spec(new: &Value, old: &Value, upgraded: bool) -> Value {
    let (n, o) = (get(new, "spec"), get(old, "spec"));
    let mut spec = n.clone();
    // A claim without a class gets the default one when there is one (KEP-3333).
    let class = opt_text(n, "storageClassName");
    let is_assigned = class.is_some() && class_annotation(old).is_none_or(|a| Some(a) == class);
    if upgraded || (!has(o, "storageClassName") && is_assigned) {
        set(&mut spec, "storageClassName", Value::Null);
    }
    // Before the claim is bound, a changed size could race with the provisioner, which has read the
    // old one.
    if text(get(new, "status"), "phase") == "Bound" {
        let size = get(get(get(o, "resources"), "requests"), "storage").clone();
        if let Some(requests) = spec.pointer_mut("/resources/requests") {
            set(requests, "storage", size);
        }
        let class = get(o, "volumeAttributesClassName").clone();
        set(&mut spec, "volumeAttributesClassName", class);
    }
    spec
}

/// Volumes do not shrink. A request may go back to above the capacity after an expansion failed
/// (KEP-1790).
fn validate_shrinking(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let size = |object: &Value| {
        let resources = get(get(object, "spec"), "resources");
        read_quantity(get(resources, "requests"), "storage")
    };
    let (Some(after), Some(before)) = (size(new), size(old)) else {
        return;
    };
    // The capacity comes from the old object, which the request can't have changed.
    let capacity = read_quantity(get(get(old, "status"), "capacity"), "storage");
    let fits = match capacity {
        Some(capacity) => after > capacity,
        None => !after.is_zero() && !after.is_negative(),
    };
    if after < before && !fits {
        let at = path.child("resources");
        let at = at.child("requests");
        let detail = "field can not be less than status.capacity";
        errors.forbidden(&at.child("storage"), detail);
    }
}

fn validate_attributes_class_removal(
    new: &Value,
    old: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (n, o) = (get(new, "spec"), get(old, "spec"));
    let is_applied = has(get(old, "status"), "currentVolumeAttributesClassName");
    // The driver can change a volume to another class, but not to none.
    if !is_applied || same(n, o, "volumeAttributesClassName") {
        return;
    }
    let what = match opt_text(n, "volumeAttributesClassName") {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    errors.forbidden(
        &path.child("volumeAttributesClassName"),
        format!(
            "update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        ),
    );
}

pub(super) fn validate_claim_status(object: &Value, errors: &mut Errors) {
    if texts(get(object, "spec"), "accessModes").is_empty() {
        // Upstream spells the path with a capital letter.
        errors.required(&Path::ROOT.child("Spec").child("accessModes"), "");
    }
    let (status, path) = (get(object, "status"), Path::ROOT.child("status"));
    validate_amounts(status, "capacity", &path, errors);
    let at = path.child("allocatedResourceStatuses");
    for (name, value) in entries(status, "allocatedResourceStatuses") {
        validate_resource_key(name, &at, errors);
        if !value.as_str().is_some_and(|v| RESIZE_STATUSES.contains(&v)) {
            errors.not_supported(&at, name.as_str(), &RESIZE_STATUSES);
        }
    }
    let at = path.child("allocatedResources");
    for (name, value) in entries(status, "allocatedResources") {
        // The amount of an invalid name is not checked, as upstream.
        let before = errors.len();
        validate_resource_key(name, &at, errors);
        if errors.len() == before {
            validate_amount(name, value, &at, errors);
        }
    }
}

fn validate_amounts(status: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child(field);
    for (name, value) in entries(status, field) {
        validate_amount(name, value, &at, errors);
    }
}

fn validate_amount(name: &str, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Text that is no quantity was rejected when the object was decoded.
    if let Some(amount) = parse_quantity(value).filter(|amount| amount.is_negative()) {
        let detail = "must be a valid resource quantity";
        errors.invalid(&path.key(name), amount.value(), detail);
    }
}

fn validate_resource_key(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let problems = names::qualified_name(name);
    // Names of other domains pass: a driver may track resources of its own during an expansion.
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    if problems.is_empty() && is_native && name != "storage" {
        errors.not_supported(path, name, &["storage"]);
    }
    errors.invalid_each(path, name, problems);
}
