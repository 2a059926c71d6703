//! References to fields of the pod and to resources of its containers.

use crate::field::{Errors, Path};
use api_meta::tree::{get, text};
use api_semantics::quantities::parse_quantity;
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
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
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

/// Divisors of amounts in bytes.
const BYTES: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";
const HUGE_PAGES: [&str; 2] = ["limits.hugepages-", "requests.hugepages-"];

/// Validates a reference to a field of the pod. `known` are the allowed fields; labels and
/// annotations may also be referenced by key.
pub fn validate_field_ref(reference: &Value, known: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let field = text(reference, "fieldPath");
    let at = path.child("fieldPath");
    let version = text(reference, "apiVersion");
    if version.is_empty() {
        errors.required(&path.child("apiVersion"), "");
        return;
    }
    if field.is_empty() {
        errors.required(&at, "");
        return;
    }
    let invalid = |why: String| format!("error converting fieldPath: {why}");
    if version != "v1" {
        let why = format!("unsupported pod version: {version}");
        errors.invalid(&at, field, invalid(why));
        return;
    }
    // A subscript selects one label or annotation. Other maps of a pod are not offered to its
    // containers.
    if let Some((base, key)) = split_subscript(field) {
        let key = match base {
            // Annotations of old tools have upper-case prefixes, which are accepted in `metadata`,
            // too.
            "metadata.annotations" => key.to_ascii_lowercase(),
            "metadata.labels" => key.to_owned(),
            _ => {
                let why = format!("field label does not support subscript: {field}");
                errors.invalid(&at, field, invalid(why));
                return;
            }
        };
        errors.invalid_each(path, &key, api_meta::names::qualified_name(&key));
        return;
    }
    // The name that clients of the first releases send.
    let field = if field == "spec.host" {
        "spec.nodeName"
    } else {
        field
    };
    let exists = [&ENV_FIELDS[..], &VOLUME_FIELDS, &OTHER_FIELDS]
        .concat()
        .contains(&field);
    if !exists {
        let why = format!("field label not supported: {field}");
        errors.invalid(&at, field, invalid(why));
    } else if !known.contains(&field) {
        // Files are refreshed when the pod changes, variables are not. So volumes offer labels and
        // annotations as a whole, and variables the addresses.
        errors.not_supported(&at, field, known);
    }
}

fn split_subscript(field: &str) -> Option<(&str, &str)> {
    field
        .strip_suffix("']")
        .and_then(|rest| rest.split_once("['"))
        .filter(|(base, _)| !base.is_empty())
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
    let resource = text(reference, "resource");
    // In a variable the container is the one that has the variable. A volume belongs to no
    // container.
    if for_volume && text(reference, "containerName").is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !RESOURCES.contains(&resource)
        && !HUGE_PAGES.iter().any(|prefix| resource.starts_with(prefix))
    {
        errors.not_supported(&path.child("resource"), resource, &RESOURCES);
    }
    validate_divisor(reference, resource, path, errors);
}

/// Checks that the amount is divided by a unit: it is rounded up, which a divisor such as `3` would
/// hide.
fn validate_divisor(reference: &Value, resource: &str, path: &Path<'_>, errors: &mut Errors) {
    let divisor = get(reference, "divisor");
    let shown = divisor
        .as_str()
        .map_or_else(|| divisor.to_string(), str::to_owned);
    if parse_quantity(divisor).is_none_or(|q| q.is_zero()) {
        return;
    }
    let (units, what) = match resource {
        "limits.cpu" | "requests.cpu" => ("1m and 1", "cpu"),
        "limits.memory" | "requests.memory" => (BYTES, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (BYTES, "local ephemeral storage")
        }
        other if HUGE_PAGES.iter().any(|prefix| other.starts_with(prefix)) => (BYTES, "hugepages"),
        _ => return,
    };
    let mut known = units.split(", ").flat_map(|part| part.split(" and "));
    if !known.any(|unit| unit == shown) {
        let detail =
            format!("only divisor's values {units} are supported with the {what} resource");
        errors.invalid(&path.child("divisor"), resource, detail);
    }
}
