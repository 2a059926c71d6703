//! References to fields of the pod and to resources of its containers.

use crate::field::{Errors, Path};
use api_meta::tree::{get, text};
use serde_json::Value;

pub(crate) const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields that v1 knows, but that no reference may use.
pub(crate) const OTHER_FIELDS: [&str; 3] =
    ["spec.restartPolicy", "spec.schedulerName", "status.phase"];

pub(crate) const VOLUME_FIELDS: [&str; 5] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "metadata.uid",
];

pub(crate) const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Validates a reference to a field of the pod. `known` are the allowed fields; labels and
/// annotations may also be referenced by key.
pub fn validate_field_ref(reference: &Value, known: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let field = text(reference, "fieldPath");
    let at = path.child("fieldPath");
    if text(reference, "apiVersion").is_empty() {
        errors.required(&path.child("apiVersion"), "");
        return;
    }
    if field.is_empty() {
        errors.required(&at, "");
        return;
    }
    // A subscript selects one label or annotation. Other maps of a pod are not offered to its
    // containers.
    if let Some((base, key)) = field.strip_suffix("']").and_then(|f| f.split_once("['")) {
        let problems = match base {
            "metadata.labels" => api_meta::names::qualified_name(key),
            // Annotations of old tools have upper-case prefixes, which are accepted in `metadata`,
            // too.
            "metadata.annotations" => api_meta::names::qualified_name(&key.to_ascii_lowercase()),
            _ => {
                errors.invalid(&at, field, "does not support subscript");
                return;
            }
        };
        errors.invalid_each(&at, field, problems);
        return;
    }
    if [&ENV_FIELDS[..], &VOLUME_FIELDS, &OTHER_FIELDS]
        .concat()
        .contains(&field)
    {
        // Files are refreshed when the pod changes, variables are not. So volumes offer labels and
        // annotations as a whole, and variables the addresses.
        if !known.contains(&field) {
            errors.not_supported(&at, field, known);
        }
        return;
    }
    errors.invalid(
        &at,
        field,
        "error converting fieldPath: field label not supported: ".to_owned() + field,
    );
}

/// Validates a reference to a field of the pod in a volume.
pub fn validate_volume_field_ref(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_field_ref(reference, &VOLUME_FIELDS, path, errors);
}

/// Validates a reference to a container's resource.
pub fn validate_resource_field_ref(
    reference: &Value,
    for_volume: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // In a variable the container is the one that has the variable. A volume belongs to no
    // container.
    if for_volume && text(reference, "containerName").is_empty() {
        errors.required(&path.child("containerName"), "");
        return;
    }
    let resource = text(reference, "resource");
    if resource.is_empty() {
        errors.required(&path.child("resource"), "");
        return;
    }
    let huge = ["limits.hugepages-", "requests.hugepages-"]
        .iter()
        .any(|p| resource.starts_with(p));
    if !RESOURCES.contains(&resource) && !huge {
        errors.not_supported(&path.child("resource"), resource, &RESOURCES);
    }
    let divisor = get(reference, "divisor");
    let text = match divisor {
        Value::String(s) => s.as_str(),
        _ => "0",
    };
    // The amount is divided and rounded up to a whole number. A divisor such as `3` would hide that
    // rounding.
    let known: &[&str] = if resource.ends_with(".cpu") {
        &["0", "1", "1m"]
    } else {
        &[
            "0", "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
        ]
    };
    if !known.contains(&text) {
        errors.invalid(
            &path.child("divisor"),
            text,
            "only divisor's values of ".to_owned() + &known.join(", ") + " are supported",
        );
    }
}
