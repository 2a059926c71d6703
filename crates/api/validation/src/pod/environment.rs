//! Environment variables.

use super::volume::Volumes;
use crate::field::{Errors, Path};
use crate::rules;
use api_meta::tree::{get, has, list, text};
use serde_json::Value;

const ENV_FIELDS: [&str; 9] = [
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
const OTHER_FIELDS: [&str; 3] = ["spec.restartPolicy", "spec.schedulerName", "status.phase"];
const VOLUME_FIELDS: [&str; 5] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "metadata.uid",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Validates `env` and `envFrom` of a container.
pub fn validate_env(
    container: &Value,
    volumes: &Volumes<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.child("env");
    for (i, variable) in list(container, "env").iter().enumerate() {
        let at = at.index(i);
        let name = text(variable, "name");
        // Names that a shell could not read (`my.var`, `1A`) are allowed since 1.32 (KEP-4369): the
        // container may not have a shell.
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        } else {
            errors.invalid_each(&at.child("name"), name, validate_variable_name(name));
        }
        if has(variable, "valueFrom") {
            validate_env_source(variable, volumes, &at.child("valueFrom"), errors);
        }
    }
    let at = path.child("envFrom");
    for (i, from) in list(container, "envFrom").iter().enumerate() {
        validate_env_from(from, &at, i, errors);
    }
}

fn validate_variable_name(name: &str) -> Vec<String> {
    if name.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".into()]
}

fn validate_env_source(
    variable: &Value,
    volumes: &Volumes<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let from = get(variable, "valueFrom");
    let mut sources = 0;
    for field in [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ] {
        if !has(from, field) {
            continue;
        }
        // Each source is validated even if there are several, so that all mistakes are reported at
        // once.
        sources += 1;
        let (part, at) = (get(from, field), path.child(field));
        match field {
            "fieldRef" => validate_field_ref(part, &ENV_FIELDS, &at, errors),
            "resourceFieldRef" => validate_resource_field_ref(part, false, &at, errors),
            "fileKeyRef" => validate_file_key_ref(part, volumes, &at, errors),
            _ => validate_key_ref(part, &at, errors),
        }
    }
    if sources == 0 {
        errors.invalid(
            path,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
        );
    // Which of both wins would depend on the order in which a client reads the fields.
    } else if !text(variable, "value").is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(
            path,
            "",
            "may not have more than one field specified at a time",
        );
    }
}

fn validate_file_key_ref(
    reference: &Value,
    volumes: &Volumes<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let volume = text(reference, "volumeName");
    let at = path.child("volumeName");
    errors.invalid_each(&at, volume, api_meta::names::dns1123_label(volume));
    // The file is written by an init container into an emptyDir of this pod (KEP-3721), so the
    // volume must be one of its own.
    if !volumes.has(volume) {
        errors.not_found(&at, volume);
    }
}

fn validate_object_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if !name.is_empty() {
        errors.invalid_each(path, name, api_meta::names::dns1123_subdomain(name));
    }
}

fn validate_key_ref(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    // A name is required here, unlike in references of the pod such as `imagePullSecrets`.
    let name = text(reference, "name");
    let at = path.child("name");
    errors.invalid_each(&at, name, api_meta::names::dns1123_subdomain(name));
    let key = text(reference, "key");
    if key.is_empty() {
        errors.required(&path.child("key"), "");
    } else {
        errors.invalid_each(&path.child("key"), key, rules::config_key_problems(key));
    }
}

fn validate_env_from(from: &Value, list_path: &Path<'_>, index: usize, errors: &mut Errors) {
    let path = list_path.index(index);
    // A key that is no valid name after the prefix is skipped by the kubelet with an event, since
    // keys may change later.
    let prefix = text(from, "prefix");
    if !prefix.is_empty() {
        errors.invalid_each(
            &path.child("prefix"),
            prefix,
            validate_variable_name(prefix),
        );
    }
    let sources: Vec<&str> = ["configMapRef", "secretRef"]
        .into_iter()
        .filter(|f| has(from, f))
        .collect();
    for field in &sources {
        let name = text(get(from, field), "name");
        if name.is_empty() {
            errors.required(&path.child(field).child("name"), "");
        }
        validate_object_name(name, &path.child(field).child("name"), errors);
    }
    match sources.len() {
        // Upstream reports the list here, not the element. Clients match the path.
        0 => errors.invalid(
            list_path,
            "",
            "must specify one of: `configMapRef` or `secretRef`",
        ),
        1 => {}
        _ => errors.invalid(
            list_path,
            "",
            "may not have more than one field specified at a time",
        ),
    }
}

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
